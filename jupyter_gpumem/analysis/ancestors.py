"""All that hold some objects, directly or through others, up to the roots: the references of a walk, turned round.

For each ancestor the way down that is best to read is kept: plain references are followed before what optimizers hold,
and that before what autograd graphs hold, as in the walk itself.
"""
from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import NamedTuple

from jupyter_gpumem.analysis.references import Root, Walk
from jupyter_gpumem.analysis.words import kind_of

_MOST = 50_000
"""Ancestors. Whoever has more is held by everything, and a list of holders would tell nothing."""
_OF_CLASS, _OF_OPTIMIZER, _OF_GRAPH = 100, 1_000, 100_000
"""What a step costs that tells less than an attribute or an item, which costs 1."""


class Way(NamedTuple):
    """A root that reaches a target, and the objects on the best way, from the root's value to the target."""

    cost: int
    root: Root
    objects: list[object]


class Ancestors:
    """The objects that hold some targets. Live: it must not outlive the look."""

    def __init__(self, walk: Walk, targets: Iterable[tuple[object, int]]) -> None:
        """``targets`` come with what it costs to end there: 0 for what was asked for, more for what it consists of."""
        self.walk = walk
        self.objects: dict[int, object] = {}
        """By id; the targets too."""
        self.edges: list[tuple[object, object]] = []
        """``(holder, held)``: all references among them."""
        self.roots: list[tuple[Root, object]] = []
        """``(root, its value)`` for every root whose value is among them."""
        self.partial = walk.partial
        self._cost: dict[int, int] = {}
        self._next: dict[int, object] = {}
        self._kinds: dict[type, str | None] = {}
        self._further = _by_held(walk)
        self._climb(targets)

    def ways(self) -> list[Way]:
        """The best way from each root, cheapest first."""
        found = [Way(self._cost[id(value)], root, self.way_down(value)) for root, value in self.roots]
        return sorted(found, key=lambda way: way.cost)

    def way_down(self, obj: object) -> list[object]:
        """The best way from an ancestor to a target."""
        way = [obj]
        while id(way[-1]) in self._next:
            way.append(self._next[id(way[-1])])
        return way

    def _climb(self, targets: Iterable[tuple[object, int]]) -> None:
        waiting: list[tuple[int, int, object]] = []
        for target, cost in targets:
            if cost < self._cost.get(id(target), cost + 1):
                self._cost[id(target)] = cost
                heapq.heappush(waiting, (cost, len(waiting), target))
        pushed = len(waiting)
        while waiting:
            cost, _, held = heapq.heappop(waiting)
            if id(held) in self.objects:
                continue
            if len(self.objects) >= _MOST:
                self.partial = True
                return
            self.objects[id(held)] = held
            for holder in self._holders(held):
                if type(holder) is Root:
                    self.roots.append((holder, held))
                    continue
                self.edges.append((holder, held))
                through = cost + self._step(holder, held)
                if through < self._cost.get(id(holder), through + 1):
                    self._cost[id(holder)] = through
                    self._next[id(holder)] = held
                    pushed += 1
                    heapq.heappush(waiting, (through, pushed, holder))

    def _holders(self, held: object) -> list[object]:
        first = self.walk.parents.get(id(held))
        found = {id(holder): holder for holder in (first, *self._further.get(id(held), ())) if holder is not None}
        found.pop(id(held), None)
        return list(found.values())

    def _step(self, holder: object, held: object) -> int:
        kind = self._kind(holder)
        if kind == "node" or self._kind(held) == "node":
            return _OF_GRAPH
        if kind == "optimizer":
            return _OF_OPTIMIZER
        return _OF_CLASS if held is type(holder) else 1

    def _kind(self, obj: object) -> str | None:
        cls = type(obj)
        if cls not in self._kinds:
            self._kinds[cls] = kind_of(obj)
        return self._kinds[cls]

    def clear(self) -> None:
        """Let go of every live object."""
        for found in (self.objects, self.edges, self.roots, self._next, self._further, self._kinds):
            found.clear()


def _by_held(walk: Walk) -> dict[int, list[object]]:
    """id → from where else it was reached; barriers, which hold nothing, left out."""
    parents = walk.parents
    found: dict[int, list[object]] = {}
    for held, holder in zip(walk.again, walk.by, strict=True):
        if parents.get(held) is not None:
            known = found.get(held)
            if known is None:
                found[held] = [holder]
            else:
                known.append(holder)
    return found
