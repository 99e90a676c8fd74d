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


def holder(walk: Walk, target: object) -> Holder | None:
    """The first path to ``target`` that a walk has found."""
    found = walk.path(target)
    return along(walk, *found) if found is not None else None


def along(walk: Walk, root: Root, objects: list[object]) -> Holder:
    """One path: a root, and the objects from its value to what is held."""
    root, objects = _nearer_root(root, objects)
    name = _namer(walk)
    text = ""
    if root.cause is Cause.MODULE and type(root.value) is dict and len(objects) > 1:
        text, objects = attribute(root.value, objects[1], name), objects[1:]
    elif root.cause is Cause.OUTPUT and len(objects) > 1 and not is_tensor(objects[0]):
        text = f" ({type_name(objects[0])})"
    text += steps(objects, name)
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
        text = root.label + steps(objects, _namer(walk, depth - 1))
        return None if text.endswith(KEY) else text  # a key has no better name than its kind

    return name


def steps(objects: list[object], name: Namer) -> str:
    """The text of a path from its first object to its last."""
    objects = _without_plumbing(objects)
    text = ""
    index = 0
    while index + 1 < len(objects):
        words, used = step(objects, index, name)
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
