"""One object in depth."""
from __future__ import annotations

import torch
from torch import nn

from jupyter_gpumem.analysis.objects import describe, names_in_use


def parts(value):
    return {part.name: part.nbytes for part in describe("x", value).parts}


def test_a_module_by_parameters_gradients_and_submodules():
    net = nn.Sequential(nn.Linear(8, 8, bias=False), nn.BatchNorm1d(8))
    net(torch.ones(4, 8)).sum().backward()
    found = parts(net)
    assert found[".0"] == 2 * 256
    assert found["all gradients"] == 256 + 2 * 32
    assert parts(net[1])["own buffers"] == 32 + 32 + 8


def test_an_optimizer_by_state():
    net = nn.Linear(8, 8, bias=False)
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.ones(1, 8)).sum().backward()
    optimizer.step()
    found = parts(optimizer)
    assert found["state[…]['exp_avg']"] == 256
    assert found["param_groups (shared with the model)"] == 256


def test_a_container_by_item_and_an_instance_by_attribute():
    class Thing:
        def __init__(self):
            self.big = torch.zeros(10)

    assert parts({"a": torch.zeros(2), "n": 3, "deep": [torch.zeros(3)]}) == {"['deep']": 12, "['a']": 8}
    assert parts(Thing()) == {".big": 40}


def test_a_loss_by_its_graph():
    weight = torch.ones(100, requires_grad=True)
    found = parts(weight.exp().sum())
    assert found["storage"] == 4
    assert any(name.startswith("graph (") and nbytes == 800 for name, nbytes in found.items())


def test_names_in_use_leave_out_what_holds_nothing():
    uses = names_in_use({"n": 1, "text": "x", "t": torch.zeros(3), "f": len, "big": [torch.zeros(5)]}, ["cpu"])
    assert [(use.name, use.nbytes, use.shape) for use in uses] == [("big", 20, None), ("t", 12, (3,))]


def test_modules_and_containers_inside_are_opened():
    inner = torch.nn.Sequential(torch.nn.Linear(100, 10), torch.nn.Linear(10, 1))
    use = describe("box", {"net": torch.nn.Sequential(inner, torch.nn.Linear(1, 1)), "x": torch.zeros(3)})
    (net,) = [part for part in use.parts if part.name == "['net']"]
    assert [part.name for part in net.parts] == [".0", ".1"]
    assert [part.name for part in net.parts[0].parts] == [".0", ".1"]
    assert net.parts[0].nbytes == 4 * (100 * 10 + 10 + 10 + 1)
    assert net.parts[0].parts[0].parts == ()


def test_what_contains_itself_is_opened_once():
    ring = [torch.zeros(10), torch.zeros(20)]
    ring.append(ring)
    use = describe("ring", ring)
    assert [part.name for part in use.parts] == ["[2]", "[1]", "[0]"]
    assert use.parts[0].parts == ()
