"""Objects are read without running their code."""
from __future__ import annotations

import sys

import pytest

from jupyter_gpumem import introspect


class Hostile:
    """Every way of asking raises."""

    def __init__(self):
        object.__setattr__(self, "kept", 1)

    def __getattribute__(self, name):
        raise RuntimeError(f"ran __getattribute__({name})")

    __class__ = property(lambda self: 1 / 0)
    __eq__ = __hash__ = __len__ = __repr__ = __bool__ = lambda self, *_: 1 / 0


def test_reads_a_hostile_instance():
    obj = Hostile()
    assert introspect.instance_dict(obj) == {"kept": 1}
    assert introspect.is_a(obj, Hostile)
    assert introspect.type_name(obj) == "Hostile"
    assert introspect.module_of(type(obj)) == __name__


def test_reads_past_a_property_called_dict():
    class Shadowed:
        __dict__ = property(lambda self: 1 / 0)

    obj = Shadowed()
    assert introspect.instance_dict(obj) in ({}, None)


def test_reads_slots():
    class Slotted:
        __slots__ = ("empty", "full")

    obj = Slotted()
    obj.full = [1]
    assert dict(introspect.slots(obj)) == {"full": [1]}


def test_looking_at_a_frame_leaves_nothing_behind():
    class Thing:
        pass

    def outer():
        thing = Thing()
        yield sys._getframe()
        del thing
        yield None

    generator = outer()
    frame = next(generator)
    thing = introspect.frame_locals(frame)["thing"]
    kind, count = type(thing), sys.getrefcount(thing)
    for _ in range(3):
        introspect.frame_locals(frame)
    again = sys.getrefcount(thing)
    del thing, frame
    assert (kind, again) == (Thing, count)
    next(generator)


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="locals() is a snapshot of its own since 3.13")
def test_a_dictionary_that_the_user_took_from_locals_is_not_emptied():
    def user():
        value = "kept"
        mine = locals()
        yield sys._getframe()
        assert mine["value"] == value
        yield "done"

    generator = user()
    introspect.frame_locals(next(generator))
    assert next(generator) == "done"


def test_a_class_body_keeps_its_names():
    class Body:
        a = 1
        introspect.frame_locals(sys._getframe())
        b = a + 1

    assert (Body.a, Body.b) == (1, 2)
