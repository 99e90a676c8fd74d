"""The operations behind a tensor."""
from __future__ import annotations

import torch

from jupyter_gpumem.analysis.operations import Operations


def test_operations_come_nearest_first_with_what_they_saved():
    w = torch.ones(10, requires_grad=True)
    x = w * 2
    loss = (x * x).sum()
    found = Operations(loss)
    assert [type(node).__name__ for node in found.order] == [
        "SumBackward0", "MulBackward0", "MulBackward0", "AccumulateGrad",
    ]
    square, leaf = found.order[1], found.order[3]
    assert all(saved is x for saved in found.saved[id(square)])
    assert found.saved[id(leaf)][0] is w
    assert len(set(found.edges)) == 3
    del square, leaf
    found.clear()
    assert (found.order, found.saved) == ([], {})


def test_a_leaf_has_none():
    assert Operations(torch.ones(1, requires_grad=True)).order == []
