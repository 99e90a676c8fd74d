"""A call rehearsed on tensors without memory: what it would do, in order, and that nothing else happens."""
from __future__ import annotations

import random

import pytest
import torch

from jupyter_gpumem.frameworks import torch_forecast
from jupyter_gpumem.frameworks.records import RehearsalError


def rehearse(function, *args, sizes=None, **kwargs):
    return torch_forecast.rehearse(function, args, kwargs, sizes or {})


def test_storages_in_the_order_of_their_lives():
    def call(x):
        y = x * 2
        z = y + 1
        del y
        return z

    x = torch.ones(100)
    seen = rehearse(call, x)
    begun = [one for one in seen.allocations if not one.existing]
    assert [(one.nbytes, one.operation) for one in begun] == [(400, "aten.mul"), (400, "aten.add")]
    assert [one.frame.function for one in begun] == ["call", "call"]
    numbers = [seen.allocations.index(one) for one in begun]
    assert seen.events.index((numbers[0], 0)) > seen.events.index((numbers[1], 400)), "y ends after z is made"
    assert (numbers[1], 0) not in seen.events, "the result lives on"
    assert [(one.identity, one.shape) for one in seen.inputs] == [(id(x), (100,))]


def test_kinds():
    net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8))
    opt = torch.optim.Adam(net.parameters())

    def step(net, opt, x):
        net(x).sum().backward()
        opt.step()

    seen = rehearse(step, net, opt, torch.ones(4, 8))
    sizes = {}
    for one in seen.allocations:
        sizes.setdefault(one.kind, []).append(one.nbytes)
    parameters = sorted(p.nbytes for p in net.parameters())
    assert sorted(sizes["parameters"]) == parameters
    assert sorted(sizes["gradients"]) == parameters
    assert sum(sizes["optimizer"]) >= 2 * sum(parameters)
    assert 128 in sizes["inputs"]
    assert sizes["activations"]
    assert sizes["temporaries"]


def test_the_session_stays_what_it_is(capsys):
    net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8))
    opt = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    log = []

    def step(x):
        print("said")
        log.append(random.random())
        loss = net(x).sum()
        loss.backward()
        opt.step()
        return loss.item()

    versions = [p._version for p in net.parameters()]
    seen = rehearse(step, torch.ones(4, 8))
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert [p.grad for p in net.parameters()] == [None] * 4
    assert [p._version for p in net.parameters()] == versions
    assert dict(opt.state) == {}
    assert log == []
    assert capsys.readouterr().out == ""
    assert any("taken for" in words for words, _ in seen.notes)


def test_another_first_dimension():
    x = torch.ones(4, 8)
    seen = rehearse(lambda x: x + 1, x, sizes={id(x): 10})
    assert {one.nbytes for one in seen.allocations if not one.existing} == {10 * 8 * 4}
    assert x.shape == (4, 8)


@pytest.mark.parametrize(
    ("call", "words"),
    [(lambda x: x[x > 0], "values"), (lambda x: 1 / 0, "ZeroDivisionError")],
    ids=["mask", "fails"],
)
def test_what_cannot_be_rehearsed_says_why(call, words):
    with pytest.raises(RehearsalError, match=words):
        rehearse(call, torch.ones(3))


def test_no_figure_without_a_context():
    assert torch_forecast.free_bytes("cuda:0") is None
