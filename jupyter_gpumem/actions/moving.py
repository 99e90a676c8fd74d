"""Moving the device tensors inside a container to host memory, in place, so that the container stays what it is."""
from __future__ import annotations

import collections
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from jupyter_gpumem import frameworks
from jupyter_gpumem.analysis.holders import Look, tensors_in
from jupyter_gpumem.analysis.inventory import is_watched
from jupyter_gpumem.introspect import instance_dict, is_a

_CONTAINERS = (dict, list, tuple, set, frozenset, collections.deque)


@dataclass
class Move:
    """A container whose device tensors are to be moved. Live."""

    name: str
    container: object
    fixed: frozenset[int]
    """ids of objects inside that something else holds too: they are not changed."""


def plan_move(seen: Look, name: str, container: object) -> Move:
    """What of a container may be changed: the parts that no root but ``name`` reaches."""
    fixed = {
        id(part)
        for part in _parts(container, set())
        if (path := seen.walk.path(part)) is not None and path[0].name != name
    }
    return Move(name, container, frozenset(fixed))


def is_mixed(value: object, watched: Sequence[str]) -> bool:
    """Whether a built-in container holds tensors of the watched devices beside other values. None is no value."""
    if not _is_container(value):
        return False
    kinds = {_holds(leaf, watched) for leaf in _leaves(value, set())}
    return kinds == {True, False}


def move(moved: Move, watched: Sequence[str]) -> object:
    """Move, and return what the name should be bound to: the container itself, or a new tuple in its place."""
    return _host_version(moved.container, watched, moved.fixed, {})


def _is_container(value: object) -> bool:
    return any(is_a(value, cls) for cls in _CONTAINERS)


def _items(value: Any) -> list[object]:
    if is_a(value, dict):
        return list(dict.values(value))
    base = next(cls for cls in _CONTAINERS if is_a(value, cls))
    return list(base.__iter__(value))


def _leaves(value: object, seen: set[int]) -> Iterator[object]:
    if id(value) in seen or value is None:
        return
    seen.add(id(value))
    if _is_container(value):
        for item in _items(value):
            yield from _leaves(item, seen)
    else:
        yield value


def _holds(leaf: object, watched: Sequence[str]) -> bool:
    """Whether a leaf is, or holds, a tensor on a watched device."""
    return any(
        is_watched(part.device, watched)
        for tensor in tensors_in(leaf).values()
        for framework in frameworks.loaded()
        if framework.kind(type(tensor)) == "tensor"
        for part in framework.parts(tensor)
    )


def _parts(value: object, seen: set[int]) -> Iterator[object]:
    """The value, and the containers, modules and instances inside it that a move would change."""
    if id(value) in seen:
        return
    seen.add(id(value))
    inner = _items(value) if _is_container(value) else [v for table in _tables(value) for v in table.values()]
    if inner:
        yield value
    for item in inner:
        yield from _parts(item, seen)


def _tables(value: object) -> list[dict[Any, Any]]:
    """The dictionaries in which an instance keeps its attributes, a module's tables of parameters among them."""
    attributes = instance_dict(value)
    if attributes is None or is_a(value, type):
        return []
    names = [name for framework in frameworks.loaded() if framework.kind(type(value)) for name in framework.tables]
    tables = [attributes.get(name) for name in names]
    return [attributes, *(table for table in tables if type(table) is dict)]


def _host_version(value: Any, watched: Sequence[str], fixed: Collection[int], done: dict[int, object]) -> object:
    if id(value) in done:
        return done[id(value)]
    done[id(value)] = value
    for framework in frameworks.loaded():
        if framework.kind(type(value)) == "tensor":
            if any(is_watched(part.device, watched) for part in framework.parts(value)):
                done[id(value)] = framework.to_host(value)
            return done[id(value)]
    if id(value) in fixed:
        return value

    def host(item: object) -> object:
        return _host_version(item, watched, fixed, done)

    if _is_container(value):
        done[id(value)] = _change_container(value, host)
    else:
        for table in _tables(value):
            _change_dict(table, host)
    return done[id(value)]


def _change_dict(table: dict[Any, Any], host: Callable[[object], object]) -> None:
    for key, item in list(dict.items(table)):
        moved = host(item)
        if moved is not item:
            dict.__setitem__(table, key, moved)


def _change_container(value: Any, host: Callable[[object], object]) -> object:
    if is_a(value, dict):
        _change_dict(value, host)
        return value
    before = _items(value)
    after = [host(item) for item in before]
    if all(a is b for a, b in zip(after, before, strict=True)):
        return value
    if is_a(value, tuple):
        return tuple.__new__(type(value), after)
    if is_a(value, frozenset):
        return frozenset(after)
    if is_a(value, set):
        value.clear()
        value.update(after)
    else:
        base = list if is_a(value, list) else collections.deque
        for index, item in enumerate(after):
            base.__setitem__(value, index, item)
    return value
