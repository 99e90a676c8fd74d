"""The smallest set of references to let go of, so that no root reaches some objects any more.

A minimum cut: by Menger's theorem as many references have to go as there are ways from the roots to the objects that
share no reference which a person could let go of. Those ways are found one after another (Ford and Fulkerson), and the
cut nearest to the roots is given, for a name is easier to delete than what lies deep inside.
"""
from __future__ import annotations

import collections
import functools
import gc
import itertools
import sys
import types
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from jupyter_gpumem import frameworks
from jupyter_gpumem.analysis.ancestors import Ancestors
from jupyter_gpumem.analysis.references import Root
from jupyter_gpumem.analysis.words import kind_of
from jupyter_gpumem.introspect import class_dict, instance_dict, is_a, mro, slots
from jupyter_gpumem.model import Cause

_MOST = 12
"""A longer list of cuts is no advice."""
_CONTAINERS = (dict, list, collections.deque, set)
_KEEP_TABLES = (types.FunctionType, functools.partial, type(functools.lru_cache(len)))
"""Their dictionaries (defaults, keywords, the cache) are their own affair."""
_START, _END = -1, -2


@dataclass(frozen=True)
class Cut:
    """A reference to let go of. Live: it must not outlive the look."""

    root: Root | None
    """To let go of a root is to delete the name, to forget the output, and so on."""
    holder: object = None
    held: object = None
    place: int = 0
    """From 1 on: the holder has it in several places, and each is a reference of its own."""


def smallest(ancestors: Ancestors, targets: Collection[int]) -> list[Cut] | None:
    """The smallest set of cuts between the roots and the objects with these ids; None if there is none (running code,
    for example, holds on) or it is not known.

    Raises nothing for objects that no root reaches: for these the empty set is enough.
    """
    if ancestors.partial:
        return None
    network = _Network(ancestors, targets)
    for _ in range(_MOST + 1):
        way = network.free_way()
        if way is None:
            return network.cut()
        if not network.use(way):
            return None
    return None


class _Network:
    """What flows from the roots to the targets. Ids stand for objects; a root's label stands for all roots of it."""

    def __init__(self, ancestors: Ancestors, targets: Collection[int]) -> None:
        self._ends = targets
        self._links: dict[Any, dict[Any, bool]] = {}
        """From → to → whether it can be cut."""
        self._cuts: dict[tuple[Any, Any], Cut] = {}
        self._used: set[tuple[Any, Any]] = set()
        self._back: dict[Any, set[Any]] = {}
        for root, value in ancestors.roots:
            label = (root.cause.value, root.label)
            self._link(_START, label, root.cause not in (Cause.MODULE, Cause.RUNNING), Cut(root))
            self._link(label, id(value), False)
        tables = {id(held) for holder, held in ancestors.edges if any(is_a(holder, cls) for cls in _KEEP_TABLES)}
        for holder, held in ancestors.edges:
            places = 0 if id(holder) in tables else _places(holder, held)
            for place in range(max(1, places)):
                between = id(held) if place == 0 else (id(holder), id(held), place)
                self._link(id(holder), between, places > 0, Cut(None, holder, held, place))
                if place:
                    self._link(between, id(held), False)

    def _link(self, start: Any, end: Any, can_be_cut: bool, cut: Cut | None = None) -> None:
        self._links.setdefault(start, {})[end] = can_be_cut
        if cut is not None and can_be_cut:
            self._cuts.setdefault((start, end), cut)

    def free_way(self) -> list[Any] | None:
        """A way from the roots to a target on which one more reference has to be cut; the shortest one."""
        came = self._reach()
        end = next((end for end in self._ends if end in came), None)
        if end is None:
            return None
        way = [end]
        while way[-1] != _START:
            way.append(came[way[-1]])
        return way[::-1]

    def _reach(self) -> dict[Any, Any]:
        came: dict[Any, Any] = {_START: None}
        queue = collections.deque([_START])
        while queue:
            here = queue.popleft()
            if here in self._ends:
                continue
            onward = [*self._links.get(here, {}).items(), *((back, False) for back in self._back.get(here, ()))]
            for there, can_be_cut in onward:
                if there not in came and not (can_be_cut and (here, there) in self._used):
                    came[there] = here
                    queue.append(there)
        return came

    def use(self, way: list[Any]) -> bool:
        """Let one unit flow along a way. False if nothing on it can be cut."""
        steps = list(itertools.pairwise(way))
        forward = [step for step in steps if step[1] in self._links.get(step[0], {})]
        if len(forward) == len(steps) and not any(self._links[a][b] for a, b in steps):
            return False
        for here, there in steps:
            if there in self._back.get(here, ()) and (there, here) in self._used:
                self._used.discard((there, here))
                self._back[here].discard(there)
            else:
                self._used.add((here, there))
                self._back.setdefault(there, set()).add(here)
        return True

    def cut(self) -> list[Cut]:
        """The references between what the roots still reach and what they do not: there are as many as ways."""
        near = self._reach()
        return [cut for (start, end), cut in self._cuts.items() if start in near and end not in near]


def _places(holder: object, held: object) -> int:
    """In how many places the holder has it, of those that a person can let go of without breaking the holder: items,
    attributes, a gradient. Three items of a list may be the same tensor.
    """
    return sum(child is held for child in _parts(holder))


def _parts(holder: Any) -> Iterable[object]:
    kind = kind_of(holder)
    if kind == "tensor":
        return [grad for framework in frameworks.loaded() for grad in framework.referents(holder)]
    if kind in ("node", "optimizer"):
        return ()
    if any(is_a(holder, cls) for cls in _CONTAINERS):
        return gc.get_referents(holder)
    if is_a(holder, type):
        return list(class_dict(holder).values())
    array = getattr(sys.modules.get("numpy"), "ndarray", None)
    if array is not None and is_a(holder, array):
        items: list[object] = array.view(holder, array).ravel().tolist()
        return items
    parts = [*(instance_dict(holder) or {}).values(), *_own_slots(holder)]
    if kind == "module":
        parts += [value for framework in frameworks.loaded() for _, value in framework.submodules(holder)]
    return parts


def _own_slots(holder: object) -> list[object]:
    """Values of the slots that a class statement declares; the members of built-in types cannot be written."""
    declared = any("__slots__" in class_dict(cls) for cls in mro(type(holder)))
    return [value for _, value in slots(holder)] if declared else []
