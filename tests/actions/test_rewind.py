"""The way back to the moment before a try, and what bars it."""
from __future__ import annotations

import random

import pytest
import torch

from jupyter_gpumem.actions.rewind import Bindings, Start


def begin(shell, bound=(), needed=()):
    return Start(shell, Bindings(frozenset(bound), frozenset(needed)))


def test_names_of_the_try_are_deleted_and_the_others_are_what_they_were(shell):
    shell.run_cell("kept = [1]; rebound = 'old'")
    kept = shell.user_ns["kept"]
    start = begin(shell, ["rebound", "made"])
    shell.run_cell("rebound = 'new'; made = 3")
    assert start.refusal() is None
    start.put_back()
    assert shell.user_ns["rebound"] == "old"
    assert shell.user_ns["kept"] is kept
    assert "made" not in shell.user_ns


def test_a_deleted_name_comes_back(shell):
    shell.run_cell("x = 1")
    start = begin(shell, ["x"])
    shell.run_cell("del x")
    start.put_back()
    assert shell.user_ns["x"] == 1


def test_the_old_model_may_go_when_the_cell_makes_a_new_one(shell):
    shell.run_cell("import torch, weakref\nmodel = torch.nn.Linear(3, 3)\nref = weakref.ref(model)")
    start = begin(shell, ["model"])
    shell.run_cell("model = None\ngone = ref() is None\nmodel = torch.nn.Linear(5, 5)")
    assert shell.user_ns["gone"]
    assert start.refusal() is None
    start.put_back()
    assert "model" not in shell.user_ns


@pytest.mark.parametrize("made", ["[torch.ones(3)]", "Model()"])
def test_a_new_value_at_the_address_of_the_old_one_is_new(shell, made):
    shell.run_cell(f"import torch\nclass Model:\n    def __init__(self): self.weight = torch.ones(3)\nx = {made}")
    start = begin(shell, ["x"])
    shell.run_cell(f"x = None\nx = {made}")
    start._ids["x"] = id(shell.user_ns["x"])  # a freed object's memory is the next one's sooner or later
    start.put_back()
    assert "x" not in shell.user_ns


def test_what_a_second_run_reads_is_held(shell):
    shell.run_cell("import torch\nx = torch.ones(3)")
    first = shell.user_ns["x"]
    start = begin(shell, ["x"], ["x"])
    shell.run_cell("x = x * 2")
    start.put_back()
    assert shell.user_ns["x"] is first


@pytest.mark.parametrize(
    ("setup", "work", "bound", "words"),
    [
        ("x = torch.ones(3)", "del x", ["x"], "'x' was deleted"),
        ("x = torch.ones(3)", "exec('x = torch.zeros(3)')", [], "'x' was bound anew"),
        ("net = torch.nn.Linear(3, 1)", "torch.nn.init.zeros_(net.weight)", [], "net.weight changed in place"),
        (
            "net = torch.nn.Linear(3, 1); opt = torch.optim.Adam(net.parameters())",
            "net(torch.ones(1, 3)).sum().backward(); opt.step()",
            [],
            "net.* and 1 more tensor changed in place",
        ),
        ("pool = [torch.zeros(3)]", "pool[0] += 1", [], r"pool\[0\] changed in place"),
    ],
)
def test_what_bars_a_second_run(shell, setup, work, bound, words):
    shell.run_cell(f"import torch\n{setup}").raise_error()
    start = begin(shell, bound)
    assert start.refusal() is None
    shell.run_cell(work).raise_error()
    import re

    assert re.search(words, start.refusal())


def test_random_states_go_back(shell):
    start = begin(shell)
    first = (random.random(), torch.rand(1))
    start.put_back()
    assert (random.random(), torch.rand(1)) == first


def test_a_function_has_no_names(shell):
    shell.run_cell("x = 1")
    start = Start(shell)
    shell.run_cell("x = 2; y = 3")
    assert start.refusal() is None
    start.put_back()
    assert (shell.user_ns["x"], shell.user_ns["y"]) == (2, 3)
