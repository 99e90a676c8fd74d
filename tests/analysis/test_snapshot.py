"""Snapshots, and which devices are watched."""
from __future__ import annotations

import pytest
import torch

from jupyter_gpumem.analysis import snapshot
from jupyter_gpumem.errors import InputError


def test_without_an_accelerator_the_host_is_watched():
    assert snapshot.watched_devices() == ("cpu",)


@pytest.mark.parametrize("choice", ["cuda:7", "gpu", "", "cpu,nothing"])
def test_a_device_that_does_not_exist_is_refused_with_what_there_is(choice):
    with pytest.raises(InputError, match="there is: cpu"):
        snapshot.watched_devices(choice)


def test_a_snapshot_has_devices_allocators_and_holdings():
    tensor = torch.zeros(4321)
    seen = snapshot.take()
    assert seen.watched == ("cpu",)
    assert seen.devices[-1].kind == "host"
    assert seen.allocators[0].allocated >= tensor.nbytes
    assert any(h.nbytes == 4321 * 4 for h in seen.holdings)
    assert sum(h.nbytes for h in seen.holdings) == seen.allocators[0].allocated


def test_a_reader_that_fails_takes_down_its_own_row(nvml_machine):
    nvml_machine.put("gpu 0 uuid=GPU-a total=16G\nfault fn=* dev=0 code=GPU_IS_LOST\n")
    seen = snapshot.take()
    assert seen.devices[0].notes
    assert seen.devices[-1].kind == "host"


JOINED = """
import json, torch
import jupyter_gpumem
x = torch.ones(1 << 20, device="cuda:1")
s = jupyter_gpumem.snapshot()
print(json.dumps([s.watched, [(d.alias, d.uuid[-1], [p.used for p in d.processes or ()]) for d in s.devices if d.kind == "gpu"],
                  [(a.device, a.reserved) for a in s.allocators], [(h.holder.path, h.device) for h in s.holdings]]))
"""


def test_torchs_index_is_joined_with_nvml_by_uuid(run_on, tmp_path):
    from simgpu import kernel

    watched, devices, allocators, held = run_on("cuda", JOINED, **kernel.environment(tmp_path)).json
    assert watched == ["cuda:0", "cuda:1"]
    reserved = dict(allocators)["cuda:1"]
    assert devices == [["cuda:0", "0", []], ["cuda:1", "1", [reserved + (64 << 20)]]]
    assert held == [["x", "cuda:1"]]


def test_looking_runs_no_function_mode_of_the_users(shell):
    from torch.overrides import TorchFunctionMode

    import jupyter_gpumem

    called = []

    class Mode(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            called.append(function)
            return function(*args, **(kwargs or {}))

    base = torch.ones(10, requires_grad=True)
    shell.user_ns["kept"] = [base, base[2:], (base * 2).sum(), torch.sparse_coo_tensor([[0]], [1.0], (2,))]
    with Mode():
        jupyter_gpumem.snapshot("cpu")
        jupyter_gpumem.why(base)
        jupyter_gpumem.describe("kept", shell.user_ns["kept"], "cpu")
        jupyter_gpumem.plan()
    assert called == []
