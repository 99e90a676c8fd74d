"""One pass from the roots."""
from __future__ import annotations

import functools
import gc
import sys
import types

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpumem.analysis.references import Root, walk
from jupyter_gpumem.model import Cause


class Thing:
    def __init__(self, **kept):
        vars(self).update(kept)


class Slotted:
    __slots__ = ("kept",)


def reached(holder, target):
    found = walk([[Root("it", Cause.NAME, holder)], []], [[target]], ())
    return found.reaches(target)


def closure(value):
    return lambda: value


def default(value):
    def function(x=value, *, y=None):
        return x

    return function


def generator(value):
    def run():
        kept = value
        yield 1
        return kept

    made = run()
    next(made)
    return made


def slotted(value):
    made = Slotted()
    made.kept = value
    return made


def array(value):
    made = numpy.empty(2, dtype=object)
    made[1] = value
    return made


def cached(value):
    @functools.lru_cache
    def function(x):
        return [value]

    function(1)
    return function


def private_globals(value):
    return types.FunctionType((lambda: kept).__code__, {"kept": value})  # noqa: F821


def error(value):
    def fail():
        inside = value
        raise ValueError(inside is None)

    try:
        fail()
    except ValueError as caught:
        return caught


@pytest.mark.parametrize(
    "hold",
    [
        lambda v: v, lambda v: [v], lambda v: {"k": v}, lambda v: {v: 1}, lambda v: (1, v), lambda v: {v},
        lambda v: Thing(a=v), lambda v: Thing(a=Thing(b=[v])), slotted, closure, default, generator, array, cached,
        lambda v: functools.partial(print, v), lambda v: Thing(a=v).__init__, lambda v: type("C", (), {"kept": v}),
        lambda v: enumerate([v]), private_globals, error, lambda v: iter([v]), lambda v: map(str, [v]),
    ],
)
def test_every_kind_of_holder_is_followed(hold):
    target = Thing()
    assert reached(hold(target), target)


def test_globals_of_a_module_are_not_what_its_functions_hold():
    target = Thing()
    globals()["kept_here"] = target
    try:
        assert not reached(reached, target)
        assert not reached(Thing(f=reached), target)
    finally:
        del globals()["kept_here"]


def test_a_class_of_a_library_waits_for_the_second_group(monkeypatch):
    target = Thing()
    monkeypatch.setattr(Thing, "registry", [target], raising=False)
    monkeypatch.setitem(sys.modules, Thing.__module__, types.ModuleType(Thing.__module__))
    names, live = [Root("x", Cause.NAME, Thing())], [Root("m", Cause.MODULE, {"unrelated": []})]
    found = walk([names, live], [[target]], ())
    root, _ = found.path(target)
    assert root.cause is Cause.MODULE
    assert "Thing" in root.label


def test_the_first_group_wins_and_its_shortest_path():
    target = Thing()
    groups = [[Root("far", Cause.NAME, [[[target]]]), Root("near", Cause.NAME, [target])], [Root("late", Cause.OUTPUT, target)]]
    root, objects = walk(groups, [[target]], ()).path(target)
    assert root.label == "near"
    assert objects[-1] is target


def test_barriers_are_not_passed():
    target = Thing()
    wall = [target]
    assert not walk([[Root("x", Cause.NAME, [wall])]], [[target]], [wall]).reaches(target)


def test_one_of_the_alternatives_is_enough():
    first, second = Thing(), Thing()
    found = walk([[Root("x", Cause.NAME, [first])], [Root("y", Cause.NAME, [second])]], [[first, second]], ())
    assert found.missing == set()
    assert not found.reaches(second), "the second group was not needed"


def test_running_out_of_time_is_said():
    found = walk([[Root("x", Cause.NAME, [[1], [2]])]], [[Thing()]], (), seconds=-1)
    assert found.partial


def test_nothing_is_held_after_clearing():
    target = Thing()
    count = sys.getrefcount(target)
    found = walk([[Root("x", Cause.NAME, [target])]], [[target]], (), exhaustive=True)
    found.clear()
    del found
    assert sys.getrefcount(target) == count


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11), st.sampled_from("lda")), max_size=40))
def test_reaches_exactly_what_is_reachable(edges):
    nodes = [Thing(items=[], table={}) for _ in range(12)]
    for start, end, kind in edges:
        if kind == "l":
            nodes[start].items.append(nodes[end])
        elif kind == "d":
            nodes[start].table[len(nodes[start].table)] = nodes[end]
        else:
            setattr(nodes[start], f"a{end}", nodes[end])
    expected, todo = set(), [0]
    while todo:
        node = todo.pop()
        if node not in expected:
            expected.add(node)
            todo += [end for start, end, _ in edges if start == node]
    found = walk([[Root("x", Cause.NAME, nodes[0])]], (), [nodes], exhaustive=True)
    assert {i for i in range(12) if found.reaches(nodes[i])} == expected
    found.clear()
    gc.collect()
