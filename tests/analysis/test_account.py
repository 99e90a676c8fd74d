"""Sums that close: after every step of random programs, and for real training states."""
from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from jupyter_gpumem.analysis import account
from jupyter_gpumem.model import Account, Entry, Sum

sys.path.insert(0, str(Path(__file__).parent))
from accounting import COMMON, STATES

RANDOM = """
gc.disable()  # what dangles is to stay until the program collects it
rng = random.Random(SEED)
kept, leaves, losses = [], [torch.ones(100, 100, device=ON, requires_grad=True)], []
def allocate():
    kept.append(torch.empty(rng.randrange(1, 300_000), device=ON))
def free():
    if kept: kept.pop(rng.randrange(len(kept)))
def view():
    if kept: kept.append(rng.choice(kept)[rng.randrange(5):])
def in_place():
    if kept: rng.choice(kept).add_(1)
def forward():
    if len(losses) < 6: losses.append((leaves[0] @ leaves[0]).relu().pow(2).sum())
def backward():
    if losses: losses.pop().backward()
def forget():
    if losses: losses.pop()
def raising():
    def inner():
        local = torch.ones(5000, device=ON)
        raise RuntimeError
    try:
        inner()
    except RuntimeError as error:
        errors.append(error)
def leave_cycle():
    a = [torch.ones(777, device=ON)]
    a.append(a)
def collect():
    errors.clear()
    gc.collect()
def empty():
    torch.accelerator.empty_cache() if DEVICE != "cpu" else None
errors = []
steps = [allocate] * 4 + [free] * 3 + [view, in_place, forward, forward, backward, forget, raising, leave_cycle, collect, empty]
kinds = set()
for _ in range(220):
    rng.choice(steps)()
    found = check()
    kinds |= {e.kind for e in found.allocated.entries if e.nbytes}
    if found.allocated.of("dangling") and rng.random() < 0.7:
        collect()  # it takes a second to explain what nothing reaches
print(json.dumps(sorted(kinds)))
"""


@pytest.mark.parametrize(("device", "seed"), [("cuda", 1), ("simgpu", 2), ("cpu", 3)])
def test_the_sums_close_after_every_step_of_a_random_program(run_on, device, seed):
    kinds = run_on(device, f"SEED = {seed}\n" + COMMON + RANDOM).json
    want = {"names", "graphs", "dangling"} | ({"rounding"} if device != "cpu" else set())
    assert set(kinds) - {"libraries", "running"} == want


@pytest.mark.parametrize("device", ["cuda", "simgpu", "cpu"])
def test_training_states_are_explained(run_on, device):
    shares = run_on(device, COMMON + STATES).json
    assert len(shares) == 11
    for name, (share, graphs, names, total) in shares.items():
        assert share >= 0.995, name
        assert names > 0, name
        assert graphs > 0 or name == "failed", name
        assert names + graphs <= total, name


KINDS = """
import sys, types
gc.disable()
mib = 1 << 18
named = torch.ones(mib, device=ON)
leaf = torch.ones(2 * mib, device=ON, requires_grad=True)
loss = (leaf.exp() * 2).sum()
library = types.ModuleType("library"); library.cache = torch.ones(3 * mib, device=ON); sys.modules["library"] = library
cycle = [torch.ones(5 * mib, device=ON)]; cycle.append(cycle); del cycle
def running():
    local = torch.ones(7 * mib, device=ON)
    return check()
found = running()
print(json.dumps({e.kind: e.nbytes / 4 / mib for e in found.allocated.entries}))
"""


@pytest.mark.parametrize("device", ["cuda", "simgpu", "cpu"])
def test_bytes_are_told_apart_by_what_keeps_them(run_on, device):
    kinds = run_on(device, COMMON + KINDS).json
    # the names have the loss too, 4 bytes; its block is 512
    assert kinds["names"] == pytest.approx(3, abs=1e-5)
    assert kinds["graphs"] == pytest.approx(2, abs=1e-4)
    assert (kinds["libraries"], kinds["dangling"], kinds["running"]) == (3, 5, 7)
    if device != "cpu":
        assert 0 <= kinds["rounding"] <= 2  # a large block is split only if more than 1 MiB is left
        assert kinds["unexplained"] == 0
        assert "outside" not in kinds


LEAVING = """
import simgpu, sys
counts = []
account.take(None, "cpu")
early = [len(account.take(None)), torch.cuda.is_initialized(), simgpu.initialising_calls()]
x = torch.ones(1000, device=ON); loss = (x.clone().requires_grad_() * 2).exp().sum()
for _ in range(5): account.take(None)
gc.collect(); before = len(gc.get_objects()), torch.accelerator.memory_allocated()
for _ in range(50): account.take(None)
gc.collect(); after = len(gc.get_objects()), torch.accelerator.memory_allocated()
print(json.dumps([early, before, after, simgpu.initialising_calls()]))
"""


@pytest.mark.parametrize("device", ["cuda", "simgpu"])
def test_accounts_leave_nothing_and_initialise_nothing(run_on, device):
    early, before, after, calls = run_on(device, COMMON + LEAVING, PYTORCH_NVML_BASED_CUDA_CHECK="0").json
    assert early[1:] == [False, []]
    assert before[1] == after[1]
    assert abs(after[0] - before[0]) <= 10, "lists of the loop itself"
    assert calls == (["_lazy_init"] if device == "cuda" else [])


THREAD = """
import threading
x = torch.ones(1000, device=ON)
go = True
def churn():
    while go: torch.ones(5000, device=ON)
thread = threading.Thread(target=churn); thread.start()
notes = []
try:
    while not notes:
        (found,) = account.take(None, ON)
        assert sum(e.nbytes for e in found.allocated.entries) == found.allocated.total
        assert found.allocated.of("unexplained") >= 0
        notes = found.notes
finally:
    go = False
    thread.join()
print(json.dumps(notes))
"""


def test_memory_that_changes_meanwhile_is_said(run_on):
    (note,) = run_on("cuda", COMMON + "import jupyter_gpumem.devices as d; d._SOURCES = ()\n" + THREAD.replace("notes = found.notes", "notes = [n for n in found.notes if 'changed' in n]")).json
    assert note.startswith("Memory changed")


def test_an_account_of_nothing_is_explained():
    empty = Account("torch", "cuda:0", Sum(0, ()), Sum(0, ()), Sum(None, ()))
    assert account.explained(empty) == 1.0
    half = Account("torch", "cuda:0", Sum(100, (Entry("unexplained", 25),)), Sum(0, ()), Sum(None, ()))
    assert account.explained(half) == 0.75


def test_accounts_are_plain(run_on):
    source = COMMON + "x = torch.ones(1000, device=ON)\nfrom jupyter_gpumem.model import to_json\nprint(json.dumps(to_json(check())))"
    found = run_on("cuda", source).json
    assert json.loads(json.dumps(found))["device"] == "cuda:0"
