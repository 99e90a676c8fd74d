"""One object in depth: what it holds, by its parts."""
from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from jupyter_gpumem import frameworks
from jupyter_gpumem.analysis.holders import tensors_in
from jupyter_gpumem.analysis.inventory import is_watched
from jupyter_gpumem.analysis.words import saved_tensors
from jupyter_gpumem.frameworks import Framework, Part
from jupyter_gpumem.introspect import instance_dict, is_a, mro, type_name
from jupyter_gpumem.model import NameUse, ObjectUse

_ATOMS = (int, float, complex, str, bytes, type(None), type)
_SEQUENCES = (list, tuple, set, frozenset, collections.deque)


def kind_of(value: object) -> tuple[Framework, frameworks.Kind] | None:
    """The framework that knows an object's type, and what the object is to it."""
    for framework in frameworks.loaded():
        kind = framework.kind(type(value))
        if kind is not None:
            return framework, kind
    return None


def parts_of(tensors: Iterable[object], watched: Sequence[str] | None) -> set[Part]:
    """The storages with bytes under some tensors, each once, on the watched devices."""
    return {
        part
        for tensor in tensors
        for framework in frameworks.loaded()
        if framework.kind(type(tensor)) == "tensor"
        for part in framework.parts(tensor)
        if part.nbytes and is_watched(part.device, watched)
    }


def use_of(name: str, value: object, watched: Sequence[str] | None, barriers: Sequence[object] = ()) -> NameUse:
    """What one value holds on the watched devices, but not through ``barriers``: the shell's own tables, say."""
    is_atom = any(cls in _ATOMS for cls in mro(type(value))) or type_name(value) == "module"
    parts = set() if is_atom else parts_of(tensors_in(value, barriers).values(), watched)
    nbytes = sum(part.nbytes for part in parts)
    known = kind_of(value)
    if known is not None and known[1] == "tensor":
        tensor = known[0].describe(value)
        return NameUse(name, tensor.kind, nbytes, len(parts), tensor.shape, tensor.dtype)
    return NameUse(name, type_name(value), nbytes, len(parts))


def names_in_use(
    values: dict[str, object], watched: Sequence[str] | None, barriers: Sequence[object] = ()
) -> tuple[NameUse, ...]:
    """The names among ``values`` that hold memory of the watched devices, largest first."""
    uses = [use_of(name, value, watched, barriers) for name, value in values.items()]
    return tuple(sorted((use for use in uses if use.storages), key=lambda use: -use.nbytes))


def describe(name: str, value: object, watched: Sequence[str] | None = None, depth: int = 3) -> ObjectUse:
    """A module by parameters, gradients, buffers and submodules; an optimizer by its state; a tensor by gradient and
    graph; a container by item; any other object by attribute. Modules and containers inside are opened in their turn.

    Each part counts all storages that it holds, so that parts which share storages can sum to more than the object.
    """
    whole = use_of(name, value, watched)
    return ObjectUse(name, whole.kind, whole.nbytes, _parts(value, watched, depth, {id(value)}))


def _parts(value: object, watched: Sequence[str] | None, depth: int, above: set[int]) -> tuple[NameUse, ...]:
    """The parts that hold memory, largest first. ``above`` are the ids of what contains it: it may contain itself."""
    known = kind_of(value)
    if known is not None and known[1] == "tensor":
        parts = _of_tensor(known[0], value, watched)
    elif known is not None and known[1] == "module":
        parts = _of_module(known[0], value, watched)
        inside = [(key, child) for key, child in known[0].submodules(value) if kind_of(child) != (known[0], "tensor")]
        parts += [_opened(f".{key}", child, watched, depth, above) for key, child in inside]
    elif known is not None and known[1] == "optimizer":
        parts = _of_optimizer(value, watched)
    else:
        parts = [_opened(key, item, watched, depth, above) for key, item in _items(value)]
    return tuple(sorted((part for part in parts if part.storages), key=lambda part: -part.nbytes))


def _opened(key: str, value: object, watched: Sequence[str] | None, depth: int, above: set[int]) -> NameUse:
    """One part and, where it holds several storages, what it consists of."""
    use = use_of(key, value, watched)
    if depth > 1 and use.storages > 1 and id(value) not in above:
        return replace(use, parts=_parts(value, watched, depth - 1, above | {id(value)}))
    return use


def _group(label: str, kind: str, tensors: Iterable[object], watched: Sequence[str] | None) -> NameUse:
    parts = parts_of(tensors, watched)
    return NameUse(label, kind, sum(part.nbytes for part in parts), len(parts))


def _of_tensor(framework: Framework, tensor: object, watched: Sequence[str] | None) -> list[NameUse]:
    own = parts_of([tensor], watched)
    behind: list[object] = []
    todo = list(framework.graph(tensor))
    seen: dict[int, object] = {}
    while todo:
        obj = todo.pop()
        if id(obj) not in seen:
            seen[id(obj)] = obj
            behind += [obj] if framework.kind(type(obj)) == "tensor" else []
            todo += framework.graph(obj)
    saved = parts_of(behind, watched) - own
    label = f"graph ({saved_tensors(tensor)} saved tensors)"
    return [
        _group("storage", "storage", [tensor], watched),
        _group(".grad", "gradient", framework.referents(tensor), watched),
        NameUse(label, "graph", sum(part.nbytes for part in saved), len(saved)),
    ]


def _of_module(framework: Framework, module: object, watched: Sequence[str] | None) -> list[NameUse]:
    children = list(framework.submodules(module))
    inside = list(tensors_in(module).values())
    gradients = [grad for tensor in inside for grad in framework.referents(tensor)]
    tables = instance_dict(module) or {}
    buffers = set(map(id, (tables.get("_buffers") or {}).values()))
    own = [value for _, value in children if framework.kind(type(value)) == "tensor"]
    return [
        _group("own parameters", "parameters", [t for t in own if id(t) not in buffers], watched),
        _group("own buffers", "buffers", [t for t in own if id(t) in buffers], watched),
        _group("all gradients", "gradients", gradients, watched),
    ]


def _of_optimizer(optimizer: object, watched: Sequence[str] | None) -> list[NameUse]:
    attributes = instance_dict(optimizer) or {}
    by_key: dict[str, list[object]] = {}
    for state in list((attributes.get("state") or {}).values()):
        for key, value in list(state.items()) if isinstance(state, dict) else []:
            by_key.setdefault(str(key), []).append(value)
    uses = [_group(f"state[…]['{key}']", "state", values, watched) for key, values in by_key.items()]
    groups = attributes.get("param_groups") or []
    params = [param for group in groups for param in group.get("params", [])]
    return [*uses, _group("param_groups (shared with the model)", "parameters", params, watched)]


def _items(value: Any) -> list[tuple[str, object]]:
    if is_a(value, dict):
        return [(f"[{_key(key)}]", item) for key, item in list(dict.items(value))]
    for cls in _SEQUENCES:
        if is_a(value, cls):
            iterate: Any = cls.__iter__
            return [(f"[{index}]", item) for index, item in enumerate(list(iterate(value)))]
    return [(f".{key}", item) for key, item in list((instance_dict(value) or {}).items())]


def _key(key: object) -> str:
    return repr(key) if type(key) in (str, int, float, bool, bytes) else type_name(key)
