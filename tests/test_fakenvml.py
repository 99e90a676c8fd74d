"""The mock NVML answers as the driver does."""
from __future__ import annotations

import os

import pynvml
import pytest


@pytest.fixture
def opened(nvml_machine):
    nvml_machine.put("gpu 0 uuid=GPU-0 total=80G reserved=600M used=1G util=10\ngpu 1 uuid=GPU-1 total=80G used=3G\n")
    pynvml.nvmlInit()
    yield nvml_machine
    pynvml.nvmlShutdown()


def used(index):
    return pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(index), version=pynvml.nvmlMemory_v2).used


def test_the_machine_may_change_while_handles_are_held(opened):
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    assert pynvml.nvmlDeviceGetMemoryInfo(handle).used == (1 << 30) + (600 << 20)
    opened.put("gpu 0 total=80G used=5G\n")
    assert pynvml.nvmlDeviceGetMemoryInfo(handle).used == 5 << 30


@pytest.mark.parametrize(
    ("code", "error"),
    [(3, "NotSupported"), (4, "NoPermission"), (15, "GpuIsLost"), (16, "ResetRequired"), (18, "LibRmVersionMismatch"), (999, "Unknown")],
)
def test_faults_hit_the_device_that_they_name(opened, code, error):
    opened.put(f"gpu 0 total=80G\ngpu 1 total=80G used=3G\nfault fn=nvmlDeviceGetMemoryInfo* dev=0 code={code}\n")
    with pytest.raises(getattr(pynvml, f"NVMLError_{error}")):
        used(0)
    assert used(1) == 3 << 30


def test_a_fault_may_come_late_and_pass(opened):
    opened.put("gpu 0 total=80G used=1G\nfault fn=nvmlDeviceGetMemoryInfo_v2 dev=0 code=15 after=2 times=1\n")
    seen = []
    for _ in range(4):
        try:
            seen.append(used(0) >> 30)
        except pynvml.NVMLError_GpuIsLost:
            seen.append("lost")
    assert seen == [1, 1, "lost", 1]


def test_processes_that_speak_for_themselves_count_while_they_live(opened):
    folder = opened.path.with_name(opened.path.name + ".d")
    folder.mkdir()
    (folder / str(os.getpid())).write_text(f"1 {2 << 30}\n")
    (folder / "4000000").write_text(f"1 {9 << 30}\n")
    assert used(1) == 5 << 30
    processes = pynvml.nvmlDeviceGetComputeRunningProcesses(pynvml.nvmlDeviceGetHandleByIndex(1))
    assert [(p.pid, p.usedGpuMemory) for p in processes] == [(os.getpid(), 2 << 30)]


def test_initialisation_is_counted_and_traced(opened):
    assert opened.open_count() == 1
    pynvml.nvmlInit()
    assert opened.open_count() == 2
    pynvml.nvmlShutdown()
    assert ("nvmlShutdown", 0) in opened.calls()
