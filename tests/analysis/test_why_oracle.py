"""``why`` against an oracle that only builds, deletes and collects: who holds, who alone holds, the smallest cut.

A recipe is a list of nodes, each a kind of holder and the numbers of what it holds; node 0 is the tensor. It can be
built again and again, so that the oracle may try every deletion on a copy of its own.
"""
from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import gc
import itertools
import types

import numpy
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch.multiprocessing.reductions import StorageWeakRef

from jupyter_gpumem.analysis.why import why
from jupyter_gpumem.model import Cause


class Slotted:
    __slots__ = ("a", "b", "c")


@dataclasses.dataclass
class Data:
    a: object = None
    b: object = None
    c: object = None


class Method:
    def __init__(self, held):
        self.a = held

    def run(self):
        return self.a


class Lazy:
    def __init__(self, make):
        self._make = make

    @functools.cached_property
    def value(self):
        return self._make()


def attributes(made, held):
    for name, value in zip("abc", held, strict=False):
        setattr(made, name, value)
    return made


def generator(held):
    def work(items):
        yield 1
        yield items

    made = work(held)
    next(made)
    return made


def closure(held):
    def inner():
        return held

    return inner


def default(held):
    def inner(items=held):
        return items

    return inner


def keyword_default(held):
    def inner(*, items=held):
        return items

    return inner


def cached(held):
    box = [held]

    @functools.lru_cache
    def load():
        return box.pop()

    load()
    return load


def cached_property(held):
    box = [held]
    made = Lazy(box.pop)
    made.value  # computing it is the point
    return made


def object_array(held):
    made = numpy.empty(len(held), dtype=object)
    for index, item in enumerate(held):
        made[index] = item
    return made


def raised(held):
    try:
        raise ValueError(held)
    except ValueError as error:
        return error.with_traceback(None)


def context(held):
    @contextlib.contextmanager
    def manage(items):
        yield items

    made = manage(held)
    made.__enter__()
    return made


def enumerated(held):
    made = enumerate(held)
    next(made)
    return made


KINDS = {
    "list": list,
    "tuple": tuple,
    "dict": lambda held: {f"k{i}": item for i, item in enumerate(held)},
    "deque": collections.deque,
    "ordered": lambda held: collections.OrderedDict(enumerate(held)),
    "defaultdict": lambda held: collections.defaultdict(list, dict(enumerate(held))),
    "namespace": lambda held: attributes(types.SimpleNamespace(), held),
    "dataclass": lambda held: attributes(Data(), held),
    "slots": lambda held: attributes(Slotted(), held),
    "module": lambda held: attributes(torch.nn.Module(), held),
    "array": object_array,
    "generator": generator,
    "closure": closure,
    "default": default,
    "keyword default": keyword_default,
    "partial": lambda held: functools.partial(print, *held),
    "partial keywords": lambda held: functools.partial(print, end=held),
    "method": lambda held: Method(held).run,
    "cache": cached,
    "cached property": cached_property,
    "exception": raised,
    "context manager": context,
    "enumerate": enumerated,
    "chain": itertools.chain,
    "tee": lambda held: itertools.tee(held)[0],
    "map": lambda held: map(print, held),
    "mapping proxy": lambda held: types.MappingProxyType({"k": held}),
    "static": lambda held: staticmethod(closure(held)),
    "frozen": lambda held: dataclasses.make_dataclass("Frozen", ["a"], frozen=True)(held),
}
FIXED = {"tuple", "partial"}
"""Kinds whose items cannot be let go of one by one. The other kinds keep them in a list of theirs, at least."""
WHOLE = {"method", "cached property", "mapping proxy", "frozen"}
"""Kinds that can let go of that list."""


@dataclasses.dataclass(frozen=True)
class Recipe:
    nodes: tuple[tuple[str, tuple[int, ...]], ...]
    names: tuple[int, ...]
    """For each name ``n0``, ``n1``, … the number of its node."""

    def build(self, space, without=frozenset()):
        """Bind the names in ``space``; ``without`` are edges ``(name or node, place)`` that are left out."""
        tensor = torch.zeros(1111)
        values = [tensor]
        for number, (kind, held) in enumerate(self.nodes, 1):
            gone = (number, "whole") in without
            items = [None if gone or (number, place) in without else values[of] for place, of in enumerate(held)]
            values.append(KINDS[kind](items))
        for index, of in enumerate(self.names):
            if ("name", index) not in without:
                space[f"n{index}"] = values[of]
        return StorageWeakRef(tensor.untyped_storage())

    def edges(self):
        """What can be let go of, one by one."""
        found = [("name", index) for index in range(len(self.names))]
        for number, (kind, held) in enumerate(self.nodes, 1):
            found += [(number, place) for place in range(len(held)) if kind not in FIXED]
            found += [(number, "whole")] if kind in WHOLE else []
        return found


@st.composite
def recipes(draw):
    nodes = []
    for number in range(1, draw(st.integers(1, 6)) + 1):
        kind = draw(st.sampled_from(sorted(KINDS)))
        # nearer nodes are likelier, so that paths become long
        held = draw(st.lists(st.integers(max(0, number - 3), number - 1), min_size=1, max_size=3))
        nodes.append((kind, tuple(held)))
    names = draw(st.lists(st.integers(0, len(nodes)), min_size=1, max_size=4))
    return Recipe(tuple(nodes), tuple(names))


def lives(recipe, without):
    """Whether the tensor lives if these edges are not there."""
    space = {}
    storage = recipe.build(space, frozenset(without))
    gc.collect()
    return not storage.expired()


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    phases=[Phase.generate],  # a search traces each line while it shrinks and explains, for minutes
)
@given(recipe=recipes())
def test_holders_and_cuts_are_those_of_the_oracle(shell, recipe):
    for name in [name for name in shell.user_ns if name[:1] == "n" and name[1:].isdigit()]:
        del shell.user_ns[name]
    names = [("name", index) for index in range(len(recipe.names))]
    gc.collect()
    gc.freeze()  # so that the oracle's many collections are quick
    try:
        if not lives(recipe, ()):
            return
        true = {name for name in names if lives(recipe, [other for other in names if other != name])}
        alone = {name for name in names if not lives(recipe, [name])}
        edges = recipe.edges()
        size = next(n for n in range(1, len(names) + 1) for cut in itertools.combinations(edges, n) if not lives(recipe, cut))
    finally:
        gc.unfreeze()
    storage = recipe.build(shell.user_ns)
    found = why(shell, None, at=("cpu", storage.cdata), most=50, seconds=120)
    assert not found.partial
    assert {holder.cause for holder in found.holders} == {Cause.NAME}, found
    assert {holder.name for holder in found.holders} == {f"n{index}" for _, index in true}
    assert {holder.name for holder in found.holders if holder.frees} == {f"n{index}" for _, index in alone}
    if len(true) > 1:
        assert len(found.cuts) == size, (found, size)
