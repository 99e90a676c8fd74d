"""A sample of a live display: what it says in words and bars, and the line of what came before it.

To be imported wherever a sample is shown: importing it registers its blocks.
"""
from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jupyter_gpumem.model import Allocator, CellRun, Device, Sample, Shares
from jupyter_gpumem.pictures.blocks import Bar, Block, Heading, Line, Segment, blocks
from jupyter_gpumem.pictures.html import fragment
from jupyter_gpumem.pictures.tiles import COLOURS, GREY
from jupyter_gpumem.units import shown

SECONDS = 300
"""How much of the past the line has."""
_POINTS, _LEAST = 75, 30
"""Points of the line, and the seconds that it has at least: a short past is drawn over its whole width."""
_WIDE, _HIGH = 600, 32


class Moment(NamedTuple):
    """What the line keeps of one sample."""

    time: float
    used: int | None
    """The whole device, bytes; None: not told."""
    allocated: int
    """By the frameworks in this process."""


def moments(sample: Sample) -> dict[str, Moment]:
    """The sample's point on the line of each device."""
    found = {_key(d): Moment(sample.time, d.used, _allocated(sample, d.alias)) for d in sample.devices}
    for name in _strangers(sample):
        found[name] = Moment(sample.time, None, _allocated(sample, name))
    return found


def picture(sample: Sample, past: Mapping[str, Sequence[Moment]]) -> str:
    """A sample with the line of each device, as HTML for a page that has ``html.STYLE``."""
    parts = []
    for key, head, foot in _parts(sample):
        line = _line(past.get(key, ()), sample.time)
        parts.append(fragment(head) + (f'<div class="gpumem">{line}</div>' if line else "") + fragment(foot))
    return "".join(parts) + fragment(_end(sample))


@blocks.register
def _sample(sample: Sample) -> list[Block]:
    return [*(block for _, head, foot in _parts(sample) for block in (*head, *foot)), *_end(sample)]


def _parts(sample: Sample) -> list[tuple[str, list[Block], list[Block]]]:
    """For each device its key, what stands above its line, and what below. The host comes last."""
    pairs = sorted(zip(sample.devices, sample.shares, strict=True), key=lambda pair: pair[0].kind == "host")
    parts = []
    for device, shares in pairs:
        name = f"MIG instance {device.index}  {device.name}" if device.kind == "mig" else device.name
        title = f"{device.alias}  {name}" if device.alias else name
        head: list[Block] = [Heading(title, f"{shown(device.used)} of {shown(device.total)} used")]
        if device.total and device.used is not None:
            head.append(Bar(device.alias or device.name, device.total, _segments(shares)))
        parts.append((_key(device), head, _figures(sample, device)))
    for name in _strangers(sample):
        mine = [_allocator(a) for a in sample.allocators if a.device == name]
        parts.append((name, [Heading(name, "memory of the device N/A")], [*mine]))
    return parts


def _segments(shares: Shares) -> tuple[Segment, ...]:
    """The sidebar's words."""
    parts = (
        Segment("allocated", "this notebook", shares.own),
        Segment("context", "other notebooks", shares.notebooks),
        Segment("others", "other processes", shares.others),
        Segment("unattributed", "unattributed", shares.unattributed),
        Segment("free", "free", shares.free),
    )
    return tuple(part for part in parts if part.nbytes)


def _figures(sample: Sample, device: Device) -> list[Block]:
    found: list[Block] = [_allocator(a) for a in sample.allocators if device.alias and a.device == device.alias]
    # temperature and power would change at every look, and with them the message
    busy = [Line(f"utilisation {device.utilization}%")] if device.utilization is not None else []
    return [*found, *busy, *(Line(note) for note in device.notes)]


def _allocator(a: Allocator) -> Line:
    return Line(f"{a.framework}: allocated {shown(a.allocated)}, reserved {shown(a.reserved)}, peak {shown(a.peak)}")


def _end(sample: Sample) -> list[Block]:
    problem = [Line(sample.problem)] if sample.problem else []
    return [*problem, Line(_running(sample.running, sample.time))]


def _running(run: CellRun | None, now: float) -> str:
    if run is None:
        return "no cell is running"
    seconds = max(0, int(now - run.begun))
    name = f"cell [{run.count}]" if run.count is not None else "a cell"
    return f"{name} has been running for {_span(seconds)}"


def _span(seconds: int) -> str:
    """``12 s``, ``3 min 5 s``, ``2 h 10 min``."""
    minutes, hours = seconds // 60, seconds // 3600
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min {seconds % 60} s" if minutes else f"{seconds} s"


def _key(device: Device) -> str:
    return device.uuid


def _strangers(sample: Sample) -> list[str]:
    """Devices that only a framework knows."""
    known = {device.alias for device in sample.devices}
    return [name for name in dict.fromkeys(a.device for a in sample.allocators) if name not in known]


def _allocated(sample: Sample, device: str | None) -> int:
    return sum(a.allocated for a in sample.allocators if a.device == device)


# ---------------------------------------------------------------- the line
def _line(past: Sequence[Moment], now: float) -> str:
    """The last minutes: the device as a grey area, this process's tensors as a line; said in words too."""
    recent = [moment for moment in past if moment.time > now - SECONDS]
    most = max((max(moment.used or 0, moment.allocated) for moment in recent), default=0)
    if len(recent) < 2 or not most:
        return ""
    points = _thinned(recent, now)
    used = [(x, moment.used) for x, moment in points if moment.used is not None]
    mine = [(x, moment.allocated) for x, moment in points]
    area = [f'<polygon points="{_points([(used[0][0], 0), *used, (used[-1][0], 0)], most)}" fill="{GREY}" '
            'fill-opacity=".35"/>'] if len(used) > 1 else []
    if any(nbytes for _, nbytes in mine):
        area.append(f'<polyline points="{_points(mine, most)}" fill="none" stroke="{COLOURS["names"][0]}" '
                    'stroke-width="1.5" vector-effect="non-scaling-stroke"/>')
    words = _words(recent, now)
    return (
        f'<svg role="img" aria-label="{words}" viewBox="0 0 {_WIDE} {_HIGH}" preserveAspectRatio="none" '
        f'style="display:block;width:100%;height:{_HIGH}px;border-bottom:1px solid {GREY}">{"".join(area)}</svg>'
        f'<p aria-hidden="true">{words}</p>'
    )


def _words(recent: Sequence[Moment], now: float) -> str:
    """``used 1.0 GiB to 1.2 GiB``: of the device, or where that is not told of this process."""
    used = [moment.used for moment in recent if moment.used is not None]
    sizes, what = (used, "used") if used else ([moment.allocated for moment in recent], "allocated")
    low, high = shown(min(sizes)), shown(max(sizes))
    span = low if low == high else f"{low} to {high}"
    seconds = round(now - recent[0].time)
    ago = f"{round(seconds / 60)} min" if seconds >= 120 else f"{seconds} s"
    return f"{what} {span} in the {ago} up to {time.strftime('%H:%M:%S', time.localtime(now))}"


def _thinned(recent: Sequence[Moment], now: float) -> list[tuple[int, Moment]]:
    """For each step of the line the moment with the most, and where it stands."""
    found: dict[int, Moment] = {}
    seconds = max(_LEAST, now - recent[0].time)
    for moment in recent:
        step = min(_POINTS, int(_POINTS * (moment.time - now + seconds) / seconds))
        best = found.get(step)
        if best is None or (moment.used or 0, moment.allocated) >= (best.used or 0, best.allocated):
            found[step] = moment
    return [(step * _WIDE // _POINTS, moment) for step, moment in found.items()]


def _points(sizes: Sequence[tuple[int, int]], most: int) -> str:
    return " ".join(f"{x},{_HIGH - 1 - round((_HIGH - 2) * nbytes / most)}" for x, nbytes in sizes)
