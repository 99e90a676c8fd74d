"""What is held, as areas in an SVG that moves nowhere: small, without a script, for a page that is sent to others.

Tiles are laid out as squares as far as may be (Bruls, Huizing and van Wijk, *Squarified Treemaps*, 2000).
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

from jupyter_gpumem.model import Snapshot
from jupyter_gpumem.pictures.text import shortened, visible
from jupyter_gpumem.pictures.tiles import COLOURS, GREY, Tile, chosen_of, held, tiles_of
from jupyter_gpumem.units import shown

_WIDE, _HIGH = 960.0, 480.0
_HEAD, _GAP = 16.0, 2.0
"""Height of the label above what lies in a tile, and the space around that."""
_LETTER, _LINE = 7.0, 14.0
"""Width of a letter and height of a line, at a size of 11."""


class _Box(NamedTuple):
    x: float
    y: float
    width: float
    height: float


def treemap_svg(snapshot: Snapshot) -> str | None:
    """What is held, as areas; None if nothing is. Small storages are drawn as one tile."""
    top, _, words = held(snapshot)
    if not top.nbytes:
        return None
    tiles = list(tiles_of(top, chosen_of(top)))
    inside: dict[int, list[tuple[int, Tile]]] = {}
    for number, around, tile in tiles:
        if around is not None:
            inside.setdefault(around, []).append((number, tile))
    drawn: list[str] = []
    todo = [(tiles[0][0], top, _Box(0, 0, _WIDE, _HIGH))]
    while todo:
        number, tile, box = todo.pop()
        inner = sorted((pair for pair in inside.get(number, ()) if pair[1].nbytes), key=lambda pair: -pair[1].nbytes)
        room = _room(box) if inner else None
        drawn.append(_drawn(tile, box, opened=room is not None))
        if room is not None:
            boxes = squarified([one.nbytes for _, one in inner], room)
            todo += [(mine, one, place) for (mine, one), place in zip(inner, boxes, strict=True)]
    return (
        f'<svg role="img" aria-label="{escape(visible(words))}" viewBox="0 0 {_WIDE:.0f} {_HIGH:.0f}" '
        'style="width:100%;height:auto;font:11px system-ui,sans-serif">' + "".join(drawn) + "</svg>"
    )


def squarified(sizes: Sequence[int], box: tuple[float, float, float, float]) -> Iterator[_Box]:
    """A place in the box for each size, in order: areas are as the sizes, which must be positive, largest first."""
    x, y, width, height = box
    scale = width * height / sum(sizes)
    rest, areas = list(sizes), [size * scale for size in sizes]
    while rest:
        side = min(width, height)
        many = 1
        while many < len(rest) and _worst(areas[: many + 1], side) <= _worst(areas[:many], side):
            many += 1
        # by the whole numbers: what is left of a box is never below nothing, and the last row fills it
        row, total, rest, areas = rest[:many], sum(rest), rest[many:], areas[many:]
        here, left = sum(row) / total, sum(rest) / total
        passed = 0
        for size in row:
            start, end = side * (passed / sum(row)), side * ((passed + size) / sum(row))
            passed += size
            if width >= height:
                yield _Box(x, y + start, width * here, end - start)
            else:
                yield _Box(x + start, y, end - start, height * here)
        if width >= height:
            x, width = x + width * here, width * left
        else:
            y, height = y + height * here, height * left


def _worst(row: Sequence[float], side: float) -> float:
    """The longest shape in a row of areas along a side: 1 is a square."""
    thick = sum(row) / side
    return max(max(thick * thick / area, area / (thick * thick)) for area in row)


def _room(box: _Box) -> _Box | None:
    """Where the inner tiles of a box go; None where they could not be seen."""
    width, height = box.width - 2 * _GAP, box.height - 2 * _GAP
    if width < 4 or height < 4:
        return None
    head = _HEAD - _GAP if height > 2 * _HEAD and width > 5 * _LETTER else 0.0
    return _Box(box.x + _GAP, box.y + _GAP + head, width, height - head)


def _drawn(tile: Tile, box: _Box, opened: bool) -> str:
    """A tile with what one reads on it and, under the pointer, all of it."""
    fill, ink = COLOURS[tile.kind]
    # in an opened tile the inner ones have the colour, and its own words lie on the paper
    paint = "none" if opened else fill
    place = f'x="{box.x:.1f}" y="{box.y:.1f}" width="{max(0.0, box.width):.1f}" height="{max(0.0, box.height):.1f}"'
    told = f"<title>{escape(visible(tile.hover))}, {shown(tile.nbytes)}</title>"
    lines = _lines(tile, box, opened)
    words = "".join(
        f'<text x="{box.x + 4:.1f}" y="{box.y + 12 + _LINE * row:.1f}" fill="{"currentColor" if opened else ink}">'
        f"{escape(line)}</text>"
        for row, line in enumerate(lines)
    )
    return f'<g>{told}<rect {place} fill="{paint}" stroke="{GREY}" stroke-width=".7"/>{words}</g>'


def _lines(tile: Tile, box: _Box, opened: bool) -> list[str]:
    """The label and the size as far as they fit: on one line above inner tiles, else below each other."""
    letters = int((box.width - 8) / _LETTER)
    if letters < 5 or box.height < _LINE + 2 or (opened and (_room(box) or box).y < box.y + _HEAD):
        return []
    label, size = visible(tile.label), shown(tile.nbytes)
    if opened:
        one = f"{label}  {size}"
        return [one if len(one) <= letters else shortened(label, letters)]
    return [shortened(label, letters), *([size] if box.height > 2 * _LINE + 2 and len(size) <= letters else [])]
