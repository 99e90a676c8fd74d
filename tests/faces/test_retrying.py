"""A cell in the loop of its tries: what it shows, where its errors point, and what its names mean to a second run."""
from __future__ import annotations

import ast
import sys

import pytest

from jupyter_gpumem.errors import InputError
from jupyter_gpumem.faces.retrying import NAME, bindings, check_halved, in_a_loop


class Tries:
    """Lets every error pass until so many tries have failed."""

    def __init__(self, most=3):
        self.number, self.most, self.ended, self.shown = 1, most, False, []

    def again(self):
        return not self.ended

    def failed(self, error):
        self.number += 1
        return self.number <= self.most

    def done(self):
        self.ended = True

    def show(self, value):
        self.shown.append(value)

    def size(self, name, value):
        return value >> (self.number - 1)


def run(text, halved=(), interactivity="last_expr", most=3, **names):
    tries = Tries(most)
    scope = {NAME: tries, **names}
    exec(compile(in_a_loop(ast.parse(text), halved, interactivity), "cell", "exec"), scope)
    return tries, scope


FAILING = """
from __future__ import annotations
batch_size = 64
if batch_size > 16:
    raise MemoryError(batch_size)
batch_size
"""


def test_runs_again_with_half():
    tries, scope = run(FAILING, ["batch_size"])
    assert (tries.number, tries.shown, scope["batch_size"]) == (3, [16], 16)


def test_the_error_of_the_last_try_is_the_users():
    with pytest.raises(MemoryError) as caught:
        run(FAILING, ["batch_size"], most=2)
    trace, lines = caught.value.__traceback__, []
    while trace is not None:
        lines += [trace.tb_lineno] if trace.tb_frame.f_code.co_filename == "cell" else []
        trace = trace.tb_next
    assert lines == [5]
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    ("interactivity", "text", "shown"),
    [
        ("last_expr", "1\n2", [2]),
        ("last_expr", "1\nx = 2", []),
        ("last_expr_or_assign", "x = 2", [2]),
        ("last_expr_or_assign", "1\n3", [3]),
        ("all", "1\n2", [1, 2]),
        ("none", "1\n2", []),
        ("last", "for i in range(2): i", []),
    ],
)
def test_shows_what_ipython_would(interactivity, text, shown):
    assert run(text, interactivity=interactivity)[0].shown == shown


def test_functions_keep_their_own_names():
    text = "def f():\n    batch_size = 64\n    return batch_size\nbatch_size = 64\nx = [batch_size for batch_size in (5,)]\nf()"
    tries, scope = run("raised = globals().get('raised', 0) + 1\nif raised < 2: raise MemoryError\n" + text, ["batch_size"])
    assert tries.shown == [64]
    assert (scope["batch_size"], scope["x"]) == (32, [5])


def test_an_empty_cell_stays_empty():
    assert ast.dump(in_a_loop(ast.parse("from __future__ import annotations"), (), "all")) == ast.dump(
        ast.parse("from __future__ import annotations")
    )


@pytest.mark.parametrize(
    ("text", "bound", "needed"),
    [
        ("x = 1", "x", ""),
        ("x = x + 1", "x", "x"),
        ("x += 1", "x", "x"),
        ("y = x", "y", ""),
        ("for i in items: total = i", "i total", ""),
        ("for items in items: pass", "items", "items"),
        ("del model", "model", ""),
        ("print(model); model = None", "model", "model"),
        ("def f(): return state\nstate = f()", "f state", "state"),
        ("state = 0\ndef f(): return state", "f state", ""),
        ("import torch.nn as nn, os.path", "nn os", ""),
        ("with open(path) as path: pass", "path", "path"),
        ("squares = [i * i for i in range(3)]", "squares", ""),
        ("try: x()\nexcept E as e: pass", "e", ""),
        ("(n := n0)", "n", ""),
    ],
)
def test_what_a_cell_binds_and_what_it_needs(text, bound, needed):
    found = bindings(ast.parse(text))
    assert (set(found.bound), set(found.needed)) == (set(bound.split()), set(needed.split()))


@pytest.mark.parametrize(
    ("body", "known", "words"),
    [
        ("train(batch_size)", [], "no such name"),
        ("batch_size, lr = 64, 1", ["batch_size"], "give it a line"),
        ("batch_size //= 2", ["batch_size"], "give it a line"),
        ("for batch_size in (1, 2): pass", [], "give it a line"),
    ],
)
def test_refuses_what_cannot_be_halved(body, known, words):
    with pytest.raises(InputError, match=words):
        check_halved(["batch_size"], body, known)


@pytest.mark.parametrize("body", ["batch_size = 64", "batch_size: int = 64", "train(batch_size)", "!ls", "batch_size = other = 1"])
def test_accepts_what_can(body):
    check_halved(["batch_size"], body, ["batch_size"])


@pytest.mark.skipif(sys.version_info < (3, 11), reason="except* is of Python 3.11")
def test_groups_are_left_to_the_user():
    tries, scope = run("try:\n    raise ExceptionGroup('', [ValueError()])\nexcept* ValueError:\n    seen = 1")
    assert (tries.number, scope["seen"]) == (1, 1)
