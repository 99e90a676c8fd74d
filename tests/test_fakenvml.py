"""The mock NVML answers as the driver does."""
from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time

import pynvml
import pytest

TWO = "gpu 0 uuid=GPU-0 total=80G reserved=600M used=1G util=10\ngpu 1 uuid=GPU-1 total=80G used=3G\n"


@pytest.fixture
def opened(nvml_machine):
    nvml_machine.put(TWO)
    pynvml.nvmlInit()
    yield nvml_machine
    pynvml.nvmlShutdown()


def handle(index):
    return pynvml.nvmlDeviceGetHandleByIndex(index)


def used(index):
    return pynvml.nvmlDeviceGetMemoryInfo(handle(index), version=pynvml.nvmlMemory_v2).used


def test_there_is_no_driver_before_there_is_a_machine(nvml_machine):
    with pytest.raises(pynvml.NVMLError_DriverNotLoaded):
        pynvml.nvmlInit()
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        pynvml.nvmlDeviceGetCount()
    nvml_machine.put(TWO + "fault fn=nvmlInit* code=18\n")
    with pytest.raises(pynvml.NVMLError_LibRmVersionMismatch):
        pynvml.nvmlInit()


def test_the_machine_may_change_while_handles_are_held(opened):
    first, second = handle(0), handle(1)
    assert pynvml.nvmlDeviceGetMemoryInfo(first).used == (1 << 30) + (600 << 20)
    opened.put("gpu 0 total=80G used=5G\n")
    assert pynvml.nvmlDeviceGetMemoryInfo(first).used == 5 << 30
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlDeviceGetMemoryInfo(second)
    opened.put("gpu 1 uuid=GPU-1 total=80G used=3G\n")
    assert pynvml.nvmlDeviceGetUUID(handle(0)) == "GPU-1", "the only one left is the first"
    opened.path.unlink()
    with pytest.raises(pynvml.NVMLError_DriverNotLoaded):
        pynvml.nvmlDeviceGetMemoryInfo(second)
    opened.put(TWO)
    pynvml.nvmlInit()
    pynvml.nvmlShutdown()
    assert pynvml.nvmlDeviceGetMemoryInfo(second).used == 3 << 30, "a handle stays good"


@pytest.mark.parametrize(
    ("code", "error"),
    [(3, "NotSupported"), (4, "NoPermission"), (15, "GpuIsLost"), (16, "ResetRequired"), (18, "LibRmVersionMismatch"), (999, "Unknown")],
)
def test_faults_hit_the_device_that_they_name(opened, code, error):
    opened.put(f"gpu 0 total=80G\ngpu 1 total=80G used=3G\nfault fn=nvmlDeviceGetMemoryInfo* dev=0 code={code}\n")
    with pytest.raises(getattr(pynvml, f"NVMLError_{error}")):
        used(0)
    assert used(1) == 3 << 30


def test_a_lost_gpu_gives_no_handle_either(opened):
    held = handle(0)
    opened.put(TWO + "fault fn=* dev=0 code=GPU_IS_LOST\n")
    for call in (lambda: handle(0), lambda: pynvml.nvmlDeviceGetUUID(held), lambda: pynvml.nvmlDeviceGetHandleByUUID("GPU-0")):
        with pytest.raises(pynvml.NVMLError_GpuIsLost):
            call()
    assert (used(1), pynvml.nvmlDeviceGetCount()) == (3 << 30, 2)


def test_a_fault_may_come_late_and_pass(opened):
    opened.put("gpu 0 total=80G used=1G\nfault fn=nvmlDeviceGetMemoryInfo_v2 dev=0 code=15 after=2 times=1\n")
    seen = []
    for _ in range(4):
        try:
            seen.append(used(0) >> 30)
        except pynvml.NVMLError_GpuIsLost:
            seen.append("lost")
    assert seen == [1, 1, "lost", 1]


def test_a_slow_call_blocks_neither_python_nor_the_other_gpu(opened):
    slow, quick = handle(0), handle(1)
    opened.put(TWO + "delay fn=nvmlDeviceGetMemoryInfo* dev=0 ms=1000\n")
    thread = threading.Thread(target=pynvml.nvmlDeviceGetMemoryInfo, args=(slow,))
    thread.start()
    time.sleep(0.1)
    assert pynvml.nvmlDeviceGetMemoryInfo(quick).used == 3 << 30
    assert thread.is_alive(), "the quick call did not wait for the slow one"
    thread.join()


def test_processes_of_all_kinds(opened):
    many = "".join(f"proc 1 pid={pid} used={pid}M\n" for pid in range(1, 301))
    opened.put(TWO + "proc 0 pid=7 used=NA\nproc 0 pid=8 type=G used=5M\nproc 0 pid=9 type=M used=6M\n" + many)
    assert [(p.pid, p.usedGpuMemory) for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle(0))] == [(7, None)]
    assert [p.pid for p in pynvml.nvmlDeviceGetGraphicsRunningProcesses(handle(0))] == [8]
    assert [p.pid for p in pynvml.nvmlDeviceGetMPSComputeRunningProcesses(handle(0))] == [9]
    assert [p.usedGpuMemory >> 20 for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle(1))] == [*range(1, 301)]


def test_an_event_is_delivered_once(opened):
    events = pynvml.nvmlEventSetCreate()
    pynvml.nvmlDeviceRegisterEvents(handle(0), pynvml.nvmlEventTypeXidCriticalError, events)
    opened.put(TWO + "xid 0 code=79\n")
    assert pynvml.nvmlEventSetWait_v2(events, 1000).eventData == 79
    with pytest.raises(pynvml.NVMLError_Timeout):
        pynvml.nvmlEventSetWait_v2(events, 20)
    pynvml.nvmlEventSetFree(events)


@pytest.mark.parametrize("variant", ["old", "oldest"])
def test_an_old_driver_lacks_what_came_later(nvml_machine, variant):
    nvml_machine.use(variant)
    nvml_machine.put(TWO + "proc 0 pid=7 used=1G\n")
    pynvml.nvmlInit()
    try:
        with pytest.raises(pynvml.NVMLError_FunctionNotFound):
            used(0)
        with pytest.raises(pynvml.NVMLLibraryMismatchError):
            pynvml.nvmlDeviceGetComputeRunningProcesses(handle(0))
        total = pynvml.nvmlDeviceGetMemoryInfo(handle(0)).used
        assert total == (1 << 30) + (600 << 20), "the old call counts reserved as used"
    finally:
        pynvml.nvmlShutdown()


def speak(opened, pid, lines):
    folder = opened.path.with_name(opened.path.name + ".d")
    folder.mkdir(exist_ok=True)
    (folder / str(pid)).write_text(lines)


def test_processes_that_speak_for_themselves_count_while_they_live(opened):
    speak(opened, os.getpid(), f"1 {2 << 30}\n")
    speak(opened, 4_000_000, f"1 {9 << 30}\n")
    assert used(1) == 5 << 30
    processes = pynvml.nvmlDeviceGetComputeRunningProcesses(handle(1))
    assert [(p.pid, p.usedGpuMemory) for p in processes] == [(os.getpid(), 2 << 30)]


def test_a_zombie_and_a_later_process_of_the_same_id_hold_nothing(opened):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    speak(opened, ended.pid, f"1 {9 << 30}\n")
    speak(opened, os.getpid(), f"since 1\n1 {9 << 30}\n")
    assert used(1) == 3 << 30
    ended.wait()


def test_memory_of_nobody_is_used_but_in_no_list(opened):
    speak(opened, os.getpid(), f"1 0 {4 << 30}\n")
    assert used(1) == 7 << 30
    assert pynvml.nvmlDeviceGetComputeRunningProcesses(handle(1)) == []


def test_initialisation_is_counted_and_traced(opened):
    assert opened.open_count() == 1
    pynvml.nvmlInit()
    assert opened.open_count() == 2
    pynvml.nvmlShutdown()
    assert ("nvmlShutdown", 0) in opened.calls()


def test_another_process_finds_it_by_the_librarys_name(nvml_machine, nvml_env):
    nvml_machine.put(TWO)
    source = "import json, pynvml; pynvml.nvmlInit(); print(json.dumps(pynvml.nvmlDeviceGetCount()))"
    done = subprocess.run([sys.executable, "-c", source], env={**os.environ, **nvml_env}, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == 2


BUILD = "import sys; sys.path.insert(0, sys.argv[1]); import fakenvml; print(fakenvml.build())"


def build(cache, **env):
    tests = os.path.dirname(os.path.abspath(__file__))
    env = {**os.environ, "GPUMEM_TEST_CACHE": str(cache), **env}
    return subprocess.Popen([sys.executable, "-c", BUILD, tests], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_processes_that_build_at_once_build_one_library(tmp_path, c_compiler):
    answers = [process.communicate() for process in [build(tmp_path) for _ in range(3)]]
    assert len({out for out, _ in answers}) == 1, answers
    assert [path.name for path in tmp_path.rglob("*.so.1")] == ["libnvidia-ml.so.1"]
    assert not list(tmp_path.rglob("*.part"))


def test_a_missing_compiler_is_told_by_name(tmp_path):
    _, said = build(tmp_path, PATH="").communicate()
    assert "CompilerMissing: no gcc on this machine" in said
