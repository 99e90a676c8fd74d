"""A call behind --forecast: what only looks things up is accepted, and nothing is made."""
from __future__ import annotations

import pytest

from jupyter_gpumem.errors import InputError
from jupyter_gpumem.faces import calls


class Thing:
    def __init__(self):
        self.step = lambda *args, **kwargs: None
        self.rows = [[1, 2], [3, 4]]

    @property
    def broken(self):
        raise ValueError("no")


NAMES = {"thing": Thing(), "x": object(), "batch": {"x": 5, 0: "first"}, "i": 1, "n": 3}


def value(name):
    if name not in NAMES:
        raise InputError(f"no name {name!r}")
    return NAMES[name]


@pytest.mark.parametrize(
    ("text", "args", "kwargs"),
    [
        ("thing.step(x)", (NAMES["x"],), {}),
        ("thing.step(batch['x'], batch[0], lr=0.1)", (5, "first"), {"lr": 0.1}),
        ("thing.step(thing.rows[i][0:1])", ([3],), {}),
        ("thing.step([x, n], (n,), {'k': n}, -1, None)", ([NAMES["x"], 3], (3,), {"k": 3}, -1, None), {}),
        ("  thing . step( )", (), {}),
    ],
)
def test_names_attributes_items_and_literals(text, args, kwargs):
    call = calls.read(text, value)
    assert (call.function, call.args, call.kwargs) == (NAMES["thing"].step, args, kwargs)


def test_the_words_are_those_typed():
    assert calls.read("thing.step( x,n )", value).words == "thing.step(x, n)"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "takes a call"),
        ("thing.step", "takes a call"),
        ("thing.step(x", "takes a call"),
        ("x(n)", "x cannot be called"),
        ("thing.step(x.cuda())", "are accepted"),
        ("thing.step(x + 1)", "are accepted"),
        ("thing.step([i for i in n])", "are accepted"),
        ("thing.step(**batch)", r"no \*\*"),
        ("thing.step(*batch)", "are accepted"),
        ("thing.step(y)", "no name 'y'"),
        ("thing.step(thing.missing)", "AttributeError"),
        ("thing.step(thing.broken)", "ValueError: no"),
        ("thing.step(batch['z'])", "KeyError"),
        ("thing.step(thing.rows[[0]])", "a number, a string or a slice"),
    ],
)
def test_anything_else_is_refused_in_words(text, words):
    with pytest.raises(InputError, match=words):
        calls.read(text, value)
