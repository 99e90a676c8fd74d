"""A sample is complete in itself, and can be taken beside anything."""
from __future__ import annotations

import os
import threading

import pytest

from jupyter_gpumem.analysis import sample
from jupyter_gpumem.model import CellRun


def test_on_a_machine_without_a_gpu(monkeypatch):
    monkeypatch.setattr("jupyter_gpumem.devices._SOURCES", ())
    taken = sample.take()
    assert [device.kind for device in taken.devices] == ["host"]
    assert len(taken.shares) == 1
    assert taken.owners[0].pid == os.getpid()
    assert taken.running is None


def test_each_device_has_its_shares_and_each_process_its_owner(nvml_machine):
    nvml_machine.put(
        f"gpu 0 uuid=GPU-a total=16G used=8G\nproc 0 pid={os.getpid()} type=C used=1G\nproc 0 pid={os.getppid()} type=C used=2G\n"
        "gpu 1 uuid=GPU-b total=16G used=1G\n"
    )
    taken = sample.take(CellRun(3, "c", 1.0))
    assert [device.kind for device in taken.devices] == ["gpu", "gpu", "host"]
    assert taken.shares[0].own == 2**30
    assert taken.shares[0].notebooks + taken.shares[0].others == 2**31
    assert taken.shares[0].unattributed == taken.devices[0].used - 3 * 2**30
    assert taken.shares[1].own == 0
    assert [owner.pid for owner in taken.owners] == [os.getpid(), os.getppid()]
    assert taken.running.count == 3


def test_a_gpu_that_is_lost_takes_down_its_own_row(nvml_machine):
    nvml_machine.put(
        "gpu 0 uuid=GPU-a total=16G\ngpu 1 uuid=GPU-b total=16G used=2G reserved=0\nfault fn=* dev=0 code=GPU_IS_LOST\n"
    )
    taken = sample.take()
    assert taken.devices[0].used is None
    assert taken.devices[0].notes
    assert taken.devices[1].used == 2**31


@pytest.mark.parametrize("code", ["DRIVER_NOT_LOADED", "NO_PERMISSION", "LIB_RM_VERSION_MISMATCH"])
def test_without_nvml_there_is_the_reason(nvml_machine, code):
    nvml_machine.put(f"fault fn=nvmlInit_v2 code={code}\nfault fn=nvmlInitWithFlags code={code}\n")
    taken = sample.take()
    assert taken.problem
    assert taken.problem.endswith(".")
    assert [device.kind for device in taken.devices] == ["host"]


def test_in_another_thread_while_this_one_holds_tensors():
    import torch

    kept = torch.zeros(10)
    found = []
    thread = threading.Thread(target=lambda: found.append(sample.take()))
    thread.start()
    thread.join(30)
    assert found[0].devices
    assert kept.sum() == 0
