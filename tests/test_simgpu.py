"""The simulated GPU is a GPU as far as the suite needs one."""
from __future__ import annotations

import pytest

MiB = 1 << 20

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
del x, y, z, net, opt
gc.collect(); A.empty_cache()
print(json.dumps([peak, oom, matched, A.memory_allocated(0), A.memory_reserved(0), A.memory_stats(0)["num_ooms"]]))
"""


@pytest.mark.parametrize("device", ["cuda", "simgpu"])
def test_the_allocator_keeps_true_statistics(run_on, device):
    peak, oom, matched, allocated, reserved, ooms = run_on(device, STATISTICS).json
    assert peak >= 8 << 20
    assert "out of memory" in oom
    assert matched, "a storage's pointer is its block's address"
    assert (allocated, reserved, ooms) == (0, 0, 1)


COUNTERS = """
import json, torch
A, steps = torch.accelerator, []
def note():
    s = A.memory_stats(0)
    names = ("allocated_bytes.all", "reserved_bytes.all", "requested_bytes.all", "inactive_split_bytes.all", "allocation.all", "segment.all")
    steps.append([[s[f"{name}.{what}"] for what in ("current", "peak", "allocated", "freed")] for name in names])
a = torch.empty(1000, dtype=torch.uint8, device=DEVICE); note()
b = torch.empty(12 << 20, dtype=torch.uint8, device=DEVICE); note()
del b; note()
A.reset_peak_memory_stats(0); note()
A.reset_accumulated_memory_stats(0); note()
A.empty_cache(); note()
print(json.dumps([steps, A.memory_stats(0)["allocated_bytes.small_pool.current"], A.memory_stats(1)["allocated_bytes.all.peak"]]))
"""


@pytest.mark.parametrize("device", ["cuda", "simgpu"])
def test_each_counter_of_the_allocator(run_on, device):
    (small, large, freed, peak, accumulated, emptied), pool, other = run_on(device, COUNTERS).json
    rest = 2 * MiB - 1024
    assert small == [[1024, 1024, 1024, 0], [2 * MiB, 2 * MiB, 2 * MiB, 0], [1000, 1000, 1000, 0], [rest, rest, rest, 0], [1, 1, 1, 0], [1, 1, 1, 0]]
    held, got = 1024 + 12 * MiB, 14 * MiB
    assert large[0] == [held, held, held, 0]
    assert large[1] == [got, got, got, 0], "from 10 MiB on a segment is as large as its block"
    assert freed[0] == [1024, held, held, 12 * MiB]
    assert freed[1] == [got, got, got, 0], "freed blocks stay reserved"
    assert peak[0][:2] == [1024, 1024]
    assert peak[1][:2] == [got, got]
    assert accumulated[0] == [1024, 1024, 0, 0]
    assert emptied[1] == [2 * MiB, got, 0, 12 * MiB], "a segment in use stays"
    assert (pool, other) == (1024, 0)


def test_the_callback_hears_of_an_error_before_it_is_raised(run_on):
    source = """
import json, torch
heard = []
simgpu.set_oom_callback(lambda *figures: heard.append(figures))
simgpu.set_capacity(1, 64 << 20)
try:
    torch.empty(100 << 20, dtype=torch.uint8, device="cuda:1")
except torch.OutOfMemoryError:
    heard.append("raised")
print(json.dumps(heard))
"""
    (device, asked, total, free), raised = run_on("cuda", source).json
    assert (device, asked, total, raised) == (1, 100 * MiB, 64 * MiB, "raised")
    assert 0 < free < total


# call → what it records when it is the first one: what the real torch.cuda initialises, and nothing else
LAZY = {
    "torch.cuda.is_initialized()": [],
    "torch.cuda.memory_stats(0)": [],
    "torch.cuda.memory_allocated()": [],
    "torch.cuda.empty_cache()": [],
    "torch.cuda.device_count()": [],
    "torch.cuda.manual_seed_all(1)": [],
    "torch.accelerator.current_accelerator()": [],
    "torch.accelerator.device_count()": [],
    "torch.accelerator.memory_allocated()": [],
    "torch.accelerator.empty_cache()": [],
    "torch.cuda.is_available()": ["cudaGetDeviceCount"],
    "torch.cuda.current_device()": ["current_device", "_lazy_init"],
    "torch.cuda.set_device(1)": ["set_device", "_lazy_init"],
    "torch.cuda.device(1).__enter__()": ["_lazy_init"],
    "torch.cuda.get_device_properties(0)": ["get_device_properties", "_lazy_init"],
    "torch.cuda.mem_get_info(1)": ["mem_get_info", "_lazy_init"],
    "torch.cuda.synchronize()": ["synchronize", "_lazy_init", "synchronize: context"],
    "torch.accelerator.current_device_index()": ["accelerator.current_device_index", "_lazy_init"],
    "torch.accelerator.get_memory_info(0)": ["accelerator.get_memory_info", "_lazy_init"],
    "torch.accelerator.current_stream(0)": ["accelerator.current_stream", "_lazy_init"],
    "torch.ones(1, device='cuda')": ["_lazy_init"],
    "torch.ones(1).to('cuda')": ["_lazy_init"],
    "torch.nn.Linear(1, 1).cuda()": ["_lazy_init"],
}
EACH_IN_A_FORK = """
import json, os, sys, torch
told = {}
for call in json.loads(os.environ["CALLS"]):
    read, write = os.pipe()
    if os.fork() == 0:
        eval(call)
        with os.fdopen(write, "w") as pipe:
            json.dump([simgpu.initialising_calls(), torch.cuda.is_initialized()], pipe)
        os._exit(0)
    os.close(write)
    told[call] = json.loads(os.fdopen(read).read() or "null")
    os.wait()
print(json.dumps(told))
"""


def test_cuda_is_initialised_by_its_first_use_and_no_sooner(run_on):
    import json

    told = run_on("cuda", EACH_IN_A_FORK, CALLS=json.dumps([*LAZY]), PYTORCH_NVML_BASED_CUDA_CHECK="0").json
    assert told == {call: [names, "_lazy_init" in names] for call, names in LAZY.items()}


def test_a_check_by_nvml_does_not_ask_cuda(run_on):
    source = "import json, torch; print(json.dumps([torch.cuda.is_available(), simgpu.initialising_calls()]))"
    assert run_on("cuda", source, PYTORCH_NVML_BASED_CUDA_CHECK="1").json == [True, []]


def test_an_initialising_call_is_recorded_with_the_way_to_it(run_on):
    source = """
import json, torch
def careless():
    torch.cuda.current_device()
careless()
torch.cuda.current_device()
calls = simgpu.initialising_calls()
print(json.dumps([calls, [line.split()[-1] for line in calls[0].stack[-1:]]]))
"""
    calls, stack = run_on("cuda", source).json
    assert calls == ["current_device", "_lazy_init"], "the second call initialises nothing"
    assert stack == ["careless"]


def test_what_waits_for_the_initialisation_runs_at_it(run_on):
    source = """
import json, torch
ran = []
torch.cuda._lazy_call(lambda: ran.append("waited"))
torch.cuda.manual_seed_all(7)
before = list(ran)
torch.cuda.init()
print(json.dumps([before, ran, torch.cuda.initial_seed(), torch._C._accelerator_isAllocatorInitialized(), torch.cuda.memory_allocated(0)]))
"""
    assert run_on("cuda", source).json == [[], ["waited"], 7, True, 0]


def test_a_child_forked_after_the_initialisation_is_refused(run_on):
    source = """
import json, os, torch
torch.cuda.init()
read, write = os.pipe()
if os.fork() == 0:
    try:
        torch.cuda.init(); said = "fine"
    except RuntimeError as error:
        said = str(error)
    os.write(write, said.encode()); os._exit(0)
os.wait()
print(json.dumps([torch.cuda.is_initialized(), os.read(read, 1000).decode()]))
"""
    parent, child = run_on("cuda", source).json
    assert parent
    assert "Cannot re-initialize CUDA in forked subprocess" in child


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
import importlib.util, json, sys
from simgpu import late
late.arm()
found = importlib.util.find_spec("torch") is not None  # looking is not importing
before = "torch" in sys.modules
import torch
print(json.dumps([found, before, torch.ones(1, device="cuda").device.type, type(torch.__spec__.loader).__name__,
                  [finder for finder in sys.meta_path if type(finder).__module__ == "simgpu.late"]]))
"""
    assert run_on("none", source).json == [True, False, "cuda", "SourceFileLoader", []]


# ---- joined with the mock NVML

MACHINE = "gpu 0 uuid=GPU-a1 name=Big total=512M reserved=12M used=100M\ngpu 1 uuid=GPU-b2 total=256M\ngpu 2 total=1G\n"
JOINED = """
import json, pynvml, torch
pynvml.nvmlInit()
def nvml(index):
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    return memory.used, memory.free, [p.usedGpuMemory for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)]
steps = [nvml(0)]
torch.cuda.init(); steps.append(nvml(0))
a = torch.empty(30 << 20, dtype=torch.uint8, device="cuda"); steps.append(nvml(0))
del a; torch.cuda.empty_cache(); steps.append(nvml(0))
simgpu.set_external(0, 50 << 20); steps.append(nvml(0))
properties = torch.cuda.get_device_properties(0)
info = torch.cuda.mem_get_info(0)
print(json.dumps([torch.cuda.device_count(), str(properties.uuid), properties.name, properties.total_memory, info, steps, nvml(1)]))
"""


def test_nvml_and_torch_tell_of_one_machine(run_on, nvml_machine, nvml_env):
    nvml_machine.put(MACHINE)
    count, uuid, name, total, info, steps, other = run_on("cuda", JOINED, SIMGPU_CONTEXT_MB="40", **nvml_env).json
    assert (count, uuid, name, total) == (3, "a1", "Big", 500 * MiB)
    used = [step[0] // MiB for step in steps]
    assert used == [100, 100, 170, 140, 190], "nothing, initialised, a context and 30 MiB, the context, somebody else's 50"
    assert [step[2] for step in steps] == [[], [], [70 * MiB], [40 * MiB], [40 * MiB]]
    assert info == [steps[-1][1], 500 * MiB], "what is free, both say alike"
    assert other == [0, 256 * MiB, []], "a device that was not used has no context"


def test_a_private_device_joins_too_even_late(run_on, nvml_machine):
    nvml_machine.put("gpu 0 total=1G\n")
    source = f"""
import json, os, pathlib, torch
a = torch.empty(30 << 20, dtype=torch.uint8, device="simgpu")
simgpu.join({str(nvml_machine.path)!r})
told = pathlib.Path({str(nvml_machine.path)!r} + ".d", str(os.getpid())).read_text().split()
print(json.dumps([told[2:], torch.accelerator.get_memory_info(0)[1]]))
"""
    told, total = run_on("simgpu", source, NVML_MOCK_STATE="").json
    assert told == ["0", str((30 + 8) * MiB), "0"]
    assert total == 1 << 30


SHARED = """
import json, os, signal, subprocess, sys, torch
OTHER = '''
import sys; sys.path[:0] = {path}
import simgpu; simgpu.install(cuda=True)
import torch
try:
    held = torch.empty(200 << 20, dtype=torch.uint8, device="cuda"); print("fits", flush=True)
except torch.OutOfMemoryError:
    print("full", flush=True)
sys.stdin.read()
'''.replace("{path}", repr(sys.path[:2]))
def start():
    process = subprocess.Popen([sys.executable, "-W", "ignore", "-c", OTHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    return process, process.stdout.readline().strip()
free = lambda: torch.cuda.mem_get_info(0)[0] >> 20
told = [free()]
held = torch.empty(100 << 20, dtype=torch.uint8, device="cuda")
first, said = start(); told += [said, free()]
first.communicate()
del held; torch.cuda.empty_cache()
second, said = start(); told += [said, free()]
try:
    torch.empty(100 << 20, dtype=torch.uint8, device="cuda"); told.append("fits")
except torch.OutOfMemoryError:
    told.append("full")
second.kill(); os.waitid(os.P_PID, second.pid, os.WEXITED | os.WNOWAIT)
told.append(free())
second.wait()
print(json.dumps(told))
"""


def test_two_processes_fill_one_device(run_on, nvml_machine):
    nvml_machine.put("gpu 0 total=288M\n")
    told = run_on("cuda", SHARED, SIMGPU_CONTEXT_MB="8").json
    assert told == [280, "full", 172, "fits", 72, "full", 280], "the killed one's memory is free at once, zombie or not"


RACE = """
import json, subprocess, sys
OTHER = '''
import sys; sys.path[:0] = {path}
import simgpu; simgpu.install(cuda=True)
import torch
torch.cuda.mem_get_info(0); print("ready", flush=True); sys.stdin.readline()
held = []
try:
    while True: held.append(torch.empty(10 << 20, dtype=torch.uint8, device="cuda"))
except torch.OutOfMemoryError:
    print(len(held), flush=True)
sys.stdin.read()
'''.replace("{path}", repr(sys.path[:2]))
all = [subprocess.Popen([sys.executable, "-W", "ignore", "-c", OTHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
for process in all: process.stdout.readline()
for process in all: process.stdin.write("go\\n"); process.stdin.flush()
got = [int(process.stdout.readline()) for process in all]
for process in all: process.communicate()
print(json.dumps(got))
"""


def test_processes_never_take_the_same_bytes(run_on, nvml_machine):
    nvml_machine.put("gpu 0 total=1016M\n")
    first, second = run_on("cpu", RACE, SIMGPU_CONTEXT_MB="8").json
    assert first + second == 100


@pytest.mark.kernel
def test_a_kernel_imports_torch_when_the_user_does(tmp_path, compiler):
    import os
    import sys
    from pathlib import Path

    from jupyter_client.kernelspec import KernelSpec
    from jupyter_client.manager import KernelManager
    from simgpu import kernel

    spec = kernel.write_kernelspec(tmp_path, tmp_path / "machine")
    manager = KernelManager()
    manager._kernel_spec = KernelSpec.from_resource_dir(str(spec))
    manager.start_kernel(cwd=str(tmp_path), env={**os.environ, "IPYTHONDIR": str(tmp_path / "ipython")})
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=120)

        def value(expression, code="pass"):
            reply = client.execute(code, user_expressions={"it": expression}, reply=True, timeout=120)["content"]
            assert reply["status"] == "ok", reply
            return reply["user_expressions"]["it"]["data"]["text/plain"]

        assert value("'torch' in sys.modules, [p for p in sys.path if p.endswith('simgpu')]", "import sys") == "(False, [])"
        assert value("str(torch.ones(1, device='cuda:1').device)", "import torch") == "'cuda:1'"
        shown = value("pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(1))", "import pynvml; pynvml.nvmlInit()")
        assert shown == value("'GPU-' + str(torch.cuda.get_device_properties(1).uuid)")
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    assert Path(sys.executable).name in (spec / "kernel.json").read_text()
