"""Graphs as plain values."""
from __future__ import annotations

import gc

import pytest

from jupyter_gpumem.analysis.advice import forwards, gathering


def found(shell):
    """The user's graphs by path, and whether some were left out."""
    evidence = gathering.gather(shell, ("cpu",))
    return {one.path: one for one in evidence.forwards}, evidence.partial


def test_what_a_loss_was_made_of_is_a_part_of_it(shell):
    shell.run_cell("import torch\nw = torch.ones(100, requires_grad=True)\nx = w.exp()\nloss = (x * x).sum()\nplain = torch.ones(3)")
    graphs, cut = found(shell)
    assert set(graphs) == {"x", "loss"} and not cut
    x, loss = graphs["x"], graphs["loss"]
    assert x.nodes < loss.nodes and x.leaves == loss.leaves == {id(shell.user_ns["w"])}
    assert loss.scalar and not x.scalar and loss.terms == 1
    assert not loss.saved and len(loss.inputs) == 2, "names hold x and w too"


@pytest.mark.parametrize(
    ("code", "terms"),
    [
        ("total = 0\nfor _ in range(5): total = total + (w * 2).sum()", 5),
        ("total = torch.zeros(())\nfor _ in range(4): total += (w * 2).sum()", 4),
        ("total = sum([(w * 2).sum() for _ in range(3)])", 3),
        ("x = (w * 2).exp()\ntotal = x.sum() + x.mean() + x.std()", 1),
        ("total = (w * 2).sum() + (v * 2).sum() + (w * v).sum()", 1),
        ("total = (w * 2).sum() + 1", 1),
        ("total = (w * 2).sum()", 1),
    ],
    ids=["new", "in place", "sum", "one forward", "other leaves", "a number", "no sum"],
)
def test_graphs_that_were_added_up(shell, code, terms):
    shell.run_cell("import torch\nw = torch.ones(10, requires_grad=True)\nv = torch.ones(10, requires_grad=True)\n" + code)
    assert found(shell)[0]["total"].terms == terms


def test_items_have_a_pattern(shell):
    shell.run_cell("import torch\nw = torch.ones(10, requires_grad=True)\nlosses = [(w * 2).sum() for _ in range(3)]")
    graphs, _ = found(shell)
    assert {one.pattern for one in graphs.values()} == {"losses[·]"}
    assert {one.name for one in graphs.values()} == {"losses"}


def test_checkpointed_graphs_are_known(shell):
    shell.run_cell("import torch\nfrom torch.utils.checkpoint import checkpoint\nw = torch.ones(10, requires_grad=True)\n"
                   "y = checkpoint(lambda x: x.exp().exp(), w, use_reentrant=False).sum()\nz = w.exp().sum()")
    graphs, _ = found(shell)
    assert graphs["y"].checkpointed and not graphs["z"].checkpointed


def test_a_graph_that_is_too_large_is_left_out_and_said(shell, monkeypatch):
    monkeypatch.setattr(forwards, "MOST", 50)
    shell.run_cell("import torch\nw = torch.ones(2, requires_grad=True)\nsmall = w * 2\nlarge = w\nfor _ in range(60): large = large * 2")
    graphs, cut = found(shell)
    assert set(graphs) == {"small"} and cut


def test_nothing_of_it_stays(shell):
    shell.run_cell("import torch\nw = torch.ones(10, requires_grad=True)\nloss = (w * 2).exp().sum()")
    found(shell)
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(20):
        found(shell)
    gc.collect()
    assert len(gc.get_objects()) - before < 20
