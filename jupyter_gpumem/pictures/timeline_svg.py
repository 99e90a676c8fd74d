"""The watched cells as an SVG: for each device a bar a cell, up to its peak, filled as far as the memory stayed."""
from __future__ import annotations

from collections.abc import Sequence
from html import escape

from jupyter_gpumem.model import Allocator, CellUse, Timeline
from jupyter_gpumem.pictures.blocks import count
from jupyter_gpumem.pictures.text import visible
from jupyter_gpumem.pictures.tiles import COLOURS, GREY
from jupyter_gpumem.units import shown

_WIDE, _HIGH, _TOP, _FOOT = 960.0, 110.0, 20.0, 18.0
_CELLS = 120
_LETTERS = 6.4


def timeline_svg(timeline: Timeline) -> str | None:
    """The newest cells; None if no device was in use in any."""
    cells = timeline.cells[-_CELLS:]
    devices = dict.fromkeys(a.device for cell in cells for a in cell.after if a.allocated or a.peak)
    if not devices:
        return None
    rows, told = [], []
    for row, device in enumerate(devices):
        uses = [(cell, [a for a in cell.after if a.device == device]) for cell in cells]
        most = max(_peak(allocators) for _, allocators in uses)
        rows.append(_row(device, uses, most, row * (_TOP + _HIGH + _FOOT)))
        told.append(f"{device} up to {shown(most)}")
    words = escape(visible(f"{count(len(cells), 'cell')}: {', '.join(told)}. The table below has the figures."))
    high = len(devices) * (_TOP + _HIGH + _FOOT)
    return (
        f'<svg role="img" aria-label="{words}" viewBox="0 0 {_WIDE:.0f} {high:.0f}" '
        'style="width:100%;height:auto;font:11px system-ui,sans-serif">' + "".join(rows) + "</svg>"
    )


def _row(device: str, uses: Sequence[tuple[CellUse, list[Allocator]]], most: int, top: float) -> str:
    wide = _WIDE / max(len(uses), 12)
    base = top + _TOP + _HIGH
    parts = [
        f'<text x="0" y="{top + 13:.0f}" fill="currentColor">{escape(visible(device))}, up to {shown(most)}: '
        "peak of each cell, filled as far as it stayed</text>",
        f'<path d="M0 {base:.0f}H{_WIDE:.0f}" stroke="{GREY}"/>',
    ]
    labelled = 0.0
    for at, (cell, allocators) in enumerate(uses):
        stayed, peak = sum(a.allocated for a in allocators), _peak(allocators)
        x, bar = at * wide + wide * 0.12, wide * 0.76
        words = f"{cell.title}: {shown(stayed)}, peak {shown(peak)}"
        parts.append(f"<g><title>{escape(visible(words))}</title>")
        for nbytes, fill in ((peak, "none"), (stayed, COLOURS["names"][0])):
            high = _HIGH * nbytes / most if most else 0.0
            parts.append(
                f'<rect x="{x:.1f}" y="{base - high:.1f}" width="{bar:.1f}" height="{high:.1f}" fill="{fill}" '
                f'stroke="{COLOURS["names"][0]}"/>'
            )
        parts.append("</g>")
        title = visible(cell.title.removeprefix("cell "))
        if x >= labelled and len(title) <= 24:
            parts.append(f'<text x="{x:.1f}" y="{base + 13:.1f}" fill="{GREY}">{escape(title)}</text>')
            labelled = x + len(title) * _LETTERS + 6
    return "".join(parts)


def _peak(allocators: Sequence[Allocator]) -> int:
    """Of several frameworks on one device the sum: as much as it could have been at once."""
    return sum(max(a.allocated, a.peak or 0) for a in allocators)
