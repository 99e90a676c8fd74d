"""Paths of references in the words that a person would use.

A path is a root and the objects from its value to a tensor. Each kind of object has one function that says how it
holds the next: ``.weight``, ``[3]``, `` → closure 'maps'``. Objects that a person does not think of (the dictionary
of an instance, the cell of a closure, a traceback) say nothing.
"""
from __future__ import annotations

import collections
import sys
import threading
import types

from jupyter_gpumem import frameworks
from jupyter_gpumem.analysis.references import Root, Walk
from jupyter_gpumem.analysis.words import GENERATORS, KEY, Namer, attribute, is_tensor, kind_of, step
from jupyter_gpumem.introspect import instance_dict, mro, type_name
from jupyter_gpumem.model import Cause, Holder

_ORDERED = collections.OrderedDict
_OF_GRAPHS = ("tensor", "node")


def holder(walk: Walk, target: object) -> Holder | None:
    """The first path to ``target`` that a walk has found."""
    known = _known_graph(walk, target)
    if known is not None:
        return known
    found = walk.path(target)
    if found is None:
        return None
    made = along(walk, *found)
    walk.in_graph.update((id(obj), made) for obj in _graph_at_end(found[1]))
    return made


def _known_graph(walk: Walk, target: object) -> Holder | None:
    """The words of a path into the same graph: without them it would be walked again for each tensor in it."""
    way: list[object] = [target]
    while id(way[-1]) not in walk.in_graph:
        parent = walk.parents.get(id(way[-1]))
        if parent is None or type(parent) is Root or kind_of(way[-1]) not in _OF_GRAPHS:
            return None
        way.append(parent)
    found = walk.in_graph[id(way[-1])]
    walk.in_graph.update((id(obj), found) for obj in way)
    return found


def _graph_at_end(objects: list[object]) -> list[object]:
    """The end of a path that is said in one word: from the first node on, nothing but nodes and tensors."""
    start = len(objects)
    while start and kind_of(objects[start - 1]) in _OF_GRAPHS:
        start -= 1
    node = next((at for at in range(start, len(objects)) if kind_of(objects[at]) == "node"), len(objects))
    return objects[node:]


def along(walk: Walk, root: Root, objects: list[object]) -> Holder:
    """One path: a root, and the objects from its value to what is held."""
    root, objects = _nearer_root(root, objects)
    name = _namer(walk)
    text = ""
    if root.cause is Cause.MODULE and type(root.value) is dict and len(objects) > 1:
        text, objects = attribute(root.value, objects[1], name), objects[1:]
    elif root.cause is Cause.OUTPUT and len(objects) > 1 and not is_tensor(objects[0]):
        text = f" ({type_name(objects[0])})"
    text += steps(objects, name, walk.graph_sizes)
    if root.label.endswith(": task"):
        text = text.replace(" → coroutine ", " ", 1)
    return Holder(root.label + text, root.cause, root.name)


def _nearer_root(root: Root, objects: list[object]) -> tuple[Root, list[object]]:
    """Begin where a person would: at the logger, the task or the shell, not in the module that lists them."""
    if root.cause not in (Cause.MODULE, Cause.RUNNING):
        return root, objects
    for index in range(len(objects) - 1, -1, -1):
        obj = objects[index]
        kind = _landmark(obj)
        if kind == "event loop":
            rest = objects[index:]
            tasks = [at for at, step in enumerate(rest) if type(step) in GENERATORS]
            start = tasks[0] if tasks else 0
            label = "event loop: task" if tasks else "event loop"
            return Root(label, Cause.RUNNING, rest[start]), rest[start:]
        if kind == "logger":
            name = (instance_dict(obj) or {}).get("name")
            return Root(f"logger '{name}'", Cause.REGISTRY, obj), objects[index:]
        if kind == "shell":
            return Root("shell", Cause.REGISTRY, obj), objects[index:]
    return root, objects


def _landmark(obj: object) -> str | None:
    for module, cls, kind in (
        ("asyncio", "AbstractEventLoop", "event loop"),
        ("logging", "Logger", "logger"),
        ("IPython.core.interactiveshell", "InteractiveShell", "shell"),
    ):
        known = getattr(sys.modules.get(module), cls, None)
        if known is not None and known in mro(type(obj)):
            return kind
    return None


def _namer(walk: Walk, depth: int = 1) -> Namer:
    """How to name a key that is itself an object with a name, as the parameters in ``optimizer.state``."""

    def name(key: object) -> str | None:
        found = walk.path(key) if depth else None
        if found is None or found[0].cause is not Cause.NAME:
            return None
        root, objects = found
        text = root.label + steps(objects, _namer(walk, depth - 1), walk.graph_sizes)
        return None if text.endswith(KEY) else text  # a key has no better name than its kind

    return name


def steps(objects: list[object], name: Namer, graph_sizes: dict[int, int] | None = None) -> str:
    """The text of a path from its first object to its last. ``graph_sizes`` is :attr:`Walk.graph_sizes`."""
    graph_sizes = {} if graph_sizes is None else graph_sizes
    objects = _without_plumbing(objects)
    text = ""
    index = 0
    while index + 1 < len(objects):
        words, used = step(objects, index, name, graph_sizes)
        text += words
        index += used
    return text


def _without_plumbing(objects: list[object]) -> list[object]:
    """The path without what a person does not think of: instance dictionaries, tables of modules, closure tuples."""
    kept: list[object] = []
    for index, obj in enumerate(objects):
        between = kept and index + 1 < len(objects)
        if not (between and type(obj) in (dict, tuple, _ORDERED) and _is_plumbing(kept[-1], obj)):
            kept.append(obj)
    return kept


def _is_plumbing(owner: object, inner: object) -> bool:
    if type(owner) is types.FunctionType:
        return any(inner is part for part in (owner.__closure__, owner.__defaults__, owner.__kwdefaults__))
    if type(owner) is threading.local:
        return type(inner) is dict
    attributes = instance_dict(owner)
    if inner is attributes:
        return True
    tables = [name for framework in frameworks.loaded() if kind_of(owner) == "module" for name in framework.tables]
    return any(inner is (attributes or {}).get(name) for name in tables)
