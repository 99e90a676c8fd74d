"""The evidence of a session."""
from __future__ import annotations

import pytest

from jupyter_gpumem.analysis.advice import gathering

SESSION = """
import torch
from torch import nn
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.norm = nn.Linear(8, 8), nn.BatchNorm1d(8)
    def forward(self, x): return x + self.norm(self.a(x))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.blocks, self.last = nn.Linear(4, 8), nn.ModuleList([Block() for _ in range(5)]), nn.Linear(8, 2)
    def forward(self, x):
        x = self.first(x)
        for block in self.blocks: x = block(x)
        return self.last(x)
class Trainer: pass
trainer = Trainer(); trainer.net = Net()
opt = torch.optim.Adam(trainer.net.parameters())
"""


@pytest.fixture
def evidence(shell):
    def gather(cell):
        shell.run_cell(cell)
        return gathering.gather(shell, ("cpu",))

    return gather


def mine(found, name):
    return next(one for one in found if one.name == name)


def test_models_with_their_rows_and_weights(evidence):
    model = mine(evidence(SESSION).models, "trainer")
    assert (model.path, model.kind, model.training) == ("trainer.net", "Net", True)
    weights = {weight.path: weight for weight in model.weights}
    assert weights["blocks.3.a.weight"].shape == (8, 8) and weights["blocks.3.a.weight"].trains
    assert weights["blocks.3.norm.running_mean"].buffer and not weights["blocks.3.norm.running_mean"].trains
    (row,) = model.rows
    assert (row.path, row.kind, row.number, len(row.tensors)) == ("trainer.net.blocks", "ModuleList", 5, 5 * 7)


def test_layers_between_others_are_a_row(evidence):
    cell = "import torch\nfrom torch import nn\nmodel = nn.Sequential(*[p for _ in range(4) for p in (nn.Linear(8, 8), nn.ReLU())], nn.Linear(8, 2))"
    (row,) = mine(evidence(cell).models, "model").rows
    assert (row.path, row.number, len(row.tensors)) == ("model", 4, 8)


@pytest.mark.parametrize("layers", ["[nn.Linear(8, 8) for _ in range(3)]", "[nn.Linear(8, 8 + i) for i in range(5)]", "[nn.ReLU() for _ in range(9)]"])
def test_few_other_or_empty_layers_are_none(evidence, layers):
    assert mine(evidence(f"from torch import nn\nmodel = nn.ModuleList({layers})").models, "model").rows == ()


def test_a_model_in_evaluation_mode_and_what_is_part_of_another(evidence):
    found = evidence(SESSION + "trainer.net.eval()\nnet = trainer.net\n")
    assert [(one.path, one.training) for one in found.models if one.name in ("net", "trainer")] == [("net", False)]


def test_optimizers_with_states_by_parameter(evidence):
    found = evidence(SESSION + "trainer.net(torch.ones(3, 4)).sum().backward(); opt.step()\ntrainer.net.last.bias.requires_grad_(False)\ntrainer.net.last.bias.grad = None")
    optimizer = mine(found.optimizers, "opt")
    assert optimizer.tensors == mine(found.models, "trainer").parameters
    (frozen,) = [state for state in optimizer.states if not state.trains]
    assert frozen.step == 1.0 and not frozen.graded and found.nbytes(frozen.keys) == 2 * 8 + 4
    assert all(state.graded for state in optimizer.states if state.trains)


def test_storages_have_their_part(evidence):
    found = evidence(SESSION + "trainer.net(torch.ones(3, 4)).sum().backward(); opt.step()\n"
                     "w = torch.ones(50, requires_grad=True); loss = w.exp().sum()\nitems = [torch.ones(7)]\nd = {'a': torch.ones(9)}")
    roles = {one.path: one.role for one in found.kept.values()}
    assert roles["trainer.net.last.weight"] == "parameter"
    assert roles["trainer.net.last.weight.grad"] == "gradient"
    assert roles["trainer.net.blocks.0.norm.running_var"] == "buffer"
    assert "state" in roles.values()
    assert [one.saved for one in found.kept.values() if one.name == "loss" and one.shape == (50,)] == [True]
    assert {one.path: one.container for one in found.kept.values() if one.name in ("items", "d")} == {"items[0]": "list", "d['a']": "dict"}


def test_gradients_are_read_and_those_that_something_unseen_shares_are_not_promised(evidence):
    found = evidence("import torch\nm = torch.nn.Linear(3, 3)\nm(torch.ones(1, 3)).sum().backward(); m.zero_grad(set_to_none=False)")
    one = mine(found.gradients, "m")
    assert (one.zero, one.number, one.read, one.whole, found.nbytes(one.keys)) == (True, 2, 48, 48, 48)
    found = evidence("m.bias.grad[1] = 5")
    assert mine(found.gradients, "m").zero is False


def test_reading_is_bounded(evidence, monkeypatch):
    monkeypatch.setattr(gathering, "MOST_READ", 1 << 20)
    found = evidence("import torch\nbig = torch.nn.Linear(2000, 2000)\nfor p in big.parameters(): p.grad = torch.zeros_like(p)")
    one = mine(found.gradients, "big")
    assert one.zero and one.read <= (1 << 20) + (16 << 10) and one.whole > 15 << 20


def test_dictionaries_of_tensors_down_to_some_depth(evidence):
    found = evidence("import torch\nckpt = {'model': {'a.w': torch.ones(3), 'a.b': torch.ones(5)}, 'opt': {'state': {0: {'m': torch.ones(7)}}}, 'n': 3}")
    tables = {copy.path: copy for copy in found.copies if copy.name == "ckpt"}
    assert set(tables) == {"ckpt['model']", "ckpt['opt']['state'][0]"}
    assert tables["ckpt['model']"].entries["a.b"][0] == (5,)
    assert len(tables["ckpt['model']"].keys) == 3, "all that the name holds"


def test_a_dictionary_that_contains_itself_ends(evidence):
    found = evidence("import torch\nd = {'x': torch.ones(3)}\nd['d'] = d")
    assert any(copy.name == "d" for copy in found.copies)


def test_bounded_collections_are_no_container(evidence):
    found = evidence("import torch, collections\na = collections.deque([torch.ones(3)], maxlen=4)\nb = collections.deque([torch.ones(3)])")
    assert {one.name: one.container for one in found.kept.values() if one.name in ("a", "b")} == {"a": "", "b": "deque"}


def test_without_a_framework_there_is_nothing(run_on):
    got = run_on("none", "from jupyter_gpumem.analysis.advice import gathering; e = gathering.gather(None, ('cpu',)); print(len(e.kept) + len(e.models))")
    assert got.json == 0


def test_no_code_of_the_users_runs(evidence, shell):
    cell = """
import torch
ran = []
class Table(dict):
    def items(self): ran.append("items"); return super().items()
    __iter__ = keys = values = __len__ = __getitem__ = items
class Key:
    def __hash__(self): ran.append("hash"); return 1
    def __eq__(self, other): ran.append("eq"); return True
class Net(torch.nn.Linear):
    def __getattribute__(self, name): ran.append(name); return super().__getattribute__(name)
    def parameters(self): ran.append("parameters"); return super().parameters()
table = Table(a=torch.ones(3)); table[Key()] = torch.ones(3); table["b"] = torch.ones(3)
net = Net(3, 3)
ran.clear()
"""
    evidence(cell)
    assert shell.user_ns["ran"] == []
