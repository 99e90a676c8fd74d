"""Autograd graphs, node by node."""
from __future__ import annotations

import gc

import pytest
import torch

from jupyter_gpumem.analysis.graphs import graph
from jupyter_gpumem.errors import InputError


def test_nodes_edges_and_bytes_of_a_graph(shell):
    shell.run_cell("import torch\nw = torch.ones(1000, requires_grad=True)\nx = w * 2\nloss = (x * x).sum()")
    found = graph(shell, "loss", shell.user_ns["loss"])
    labels = [node.label for node in found.nodes]
    assert labels == ["SumBackward0", "MulBackward0", "MulBackward0", "w"]
    assert 8000 <= found.nbytes <= 8016  # x, the leaf that the graph ends in, and perhaps the 2 as a scalar
    assert sum(node.nbytes for node in found.nodes) == found.nbytes
    assert found.edges == ((0, 1), (1, 2), (1, 2), (2, 3)) or set(found.edges) == {(0, 1), (1, 2), (2, 3)}
    assert found.nodes[-1].is_leaf and "float32 1000" in found.nodes[-1].saved


def test_a_long_graph_is_cut_and_says_so(shell):
    x = torch.ones(4, requires_grad=True)
    for _ in range(600):
        x = x * 1.5
    found = graph(shell, "x", x)
    assert len(found.nodes) == 400 and found.left_out == 201


def test_what_has_no_graph_is_an_input_error(shell):
    with pytest.raises(InputError, match="is a int"):
        graph(shell, "x", 3)
    with pytest.raises(InputError, match="has no graph"):
        graph(shell, "x", torch.ones(2))


def test_looking_keeps_nothing(shell):
    x = (torch.ones(100, requires_grad=True) * 2).exp()
    graph(shell, "x", x)
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(50):
        graph(shell, "x", x)
    gc.collect()
    assert len(gc.get_objects()) - before < 20
