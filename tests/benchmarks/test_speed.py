"""Speed as ratios, both sides measured in turn in one run; medians."""
from __future__ import annotations

import gc
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = 9


def in_turn(ours, theirs, rounds=ROUNDS):
    """Medians of both, in seconds, A B A B …, without collections in between."""
    times = ([], [])
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for function, found in ((ours, times[0]), (theirs, times[1])):
                start = time.perf_counter()
                function()
                found.append(time.perf_counter() - start)
    finally:
        gc.enable()
    return statistics.median(times[0]), statistics.median(times[1])


@pytest.fixture(scope="module")
def million():
    """A million objects that the collector tracks."""
    return [[i] for i in range(1_000_000)]


LOADING = """
import os, sys, tempfile, time, json
os.environ["IPYTHONDIR"] = tempfile.mkdtemp()
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.find_line_magic("load_ext")
start = time.perf_counter(); import jupyter_gpumem
shell.run_line_magic("load_ext", "jupyter_gpumem")
took = time.perf_counter() - start
heavy = [m for m in ("torch", "pynvml", "psutil", "plotly", "ipywidgets", "numpy") if m in sys.modules]
print(json.dumps([took, heavy]))
"""


def test_loading(row):
    runs = []
    for _ in range(6):
        env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
        done = subprocess.run([sys.executable, "-c", LOADING], capture_output=True, text=True, check=True, env=env)
        runs.append(json.loads(done.stdout.splitlines()[-1]))
    took = statistics.median(seconds for seconds, _ in runs[1:])
    assert all(heavy == [] for _, heavy in runs)
    row("%load_ext beyond a bare shell", f"{took * 1e3:.1f} ms, imports 0 heavy", "50 ms")


def test_inventory(row, million):
    from jupyter_gpumem.analysis.inventory import take_inventory

    base = torch._C.TensorBase
    kept = [torch.zeros(1) for _ in range(100)]

    def bare():
        return [obj for obj in gc.get_objects() if issubclass(type(obj), base)]

    def ours():
        with take_inventory() as seen:
            return len(seen.storages)

    assert ours() >= len(kept)
    mine, theirs = in_turn(ours, bare)
    row("inventory at 1 M objects / bare pass", f"{mine / theirs:.2f} ({mine * 1e3:.0f} / {theirs * 1e3:.0f} ms)", "1.3")


def test_cell(row, million, shell):
    """A cell that makes no tensor, watched and not."""
    shell.display_pub.publish = lambda *args, **kwargs: None
    shell.run_cell("import torch\n%load_ext jupyter_gpumem")

    def cells(count=60):
        times = []
        for _ in range(count):
            start = time.perf_counter()
            shell.run_cell("pass")
            times.append(time.perf_counter() - start)
        return statistics.median(times)

    bare = cells()
    shell.run_cell("%gpumem on")
    cells(5)
    watched = cells()
    shell.run_cell("%gpumem off")
    row("cell with %gpumem on, 1 M objects, host", f"+{(watched - bare) * 1e3:.2f} ms (bare {bare * 1e3:.2f})", "1 ms")


def test_device_sample(row, nvml_machine, monkeypatch):
    import pynvml as n

    from jupyter_gpumem.devices import nvml

    monkeypatch.delenv("NVML_MOCK_TRACE")
    text = "".join(f"gpu {g} uuid=GPU-{g} total=80G used=40G\n" for g in range(8))
    text += "".join(f"proc {g} pid={100 + p} used=1G\n" for g in range(8) for p in range(32))
    nvml_machine.put(text)

    def bare():
        n.nvmlInit()
        n.nvmlSystemGetDriverVersion()
        for index in range(n.nvmlDeviceGetCount()):
            handle = n.nvmlDeviceGetHandleByIndex(index)
            n.nvmlDeviceGetUUID(handle), n.nvmlDeviceGetName(handle), n.nvmlDeviceGetMemoryInfo(handle, n.nvmlMemory_v2)
            for call in (n.nvmlDeviceGetMigMode, n.nvmlDeviceGetUtilizationRates):
                try:
                    call(handle)
                except n.NVMLError:
                    pass
            n.nvmlDeviceGetTemperature(handle, 0), n.nvmlDeviceGetPowerUsage(handle)
            for call in (n.nvmlDeviceGetComputeRunningProcesses_v3, n.nvmlDeviceGetGraphicsRunningProcesses_v3):
                call(handle)
            n.nvmlDeviceGetMPSComputeRunningProcesses_v3(handle)
        n.nvmlShutdown()

    assert len(nvml.read().devices) == 8
    mine, theirs = in_turn(nvml.read, bare, 41)
    row("device sample, 8 GPUs × 32 / bare calls", f"{mine / theirs:.2f} ({mine * 1e3:.2f} / {theirs * 1e3:.2f} ms)", "1.2")

    from jupyter_gpumem.analysis import sample
    from jupyter_gpumem.faces import wire

    # as the panel takes them one after another: NVML stays open, and the owners of processes are believed for 5 s
    nvml.keep_open(True)
    assert len(sample.take().devices) == 9
    mine, theirs = in_turn(lambda: wire.sample(sample.take(), 1000), bare, 41)
    nvml.keep_open(False)
    row("the panel's whole sample / bare calls", f"{mine / theirs:.2f} ({mine * 1e3:.2f} / {theirs * 1e3:.2f} ms)", "1.2")


def test_why(row, million):
    """All holders of one tensor among a million objects, beside one pass, and beside the search that people write."""
    from jupyter_gpumem.analysis.why import why

    main = sys.modules["__main__"]
    main.million, main.named = million, torch.zeros(1000)
    main.box = {"a": [main.named], "b": [[main.named]]}
    base = torch._C.TensorBase

    def bare():
        return sum(issubclass(type(obj), base) for obj in gc.get_objects())

    def ours():
        return why(None, main.named, "named", seconds=30)

    try:
        assert len(ours().holders) == 2 and not why(None, main.named, "named").partial
        mine, theirs = in_turn(ours, bare, 5)
        row("why at 1 M objects / bare pass", f"{mine / theirs:.1f} ({mine:.2f} s)", "2 s")
        objgraph = pytest.importorskip("objgraph")

        def chain():
            return objgraph.find_backref_chain(main.named, objgraph.is_proper_module, max_depth=5)

        mine, theirs = in_turn(ours, chain, 3)
        row("why at 1 M objects / objgraph's one chain", f"{mine / theirs:.2f} ({mine:.2f} / {theirs:.2f} s)", "1")
    finally:
        del main.million, main.named, main.box


ACCOUNT_OF_MANY = """
import json, time
import torch
from jupyter_gpumem.analysis import account, holders
kept = [torch.zeros(256, device=DEVICE) for _ in range(10_000)]
times = {"account": [], "look": []}
for _ in range(5):
    for name, act in (("account", lambda: account.take(None)), ("look", lambda: holders.holdings(None, [DEVICE]))):
        start = time.perf_counter(); act(); times[name].append(time.perf_counter() - start)
print(json.dumps({name: sorted(found)[2] for name, found in times.items()}))
"""


def test_account_of_many(row, run_on):
    found = run_on("cuda", ACCOUNT_OF_MANY).json
    ratio = found["account"] / found["look"]
    row("account of 10,000 storages / their holders", f"{ratio:.2f} ({found['account']:.2f} s)", "1.5")


def test_treemap_of_many(row):
    from jupyter_gpumem.model import Allocator, Cause, Holder, Holding, Snapshot
    from jupyter_gpumem.pictures import plots

    holdings = tuple(
        Holding("torch", "cuda:0", index, 4096 + index, (), Holder(f"model.layer{index % 40}.w{index}", Cause.NAME, "model"))
        for index in range(10_000)
    )
    seen = Snapshot(0.0, ("cuda",), (), (Allocator("torch", "cuda:0", sum(h.nbytes for h in holdings)),), holdings)
    start = time.perf_counter()
    figure = plots.treemap(seen)
    took = time.perf_counter() - start
    row("treemap of 10,000 storages", f"{took:.2f} s, {len(figure.to_json()) / 1e3:.0f} kB", "1 s, 150 kB")


def test_account(row, run_on):
    sys.path.insert(0, str(ROOT / "tests" / "frameworks"))
    from test_torch_graph import ACCOUNT

    rows = run_on("cuda", ACCOUNT).json
    worst = min(explained / allocated for *_, explained, allocated in rows)
    row("account: explained / allocated, 16 states", f"≥ {100 * worst:.2f} %", "99.5 %")


PARKING = """
import json, statistics, time, torch
import jupyter_gpumem as g
names = [torch.ones(1 << 22, device=DEVICE) for _ in range(12)] + [torch.ones(1 << 10, device=DEVICE) for _ in range(200)]
nbytes = sum(t.untyped_storage().nbytes() for t in names)
ours, bare = [], []
for _ in range(7):
    start = time.perf_counter()
    g.park(names)
    g.restore(names)
    ours.append(time.perf_counter() - start)
    start = time.perf_counter()
    copies = [t.cpu() for t in names]
    back = [t.to(DEVICE) for t in copies]
    bare.append(time.perf_counter() - start)
    del copies, back
print(json.dumps([nbytes, statistics.median(ours), statistics.median(bare)]))
"""


def test_parking(row, run_on):
    """Each byte is copied through a buffer, read back from the device and summed, and the process is looked through."""
    nbytes, ours, bare = run_on("cuda", PARKING, SIMGPU_MEM_MB="1024").json
    rate = 2 * nbytes / ours / (1 << 30)
    row("park and restore 192 MiB / bare copies there and back", f"{ours / bare:.1f} x, {rate:.1f} GiB/s", "4 x")
