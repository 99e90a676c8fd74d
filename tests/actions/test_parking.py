"""Parked and brought back: by name, by object, for a block, by turns; changed, deleted and refused in between."""
from __future__ import annotations

import pytest

import jupyter_gpumem
from jupyter_gpumem.actions import parking
from jupyter_gpumem.errors import InputError

PRELUDE = """
import gc, json, sys, weakref
import torch, jupyter_gpumem as g
from jupyter_gpumem.actions import parking
from jupyter_gpumem.errors import InputError
backend = getattr(torch, DEVICE)
def said(act, *objects):
    try:
        act(*objects)
    except InputError as refusal:
        return str(refusal)
"""

TURNS = PRELUDE + """
big = [torch.full((40, 1 << 18), float(n), device=DEVICE) for n in range(1)]     # 40 of 64 MiB
parked_first = g.park(big).after[0].reserved
other = [torch.full((40, 1 << 18), 7.0, device=DEVICE)]
full = said(g.restore, big)
where, allocated = str(big[0].device), backend.memory_allocated(0)
for _ in range(3):
    g.park(other); g.restore(big); g.park(big); g.restore(other)
g.park(other)
g.restore(big)
sums = float(big[0].cpu().sum()), float(other[0].sum())
print(json.dumps([parked_first, full, where, allocated, *sums]))
"""


@pytest.mark.parametrize("device", ["cuda", "simgpu"])
def test_two_that_do_not_fit_together_take_turns(run_on, device):
    parked, full, where, allocated, first, second = run_on(device, TURNS, SIMGPU_MEM_MB="64").json
    assert parked == 0, "the memory is back with the driver"
    assert "nothing was moved" in full
    assert where == "cpu"
    assert allocated == 40 << 20
    assert (first, second) == (0.0, 7.0 * 40 * (1 << 18))


SHARED = PRELUDE + """
from jupyter_gpumem import devices
def own():
    return sum(p.used or 0 for d in devices.read().devices for p in d.processes or () if p.own)
a = torch.ones(1 << 20, 8, device=DEVICE)
held = own()
g.park(a)
parked = own()
other = torch.ones(1 << 20, 8, device=DEVICE)
import simgpu
simgpu.set_external(0, 20 << 20)
full = said(g.restore, a)
simgpu.set_external(0, 0)
g.restore(a)
print(json.dumps([held - parked, full]))
"""


def test_the_driver_sees_the_memory_go_and_a_full_device_is_named(run_on, nvml_machine, nvml_env):
    nvml_machine.put("gpu 0 uuid=GPU-00000000-0000-0000-0000-000000000000 total=83886080 used=0")
    given, full = run_on("cuda", SHARED, **nvml_env).json
    assert given >= 32 << 20
    assert "cuda:0 has" in full
    assert "32.0 MiB are to come back" in full
    assert "held by other (32.0 MiB)" in full


BLOCK = PRELUDE + """
model = torch.nn.Linear(8, 8, device=DEVICE)
extra = torch.ones(100, device=DEVICE)
inside = []
with g.parked(model, extra) as block:
    inside.append([model.weight.device.type, backend.memory_allocated(0)])
    ref = weakref.ref(extra)
    del extra
    gc.collect()
    inside.append(ref() is None)
inside.append([str(model.weight.device), block.restoring.nbytes, parking.parked_names()])
try:
    with g.parked(model):
        raise KeyError("mine")
except KeyError as error:
    inside.append([str(error), str(model.weight.device)])
try:
    with g.parked():
        pass
except InputError as refusal:
    inside.append(str(refusal))
print(json.dumps(inside))
"""


@pytest.mark.parametrize("device", ["cuda", "simgpu"])
def test_a_block(run_on, device):
    during, deleted, after, error, empty = run_on(device, BLOCK).json
    assert during == ["cpu", 0]
    assert deleted, "nothing of ours keeps what is deleted inside"
    assert after == [f"{device}:0", 4 * (64 + 8), []]
    assert error == ["'mine'", f"{device}:0"]
    assert "nothing to park" in empty


CHANGED = PRELUDE + """
a, b, c = (torch.zeros(1000, device=DEVICE) for _ in range(3))
names = ["a", "b", "c"]
g.park(a, b, c)
a.add_(1)
b.numpy()[3] = 5
on_host = torch.nn.Parameter(torch.ones(3, device=DEVICE))
g.park(on_host)
(on_host * 2).sum().backward()
notes = list(g.restore().notes)
print(json.dumps([notes, a[0].item(), b[3].item(), str(on_host.grad.device), str(on_host.device)]))
"""


@pytest.mark.parametrize("device", ["cuda", "simgpu"])
def test_what_was_changed_on_the_host_comes_back_changed(run_on, device):
    notes, first, second, grad, leaf = run_on(device, CHANGED).json
    assert any(note.startswith("1 of the storages were changed") for note in notes)
    assert any("counted no change" in note for note in notes)
    assert (first, second) == (1.0, 5.0)
    assert grad == leaf == f"{device}:0", "a gradient made meanwhile goes with its leaf"


GONE = PRELUDE + """
a = torch.zeros(1000, device=DEVICE)
keep = torch.zeros(10, device=DEVICE)
g.park(a, keep)
names = [[n.name, n.nbytes] for n in parking.parked_names()]
del a
gc.collect()
by_name = None
try:
    parking.values(None, ["a"])
except InputError as refusal:
    by_name = str(refusal)
g.park(torch.zeros(5, device=DEVICE))
gc.collect()
notes = list(g.restore().notes)
print(json.dumps([names, by_name, notes, str(keep.device), said(g.restore)]))
"""


def test_what_was_deleted_is_told_once(run_on):
    names, by_name, notes, where, again = run_on("cuda", GONE).json
    assert names == [["a", 4000], ["keep", 40]]
    assert "'a' was parked and has been deleted since: its 3.9 KiB are free" in by_name
    assert notes == ["Tensor was parked and has been deleted since: its 20 B are free"]
    assert where == "cuda:0"
    assert again == "nothing is parked"


def test_without_an_accelerator_there_is_nothing_to_park(shell):
    import torch

    with pytest.raises(InputError, match="no accelerator"):
        jupyter_gpumem.park(torch.ones(3))
    with pytest.raises(InputError, match="nothing is parked"):
        jupyter_gpumem.restore()


def test_a_name_as_text_is_refused():
    with pytest.raises(InputError, match="not its name as text"):
        parking.labelled(None, ["model"])


def test_too_little_host_memory(run_on):
    source = PRELUDE + """
from dataclasses import replace
from jupyter_gpumem import devices
real = devices.read_host
devices.read_host = lambda: replace(real(), total=1 << 30, free=(1 << 30) // 20 + 100)
a = torch.ones(1000, device=DEVICE)
print(json.dumps([said(g.park, a), str(a.device), parking.plan_park(None, {"a": a}).obstacles]))
"""
    refusal, where, obstacles = run_on("cuda", source).json
    assert "host memory has room for 100 B, and 3.9 KiB are needed" in refusal
    assert where == "cuda:0"
    assert len(obstacles) == 1


MAGICS = """
import json, os, tempfile, torch
os.environ["IPYTHONDIR"] = tempfile.mkdtemp()
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
shell = InteractiveShell.instance()
shell.user_ns.update(DEVICE=DEVICE, torch=torch)
def run(source):
    with capture_output() as seen:
        result = shell.run_cell(source, store_history=True)
    return [result.success, seen.stdout + seen.stderr + "".join(o.data.get("text/plain", "") for o in seen.outputs)]
run("%load_ext jupyter_gpumem\\na = torch.ones(1000, device=DEVICE)\\nb = torch.ones(10, device=DEVICE)")
ns = shell.user_ns
kinds = lambda: [ns[n].device.type for n in "ab"]
said = {}
said["plan"] = [*run("%gpufree --to-host a,b --dry-run"), kinds()]
said["park"] = [*run("%gpufree --to-host a,b"), kinds()]
said["mixed"] = run("%gpufree b --to-host a")
said["wrong"] = run("%gpufree --to-host aa")
said["back plan"] = [*run("%gpurestore --dry-run"), kinds()]
said["back"] = [*run("%gpurestore a,b"), kinds()]
said["none"] = run("%gpurestore")
said["cell"] = run("%%gpufree --to-host c\\nc = torch.ones(100, device=DEVICE)\\nd = torch.ones(100, device=DEVICE)")
said["left"] = ["c" in ns and ns["c"].device.type, "d" in ns]
said["slip"] = run("%%gpufree --to-host cc\\nc = 1")
said["dry cell"] = [*run("%%gpufree --to-host e --dry-run\\ne = torch.ones(100, device=DEVICE)"), ns["e"].device.type]
print(json.dumps(said))
"""


@pytest.mark.parametrize("device", ["cuda", "simgpu"])
def test_the_magics(run_on, device):
    said = run_on(device, MAGICS).json
    assert said["plan"][0] and "nothing has moved" in said["plan"][1] and said["plan"][2] == [device] * 2
    assert said["park"][0] and "To host memory: 3.9 KiB" in said["park"][1] and said["park"][2] == ["cpu"] * 2
    assert "moves and deletes nothing" in said["mixed"][1]
    assert "did you mean 'a'" in said["wrong"][1]
    assert "nothing has moved" in said["back plan"][1] and said["back plan"][2] == ["cpu"] * 2
    assert "Back on the device: 3.9 KiB" in said["back"][1] and said["back"][2] == [device] * 2
    assert "nothing is parked" in said["none"][1]
    assert said["cell"][0] and "To host memory: 400 B" in said["cell"][1]
    assert said["left"] == ["cpu", False]
    assert "--to-host cc: the cell makes no such name" in said["slip"][1]
    assert said["dry cell"][0] and "nothing has moved" in said["dry cell"][1] and said["dry cell"][2] == device
