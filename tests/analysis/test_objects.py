"""What a name holds."""
from __future__ import annotations

import torch
from torch import nn

from jupyter_gpumem.analysis.objects import kind_of, names_in_use


def test_names_in_use_leave_out_what_holds_nothing():
    uses = names_in_use({"n": 1, "text": "x", "t": torch.zeros(3), "f": len, "big": [torch.zeros(5)]}, ["cpu"])
    assert [(use.name, use.nbytes, use.shape) for use in uses] == [("big", 20, None), ("t", 12, (3,))]


def test_what_an_object_is_to_a_framework():
    net = nn.Linear(1, 1)
    things = (torch.zeros(1), net, torch.optim.SGD(net.parameters()), net(torch.ones(1)).grad_fn)
    assert [kind_of(thing)[1] for thing in things] == ["tensor", "module", "optimizer", "node"]
    assert kind_of([1]) is None
