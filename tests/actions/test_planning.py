"""What would go, and who holds the rest."""
from __future__ import annotations

import pytest

from jupyter_gpumem.actions.planning import Request, check_names, prepare
from jupyter_gpumem.errors import InputError
from jupyter_gpumem.model import Step

HOST = ("cpu",)


def plan(shell, **options):
    return prepare(shell, Request(HOST, **options)).plan


def ids(table):
    return {key: id(value) for key, value in table.items()}


def steps(made):
    return {(action.step, action.target): action.nbytes for action in made.actions}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("modle", "did you mean 'model'"),
        ("print", "built into Python"),
        ("sys", "is a module"),
        ("a b", "not a Python name"),
        ("1x", "not a Python name"),
    ],
)
def test_bad_names_are_refused_with_the_nearest_match(shell, name, words):
    shell.run_cell("import sys\nmodel = 1")
    with pytest.raises(InputError, match=words):
        check_names(shell, [name])


def test_a_name_that_shadows_a_builtin_is_the_users(shell):
    shell.run_cell("input = [1]")
    check_names(shell, ["input"])


def test_planning_changes_nothing(shell, capsys):
    shell.run_cell("import torch\ntorch.zeros(1000)", store_history=True)
    shell.run_cell("def f():\n    inside = torch.zeros(2000)\n    1 / 0\nf()")
    before = ids(shell.user_ns), ids(shell.user_ns["Out"])  # a copy here would hold the output, and be named for it
    made = steps(plan(shell))
    assert made[Step.OUTPUT, "Out[1]"] == 4000
    assert made[Step.LAST_ERROR, "last error"] == 8000
    assert (ids(shell.user_ns), ids(shell.user_ns["Out"])) == before
    assert plan(shell).promised == 12000
    capsys.readouterr()


def test_what_may_stay_stays(shell, capsys):
    shell.run_cell("import torch\ntorch.zeros(1000)", store_history=True)
    shell.run_cell("def f():\n    inside = torch.zeros(2000)\n    1 / 0\nf()")
    assert (Step.OUTPUT, "Out[1]") not in steps(plan(shell, output=False))
    assert (Step.LAST_ERROR, "last error") not in steps(plan(shell, error=False))
    capsys.readouterr()


def test_a_name_promises_only_what_nobody_else_holds(shell):
    shell.run_cell("import torch\na = [torch.zeros(1000), torch.zeros(500)]\nb = a[0]")
    made = plan(shell, names=("a",), dangling=False)
    assert steps(made)[Step.NAME, "a"] == 2000
    assert [holding.holder.path for holding in made.held] == ["b"]


def test_references_that_python_cannot_see_are_noted(shell):
    shell.run_cell(
        "import torch\nw = torch.ones(1000, requires_grad=True)\nx = torch.zeros(1000)\n"
        "loss = (w * x).sum()\nkept = loss.grad_fn\n"
    )
    made = plan(shell, names=("x",), dangling=False)
    assert made.held, "the graph of the loss saved it"
    assert "graph" in made.held[0].holder.path
