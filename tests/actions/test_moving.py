"""Containers that hold other values too keep them; the tensors go to the host."""
from __future__ import annotations

import pytest
import torch

from jupyter_gpumem.actions.moving import is_mixed


@pytest.mark.parametrize(
    ("value", "mixed"),
    [
        ({"loss": 1.0, "out": torch.zeros(2)}, True),
        ([torch.zeros(2), "label"], True),
        ([{"loss": 0.5, "deep": (1, [torch.zeros(1)])}], True),
        ([torch.zeros(2), torch.zeros(3)], False),
        ((torch.zeros(2), None), False),
        ({"weight": torch.zeros(2)}, False),
        ([1, 2], False),
        (torch.nn.Linear(2, 2), False),
        (torch.zeros(2), False),
    ],
)
def test_mixed(value, mixed):
    assert is_mixed(value, ["cpu"]) is mixed


MOVES = """
import collections, json, os, tempfile, torch
os.environ["IPYTHONDIR"] = tempfile.mkdtemp()
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.user_ns.update(DEVICE=DEVICE, torch=torch, collections=collections)
shell.run_cell("%load_ext jupyter_gpumem\\nfixed = torch.ones(3, device=DEVICE)")
result = shell.run_cell('''%%gpufree
P = collections.namedtuple("P", "a b")
log = {"n": 1, "t": torch.ones(256, device=DEVICE), "deep": [torch.ones(256, device=DEVICE), "x"], "fixed": fixed}
alias = log["deep"]
pair = P(2, torch.ones(256, device=DEVICE))
queue = collections.deque([torch.ones(256, device=DEVICE), 3])
several = {torch.ones(256, device=DEVICE), 4}
trial = {"score": 0.5, "model": torch.nn.Linear(16, 16, device=DEVICE)}
pure = [torch.ones(256, device=DEVICE)]
''')
ns = shell.user_ns
kinds = lambda *ts: [t.device.type for t in ts]
print(json.dumps([
    result.success, kinds(ns["log"]["t"], ns["log"]["deep"][0], ns["pair"].b, ns["queue"][0], ns["trial"]["model"].weight),
    [t.device.type for t in ns["several"] if torch.is_tensor(t)], ns["log"]["deep"] is ns["alias"], type(ns["pair"]).__name__,
    type(ns["trial"]["model"].weight).__name__, ns["fixed"].device.type, "pure" in ns, float(ns["log"]["t"].sum()),
]))
"""


@pytest.mark.parametrize("device", ["cuda", "simgpu"])
def test_moved_in_place(run_on, device):
    success, devices, in_set, same, pair, weight, fixed, pure, total = run_on(device, MOVES).json
    assert success
    assert devices == ["cpu"] * 5
    assert in_set == ["cpu"]
    assert same, "the container is the same object"
    assert (pair, weight) == ("P", "Parameter")
    assert fixed == device, "what a name had before is not touched"
    assert not pure
    assert total == 256.0
