"""Storages as tiles in tiles: devices and causes outermost, then the steps of their paths; and which can be drawn."""
from __future__ import annotations

import heapq
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

from jupyter_gpumem.model import Cause, Holding
from jupyter_gpumem.pictures.blocks import count
from jupyter_gpumem.units import shown

_MOST, _LEAST = 400, 1500
THROUGH_GRAPH = " → graph ("


class Tile:
    """A part of the memory: a device, a cause, a step of a path, or a storage."""

    def __init__(self, label: str, kind: str, path: str, nbytes: int = 0, fixed: bool = False) -> None:
        self.label, self.kind, self.path, self.nbytes = label, kind, path, nbytes
        self.fixed = fixed
        """It stays a tile of its own although only one lies in it."""
        self.is_storage = False
        """Its label says what it is, not where."""
        self.storages = 0
        self.inner: dict[object, Tile] = {}

    def add(self, groups: Sequence[str], steps: Iterable[str], holding: Holding, kind: str) -> None:
        """Put a storage below its device, its cause, and the steps of its path."""
        below, path = [(group, group, True) for group in groups], ""
        for step in steps:
            path += step
            below.append((step, path, False))
        tile = self
        tile._count(holding, kind)
        for label, path, fixed in below:
            tile = tile.inner.setdefault((label, fixed), Tile(label, kind, path, fixed=fixed))
            tile._count(holding, kind)
        what = _what(holding)
        leaf = Tile(what, kind, f"{holding.holder.path}: {what}", holding.nbytes)
        leaf.storages, leaf.is_storage = 1, True
        tile.inner[len(tile.inner)] = leaf

    def _count(self, holding: Holding, kind: str) -> None:
        self.nbytes += holding.nbytes
        self.storages += 1
        self.kind = kind if kind == self.kind else "names"  # a tensor and its graph

    def squeezed(self) -> Tile:
        """Without tiles that fill the one around them: ``.layers`` and ``.0`` become ``.layers.0``."""
        self.inner = {key: tile.squeezed() for key, tile in self.inner.items()}
        if self.fixed or len(self.inner) != 1:
            return self
        (only,) = self.inner.values()
        only.label = self.label if only.is_storage else self.label + only.label
        only.is_storage = False
        return only

    @property
    def hover(self) -> str:
        return f"{self.path}, {count(self.storages, 'storage')}" if self.inner else self.path


_STEPS = re.compile(r"""\[(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^\]]*)\]|\.[^.\[\s]+| → [^→.\[]+""")


def steps(path: str, name: str | None) -> Iterator[str]:
    """``box['a'].w`` → ``box``, ``['a']``, ``.w``. Together they are the path."""
    at = len(name) if name and path.startswith(name) else 0
    if at and name:
        yield name
    while at < len(path):
        found = _STEPS.match(path, at)
        if found is None:
            following = _STEPS.search(path, at + 1)
            yield path[at : following.start() if following else len(path)]
            at = following.start() if following else len(path)
        else:
            yield found.group()
            at = found.end()


def _what(holding: Holding) -> str:
    if not holding.tensors:
        return "storage"
    tensor = max(holding.tensors, key=lambda one: one.nbytes)
    shape = "×".join(map(str, tensor.shape)) or "scalar"
    return f"{shape} {tensor.dtype}" if tensor.kind == "Tensor" else f"{tensor.kind} {shape} {tensor.dtype}"


def kind(cause: Cause, path: str) -> str:
    if cause is Cause.NAME:
        return "graphs" if THROUGH_GRAPH in path else "names"
    if cause in (Cause.MODULE, Cause.REGISTRY):
        return "libraries"
    return "unexplained" if cause is Cause.UNKNOWN else "dangling"


def chosen_of(top: Tile) -> set[int]:
    """The ids of the tiles to draw, the largest of all depths; with those for the rest they are at most ``_MOST``.

    What is smaller than one part in ``_LEAST`` of all could not be seen.
    """
    order = itertools.count()
    waiting = [(float("-inf"), next(order), top, Tile("", "", ""))]
    chosen: set[int] = set()
    inside: dict[int, int] = {}
    drawn = 0
    while waiting:
        size, _, tile, around = heapq.heappop(waiting)
        if -size * _LEAST < top.nbytes:
            break
        before, every = inside.get(id(around), 0), len(around.inner)
        # the first one drawn of several needs one more tile for the rest; the last one takes that tile's place
        cost = 1 + (before == 0 and every > 1) - (0 < before == every - 1)
        if drawn + cost > _MOST:
            break
        drawn += cost
        inside[id(around)] = before + 1
        chosen.add(id(tile))
        for inner in tile.inner.values():
            size = float("-inf") if inner.fixed else -float(inner.nbytes)
            heapq.heappush(waiting, (size, next(order), inner, tile))
    return chosen


def tiles_of(top: Tile, chosen: set[int]) -> Iterator[tuple[int, int | None, Tile]]:
    """``(number, number of the tile around it, tile)``, with one tile for those inside another that are not drawn."""
    todo: list[tuple[Tile, int | None]] = [(top, None)]
    number = 0
    while todo:
        tile, around = todo.pop()
        yield number, around, tile
        shown_inside = [inner for inner in tile.inner.values() if id(inner) in chosen]
        rest = [inner for inner in tile.inner.values() if id(inner) not in chosen] if shown_inside else []
        todo += [(inner, number) for inner in shown_inside]
        if len(rest) == 1:
            todo.append((rest[0], number))
        elif rest:
            nbytes, storages = sum(inner.nbytes for inner in rest), sum(inner.storages for inner in rest)
            kinds = {inner.kind for inner in rest}
            words = f"{len(rest)} more, {shown(nbytes)}"
            more = Tile(f"{len(rest)} more", kinds.pop() if len(kinds) == 1 else "", words, nbytes)
            more.path = f"{words} in {count(storages, 'storage')}"
            todo.append((more, number))
        number += 1
