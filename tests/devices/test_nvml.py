"""NVIDIA's GPUs through the unmodified pynvml, on the mock library: one test for each setting that users have met."""
from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pynvml
import pytest

from jupyter_gpumem.devices import nvml, nvml_processes

A100 = 'gpu 0 name="NVIDIA A100" uuid=GPU-a total=80G reserved=600M used=2G util=35 temp=41 power=72000\n'


B = "gpu 1 name=B uuid=GPU-b total=16G used=3G\n"
HOST = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


with_second_version = pytest.mark.skipif(
    not hasattr(pynvml, "nvmlMemory_v2"), reason="this binding knows the first version of the memory's record only"
)


@pytest.fixture(autouse=True)
def large_host(monkeypatch):
    """No GPU of these tests is by chance as large as the memory of the machine that runs them."""
    monkeypatch.setattr(nvml, "_host_total", lambda: 1 << 40)


@pytest.fixture
def container(monkeypatch):
    """This process sees a pid namespace of its own."""
    monkeypatch.setattr(nvml_processes, "in_first_pid_namespace", lambda: False)


def gpu(machine, text=A100):
    machine.put(text)
    reading = nvml.read()
    assert reading.problem is None, reading.problem
    return reading.devices[0]


@with_second_version
def test_everything_that_a_healthy_gpu_says(nvml_machine):
    device = gpu(nvml_machine, A100 + f"proc 0 pid={os.getpid()} used=1G\nproc 0 pid=1 type=G used=200M\n")
    assert (device.uuid, device.name, device.kind) == ("GPU-a", "NVIDIA A100", "gpu")
    assert (device.total, device.used, device.reserved) == (80 << 30, 2 << 30, 600 << 20)
    assert device.free == device.total - device.used - device.reserved
    assert (device.utilization, device.temperature, device.power) == (35, 41, 72000)
    assert [(p.pid, p.used, p.kind, p.own) for p in device.processes] == [
        (os.getpid(), 1 << 30, "compute", True),
        (1, 200 << 20, "graphics", False),
    ]
    assert device.notes == ()


@pytest.mark.parametrize(
    ("function", "lost"),
    [
        ("nvmlDeviceGetUtilizationRates", "utilization"),
        ("nvmlDeviceGetTemperature*", "temperature"),
        ("nvmlDeviceGetPowerUsage", "power"),
        ("nvmlDeviceGet*RunningProcesses*", "processes"),
    ],
)
def test_each_metric_can_be_missing_alone(nvml_machine, function, lost):
    device = gpu(nvml_machine, A100 + f"fault fn={function} dev=0 code=NOT_SUPPORTED\n")
    present = {name: getattr(device, name) for name in ("utilization", "temperature", "power", "processes", "used")}
    assert present.pop(lost) is None
    assert None not in present.values()


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("LIB_RM_VERSION_MISMATCH", "updated"),
        ("DRIVER_NOT_LOADED", "not loaded"),
        ("UNKNOWN", "restart it"),
        ("NO_PERMISSION", "permission"),
        ("TIMEOUT", "NVML error 10"),
    ],
)
def test_the_reason_why_there_is_no_gpu_is_a_sentence(nvml_machine, code, words):
    nvml_machine.put(A100 + f"fault fn=nvmlInit* code={code}\n")
    reading = nvml.read()
    assert reading.devices == ()
    assert words in reading.problem


def test_no_driver_and_no_library():
    code = "from jupyter_gpumem.devices import nvml; print(nvml.read().problem)"
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert "libnvidia-ml.so.1" in done.stdout or Path("/dev/nvidiactl").exists()


def test_driver_without_devices(nvml_machine):
    nvml_machine.put("system driver=550.54.15\n")
    assert "lists no GPU" in nvml.read().problem


def test_library_that_appears_later_is_found(nvml_machine):
    assert nvml.read().devices == ()
    assert gpu(nvml_machine).name == "NVIDIA A100"


def test_the_hosts_memory_is_what_the_system_says(monkeypatch):
    monkeypatch.undo()
    assert nvml._host_total() == HOST


def test_unified_memory_without_figures(nvml_machine):
    device = gpu(nvml_machine, "gpu 0 total=NA\nproc 0 pid=1 used=3G\n")
    assert (device.total, device.used, device.free) == (1 << 40, 3 << 30, None)
    assert any("Unified" in note and "sum over its processes" in note for note in device.notes)


def test_unified_memory_whose_processes_are_hidden_is_not_called_empty(nvml_machine, container):
    device = gpu(nvml_machine, "gpu 0 total=NA\n")
    assert (device.processes, device.used) == ((), None)


@with_second_version
@pytest.mark.parametrize(("per_cent", "unified"), [(89, False), (91, True), (100, True), (103, False), (400, False)])
def test_a_gpu_that_claims_the_hosts_memory_is_unified(nvml_machine, per_cent, unified):
    total = (1 << 40) * per_cent // 100
    device = gpu(nvml_machine, f"gpu 0 total={total} used=500G\nproc 0 pid=1 used=3G\n")
    assert any("Unified" in note for note in device.notes) is unified
    assert device.used == (3 << 30 if unified else 500 << 30), "what the host uses is not shown as the GPU's"


@with_second_version
def test_a_gpu_with_a_reserve_of_its_own_keeps_its_figures(nvml_machine):
    device = gpu(nvml_machine, f"gpu 0 total={1 << 40} reserved=600M used=500G\n")
    assert device.used == 500 << 30
    assert any("As large as the host's memory" in note for note in device.notes)


def test_jetson_says_its_name_and_nothing_else(nvml_machine):
    device = gpu(nvml_machine, 'gpu 0 name="Orin (nvgpu)" total=NA util=NA temp=NA power=NA\n')
    assert (device.utilization, device.temperature, device.power) == (None, None, None)


def test_memory_of_a_grace_hopper_carries_its_note(nvml_machine):
    assert any("NUMA" in note for note in gpu(nvml_machine, 'gpu 0 name="NVIDIA GH200 480GB" total=96G\n').notes)


def test_process_memory_that_the_driver_does_not_say(nvml_machine):
    device = gpu(nvml_machine, A100 + "proc 0 pid=1 used=NA\n")
    assert device.processes[0].used is None
    assert any("does not say" in note for note in device.notes)


def test_mig_instances_are_devices_of_their_own(nvml_machine):
    nvml_machine.put(
        "gpu 0 uuid=GPU-p mig=1 total=80G util=50\n"
        "mig 0 0 uuid=MIG-x total=10G used=1G gi=7 ci=0\nmig 0 1 uuid=MIG-y total=40G gi=2 ci=0\n"
        "proc 0 pid=1 used=1G gi=7 ci=0\n"
    )
    parent, first, second = nvml.read().devices
    assert [d.utilization for d in (parent, first, second)] == [None] * 3, "never 0% where it is not supported"
    assert not [name for name, _ in nvml_machine.calls() if "Utilization" in name], "not even asked"
    assert [(d.uuid, d.kind, d.parent) for d in (first, second)] == [("MIG-x", "mig", "GPU-p"), ("MIG-y", "mig", "GPU-p")]
    assert (first.used, first.total) == (1 << 30, 10 << 30)
    assert [len(d.processes) for d in (first, second)] == [1, 0]


def test_mig_parent_without_permission(nvml_machine):
    nvml_machine.put(
        "gpu 0 mig=1 total=80G\nmig 0 0 uuid=MIG-x total=10G used=1G gi=1 ci=0\n"
        "fault fn=nvmlDeviceGetMemoryInfo* dev=0 code=NO_PERMISSION\n"
    )
    parent, instance = nvml.read().devices
    assert parent.used is None
    assert any("permission" in note for note in parent.notes)
    assert instance.used == 1 << 30


def test_mig_changed_between_readings(nvml_machine):
    nvml_machine.put("gpu 0 mig=1 total=80G\nmig 0 0 uuid=MIG-x total=10G\n")
    assert nvml.read().devices[1].uuid == "MIG-x"
    nvml_machine.put("gpu 0 mig=1 total=80G\nmig 0 3 uuid=MIG-z total=20G\n")
    assert [d.uuid for d in nvml.read().devices[1:]] == ["MIG-z"]


def test_a_lost_gpu_takes_down_its_own_row_only(nvml_machine):
    nvml_machine.put(A100 + "gpu 1 uuid=GPU-b total=16G used=3G\nfault fn=* dev=0 code=GPU_IS_LOST\n")
    first, second = nvml.read().devices
    assert any("lost" in note for note in first.notes)
    assert first.used is None
    assert second.used == 3 << 30


@pytest.mark.parametrize("function", ["nvmlDeviceGetName", "nvmlDeviceGetMemoryInfo*", "nvmlDeviceGet*Running*", "nvmlDeviceGetPowerUsage"])
@pytest.mark.parametrize(("code", "words"), [("GPU_IS_LOST", "lost"), ("RESET_REQUIRED", "must be reset")])
def test_a_gpu_that_goes_while_it_is_read_is_not_called_again(nvml_machine, function, code, words):
    """A call with the handle of a lost GPU has crashed whole processes (nvitop#139)."""
    nvml_machine.put(A100 + B + f"fault fn={function} dev=0 code={code}\n")
    first, second = nvml.read().devices
    assert (first.uuid, first.used, first.temperature) == ("GPU-a", None, None)
    assert any(words in note for note in first.notes)
    assert second.used == 3 << 30
    rows = [line.split()[2:5] for line in nvml_machine.trace_path.read_text().splitlines()]
    codes = [int(code) for _, device, code in rows if device == "0"]
    assert codes[-1] != 0, "the refusal was the last call"
    assert [code for code in codes if code not in (0, 3)] == codes[-1:]


def test_a_fault_of_ours_takes_down_one_row_with_its_reason(nvml_machine, monkeypatch):
    nvml_machine.put(A100 + B)
    real, calls = pynvml.nvmlDeviceGetName, []

    def name(handle):
        calls.append(handle)
        if len(calls) == 1:
            raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")
        return real(handle)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetName", name)
    first, second = nvml.read().devices
    assert "UnicodeDecodeError" in first.notes[0]
    assert second.used == 3 << 30


def test_a_fault_at_the_start_is_not_called_a_hang(nvml_machine, monkeypatch):
    def broken():
        raise RuntimeError("half a library")

    monkeypatch.setattr(pynvml, "nvmlInit", broken)
    assert "half a library" in nvml.read().problem


def test_a_count_that_fails_is_not_called_zero(nvml_machine):
    nvml_machine.put(A100 + "fault fn=nvmlDeviceGetCount* code=UNKNOWN\n")
    reading = nvml.read()
    assert reading.devices == ()
    assert "restart it" in reading.problem


def test_no_library_of_stubs_is_loaded(compiler, tmp_path):
    import fakenvml

    (tmp_path / "stubs").mkdir()
    (tmp_path / "stubs" / "libnvidia-ml.so").symlink_to(fakenvml.build())
    code = "from jupyter_gpumem.devices import nvml; print(nvml.read().problem)"
    env = {**os.environ, "CUDA_HOME": str(tmp_path), "LD_LIBRARY_PATH": str(tmp_path / "stubs")}
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root, env=env)
    assert "libnvidia-ml.so.1" in done.stdout or Path("/dev/nvidiactl").exists()


def test_numbers_that_shift_when_a_gpu_goes(nvml_machine):
    nvml_machine.put("gpu 1 uuid=GPU-b total=16G\n")
    assert [d.uuid for d in nvml.read().devices] == ["GPU-b"]


def test_driver_unloaded_while_reading(nvml_machine):
    nvml_machine.put(A100)
    assert nvml.read().devices
    nvml_machine.path.unlink()
    assert nvml.read().devices == ()


@pytest.mark.parametrize("variant", ["old", "oldest"])
def test_old_drivers(nvml_machine, variant):
    nvml_machine.use(variant)
    device = gpu(nvml_machine, A100 + "proc 0 pid=1 used=1G\nproc 0 pid=2 used=NA\n")
    assert device.used == (2 << 30) + (600 << 20), "the first version counts the reserve as used"
    assert device.reserved is None
    assert any("reserves" in note for note in device.notes)
    assert [(p.pid, p.used) for p in device.processes] == [(1, 1 << 30), (2, None)]


def test_old_binding_on_a_gpu_without_process_lists(nvml_machine, monkeypatch):
    """nvidia-ml-py 11.450 has no second version of the memory's record; what was refused before has no say in it."""
    monkeypatch.delattr(pynvml, "nvmlMemory_v2", raising=False)
    device = gpu(nvml_machine, A100 + "fault fn=nvmlDeviceGet*RunningProcesses* dev=0 code=NOT_SUPPORTED\n")
    assert (device.processes, device.used) == (None, (2 << 30) + (600 << 20))


def test_garbled_list_of_early_535_drivers(nvml_machine):
    device = gpu(nvml_machine, A100 + "proc 0 pid=11 used=100\nproc 0 pid=0 used=5\nproc 0 pid=4294967295 used=0\n")
    assert [p.pid for p in device.processes] == [11]
    assert any("unreadable" in note for note in device.notes)


def test_garbled_list_as_such_a_driver_writes_it(nvml_machine):
    text = "system driver=535.54.03 procv3=32\n" + A100
    device = gpu(nvml_machine, text + "".join(f"proc 0 pid={pid} used=200M\n" for pid in range(11, 71)))
    assert {p.pid for p in device.processes} <= set(range(11, 71))
    assert any("unreadable" in note for note in device.notes)


def test_host_pids_in_a_container_are_nobody_here(nvml_machine, container):
    device = gpu(nvml_machine, "system driver=525.60.13\n" + A100 + f"proc 0 pid={os.getpid()} used=1G\n")
    assert not device.processes[0].own
    assert any("container" in note for note in device.notes)


def test_own_memory_in_a_container_is_unknown_rather_than_zero(nvml_machine, container):
    device = gpu(nvml_machine, "system driver=550.54.15\n" + A100 + f"proc 0 pid={os.getpid()} used=0\n")
    assert device.processes[0].own
    assert device.processes[0].used is None
    assert any("565.57" in note for note in device.notes)


@with_second_version
def test_container_that_sees_no_process_still_shows_what_is_used(nvml_machine, container):
    device = gpu(nvml_machine)
    assert device.processes == ()
    assert device.used == 2 << 30
    assert any("cannot be seen from here" in note for note in device.notes)


def test_a_call_that_hangs_hangs_nobody(nvml_machine):
    nvml_machine.put(A100 + "delay fn=nvmlInit* ms=1500\n")
    first = nvml.read(timeout=0.05)
    assert "did not answer" in first.problem
    started = [t for t in threading.enumerate() if t.name == "jupyter_gpumem-nvml"]
    again = nvml.read(timeout=60)
    assert "not answering" in again.problem
    assert [t for t in threading.enumerate() if t.name == "jupyter_gpumem-nvml"] == started, "no second thread"
    started[0].join()
    nvml_machine.put(A100)
    assert nvml.read().devices


def test_callers_in_several_threads_share_a_reading(nvml_machine):
    """A sampler and a magic may ask at once: the driver is slow, not stuck."""
    nvml_machine.put(A100 + "delay fn=nvmlInit* ms=300\n")
    readings = []
    callers = [threading.Thread(target=lambda: readings.append(nvml.read(30))) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert [reading.problem for reading in readings] == [None] * 4
    assert sum(name.startswith("nvmlInit") for name, _ in nvml_machine.calls()) < 4


def test_no_thread_to_be_had_is_a_sentence(nvml_machine, monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    nvml_machine.put(A100)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert "can't start new thread" in nvml.read().problem
    monkeypatch.undo()
    assert "not answering" not in (nvml.read().problem or "")


def test_the_users_own_nvml_stays_open(nvml_machine):
    nvml_machine.put(A100)
    pynvml.nvmlInit()
    nvml.read()
    assert pynvml.nvmlDeviceGetCount() == 1
    pynvml.nvmlShutdown()
    assert nvml_machine.open_count() == 0


def test_many_processes(nvml_machine):
    lines = "".join(f"proc 0 pid={pid} used={pid}M\n" for pid in range(1, 301))
    device = gpu(nvml_machine, A100 + lines)
    assert len(device.processes) == 300
    assert device.processes[0].pid == 300, "largest first"


def reads_in_a_fork():
    """Whether a child of this process can read; one that is stuck ends by itself."""
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)
        os._exit(0 if nvml.read().devices else 1)
    return os.waitpid(pid, 0)[1] == 0


def test_a_fork_reads_for_itself(nvml_machine):
    nvml_machine.put(A100)
    assert nvml.read().devices
    assert reads_in_a_fork()


def test_a_fork_does_not_inherit_a_hang(nvml_machine):
    nvml_machine.put(A100 + "delay fn=nvmlInit* ms=1500\n")
    assert nvml.read(timeout=0.05).problem
    nvml_machine.put(A100)
    assert reads_in_a_fork()


def test_a_fork_does_not_inherit_a_held_lock(nvml_machine):
    nvml_machine.put(A100)
    with nvml._lock:
        assert reads_in_a_fork()


# ---------------------------------------------------------------- while somebody watches
def inits(machine):
    return sum(name.startswith("nvmlInit") for name, code in machine.calls() if code == 0)


@pytest.fixture
def watched():
    """NVML stays open; afterwards it is closed."""
    nvml.keep_open(True)
    yield
    nvml.keep_open(False)
    _end_threads()


def _end_threads():
    for thread in threading.enumerate():
        if thread.name == "jupyter_gpumem-nvml":
            thread.join(10)


def test_while_it_is_watched_nvml_stays_open(nvml_machine, watched):
    for _ in range(3):
        gpu(nvml_machine)
    assert nvml_machine.open_count() == 1
    nvml.keep_open(False)
    _end_threads()
    assert nvml_machine.open_count() == 0


def test_unwatched_it_is_closed_after_each_reading(nvml_machine):
    gpu(nvml_machine)
    assert nvml_machine.open_count() == 0


@pytest.mark.parametrize(
    "fault",
    ["fault fn=* dev=0 code=GPU_IS_LOST", "fault fn=nvmlDeviceGetCount_v2 code=UNKNOWN", "fault fn=nvmlInitWithFlags code=DRIVER_NOT_LOADED\nfault fn=nvmlInit_v2 code=DRIVER_NOT_LOADED"],
)
def test_after_a_fault_the_next_reading_begins_anew(nvml_machine, watched, fault):
    gpu(nvml_machine)
    nvml_machine.put(A100 + fault + "\n")
    nvml.read()
    assert nvml_machine.open_count() == 0
    assert gpu(nvml_machine).used is not None
    assert nvml_machine.open_count() == 1


def test_what_the_watch_ends_while_a_reading_hangs_is_closed_when_it_returns(nvml_machine, watched):
    gpu(nvml_machine)
    nvml_machine.put(A100 + "delay fn=nvmlDeviceGetCount_v2 ms=700\n")
    assert nvml.read(timeout=0.05).problem
    nvml.keep_open(False)
    _end_threads()
    assert nvml_machine.open_count() == 0
