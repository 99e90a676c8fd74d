"""The simulated GPU is a GPU as far as the suite needs one."""
from __future__ import annotations

import pytest

STATISTICS = """
import gc, json, torch
A = torch.accelerator
x = torch.ones(1 << 20, device=DEVICE); y = x[1:]; z = (x * 2).sum()
assert x.device.type == DEVICE and y.untyped_storage()._cdata == x.untyped_storage()._cdata
peak = A.max_memory_allocated(0)
try:
    torch.empty(1 << 30, device=DEVICE); oom = "none"
except torch.OutOfMemoryError as error:
    oom = str(error)
net = torch.nn.Linear(64, 64, device=DEVICE); opt = torch.optim.Adam(net.parameters())
net(torch.ones(2, 64, device=DEVICE)).sum().backward(); opt.step()
blocks = [b for s in simgpu.snapshot()["segments"] for b in s["blocks"] if b["state"] == "active_allocated"]
matched = x.untyped_storage().data_ptr() in {b["address"] for b in blocks}
del x, y, z, net, opt, error if False else net
gc.collect(); A.empty_cache()
print(json.dumps([peak, oom, matched, A.memory_allocated(0), A.memory_reserved(0), A.memory_stats(0)["num_ooms"]]))
"""


@pytest.mark.parametrize("device", ["cuda", "simgpu"])
def test_the_allocator_keeps_true_statistics(run_on, device):
    source = STATISTICS.replace("del x, y, z, net, opt, error if False else net", "del x, y, z, net, opt")
    peak, oom, matched, allocated, reserved, ooms = run_on(device, source).json
    assert peak >= 8 << 20
    assert "out of memory" in oom
    assert matched, "a storage's pointer is its block's address"
    assert (allocated, reserved, ooms) == (0, 0, 1)


def test_cuda_is_initialised_by_its_first_use_and_no_sooner(run_on):
    source = """
import json, torch
before = torch.cuda.is_initialized(), torch.cuda.memory_allocated(0), simgpu.initialising_calls()
torch.ones(1, device="cuda")
print(json.dumps([before, torch.cuda.is_initialized(), simgpu.initialising_calls()[0]]))
"""
    before, initialised, first = run_on("cuda", source).json
    assert before == [False, 0, []]
    assert initialised
    assert first == "_lazy_init"


def test_other_processes_memory_is_not_free(run_on):
    source = """
import json, torch
simgpu.set_external(0, 200 << 20)
try:
    torch.empty(100 << 20, dtype=torch.uint8, device="cuda"); said = "fits"
except torch.OutOfMemoryError:
    said = "full"
print(json.dumps(said))
"""
    assert run_on("cuda", source).json == "full"


def test_installing_after_torch_is_refused(run_on):
    source = """
import json, torch
import simgpu
try:
    simgpu.install(cuda=True); said = ""
except RuntimeError as error:
    said = str(error)
print(json.dumps(said))
"""
    assert "before the first import of torch" in run_on("cpu", source).json


def test_a_late_arming_waits_for_torch(run_on):
    source = """
import json, sys
from simgpu import late
late.arm()
before = "torch" in sys.modules
import torch
print(json.dumps([before, torch.ones(1, device="cuda").device.type]))
"""
    assert run_on("none", source).json == [False, "cuda"]
