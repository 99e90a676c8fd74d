"""Records as plain text: for a console, for GitHub, for a saved notebook without its HTML."""
from __future__ import annotations

from collections.abc import Sequence

from jupyter_gpumem.model import Snapshot
from jupyter_gpumem.pictures.blocks import Bar, Block, Heading, Line, Table, blocks, dangling
from jupyter_gpumem.units import shown

_WIDTH = 60
_SHADES = {
    "allocated": "█",
    "cached": "▓",
    "context": "▒",
    "others": "░",
    "unattributed": "?",
    "reserved": "-",
    "free": " ",
}
_CELL = 64
"""Widest cell of a table."""


def render(record: object) -> str:
    """A record as text. Raises TypeError for what is none of ours."""
    return "\n".join(_lines(blocks(record)))


def render_dangling(snapshot: Snapshot) -> str:
    """Only what dangles in a snapshot."""
    return "\n".join(_lines(dangling(snapshot)))


def _lines(found: Sequence[Block]) -> list[str]:
    lines: list[str] = []
    for block in found:
        if isinstance(block, Heading):
            lines.append(_safe(f"{block.text}: {block.figure}" if block.figure else block.text))
        elif isinstance(block, Bar):
            lines += _bar(block)
        elif isinstance(block, Table):
            lines += _table(block)
        else:
            lines.append(_line(block, alone=len(found) == 1))
    return lines


def _line(line: Line, alone: bool) -> str:
    text = f"{line.text}  →  {line.code}" if line.code else line.text
    return _safe(text if alone else f"  {text}")


def _bar(bar: Bar) -> list[str]:
    widths = _widths([segment.nbytes for segment in bar.segments], bar.total)
    drawn = "".join(_SHADES[s.kind] * width for s, width in zip(bar.segments, widths, strict=True))
    legend = ", ".join(
        f"{_SHADES[segment.kind]} {segment.label} {shown(segment.nbytes)}".strip() for segment in bar.segments
    )
    return [f"  [{drawn[:_WIDTH]:{_WIDTH}}]", f"  {legend}"]


def _widths(sizes: Sequence[int], total: int) -> list[int]:
    """Characters for each part: at least one for a part that is there."""
    return [max(1, round(size / max(1, total) * _WIDTH)) for size in sizes]


def _table(table: Table) -> list[str]:
    rows = [tuple(_shortened(_safe(cell)) for cell in row) for row in table.rows]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(len(table.columns))]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if column in table.right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  " + "  ".join(cells).rstrip())
    return [*lines, *([f"  {table.cut}"] if table.cut else [])]


def _shortened(cell: str) -> str:
    """Long paths lose their middle: the name in front and the last step tell most."""
    if len(cell) <= _CELL:
        return cell
    head = _CELL * 2 // 3
    return f"{cell[:head]}…{cell[-(_CELL - head - 1):]}"


def _safe(text: str) -> str:
    """Names may hold anything: what would move the cursor is shown as an escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
