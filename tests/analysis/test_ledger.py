"""What is allocated now, without a look at everything."""
from __future__ import annotations

import gc

import torch

from jupyter_gpumem.analysis import ledger as module
from jupyter_gpumem.analysis.ledger import Ledger


def host(ledger):
    return ledger.allocators(["cpu"])[0].allocated


def test_follows_what_is_made_and_what_goes():
    ledger = Ledger()
    start = host(ledger)
    tensor = torch.zeros(1000)
    assert host(ledger) - start == 4000
    view = tensor[3:]
    assert host(ledger) - start == 4000
    del tensor, view
    assert host(ledger) == start


def test_is_right_after_collections_too():
    ledger = Ledger()
    start = host(ledger)
    kept = torch.zeros(1000)
    gc.collect(1)
    assert host(ledger) - start == 4000
    more = torch.zeros(500)
    gc.collect()
    assert host(ledger) - start == 6000
    del kept, more


def test_looks_at_everything_only_after_a_collection(monkeypatch):
    gc.collect()
    gc.disable()
    try:
        ledger = Ledger()
        host(ledger)
        monkeypatch.setattr(module, "take_inventory", lambda: 1 / 0)
        tensor = torch.zeros(1000)
        host(ledger)
        del tensor
    finally:
        gc.enable()


def test_what_a_graph_saves_counts():
    ledger = Ledger()
    start = host(ledger)
    weight = torch.ones(1000, requires_grad=True)
    loss = weight.exp().sum()
    assert host(ledger) - start >= 8000
    del weight, loss
