"""Reading objects without running their code.

``getattr`` would run properties, ``__getattr__`` and ``__getattribute__``; ``isinstance`` would run a proxy's
``__class__`` and a metaclass's ``__instancecheck__``. Everything here goes through the interpreter's own descriptors.
"""
from __future__ import annotations

import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any

_MRO = type.__dict__["__mro__"]
_DICT = type.__dict__["__dict__"]
_GENUINE = (types.GetSetDescriptorType, types.MemberDescriptorType)
_CO_OPTIMIZED = 0x1
_SNAPSHOT_LOCALS = sys.version_info < (3, 13)


def mro(cls: type) -> tuple[type, ...]:
    """The method resolution order, from the type itself."""
    return _MRO.__get__(cls)  # type: ignore[no-any-return]


def class_dict(cls: type) -> Mapping[str, Any]:
    """The attributes that a class defines itself."""
    found: Mapping[str, Any] = _DICT.__get__(cls)
    return found


def is_a(obj: object, cls: type) -> bool:
    """``isinstance`` by the real type alone."""
    return cls in mro(type(obj))


def instance_dict(obj: object) -> dict[str, Any] | None:
    """The object's own ``__dict__``, even where its class hides it behind a property; None if it has none."""
    for cls in mro(type(obj)):
        descriptor = class_dict(cls).get("__dict__")
        if type(descriptor) in _GENUINE:
            found = descriptor.__get__(obj)  # type: ignore[union-attr]  # not None: it is of a genuine type
            return found if type(found) is dict else None
    return None


def slots(obj: object) -> Iterator[tuple[str, object]]:
    """Names and values of the slots that are set, and of the members of built-in types."""
    for cls in mro(type(obj)):
        for name, descriptor in list(class_dict(cls).items()):
            if type(descriptor) is types.MemberDescriptorType:
                try:
                    yield name, descriptor.__get__(obj)
                except AttributeError:
                    continue


def type_name(obj: object) -> str:
    """``Linear``: the name of the object's type."""
    return type.__dict__["__name__"].__get__(type(obj))  # type: ignore[no-any-return]


def module_of(cls: type) -> str:
    """The name of the module that defines a class; empty if the class does not say."""
    found = class_dict(cls).get("__module__")
    return found if type(found) is str else ""


def frame_locals(frame: types.FrameType) -> dict[str, Any]:
    """A copy of a frame's local variables that leaves nothing behind in the frame.

    Before Python 3.13 reading ``f_locals`` stores a dictionary in the frame, which keeps the values alive. It is
    emptied again, unless the frame's own ``locals()`` has handed it to the user, or a tracer may be working with it.
    The ``f_locals`` of modules and class bodies are their real namespaces and are only copied.
    """
    values = frame.f_locals
    copy = dict(values)
    is_snapshot = _SNAPSHOT_LOCALS and frame.f_code.co_flags & _CO_OPTIMIZED and frame.f_trace is None
    # held by the frame, by ``values`` and by getrefcount's argument; any other reference is the user's
    if is_snapshot and sys.getrefcount(values) <= 3:
        values.clear()
    return copy
