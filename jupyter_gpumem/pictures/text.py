"""Records as plain text: for a console, for GitHub, for a saved notebook without its HTML."""
from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Iterable, Sequence

from jupyter_gpumem.model import Snapshot
from jupyter_gpumem.pictures import advised, diagnosed, explained, forecasts, moved  # noqa: F401  # so that their blocks are registered
from jupyter_gpumem.pictures.blocks import Bar, Block, Fold, Heading, Line, Table, blocks, dangling
from jupyter_gpumem.units import shown

_PAGE = 100
"""Columns of the page. Tables and sentences keep to it, but not a line that stands alone."""
_WIDTH = 60
_SHADES = {
    "allocated": "█",
    "cached": "▓",
    "context": "▒",
    "others": "░",
    "unattributed": "?",
    "reserved": "-",
    "free": " ",
    "graphs": "▓",
    "dangling": "▒",
    "libraries": "░",
    "running": "+",
    "rounding": "-",
    "unexplained": "?",
    "awaiting": "▒",
    "fragments": "░",
}
_CELL = 64
"""Widest cell of a table."""
_LEAST = 40
"""No column is cut to less than this."""


def render(record: object) -> str:
    """A record as text. Raises TypeError for what is none of ours."""
    return "\n".join(_lines(blocks(record)))


def render_dangling(snapshot: Snapshot) -> str:
    """Only what dangles in a snapshot."""
    return "\n".join(_lines(dangling(snapshot)))


def visible(text: str) -> str:
    """Names may hold anything: what would move the cursor, or turn the text around, is shown as an escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _lines(found: Sequence[Block]) -> list[str]:
    lines: list[str] = []
    section: list[Block] = []
    for block in found:
        if isinstance(block, Heading):
            lines += _section(section)
            lines += [""] if lines and lines[-1].startswith(" ") else []
            lines.append(visible(f"{block.text}: {block.figure}" if block.figure else block.text))
            section = []
        else:
            section.append(block)
    alone = section[0] if not lines and len(section) == 1 else None
    return lines + ([_line(alone)] if isinstance(alone, Line) else _section(section))


def _section(section: Sequence[Block]) -> list[str]:
    """What stands below one heading. Several tables are told apart by the lines above them, and need no header."""
    headed = sum(isinstance(block, Table) for block in section) == 1
    lines: list[str] = []
    for above, block in zip([None, *section], section, strict=False):
        if isinstance(block, Bar):
            lines += _bar(block)
        elif isinstance(block, Table):
            indent = "    " if isinstance(above, Line) else "  "
            lines += [indent + row for row in _table(block, headed)]
        elif isinstance(block, Line):
            lines += _wrapped(_line(block))
        elif isinstance(block, Fold) and block.open:
            lines += _section(block.blocks)
    return lines


def _line(line: Line) -> str:
    return visible(f"{line.text}  →  {line.code}" if line.code else line.text)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(
        text, _PAGE, initial_indent="  ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )


def _bar(bar: Bar) -> list[str]:
    sizes = [segment.nbytes or 0 for segment in bar.segments]
    parts = zip(bar.segments, _widths(sizes, bar.total), strict=True)
    drawn = "".join(_SHADES[segment.kind] * width for segment, width in parts)
    legend = [f"{_SHADES[s.kind]} {s.label} {shown(s.nbytes)}".strip() for s in bar.segments]
    # a part and its figure stay together: spaces that are not wrapped, and spaces again
    wrapped = _wrapped(", ".join(part.replace(" ", "\0") for part in legend))
    return [f"  [{drawn:{_WIDTH}}]", *(line.replace("\0", " ") for line in wrapped)]


def _widths(sizes: Sequence[int], total: int) -> list[int]:
    """Characters for each part: at least one for a part that is there, at most the bar's width together."""
    widths = [max(1, round(size / total * _WIDTH)) if size else 0 for size in sizes]
    for _ in range(sum(widths) - _WIDTH):
        widths[widths.index(max(widths))] -= 1
    return widths


def _table(table: Table, headed: bool) -> list[str]:
    rows = [tuple(visible(cell) for cell in row) for row in ((table.columns,) if headed else ()) + table.rows]
    widths = _fitted([min(_CELL, max(map(_columns, column))) for column in zip(*rows, strict=True)], table.right)
    lines = []
    for row in rows:
        cells = (
            _padded(shortened(cell, width), width, column in table.right)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("  ".join(cells).rstrip())
    return [*lines, *([table.cut] if table.cut else [])]


def _fitted(widths: list[int], right: Iterable[int]) -> list[int]:
    """The widest columns of words give way until the table fits; figures are never cut."""
    words = [column for column in range(len(widths)) if column not in right]
    while sum(widths) + 2 * len(widths) + 2 > _PAGE:
        widest = max(words, key=lambda column: widths[column])
        if widths[widest] <= _LEAST:
            break
        widths[widest] -= 1
    return widths


def _columns(text: str) -> int:
    """Columns that a text takes on the screen: Chinese letters take two, accents none."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) > 0 for c in text)


def _padded(cell: str, width: int, right: bool) -> str:
    space = " " * (width - _columns(cell))
    return space + cell if right else cell + space


def shortened(cell: str, width: int) -> str:
    """Long paths lose their middle: the name in front and the last step tell most."""
    room = width
    while _columns(cell) > width:
        head = max(1, room * 2 // 3)
        cell = f"{cell[:head]}…{cell[len(cell) - max(1, room - head - 1):]}"
        room -= 1
    return cell
