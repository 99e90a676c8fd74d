"""One breadth-first pass from the roots: which root reaches an object first, and along which path.

Roots come in groups, and a group is exhausted before the next begins: what a name reaches is the name's, whatever
else refers to it. Inside a group three rounds make the first path the best to read: plain references, then what
optimizers hold (they would name every weight by its shortest path, ``opt.param_groups[0]['params'][7]``), then what
autograd graphs hold.

Some references say nothing about ownership and are not followed: a function's globals (but for those of a namespace
that nothing else keeps), and modules. A class that a library defines is the library's, not its instance's: it waits
for the second group.
"""
from __future__ import annotations

import gc
import sys
import time
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jupyter_gpumem import frameworks
from jupyter_gpumem.analysis.inventory import collections_waiting
from jupyter_gpumem.frameworks import Framework
from jupyter_gpumem.introspect import class_dict, instance_dict, module_of, mro
from jupyter_gpumem.model import Cause, Holder

Opener = Callable[[Any], Iterable[object]]


@dataclass(frozen=True)
class Root:
    """Where a path may begin. ``label`` is what a person reads."""

    label: str
    cause: Cause
    value: object
    name: str | None = None


@dataclass
class Walk:
    """What a pass has found. Live: it must not outlive the look."""

    parents: dict[int, object] = field(default_factory=dict)
    """id → the object from which it was reached; a ``Root`` for a root's value, None for a barrier."""
    kept: list[object] = field(default_factory=list)
    """Objects made by looking (graph nodes, lists of children), alive until the end so that ids stay unique."""
    missing: set[int] = field(default_factory=set)
    """ids of the targets that no root has reached; of alternatives one is enough."""
    tensors: list[object] = field(default_factory=list)
    """The tensors that have been reached, in the order of their paths."""
    alternatives: dict[int, frozenset[int]] = field(default_factory=dict)
    """id of a target → ids of all targets that are as good."""
    again: list[int] = field(default_factory=list)
    """ids of the objects that were reached once more, where all references are asked for; in step with ``by``."""
    by: list[object] = field(default_factory=list)
    """From where each of them was: an object, or a ``Root``."""
    graph_sizes: dict[int, int] = field(default_factory=dict)
    """id of a tensor or node → how many tensors its graph holds, counted once however many paths lead through it."""
    first: dict[int, Root] = field(default_factory=dict)
    """id → the root that reaches it first, as far as it was asked for."""
    lengths: dict[int, int] = field(default_factory=dict)
    """id → how many objects the path from there has; in step with ``first``. No pairs: they would be holders."""
    in_graph: dict[int, Holder] = field(default_factory=dict)
    """id of an object in an autograd graph → the words for all that is found behind it in the same graph."""
    partial: bool = False
    """Time ran out."""

    def reaches(self, obj: object) -> bool:
        """Whether some root reaches the object."""
        return self.parents.get(id(obj)) is not None

    def path(self, obj: object) -> tuple[Root, list[object]] | None:
        """The root that reaches ``obj`` first, and the objects from its value to ``obj``; None if no root does."""
        steps = [obj]
        parent = self.parents.get(id(obj))
        while parent is not None and type(parent) is not Root:
            steps.append(parent)
            parent = self.parents.get(id(parent))
        return (parent, steps[::-1]) if type(parent) is Root else None

    def place(self, obj: object) -> tuple[Root, int] | None:
        """The root that reaches ``obj`` first, and how many objects its path has; None if no root does.

        Each object is climbed over once, however many paths lead through it.
        """
        if not self.reaches(obj):
            return None
        for step, parent in self._down_to(obj, self.first):
            if type(parent) is Root:
                self.first[id(step)], self.lengths[id(step)] = parent, 1
            else:
                self.first[id(step)], self.lengths[id(step)] = self.first[id(parent)], self.lengths[id(parent)] + 1
        return self.first[id(obj)], self.lengths[id(obj)]

    def passes(self, obj: object, is_wanted: Callable[[object], bool], known: dict[int, bool]) -> bool:
        """Whether the path to ``obj``, with both its ends, leads over an object that is wanted.

        ``known`` has the answers so far, by id: to be the same for all questions after the same thing.
        """
        if not self.reaches(obj):
            return False
        for step, parent in self._down_to(obj, known):
            known[id(step)] = is_wanted(step) or known.get(id(parent), False)
        return known[id(obj)]

    def _down_to(self, obj: object, known: Mapping[int, object]) -> list[tuple[object, object]]:
        """The objects of a path that are not known yet, with their parents, from the root on."""
        way: list[tuple[object, object]] = []
        while type(obj) is not Root and id(obj) not in known:
            way.append((obj, self.parents[id(obj)]))
            obj = self.parents[id(obj)]
        return way[::-1]

    def own_ids(self) -> set[int]:
        """Our own containers, which a search for referrers must pass over."""
        roots = [parent for parent in self.parents.values() if type(parent) is Root]
        mine = {id(root) for root in roots} | {id(vars(root)) for root in roots}
        lists = {id(item) for item in self.kept if type(item) is list}
        return mine | lists | {id(self), *map(id, vars(self).values()), id(vars(self))}

    def reached(self, ids: Iterable[int]) -> None:
        """Some objects have been reached: those and their alternatives are no longer missing."""
        for hit in self.missing.intersection(ids):
            self.missing -= self.alternatives.get(hit, {hit})

    def clear(self) -> None:
        """Let go of every live object."""
        for found in (self.parents, self.kept, self.tensors, self.again, self.by, self.first):
            found.clear()


def walk(
    groups: Sequence[Sequence[Root]],
    targets: Iterable[Sequence[object]],
    barriers: Iterable[object],
    seconds: float = 10.0,
    exhaustive: bool = False,
    every_edge: bool = False,
) -> Walk:
    """Search from the groups of roots, in order, for the targets: of each sequence one object is enough.

    The pass ends once every target is found, unless ``exhaustive``: then it tells of *every* object whether a root
    reaches it. With ``every_edge`` it also keeps the references to what had been reached before (``again``, ``by``).
    After ``seconds`` it stops and says that it is partial. About 1.2 µs an object.
    """
    found = Walk()
    # both lists hold the roots' values: to pass through them would make every root the holder of the next ones
    barriers = [*barriers, found, vars(found), found.kept, found.tensors, found.again, found.by, groups, *groups]
    found.parents = {id(barrier): None for barrier in barriers}
    found.parents[id(found.parents)] = None
    found.kept.append(barriers)
    for alternatives in targets:
        ids = frozenset(map(id, alternatives))
        found.missing |= ids
        found.alternatives.update(dict.fromkeys(ids, ids))
    public = {id(vars(m)) for m in list(sys.modules.values()) if type(m) is types.ModuleType}
    search = _Search(found, public, seconds, every_edge)
    with collections_waiting():
        for group in groups:
            if found.partial or not (found.missing or exhaustive):
                break
            search.exhaust_group(group, exhaustive)
    return found


class _Search:
    """The state of one pass: what waits for a later round, and how the objects of each type are opened."""

    def __init__(self, found: Walk, public: set[int], seconds: float, every_edge: bool) -> None:
        self.found = found
        self.public = public | set(found.parents)
        """ids of namespaces that live without the functions that refer to them."""
        self.deadline = time.monotonic() + seconds
        self.every_edge = every_edge
        self.frameworks = frameworks.loaded()
        self.array = getattr(sys.modules.get("numpy"), "ndarray", None)
        self.openers: dict[type, Opener | None] = {}
        self.optimizers: list[object] = []
        self.graphs: list[object] = []
        self.classes: list[type] = []
        self.first_group = True

    def exhaust_group(self, group: Sequence[Root], exhaustive: bool) -> None:
        frontier = self._library_classes()
        for root in group:
            if self._is_new(root.value, root):
                self._reach(root.value, root)
                frontier.append(root.value)
        while frontier and not self.found.partial and (self.found.missing or exhaustive):
            self._exhaust(frontier, exhaustive)
            if self.optimizers:
                frontier, self.optimizers = self._open_optimizers(self.optimizers), []
            else:
                frontier, self.graphs = self._open_graphs(self.graphs), []
        self.first_group = False

    def _is_new(self, obj: object, parent: object) -> bool:
        """Whether it has not been reached yet; if it has, the further reference is kept where all are asked for."""
        if id(obj) not in self.found.parents:
            return True
        if self.every_edge:
            self.found.again.append(id(obj))
            self.found.by.append(parent)
        return False

    def _reach(self, obj: object, parent: object) -> None:
        self.found.parents[id(obj)] = parent
        self.found.reached((id(obj),))

    def _library_classes(self) -> list[object]:
        """The classes that have waited, now roots of their own: what they hold is their module's doing."""
        for cls in self.classes:
            self._reach(cls, Root(f"{module_of(cls)}.{class_name(cls)}", Cause.MODULE, cls))
        waiting: list[object] = [*self.classes]
        self.classes.clear()
        return waiting

    def _exhaust(self, frontier: list[object], exhaustive: bool) -> None:
        """Follow plain references until nothing new is found, all targets are, or the time is over."""
        parents, keep = self.found.parents, self.found.kept.append
        tracked, referents, array, openers = gc.is_tracked, gc.get_referents, self.array, self.openers
        every_edge, again, by = self.every_edge, self.found.again.append, self.found.by.append
        while frontier and (self.found.missing or exhaustive):
            if time.monotonic() > self.deadline:
                self.found.partial = True
                return
            following: list[object] = []
            add = following.append
            for obj in frontier:
                cls = type(obj)
                try:
                    opener = openers[cls]
                except KeyError:
                    opener = openers[cls] = self._opener(cls)
                if opener is None:
                    children: Iterable[object] = referents(obj)
                else:
                    children = opener(obj)
                    keep(children)
                for child in children:
                    key = id(child)
                    if key in parents:
                        if every_edge:
                            again(key)
                            by(obj)
                    elif tracked(child) or type(child) is array:
                        parents[key] = obj
                        add(child)
            self.found.reached(map(id, following))
            frontier = following

    def _open_optimizers(self, optimizers: list[object]) -> list[object]:
        frontier = []
        for obj in optimizers:
            for child in gc.get_referents(obj):
                if gc.is_tracked(child) and self._is_new(child, obj):
                    self._reach(child, obj)
                    frontier.append(child)
        return frontier

    def _open_graphs(self, queue: list[object]) -> list[object]:
        """Enter the graphs of the waiting tensors, node by node; the tensors found there are the next frontier."""
        frontier: list[object] = []
        while queue:
            nodes: list[object] = []
            for obj in queue:
                for framework in self.frameworks:
                    for child in framework.graph(obj):
                        if self._is_new(child, obj):
                            self._reach(child, obj)
                            self.found.kept.append(child)
                            is_node = framework.kind(type(child)) == "node"
                            (nodes if is_node else frontier).append(child)
            queue = nodes
        return frontier

    # ------------------------------------------------------------ how an object is opened
    def _opener(self, cls: type) -> Opener | None:
        """How to ask objects of a type what they refer to; None for the interpreter's own answer."""
        by_type: dict[type, Opener] = {
            types.FunctionType: self._of_function,
            types.FrameType: _of_frame,
            types.ModuleType: _nothing,
        }
        bases = mro(cls)
        if cls in by_type:
            return by_type[cls]
        if type in bases:
            return self._of_class
        if types.ModuleType in bases:
            return _nothing
        if self.array is not None and self.array in bases:
            return self._of_array
        if module_of(cls) == "_thread" and class_name(cls) == "_local":
            return _of_thread_local
        for framework in self.frameworks:
            kind = framework.kind(cls)
            if kind is not None:
                return self._framework_opener(framework, kind)
        return None

    def _framework_opener(self, framework: Framework, kind: frameworks.Kind) -> Opener:
        def of_tensor(obj: Any) -> Iterable[object]:
            self.graphs.append(obj)
            self.found.tensors.append(obj)
            return [*framework.referents(obj), *gc.get_referents(obj)]

        def of_node(obj: Any) -> Iterable[object]:
            self.graphs.append(obj)
            return ()

        def of_optimizer(obj: Any) -> Iterable[object]:
            self.optimizers.append(obj)
            return ()

        def of_module(obj: Any) -> Iterable[object]:
            inner = instance_dict(obj) or {}
            hidden = {id(inner.get(table)) for table in framework.tables} | {id(inner)}
            rest = [child for child in gc.get_referents(obj) if id(child) not in hidden]
            attributes = [value for value in list(inner.values()) if id(value) not in hidden]
            return [*(value for _, value in framework.submodules(obj)), *attributes, *rest]

        return {"tensor": of_tensor, "node": of_node, "optimizer": of_optimizer, "module": of_module}[kind]

    def _of_class(self, cls: type) -> Iterable[object]:
        module = module_of(cls)
        if self.first_group and module != "__main__" and module in sys.modules:
            self.classes.append(cls)
            return ()
        return list(class_dict(cls).values())

    def _of_function(self, function: types.FunctionType) -> Iterable[object]:
        found: list[object] = [*(function.__closure__ or ()), *(function.__defaults__ or ())]
        found += list((function.__kwdefaults__ or {}).values())
        found += list((instance_dict(function) or {}).values())
        if id(function.__globals__) not in self.public:
            found.append(function.__globals__)
        return found

    def _of_array(self, array: Any) -> Iterable[object]:
        """The items of an array of objects: ``gc`` does not look into arrays."""
        base = self.array
        assert base is not None
        items: Iterable[object] = base.view(array, base).ravel().tolist() if base.dtype.__get__(array).hasobject else ()
        return items


def _nothing(_: object) -> Iterable[object]:
    return ()


def _of_frame(frame: types.FrameType) -> Iterable[object]:
    outside = {id(frame.f_globals), id(frame.f_builtins)}
    return [child for child in gc.get_referents(frame) if id(child) not in outside]


def _of_thread_local(local: Any) -> Iterable[object]:
    """A ``threading.local``'s values for this thread; those of others only the threads' own states hold."""
    get: Any = type(local).__getattribute__
    return [*gc.get_referents(local), get(local, "__dict__")]


def class_name(cls: type) -> str:
    """The name of a class, from the class itself."""
    return type.__dict__["__qualname__"].__get__(cls)  # type: ignore[no-any-return]
