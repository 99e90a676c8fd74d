"""How each kind of object holds the next one."""
from __future__ import annotations

import collections
import functools
import itertools

import pytest
import torch
from torch import nn

from jupyter_gpumem.analysis import paths
from jupyter_gpumem.analysis.references import Root, walk
from jupyter_gpumem.model import Cause


def path(value, target, name="x"):
    found = walk([[Root(name, Cause.NAME, value, name)]], [[target]], ())
    return paths.holder(found, target).path


T = torch.zeros(3)
Pair = collections.namedtuple("Pair", "left right")


class Thing:
    def __init__(self, kept):
        self.kept = kept

    def method(self):
        return self.kept


class Slotted:
    __slots__ = ("kept",)


def slotted():
    made = Slotted()
    made.kept = T
    return made


def closure():
    inner = T
    return lambda: inner


def default(state=T, *, memo=None):
    return state


def generator():
    def load():
        samples = T
        yield 1
        return samples

    made = load()
    next(made)
    return made


def cache():
    function = functools.lru_cache(lambda x: [T])
    function(1)
    return function


def pairs():
    made = enumerate(iter([[T], 2]))
    next(made)
    return made


def tee():
    first, second = itertools.tee(iter([[T]]))
    next(first)
    return second


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: T, "x"),
        (lambda: [1, T], "x[1]"),
        (lambda: {"a": {2: T}}, "x['a'][2]"),
        (lambda: {("a", 1): T}, "x[('a', 1)]"),
        (lambda: Pair(1, T), "x.right"),
        (lambda: collections.deque([1, T]), "x[1]"),
        (lambda: Thing([T]), "x.kept[0]"),
        (slotted, "x.kept"),
        (lambda: Thing(T).method, "x → method method of Thing.kept"),
        (lambda: nn.Sequential(nn.Sequential(nn.Identity(), Holder(T))), "x.0.1.weight"),
        (closure, "x → closure 'inner'"),
        (lambda: default, "x → default of 'state'"),
        (generator, "x → generator load(), local 'samples'"),
        (cache, "x → its cache[0]"),
        (pairs, "x → last pair of enumerate[1][0]"),
        (tee, "x → buffer of tee[0]"),
        (lambda: functools.partial(print, T), "x → partial.args[0]"),
        (lambda: {T}, "x → an item"),
    ],
)
def test_words(make, expected):
    assert path(make(), T) == expected


class Holder(nn.Module):
    def __init__(self, tensor):
        super().__init__()
        self.register_buffer("weight", tensor)
