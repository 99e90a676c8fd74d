"""One object in depth: a tree in which each storage is counted once, so that the parts sum to the object's bytes.

A storage belongs to the first part that has it. What is plainly there comes first: parameters, items, attributes. Then
what functions and hooks keep, then what can only be searched (generators, objects of C code), and last what autograd
graphs saved. So a weight is its module's and not some graph's, and an activation that a name keeps is the name's.
"""
from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from jupyter_gpumem import frameworks, session
from jupyter_gpumem.analysis.holders import names_of, tensors_in
from jupyter_gpumem.analysis.objects import ATOMS, SEQUENCES, kind_of, parts_of
from jupyter_gpumem.analysis.operations import Operations
from jupyter_gpumem.analysis.words import is_tensor
from jupyter_gpumem.frameworks import Framework
from jupyter_gpumem.frameworks.records import Part
from jupyter_gpumem.introspect import instance_dict, is_a, mro, slots, type_name
from jupyter_gpumem.model import NameUse, ObjectUse

_DEPTH = 12
"""Levels that are opened one by one; what lies deeper is searched as a whole."""
_MOST = 50_000
"""Objects that are opened one by one."""
_NOT_OPENED = (*ATOMS, types.ModuleType, types.BuiltinFunctionType, range, slice)
_MOST_SEARCHES = 100
_PREFETCHED = ("_task_info", "_data_queue")
"""Where the iterator of a DataLoader keeps batches that its workers have sent and nobody has asked for yet."""
_PLAIN = (dict, *SEQUENCES)
_OPEN = (*_PLAIN, types.MethodType, partial)
"""Types that show all that they hold."""
_LEAF = "AccumulateGrad"
"""The node of an autograd graph that ends in a leaf."""
_FUNCTIONS, _SEARCHED, _GRAPHS = range(3)
"""What waits until all that is plainly there has been counted, in this order."""


def describe(
    name: str, value: object, watched: Sequence[str] | None = None, shell: session.Shell | None = None
) -> ObjectUse:
    """An object by its parts, largest first: a module by submodule with parameters, gradients, buffers and what hooks
    keep; an optimizer by its state and below it by parameter; a container by item; a tensor by the operations of its
    graph; any other object by attribute.

    ``shell`` is where the names of parameters are looked up. No code of the object's runs.
    """
    tree = _Tree(value, watched, shell)
    try:
        root = tree.build(name, value)
    finally:
        tree.clear()
    return ObjectUse(name, root.kind, root.nbytes, root.parts)


@dataclass
class _Node:
    """A part while it is being filled."""

    name: str
    kind: str
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    path: str = ""
    nbytes: int = 0
    storages: int = 0
    """Its own, beside those of its parts."""
    parts: list[_Node] = field(default_factory=list)
    shared_with: str | None = None
    """Where its storages are counted, if they are counted elsewhere and the part is to be listed even so."""

    def add(self, name: str, kind: str) -> _Node:
        """A new part of it."""
        part = _Node(name, kind, path=self.path + name)
        self.parts.append(part)
        return part

    def finished(self, is_root: bool = False) -> NameUse:
        """The record, with its parts largest first and without those that have nothing to tell."""
        listed = [part.finished() for part in self.parts]
        held = [part for part in listed if part.storages]
        both = zip(listed, self.parts, strict=True)
        shown = [part for part, node in both if part.storages or part.parts or node.shared_with]
        nbytes = self.nbytes + sum(part.nbytes for part in held)
        if self.storages and (held or is_root):
            shown.append(NameUse("storage", "storage", self.nbytes, self.storages))
        shown.sort(key=lambda part: -part.nbytes)
        storages = self.storages + sum(part.storages for part in held)
        kind = f"{self.kind}, counted at {self.shared_with}" if self.shared_with and not storages else self.kind
        return NameUse(self.name, kind, nbytes, storages, self.shape, self.dtype, parts=tuple(shown))


class _Tree:
    """Counts the storages of one object, part by part. Live, until it is cleared."""

    def __init__(self, value: object, watched: Sequence[str] | None, shell: session.Shell | None) -> None:
        self.watched, self.shell = watched, shell
        self.barriers = [one for one in session.internals(shell) if one is not value]
        self.left = self._parts(tensors_in(value, self.barriers).values())
        """The storages that no part has yet."""
        self.places: dict[Part, str] = {}
        """Storage of a parameter → where it has been counted."""
        self.opened: dict[int, object] = {id(one): one for one in self.barriers}
        self.later: list[list[Callable[[], None]]] = [[], [], []]
        self.asked_for = value
        self.operations: dict[int, object] = {}
        """Nodes of graphs that have been opened."""
        self.not_opened: dict[type, bool] = {}
        self.kinds: dict[type, tuple[Framework, frameworks.Kind] | None] = {}

    def build(self, name: str, value: object) -> NameUse:
        """The whole tree."""
        root = _Node(name, type_name(value), path=name)
        self._open(root, value, 0)
        for turn, most in ((_FUNCTIONS, _MOST), (_SEARCHED, _MOST_SEARCHES), (_GRAPHS, _MOST)):
            for number, step in enumerate(self.later[turn]):  # a step may append further ones
                if number >= most or not self.left:
                    break
                step()
        rest = root.add("held in other ways", "by classes, hooks of graphs and the like")
        rest.nbytes, rest.storages = sum(part.nbytes for part in self.left), len(self.left)
        return root.finished(is_root=True)

    def clear(self) -> None:
        """Let go of every live object."""
        self.asked_for = None
        self.opened.clear()
        self.operations.clear()
        self.not_opened.clear()
        self.kinds.clear()
        self.later.clear()
        self.barriers.clear()

    # ------------------------------------------------------------ counting
    def _parts(self, tensors: Iterable[object]) -> set[Part]:
        return parts_of(tensors, self.watched)

    def _count(self, node: _Node, tensor: object) -> bool:
        """Give a tensor's storages to a part, if no other has them."""
        mine = self._parts([tensor]) & self.left
        self.left -= mine
        node.nbytes += sum(part.nbytes for part in mine)
        node.storages += len(mine)
        return bool(mine)

    def _add_tensor(self, node: _Node, name: str, framework: Framework, tensor: object) -> _Node:
        """A part that is one tensor's storage."""
        told = framework.describe(tensor)
        part = node.add(name, told.kind)
        part.shape, part.dtype = told.shape, told.dtype
        self._count(part, tensor)
        return part

    # ------------------------------------------------------------ opening
    def _open(self, node: _Node, value: Any, depth: int) -> None:
        if id(value) in self.opened or self._is_atom(type(value)):
            return
        known = self._kind(value)
        if known is not None and known[1] == "tensor":
            self._open_tensor(node, known[0], value, depth)
        elif depth >= _DEPTH or len(self.opened) >= _MOST:
            self.later[_SEARCHED].append(partial(self._search, node, value))
        else:
            self.opened[id(value)] = value
            if known is not None and known[1] == "module":
                self._open_module(node, known[0], value, depth)
            elif known is not None and known[1] == "optimizer":
                self._open_optimizer(node, value, depth)
            elif type(value) is types.FunctionType:
                self.later[_FUNCTIONS].append(partial(self._open_function, node, value, depth))
            else:
                for key, item in items(value) if known is None else ():
                    self._add(node, key, item, depth)
                if not instance_dict(value) and type(value) not in _OPEN:  # of C code, which may have more
                    self.later[_SEARCHED].append(partial(self._search, node, value))

    def _search(self, node: _Node, value: object) -> None:
        """Give a part all that can be reached from an object."""
        for tensor in tensors_in(value, self.barriers).values():
            self._count(node, tensor)

    def _add(self, node: _Node, name: str, value: object, depth: int) -> None:
        """A further part, opened in its turn."""
        if id(value) not in self.opened and not self._is_atom(type(value)):
            self._open(node.add(name, type_name(value)), value, depth + 1)

    def _is_atom(self, cls: type) -> bool:
        if cls not in self.not_opened:
            self.not_opened[cls] = any(base in _NOT_OPENED for base in mro(cls))
        return self.not_opened[cls]

    def _kind(self, value: object) -> tuple[Framework, frameworks.Kind] | None:
        cls = type(value)
        if cls not in self.kinds:
            self.kinds[cls] = kind_of(value)
        return self.kinds[cls]

    def _open_tensor(self, node: _Node, framework: Framework, tensor: object, depth: int) -> None:
        told = framework.describe(tensor)
        node.kind, node.shape, node.dtype = told.kind, told.shape, told.dtype
        self._count(node, tensor)
        if id(tensor) in self.opened:
            return
        self.opened[id(tensor)] = tensor
        for grad in framework.referents(tensor):
            self._add_tensor(node, ".grad", framework, grad)
        for key, value in list((instance_dict(tensor) or {}).items()):  # of a wrapper, its inner tensors
            self._add(node, f".{key}", value, depth)
        if framework.graph(tensor):
            self.later[_GRAPHS].append(partial(self._open_graph, node, tensor))

    def _open_module(self, node: _Node, framework: Framework, module: object, depth: int) -> None:
        inner = instance_dict(module) or {}
        buffers = {id(value) for value in (inner.get("_buffers") or {}).values()}
        held = [(key, value, self._kind(value)) for key, value in framework.submodules(module)]
        tensors = [(f".{key}", value) for key, value, known in held if known == (framework, "tensor")]
        parameters = [(key, value) for key, value in tensors if id(value) not in buffers]
        self._add_group(node, "parameters", framework, parameters)
        grads = [(key, grad) for key, value in parameters for grad in framework.referents(value)]
        self._add_group(node, "gradients", framework, grads)
        self._add_group(node, "buffers", framework, [(key, value) for key, value in tensors if id(value) in buffers])
        for key, value, known in held:
            if known != (framework, "tensor"):
                self._add(node, f".{key}", value, depth)
        for key, value in list(inner.items()):
            if "hook" in key and is_a(value, dict):
                self.later[_FUNCTIONS].append(partial(self._open_hooks, node, value, depth))
            elif key not in framework.tables:
                self.later[_FUNCTIONS].append(partial(self._add, node, f".{key}", value, depth))

    def _add_group(
        self, node: _Node, name: str, framework: Framework, tensors: Sequence[tuple[str, object]]
    ) -> None:
        """Tensors of one sort. One that is counted elsewhere is listed too, as tied weights are."""
        if not tensors:
            return
        group = node.add(name, name)
        for key, tensor in tensors:
            parts = self._parts([tensor])
            self.opened[id(tensor)] = tensor
            part = self._add_tensor(group, key, framework, tensor)
            if not part.storages:
                part.shared_with = next((self.places[one] for one in parts if one in self.places), None)
            self.places.update(dict.fromkeys(parts - self.places.keys(), f"{node.path}{key}"))

    # ------------------------------------------------------------ optimizers
    def _open_optimizer(self, node: _Node, optimizer: object, depth: int) -> None:
        inner = instance_dict(optimizer) or {}
        groups = [group for group in _plain(list, inner.get("param_groups")) if is_a(group, dict)]
        params = [param for group in groups for param in _plain(list, dict.get(group, "params"))]
        states = [(param, state) for param, state in _plain_items(inner.get("state")) if is_a(state, dict)]
        names = self._parameter_names(params, optimizer)
        for param, state in states:
            for key, value in list(dict.items(state)):
                group = self._part(node, f"state[…][{_key(key)}]", "state")
                self._add(group, names.get(id(param)) or type_name(param), value, depth)
        known = [(param, found[0]) for param in params if (found := self._kind(param)) is not None]
        shared = node.add("param_groups (shared with the model)", "parameters")
        grads = node.add("gradients of these", "gradients")
        for param, framework in known:
            self.opened[id(param)] = param
            self._add_tensor(shared, names[id(param)], framework, param)
            for grad in framework.referents(param):
                self._add_tensor(grads, names[id(param)], framework, grad)
        for key, value in list(inner.items()):
            if key not in ("state", "param_groups"):
                self.later[_FUNCTIONS].append(partial(self._add, node, f".{key}", value, depth))

    def _part(self, node: _Node, name: str, kind: str) -> _Node:
        """The part of this name."""
        return next((part for part in node.parts if part.name == name), None) or node.add(name, kind)

    def _parameter_names(self, params: Sequence[object], optimizer: object) -> dict[int, str]:
        """id → the path from a name of the notebook that does not lead through the optimizer, or number and shape."""
        found = names_of(self.shell, params, but=optimizer)
        names = {}
        for number, param in enumerate(params):
            known = self._kind(param)
            shape = known[0].describe(param).shape if known is not None and known[1] == "tensor" else ()
            size = "×".join(map(str, shape)) or "scalar"
            names[id(param)] = found.get(id(param), f"param {number} ({size})")
        return names

    # ------------------------------------------------------------ what waits
    def _open_hooks(self, node: _Node, hooks: dict[Any, object], depth: int) -> None:
        """What the hooks of a module keep, whose outputs they may have collected."""
        group = self._part(node, "kept by hooks", "hooks")
        for hook in list(dict.values(hooks)):
            self._add(group, hook.__name__ if type(hook) is types.FunctionType else type_name(hook), hook, depth)

    def _open_function(self, node: _Node, function: types.FunctionType, depth: int) -> None:
        """What a function's closure, defaults and attributes hold."""
        variables = function.__code__.co_freevars
        for variable, cell in zip(variables, function.__closure__ or (), strict=False):
            for value in _content(cell):
                self._add(node, f"closure '{variable}'", value, depth)
        for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self._add(node, "default", value, depth)
        for key, value in list((instance_dict(function) or {}).items()):
            self._add(node, f".{key}", value, depth)

    def _open_graph(self, node: _Node, tensor: object) -> None:
        """The operations behind a tensor, with what each saved and no earlier part has."""
        found = Operations(tensor, self.operations)
        saved = {id(one) for several in found.saved.values() for one in several} - {id(tensor)}
        group = node.add(f"graph ({len(saved)} saved tensors)", "graph")
        # the leaves first: an operation that uses a weight keeps it, but it is not the operation that it came with
        leaves = [one for node in found.order if type_name(node) == _LEAF for one in found.saved[id(node)]]
        names = names_of(self.shell, leaves) if tensor is self.asked_for else {}
        for leaf in leaves:
            for framework in frameworks.loaded():
                if framework.kind(type(leaf)) == "tensor":
                    part = self._add_tensor(group, names.get(id(leaf), "leaf"), framework, leaf)
                    for grad in framework.referents(leaf):
                        self._add_tensor(part, ".grad", framework, grad)
        for operation in found.order:
            part = group.add(type_name(operation), "saved")
            mine = [one for one in found.saved[id(operation)] if self._count(part, one)]
            known = self._kind(mine[0]) if len(mine) == 1 else None
            if known is not None:
                told = known[0].describe(mine[0])
                part.kind, part.shape, part.dtype = told.kind, told.shape, told.dtype
        found.clear()


# ---------------------------------------------------------------- what an object consists of
def items(value: Any) -> list[tuple[str, object]]:
    """The parts of a container or of an instance, as a person would write them."""
    found: list[tuple[str, object]] = []
    if is_a(value, dict):
        found += [(f"[{_key(key)}]", item) for key, item in list(dict.items(value))]
        found += [(" → a key", key) for key in list(dict.keys(value)) if is_tensor(key)]
    for cls in SEQUENCES:
        if is_a(value, cls):
            iterate: Any = cls.__iter__
            found += [(f"[{index}]", item) for index, item in enumerate(list(iterate(value)))]
    found += [(_attribute(key), item) for key, item in list((instance_dict(value) or {}).items())]
    if type(value) not in _PLAIN:
        found += [(f".{key}", item) for key, item in slots(value)]
    return found


def _attribute(key: object) -> str:
    return "prefetched batches" if key in _PREFETCHED else f".{key}" if type(key) is str else f"[{type_name(key)}]"


def _key(key: object) -> str:
    return repr(key) if type(key) in (str, int, float, bool, bytes) else type_name(key)


def _plain(cls: type, value: Any) -> list[Any]:
    """The items of a list, or nothing."""
    return list(cls.__iter__(value)) if is_a(value, cls) else []  # type: ignore[attr-defined]


def _plain_items(value: Any) -> Iterable[tuple[Any, Any]]:
    return list(dict.items(value)) if is_a(value, dict) else []


def _content(cell: types.CellType) -> Iterator[object]:
    try:
        yield cell.cell_contents
    except ValueError:  # not yet filled
        return
