"""What no root reaches: dead cycles, frames that are over, and what only C code holds.

The collector would tell them apart by collecting; a look must not. So the references among the unreached objects are
counted: an object with more references than those counted is held by something that Python cannot list, as a
callback that C code keeps, or an autograd graph. An object all of whose holders are accounted for is garbage that
waits for the next collection.
"""
from __future__ import annotations

import functools
import gc
import sys
import types
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Sequence
from itertools import pairwise

from jupyter_gpumem import frameworks
from jupyter_gpumem.analysis import paths
from jupyter_gpumem.analysis.inventory import collections_waiting
from jupyter_gpumem.analysis.references import Walk
from jupyter_gpumem.introspect import type_name
from jupyter_gpumem.model import Cause, Holder

_LIMIT = 200_000
_NEAR = 64
"""How many of the nearest ancestors are looked at for a cycle."""
_PLUMBING = (dict, list, tuple, types.CellType, types.FunctionType, types.MethodType, functools.partial)
"""What stands between the objects of a cycle that a person knows."""


class Unreached:
    """The graph of the objects that a walk has not reached, by small numbers instead of references. Live."""

    def __init__(self, walk: Walk, ours: set[int], targets: Sequence[object]) -> None:
        self.walk = walk
        with collections_waiting():
            self.nodes = _unreached_objects(walk, ours, targets)
            self.cut = len(self.nodes) > _LIMIT
            """Not all were looked at, and so holders may be missing."""
            del self.nodes[_LIMIT:]
            self.number = {id(obj): index for index, obj in enumerate(self.nodes)}
            self.holders: list[list[int]] = [[] for _ in self.nodes]
            self.held: list[list[int]] = [[] for _ in self.nodes]
            self.counted = Counter[int]()
            self._link()

    def _link(self) -> None:
        loaded = frameworks.loaded()
        extra: list[object] = []
        for index, obj in enumerate(self.nodes):
            for child in gc.get_referents(obj):
                known = self.number.get(id(child))
                if known is not None:
                    self.counted[known] += 1
                    self._edge(index, known)
            for framework in loaded:
                for child in (*framework.referents(obj), *framework.graph(obj)):
                    extra.append(child)
                    known = self.number.get(id(child))
                    if known is not None:
                        self._edge(index, known)
        extra.clear()

    def _edge(self, holder: int, held: int) -> None:
        self.holders[held].append(holder)
        self.held[holder].append(held)

    def externally_held(self, index: int, tensors_held_by_us: int = 0) -> bool:
        """Whether something beyond the unreached objects refers to one of them."""
        # the baseline counts the list of nodes and getrefcount's argument, which differ between versions of Python
        probe = [object()]
        baseline = sys.getrefcount(probe[0])
        return sys.getrefcount(self.nodes[index]) - baseline - tensors_held_by_us > self.counted[index]

    def clear(self) -> None:
        """Let go of every live object."""
        self.nodes.clear()


def _unreached_objects(walk: Walk, ours: set[int], targets: Sequence[object]) -> list[object]:
    running = {id(frame) for frame in _running_frames()}
    # youngest first: the oldest garbage is what a limit may leave out; no list of ours is made before it, to be found
    objects = gc.get_objects(0)
    objects += gc.get_objects(1)
    objects += reversed(gc.get_objects(2))
    known = {id(target) for target in targets}
    found = [target for target in targets if not walk.reaches(target)]
    found += [
        obj
        for obj in objects
        if id(obj) not in walk.parents and id(obj) not in ours and id(obj) not in running and id(obj) not in known
    ]
    return found


def _running_frames() -> Iterable[types.FrameType]:
    for top in sys._current_frames().values():
        frame: types.FrameType | None = top
        while frame is not None:
            yield frame
            frame = frame.f_back


def explain(graph: Unreached, target: int, references_of_ours: int) -> Holder:
    """Who holds an unreached tensor, given by its id: a variable with it would be one more reference.

    ``references_of_ours`` is the number of references to it that the look itself has, beside the graph's.
    """
    found = _explained(graph, target, references_of_ours)
    if gc.get_freeze_count() and found.cause in (Cause.UNKNOWN, Cause.REGISTRY):
        return Holder("no name: held by objects that gc.freeze() hides, or by C++ alone", Cause.UNKNOWN)
    return found


def _explained(graph: Unreached, target: int, references_of_ours: int) -> Holder:
    start = graph.number.get(target)
    order, toward = _ancestors(graph, start) if start is not None else ([], {})
    if len(order) <= 1 and graph.cut:
        return Holder(f"no name found among the {_LIMIT:,} youngest objects that nothing reaches", Cause.UNKNOWN)
    if start is None:
        return Holder("no name: nothing in Python refers to it", Cause.UNKNOWN)
    head = next((index for index in order[1:] if _held_by_c(graph, index)), None)
    own_graph = _graph_ids(graph.nodes[start])
    if head is not None:
        return _c_holder(graph, _chain(toward, head), own_graph)
    frame = next((index for index in order if type(graph.nodes[index]) is types.FrameType), None)
    cycle = next((found for index in order[:_NEAR] if (found := _cycle(graph, index)) is not None), None)
    if frame is not None and (cycle is None or order.index(frame) <= order.index(cycle[0])):
        return Holder(f"dead{_words(graph, _chain(toward, frame)).removeprefix(' →')}", Cause.FRAME)
    if target in own_graph or (cycle is not None and any(_is_node(graph.nodes[index]) for index in cycle)):
        return Holder("no name: cycle through C++ of a tensor and its own history", Cause.GRAPH)
    if cycle is not None:
        return _cyclic(graph, cycle, _chain(toward, cycle[0]))
    if len(order) == 1 or graph.externally_held(start, references_of_ours):
        return Holder("no name: held by C++ alone, such as a graph, a library or a running operator", Cause.UNKNOWN)
    last = order[-1]  # a chain without a holder: about to go, or a temporary of the caller's
    return Holder(f"no name: {type_name(graph.nodes[last])}{_words(graph, _chain(toward, last))}", Cause.CYCLE)


def _ancestors(graph: Unreached, start: int) -> tuple[list[int], dict[int, int]]:
    """The objects that lead to ``start``, nearest first, and for each the next one on the way to it."""
    toward: dict[int, int] = {}
    order, queue = [start], deque([start])
    while queue:
        index = queue.popleft()
        for holder in graph.holders[index]:
            if holder not in toward and holder != start:
                toward[holder] = index
                order.append(holder)
                queue.append(holder)
    return order, toward


def _chain(toward: dict[int, int], index: int) -> list[int]:
    """From an ancestor down to the tensor."""
    chain = [index]
    while chain[-1] in toward:
        chain.append(toward[chain[-1]])
    return chain


def _words(graph: Unreached, chain: list[int]) -> str:
    return paths.steps([graph.nodes[index] for index in chain], lambda key: None)


def _is_node(obj: object) -> bool:
    return any(framework.kind(type(obj)) == "node" for framework in frameworks.loaded())


def _held_by_c(graph: Unreached, index: int) -> bool:
    # no variable may hold the object here: its references are about to be counted
    kinds = [framework.kind(type(graph.nodes[index])) for framework in frameworks.loaded()]
    return "tensor" not in kinds and "node" not in kinds and graph.externally_held(index)


def _c_holder(graph: Unreached, chain: list[int], own_graph: set[int]) -> Holder:
    """The holder of a tensor at whose head stands an object that only C code refers to."""
    head = graph.nodes[chain[0]]
    words = _words(graph, chain)
    if _is_hook_table(head):
        text = words.removeprefix(paths.steps([head, graph.nodes[chain[1]]], lambda key: None))
        return Holder(f"no name: cycle through C++: hook on a graph node{text}", Cause.GRAPH)
    if id(head) in own_graph:
        return Holder(f"no name: cycle through C++: the graph saved {type_name(head)}{words}", Cause.GRAPH)
    if type(head).__module__ in ("_contextvars", "contextvars") or type_name(head) in ("Context", "hamt"):
        return Holder(f"context of a thread or task{words}", Cause.REGISTRY)
    if callable(head):
        return Holder(f"callback kept by C code, such as the exit registry (atexit){words}", Cause.REGISTRY)
    return Holder(f"kept by C code alone: {type_name(head)}{words}", Cause.UNKNOWN)


def _is_hook_table(obj: object) -> bool:
    """``{handle id: hook}``: what torch keeps for the hooks of a graph node."""
    return type(obj) is OrderedDict and all(type(k) is int and callable(v) for k, v in list(obj.items()))


def _graph_ids(target: object) -> set[int]:
    """ids of what the tensor's own graph holds."""
    seen: dict[int, object] = {}
    todo = [child for framework in frameworks.loaded() for child in framework.graph(target)]
    while todo and len(seen) < _LIMIT:
        obj = todo.pop()
        if id(obj) not in seen:
            seen[id(obj)] = obj
            todo += [child for framework in frameworks.loaded() for child in framework.graph(obj)]
    return set(seen)


def _cycle(graph: Unreached, start: int) -> list[int] | None:
    """The shortest way from an object back to itself, without the last step; None if there is none."""
    came: dict[int, int] = {}
    queue = deque([start])
    while queue:
        index = queue.popleft()
        for held in graph.held[index]:
            if held == start:
                way = [index]
                while way[-1] != start:
                    way.append(came[way[-1]])
                return way[::-1]
            if held not in came:
                came[held] = index
                queue.append(held)
    return None


def _is_plumbing(graph: Unreached, index: int) -> bool:
    return isinstance(graph.nodes[index], _PLUMBING)


def _cyclic(graph: Unreached, cycle: list[int], chain: list[int]) -> Holder:
    # begin both texts at an object that a person knows, which may be one step further round the cycle
    first = next((at for at in range(len(cycle), 0, -1) if not _is_plumbing(graph, cycle[at % len(cycle)])), len(cycle))
    if first < len(cycle):
        chain = cycle[first:] + chain
    objects = [graph.nodes[index] for index in [*cycle, cycle[0]]]
    named = [at for at, obj in enumerate(objects[:-1]) if not isinstance(obj, _PLUMBING)] or [0]
    rotated = objects[named[0] : -1] + objects[: named[0] + 1]
    stops = [at for at, obj in enumerate(rotated) if not isinstance(obj, _PLUMBING)] or [0, len(rotated) - 1]
    text = " → ".join(
        type_name(rotated[a]) + paths.steps(rotated[a : b + 1], lambda key: None)
        for a, b in pairwise(stops)
    )
    holds = f", holding {type_name(graph.nodes[chain[0]])}{_words(graph, chain)}" if len(chain) > 1 else ""
    return Holder(f"no name: cycle of {text}{holds}", Cause.CYCLE)
