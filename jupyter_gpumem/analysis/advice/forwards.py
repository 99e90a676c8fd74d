"""The autograd graphs that names hold, as plain values: which leaves each ends in, and what it alone saved."""
from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from jupyter_gpumem import frameworks
from jupyter_gpumem.analysis import paths
from jupyter_gpumem.analysis.advice.evidence import Forward, Kept, Key
from jupyter_gpumem.analysis.growth import pattern
from jupyter_gpumem.analysis.holders import Look
from jupyter_gpumem.frameworks import Framework
from jupyter_gpumem.model import Cause

MOST = 100_000
"""Operations that are entered: about half a second."""


class _Node(NamedTuple):
    """An operation, live."""

    obj: object
    role: str | None
    following: tuple[int, ...]
    """ids of the operations that it needs."""
    saved: frozenset[Key]
    leaf: int | None
    """For the end of a graph the tensor that gets its gradient."""


class _Reach(NamedTuple):
    """What lies behind one operation, itself included."""

    nodes: frozenset[int]
    leaves: frozenset[int]
    saved: frozenset[Key]
    checkpointed: bool


class Graphs:
    """The operations met so far, each entered once. Live: to be cleared inside the look.

    They are kept until then: the wrappers of nodes are made anew, with ids used again.
    """

    def __init__(self, framework: Framework, known: Collection[Key]) -> None:
        """``known`` are the storages that count."""
        self._framework = framework
        self._known = known
        self._nodes: dict[int, _Node] = {}
        self.cut = False
        """There were more than :data:`MOST` operations."""

    def first(self, tensor: object) -> int | None:
        """id of the operation that made a tensor, entered; None for a tensor without a graph."""
        found = [node for node in self._framework.graph(tensor) if self._is_node(node)]
        if not found or not self._enter(found):
            return None
        return id(found[0])

    def reach(self, start: int) -> _Reach:
        """All that lies behind an operation."""
        nodes: set[int] = set()
        leaves: set[int] = set()
        saved: set[Key] = set()
        roles: set[str | None] = set()
        todo = [start]
        while todo:
            at = todo.pop()
            if at in nodes:
                continue
            nodes.add(at)
            node = self._nodes[at]
            roles.add(node.role)
            saved |= node.saved
            if node.leaf is not None:
                leaves.add(node.leaf)
            todo += node.following
        inner = frozenset(at for at in nodes if self._nodes[at].role != "leaf")
        return _Reach(inner, frozenset(leaves), frozenset(saved), "checkpoint" in roles)

    def terms(self, start: int) -> int:
        """How many graphs with the same leaves, and no operation in common, were added up; 1 if there is no sum."""
        if self._nodes[start].role != "sum":
            return 1
        addends, seen, todo = [], set(), [start]
        while todo:
            at = todo.pop()
            if at not in seen:
                seen.add(at)
                is_sum = self._nodes[at].role == "sum"
                todo += self._nodes[at].following if is_sum else ()
                addends += [] if is_sum else [at]
        used: dict[frozenset[int], set[int]] = {}
        count: dict[frozenset[int], int] = {}
        for addend in addends:
            behind = self.reach(addend)
            taken = used.setdefault(behind.leaves, set())
            if behind.leaves and not behind.nodes & taken:
                taken |= behind.nodes
                count[behind.leaves] = count.get(behind.leaves, 0) + 1
        return max(count.values(), default=1)

    def clear(self) -> None:
        """Let go of every operation."""
        self._nodes.clear()

    def _is_node(self, obj: object) -> bool:
        return self._framework.kind(type(obj)) == "node"

    def _enter(self, todo: list[object]) -> bool:
        """Enter all that lies behind some operations; False if there is too much of it, then none of it is entered."""
        new: dict[int, _Node] = {}
        todo = list(todo)
        while todo:
            obj = todo.pop()
            if id(obj) in self._nodes or id(obj) in new:
                continue
            if len(self._nodes) + len(new) >= MOST:
                self.cut = True
                return False
            steps = self._framework.graph(obj)
            following = [step for step in steps if self._is_node(step)]
            tensors = [step for step in steps if self._framework.kind(type(step)) == "tensor"]
            role = self._framework.hints.node_role(obj)
            leaf = id(tensors[0]) if role == "leaf" and tensors else None
            saved = self._keys(tensors)
            new[id(obj)] = _Node((obj, steps), role, tuple(map(id, following)), saved, leaf)
            todo += following
        self._nodes.update(new)
        return True

    def _keys(self, tensors: Iterable[object]) -> frozenset[Key]:
        found = {(part.device, part.address) for tensor in tensors for part in self._framework.parts(tensor)}
        return frozenset(key for key in found if key in self._known)


def forwards(seen: Look, kept: Mapping[Key, Kept]) -> tuple[tuple[Forward, ...], bool]:
    """The graphs behind the tensors that names hold without a graph in between; and whether some were left out."""
    only = frozenset(key for key, one in kept.items() if one.saved)
    found: list[Forward] = []
    cut = False
    for framework in frameworks.loaded():
        graphs = Graphs(framework, kept)
        for tensor in _roots(seen, framework):
            start = graphs.first(tensor)
            holder = paths.holder(seen.walk, tensor)
            if start is None or holder is None or holder.name is None:
                continue
            scalar = not framework.describe(tensor).shape
            terms = graphs.terms(start) if scalar else 1
            behind = graphs.reach(start)
            found.append(
                Forward(
                    holder.path,
                    pattern(holder.path),
                    holder.name,
                    scalar,
                    terms,
                    behind.leaves,
                    behind.nodes,
                    behind.saved & only,
                    behind.checkpointed,
                    behind.saved - only,
                )
            )
        cut = cut or graphs.cut
        graphs.clear()
    return tuple(found), cut


def _roots(seen: Look, framework: Framework) -> list[object]:
    """Tensors with a graph that a name reaches by plain references."""
    found = []
    # not the walk's list: a walk that has reached all that it looks for does not open the last ones
    for tensor in list(seen.inventory.tensors.values()):
        if framework.kind(type(tensor)) == "tensor" and framework.graph(tensor):
            path = seen.walk.path(tensor)
            if path is not None and path[0].cause is Cause.NAME and not _through_graph(framework, path[1]):
                found.append(tensor)
    return found


def _through_graph(framework: Framework, objects: Iterable[object]) -> bool:
    return any(framework.kind(type(obj)) == "node" for obj in objects)
