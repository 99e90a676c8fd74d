"""Shortages whose true cause is built: run in one process on the simulated CUDA, joined to the mock NVML's machine.

Each scenario leaves one thing that would have been enough, and says which; sizes are drawn. The machine's text file is
rewritten from inside, so that other processes come and grow.
"""
from __future__ import annotations

import gc
import os
import random
from pathlib import Path

MIB = 1 << 20
CONTEXT = 8
"""MiB, as SIMGPU_CONTEXT_MB says."""


class Machine:
    """The mock's text file: one GPU of ``total`` MiB, and other processes; ``noise`` is one that is always there."""

    noise = 0

    def __init__(self) -> None:
        self.path = Path(os.environ["NVML_MOCK_STATE"])

    def put(self, total, **processes):
        processes["p2"] = self.noise
        lines = [f"gpu 0 total={total}M used={sum(processes.values())}M reserved=0"]
        lines += [f"proc 0 pid={pid[1:]} type=C used={mib}M" for pid, mib in processes.items() if mib]
        part = self.path.with_suffix(".part")
        part.write_text("\n".join(lines) + "\n")
        part.rename(self.path)


def make_shell():
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    config = Config()
    config.HistoryManager.hist_file = ":memory:"
    config.InteractiveShell.colors = "NoColor"
    config.InteractiveShell.xmode = "Plain"
    return InteractiveShell.instance(config=config)


class Bench:
    """Runs cells, keeps the records of them, and judges the one that fails."""

    def __init__(self):
        self.shell = make_shell()
        self.machine = Machine()
        self.cells = []
        self.use("import torch, gc\nfrom torch import nn\nDEV = 'cuda:0'\nM = 1 << 18")

    def use(self, code):
        """A cell that must go through."""
        result = self.shell.run_cell(code, store_history=True, silent=False)
        assert result.success, (code, result.error_in_exec)
        return result

    def watched(self, code):
        """A cell with its record, as the watcher makes it; whether it went through."""
        from jupyter_gpumem import session
        from jupyter_gpumem.analysis.objects import names_in_use
        from jupyter_gpumem.analysis.snapshot import allocators
        from jupyter_gpumem.model import CellUse

        watched = ("cuda:0",)
        names = {name: id(value) for name, value in session.user_names(self.shell).items()}
        before = allocators(watched)
        result = self.shell.run_cell(code, store_history=True)
        values = session.user_names(self.shell)
        fresh = {name: value for name, value in values.items() if names.get(name) != id(value)}
        made = names_in_use(fresh, watched, session.internals(self.shell))
        self.cells.append(CellUse(f"cell [{result.execution_count}]", before, allocators(watched), made))
        return result

    def baseline(self):
        from jupyter_gpumem.analysis.verdict import diagnosis

        return diagnosis.baseline(self.shell, ("cuda:0",), self.cells, with_devices=True)

    def fails(self, code, before=None):
        """The diagnosis of a cell that runs out of memory."""
        from jupyter_gpumem.analysis.verdict import diagnosis

        before = before or self.baseline()
        result = self.shell.run_cell(code, store_history=True)
        error = result.error_in_exec
        assert error is not None, f"it went through: {code}"
        said = diagnosis.read(error)
        assert said is not None, repr(error)
        return diagnosis.judge(self.shell, said, error, before)

    def clear(self):
        """Nothing is left for the next scenario."""
        import torch

        from jupyter_gpumem import session

        self.cells.clear()
        session.forget_error(self.shell)
        self.shell.reset(new_session=False)
        gc.enable()
        gc.collect()
        torch.cuda.empty_cache()
        assert torch.cuda.memory_allocated(0) == 0, torch.cuda.memory_allocated(0)
        self.use("import torch, gc\nfrom torch import nn\nDEV = 'cuda:0'\nM = 1 << 18")


def even(mib):
    return int(mib) // 2 * 2


def begin(bench, rng):
    """A device of a drawn size: its MiB, and those that this process can have."""
    total = even(rng.randrange(192, 385))
    bench.machine.noise = rng.choice([0, 0, 2, 3])
    bench.machine.put(total)
    bench.use("warm = torch.ones(1, device=DEV); del warm; torch.cuda.empty_cache()")
    return total, total - CONTEXT - bench.machine.noise


def empty(name, mib):
    return f"{name} = torch.empty({mib} * M, device=DEV)"


NETS = {
    "mlp": "net = nn.Sequential(*[m for _ in range({depth}) for m in (nn.Linear({width}, {width}), nn.GELU())]).to(DEV)",
    "conv": "net = nn.Sequential(*[m for _ in range({depth}) for m in (nn.Conv1d({width}, {width}, 1), nn.Tanh())]).to(DEV)",
    "residual": (
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.parts = nn.ModuleList(nn.Linear({width}, {width}) for _ in range({depth}))\n"
        "    def forward(self, x):\n"
        "        for part in self.parts:\n"
        "            x = x + torch.relu(part(x))\n"
        "        return x\n"
        "net = Net().to(DEV)"
    ),
}


def step(bench, rng):
    """Activations of a batch that is too large for the device, whatever else would go."""
    _, usable = begin(bench, rng)
    kind = rng.choice(list(NETS))
    width, parts = rng.choice([64, 128]), rng.randrange(5, 9)
    piece = max(12, usable // parts)
    batch = piece * MIB // 4 // width
    bench.use(NETS[kind].format(depth=parts + 2, width=width))
    shape = f"{batch}, {width}, 1" if kind == "conv" else f"{batch}, {width}"
    make = f"batch_size = {batch}\nx = torch.randn({shape}, device=DEV)"
    run = rng.choice(["loss = net(x).pow(2).mean()\nloss.backward()", "def train(x):\n    return net(x).pow(2).mean()\ntrain(x).backward()"])
    if rng.random() < 0.5:
        bench.use(make)
        return bench.fails(run), {"batch": batch}
    return bench.fails(f"{make}\n{run}"), {"batch": batch}


def names_before(bench, rng):
    """Names of earlier cells fill the device: this one asks for more than is left beside them."""
    _, usable = begin(bench, rng)
    kept = even(usable * rng.uniform(0.5, 0.7))
    how = rng.choice(["one", "list", "cells"])
    if how == "one":
        bench.use(empty("kept", kept))
    elif how == "list":
        bench.use(f"kept = [torch.empty({kept // 5 // 2 * 2} * M, device=DEV) for _ in range(5)]")
    else:
        for name in "abcde":
            assert bench.watched(empty(name, kept // 5 // 2 * 2)).success
    kept = kept if how == "one" else kept // 5 // 2 * 10
    return bench.fails(empty("more", even(usable - kept + rng.randrange(4, 40)))), {}


def dangling(bench, rng):
    """A cycle, an output or a frame that is over would have been enough; others hold a little."""
    total, usable = begin(bench, rng)
    loose, kept = even(usable * rng.uniform(0.3, 0.4)), even(usable * 0.2)
    bench.use(empty("kept", kept))
    bench.use("gc.disable()")
    how = rng.choice(["cycle", "output", "cycle of a module"])
    if how == "cycle":
        bench.use(f"{empty('a', loose)}\ncycle = [a]\ncycle.append(cycle)\ndel cycle, a")
    elif how == "output":
        bench.use(f"torch.empty({loose} * M, device=DEV)")
        for _ in range(4):
            bench.use("1")
    else:
        bench.use(f"class Box: pass\nbox = Box()\nbox.me = box\n{empty('box.data', loose)}\ndel box")
    bench.machine.put(total, p1=even(usable * 0.02))
    free = usable - loose - kept - even(usable * 0.02)
    asked = even(free + usable * rng.uniform(0.06, 0.2))
    return bench.fails(rng.choice([empty("y", asked), f"def f():\n    return torch.empty({asked} * M, device=DEV)\nf()"])), {}


def old_error(bench, rng):
    """The last error still held its frames when the cell began."""
    _, usable = begin(bench, rng)
    held = even(usable * rng.uniform(0.5, 0.6))
    failing = f"def train():\n    acts = torch.empty({held} * M, device=DEV)\n    raise ValueError\ntrain()"
    assert not bench.shell.run_cell(failing, store_history=True).success
    return bench.fails(empty("y", even(usable * rng.uniform(0.6, 0.9)))), {}


def fragments(bench, rng):
    """Every second tensor is gone: enough is free, in pieces."""
    _, usable = begin(bench, rng)
    count = usable // 20 - 1
    size = rng.choice([8, 9])
    bench.use(f"parts = [torch.empty({size} * M, device=DEV) for _ in range({2 * count})]")
    bench.use("keep = parts[::2]\ndel parts")
    left = usable - 20 * count
    pieces = count * (20 - size)
    asked = even(min(left + rng.randrange(4, 24), pieces - 2))
    return bench.fails(empty("y", asked)), {}


def others(bench, rng):
    """Another process has half of the device, before the cell already."""
    total, usable = begin(bench, rng)
    theirs, kept = even(usable * rng.uniform(0.5, 0.6)), even(usable * 0.15)
    bench.machine.put(total, p1=theirs)
    bench.use(empty("kept", kept))
    free = usable - theirs - kept
    return bench.fails(empty("y", even(free + usable * rng.uniform(0.05, 0.12)))), {"says": "pid 1"}


def others_grow(bench, rng):
    """Another process takes more while the cell runs."""
    total, usable = begin(bench, rng)
    first, second = even(usable * 0.1), even(usable * rng.uniform(0.55, 0.65))
    bench.machine.put(total, p1=first)
    bench.shell.user_ns["grow"] = lambda: bench.machine.put(total, p1=second)
    bench.use(empty("kept", even(usable * 0.1)))
    asked = even(usable * rng.uniform(0.4, 0.5))
    return bench.fails(f"grow()\n{empty('y', asked)}"), {"says": "more"}


def leak(bench, rng):
    """A container takes more with each cell, until one fails."""
    _, usable = begin(bench, rng)
    width = rng.choice([64, 128])
    piece = max(4, int(usable * rng.uniform(0.04, 0.06)))
    batch = piece * MIB // 4 // width
    setup = f"net = nn.Sequential(nn.Linear({width}, {width}), nn.GELU(), nn.Linear({width}, {width})).to(DEV)\nx = torch.randn({batch}, {width}, device=DEV)"
    bench.use(setup)
    made, line = rng.choice([
        ("losses = []", "losses.append(net(x).pow(2).sum())"),
        ("cache = {}", "with torch.no_grad(): cache[len(cache)] = net(x)"),
        ("total = torch.zeros((), device=DEV)", "total = total + net(x).pow(2).sum()"),
        ("class Log:\n    seen = []\nlog = Log()", "log.seen.append(net(x).relu())"),
    ])
    bench.watched(made)
    for _ in range(100):
        before = bench.baseline()
        result = bench.watched(line)
        if not result.success:
            from jupyter_gpumem.analysis.verdict import diagnosis

            return diagnosis.judge(bench.shell, diagnosis.read(result.error_in_exec), result.error_in_exec, before), {}
    raise AssertionError("it never failed")


def leak_in_a_cell(bench, rng):
    """One cell keeps the graph of every step."""
    _, usable = begin(bench, rng)
    width = rng.choice([64, 128])
    batch = max(4, int(usable * 0.03)) * MIB // 4 // width
    bench.use(f"net = nn.Sequential(nn.Linear({width}, {width}), nn.GELU(), nn.Linear({width}, {width})).to(DEV)\nx = torch.randn({batch}, {width}, device=DEV)")
    return bench.fails("losses = []\nfor _ in range(100):\n    losses.append(net(x).pow(2).mean())"), {}


def tensor(bench, rng):
    """More than the device has."""
    total, usable = begin(bench, rng)
    bench.use(empty("kept", even(usable * rng.uniform(0.1, 0.5))))
    bench.machine.put(total, p1=rng.choice([0, even(usable * 0.1)]))
    return bench.fails(empty("huge", even(usable * rng.uniform(1.05, 4)))), {}


def together(bench, rng):
    """What dangles and what others hold: only both together would have been enough."""
    total, usable = begin(bench, rng)
    loose, theirs, kept = even(usable * 0.13), even(usable * 0.13), even(usable * 0.38)
    bench.use(f"gc.disable()\n{empty('kept', kept)}\n{empty('a', loose)}\ncycle = [a]\ncycle.append(cycle)\ndel cycle, a")
    bench.machine.put(total, p1=theirs)
    free = usable - loose - theirs - kept
    return bench.fails(empty("y", even(free + usable * 0.17))), {}


def untold(bench, rng):
    """A library says that it could not allocate, and not how much."""
    begin(bench, rng)
    text = rng.choice([
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "CUDA error: out of memory",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
    ])
    return bench.fails(f"raise RuntimeError({text!r})"), {}


SCENARIOS = {
    "step": step, "names before": names_before, "dangling": dangling, "old error": old_error, "fragments": fragments,
    "others": others, "others grow": others_grow, "leak": leak, "leak in a cell": leak_in_a_cell, "tensor": tensor,
    "together": together, "untold": untold,
}  # fmt: skip
TRUTH = {
    "step": "step", "names before": "step", "dangling": "dangling", "old error": "dangling", "fragments": "fragmentation",
    "others": "others", "others grow": "others", "leak": "leak", "leak in a cell": "leak", "tensor": "one tensor",
    "together": "not sure", "untold": "not sure",
}  # fmt: skip


def run(names, seeds):
    """Scenario → ``[seed, reason, cause, code, text, facts, bound, told]`` for each seed."""
    import contextlib
    import io

    bench = Bench()
    found = []
    for name in names:
        for seed in seeds:
            with contextlib.redirect_stdout(io.StringIO()):
                diagnosis, more = SCENARIOS[name](bench, random.Random(f"{name}{seed}"))
                bench.clear()
            found.append({
                "name": name, "seed": seed, "reason": diagnosis.reason.value, "cause": diagnosis.cause, "cure": diagnosis.cure,
                "code": diagnosis.code, "most": diagnosis.most, "place": diagnosis.origin.place, "line": diagnosis.origin.code,
                "tensors": [name for name, _ in diagnosis.origin.tensors], "facts": [[f.text, f.nbytes] for f in diagnosis.facts],
                "contributing": [r.value for r, _ in diagnosis.contributing], **more,
            })
    return found
