"""Storages as tiles in tiles: devices and causes outermost, then the steps of their paths; and which can be drawn."""
from __future__ import annotations

import heapq
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from jupyter_gpumem.model import Allocator, Cause, Holding, Snapshot
from jupyter_gpumem.pictures.blocks import CURES, count
from jupyter_gpumem.units import shown

_MOST, _LEAST = 400, 1500
THROUGH_GRAPH = " → graph ("
GREY, MUTED, DARK = "#808080", "rgba(128,128,128,.15)", "#1a1a1a"
"""The grey has a contrast of more than 3:1 on white and on #111: pictures lie on light and on dark paper."""
COLOURS = {
    "names": ("#1f77c9", "#fff"),
    "graphs": ("#2f9e8f", DARK),
    "libraries": ("#8a7fc0", DARK),
    "dangling": ("#c8553d", "#fff"),
    "unexplained": ("#b9b04a", DARK),
    "awaiting": ("#d08a2e", DARK),
    "cached": (MUTED, GREY),
    "free": (MUTED, GREY),
    "": ("rgba(0,0,0,0)", GREY),
}
"""Kind → colour and the colour of words on it; the same as those of the bars in ``html.py``."""


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


def held(snapshot: Snapshot) -> tuple[Tile, str, str]:
    """All that is held as one tile: devices, then names or causes in it, below these the steps of paths.

    With it a title, and what the picture shows in words.

    What an allocator keeps beside the storages is a muted tile of its device.
    """
    root = Tile("all devices", "", "all devices", fixed=True)
    for holding in snapshot.holdings:
        holder = holding.holder
        groups = [holding.device] if holder.cause is Cause.NAME else [holding.device, CURES[holder.cause][0]]
        way = itertools.islice(steps(holder.path[:400], holder.name), 12)
        root.add(groups, way, holding, kind(holder.cause, holder.path))
    title = f"{shown(root.nbytes)} held in {count(len(snapshot.holdings), 'storage')}"
    cached = sum(_add_cached(root, allocator) for allocator in snapshot.allocators)
    title += f", {shown(cached)} cached" if cached else ""
    root = root.squeezed()
    for tile in (root, *root.inner.values()):
        tile.kind = ""
    return next(iter(root.inner.values())) if len(root.inner) == 1 else root, title, _words(snapshot, title)


def _words(snapshot: Snapshot, title: str) -> str:
    names = Counter[str]()
    for holding in snapshot.holdings:
        if holding.holder.cause is Cause.NAME:
            names[holding.holder.name or holding.holder.path] += holding.nbytes
    largest = ", ".join(f"{name} {shown(nbytes)}" for name, nbytes in names.most_common(3))
    lost = f" {shown(sum(holding.nbytes for holding in snapshot.dangling))} dangle." if snapshot.dangling else ""
    return f"{title}." + (f" Largest names: {largest}." if largest else "") + lost


def _add_cached(root: Tile, allocator: Allocator) -> int:
    """What an allocator keeps beside the storages, as a muted tile; bytes of its cache."""
    cached = allocator.cached
    if not cached:
        return 0
    name = allocator.device
    device = root.inner.setdefault((name, True), Tile(name, "", name, fixed=True))
    words = f"cached by {allocator.framework}"
    device.inner[(words, True)] = Tile(words, "cached", words, cached, fixed=True)
    device.nbytes += cached
    root.nbytes += cached
    return cached


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
