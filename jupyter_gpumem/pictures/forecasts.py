"""Blocks of a forecast: the peak by its parts, where it is made, and what other batches would need.

To be imported wherever blocks are made: importing it registers them.
"""
from __future__ import annotations

from jupyter_gpumem.model import BatchPeak, DevicePeak, Forecast
from jupyter_gpumem.pictures.blocks import Bar, Block, Heading, Line, Segment, Table, blocks
from jupyter_gpumem.units import shown, signed

_FITS = {True: "fits", False: "does not fit", None: "not known"}
_COLOURS = {
    "parameters": "allocated",
    "gradients": "cached",
    "optimizer": "libraries",
    "buffers": "allocated",
    "inputs": "running",
    "activations": "graphs",
    "temporaries": "fragments",
    "rounding": "rounding",
    "unrelated": "unattributed",
}


@blocks.register
def _forecast(forecast: Forecast) -> list[Block]:
    if not forecast.devices:
        return [Heading(f"Forecast of {forecast.call}", "no memory"), *map(Line, forecast.notes)]
    found = [block for peak in forecast.devices for block in _device(forecast.call, peak)]
    if forecast.batches:
        found += [Heading("Batch", _largest(forecast)), _batches(forecast)]
        found += [Line(f"batch {row.batch}: {row.problem}") for row in forecast.batches if row.problem]
    found.append(Heading("What a forecast cannot know"))
    return [*found, *(Line(note) for note in forecast.notes)]


def _device(call: str, peak: DevicePeak) -> list[Block]:
    title = f"Forecast of {call} on {peak.device}"
    found: list[Block] = [Heading(title, f"peak {shown(peak.peak)}, {_FITS[peak.fits]}")]
    drawn = [entry for entry in peak.parts if entry.nbytes and entry.nbytes > 0]
    segments = tuple([Segment(_COLOURS[entry.kind], entry.kind, entry.nbytes) for entry in drawn])
    if segments:
        found.append(Bar(title, sum(entry.nbytes or 0 for entry in drawn), segments))
    words = f"allocated now {shown(peak.baseline)}, at the peak {signed(peak.peak - peak.baseline)}"
    found.append(Line(f"{words}, afterwards {signed(peak.after - peak.baseline)}"))
    if peak.limit is not None:
        most = f"; it will have {shown(peak.reserved)}" if peak.reserved is not None else ""
        word = f"this process can have {shown(peak.limit)} now{most}"
        found.append(Line(word, warn=peak.fits is False))
    if peak.operation is not None:
        where = f", {peak.operation.site}" if peak.operation.site else ""
        found.append(Line(f"the peak is made by {peak.operation.name}: {peak.operation.made}{where}"))
    return found


def _largest(forecast: Forecast) -> str:
    if forecast.largest is None:
        return ""
    if not forecast.largest:
        return "none fits"
    return f"the largest that fits is {forecast.largest}" if forecast.exact else f"at least {forecast.largest} fits"


def _batches(forecast: Forecast) -> Table:
    devices = [peak.device for peak in forecast.devices]
    columns = ("batch", *(f"peak on {device}" if len(devices) > 1 else "peak" for device in devices), "fits?")
    rows = tuple(_row(row, devices, row.batch == forecast.batch) for row in forecast.batches)
    return Table(columns, rows, frozenset(range(1, len(devices) + 1)))


def _row(row: BatchPeak, devices: list[str], current: bool) -> tuple[str, ...]:
    peaks = dict(row.peaks)
    answer = "cannot be made" if row.problem else _FITS[row.fits]
    sizes = [shown(peaks[device]) if device in peaks else "N/A" for device in devices]
    return (f"{row.batch} (now)" if current else str(row.batch), *sizes, answer)
