"""A second set of a call's objects: what was shared is shared again, the first set stays what it is."""
from __future__ import annotations

import collections
import functools
import threading
import weakref

import pytest

from jupyter_gpumem.errors import InputError
from jupyter_gpumem.frameworks.copying import Copier


class Tensor:
    """What stands for one here."""


class Box:
    def __init__(self, **inner):
        self.__dict__.update(inner)

    def read(self):
        return self.value


class Slotted:
    __slots__ = ("value",)


def copier():
    made = {}

    def twin(obj):
        return made.setdefault(id(obj), Tensor()) if type(obj) is Tensor else None

    return Copier(twin, lambda filename: filename == __file__)


def test_containers_and_what_they_share():
    shared = [1]
    first = {"a": shared, "b": (shared, {2}), "c": collections.deque([shared]), "d": collections.OrderedDict(x=shared)}
    second = copier().copy(first)
    assert second == first
    assert second["a"] is second["b"][0] is second["c"][0] is second["d"]["x"]
    second["a"].append(2)
    assert shared == [1]


def test_rings():
    ring = []
    ring.append(ring)
    made = copier().copy(ring)
    assert made is not ring
    assert made[0] is made


def test_objects_without_their_classes_code():
    class Loud(Box):
        def __setattr__(self, name, value):
            raise AssertionError

        def __deepcopy__(self, memo):
            raise AssertionError

    tensor = Tensor()
    loud, slotted = Loud(value=tensor, again=tensor), Slotted()
    slotted.value = loud
    made = copier().copy(slotted)
    assert type(made) is Slotted
    assert made.value is not loud
    assert made.value.value is made.value.again is not tensor


def test_functions_methods_partials_and_weak_references():
    box = Box(value=[1])

    def outer(held=box):
        return lambda: (held, box)

    first = [box, outer(), box.read, functools.partial(outer, box), weakref.ref(box), box.value.append]
    new, closure, read, partial, ref, append = copier().copy(first)
    assert new is not box
    assert closure() == (new, new)
    append(5)
    assert read() == [1, 5]
    assert partial.args == (new,)
    assert ref() is new
    assert box.value == [1]


STATE = [0]


def counting():
    STATE.append(1)
    return STATE


def test_the_globals_that_a_function_of_the_users_uses():
    made = copier().copy(counting)
    assert made() == [0, 1]
    assert STATE == [0]


def test_what_is_the_processes_is_shared():
    lock, thread = threading.Lock(), threading.current_thread()
    for obj in (lock, thread, weakref, Box, 3, "text", None, open):
        assert copier().copy(obj) is obj


@pytest.mark.parametrize("obj", [(i for i in ()), iter([1]), map(str, [1])], ids=["generator", "iterator", "map"])
def test_what_gives_its_items_once_is_refused(obj):
    with pytest.raises(InputError, match="use up"):
        copier().copy({"x": obj})


def test_pairs_are_told_and_forgotten():
    made, box = copier(), Box()
    twin = made.copy(box)
    assert any(first is box and second is twin for first, second in made.pairs())
    made.release()
    assert list(made.pairs()) == []
