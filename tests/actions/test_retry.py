"""The same work again with half of its size, on a device that is too small for the first try."""
from __future__ import annotations

import asyncio

import pytest
import torch

import jupyter_gpumem
from jupyter_gpumem.errors import InputError

SHELL = """
import json, os, tempfile
import torch
os.environ["IPYTHONDIR"] = tempfile.mkdtemp()
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config
config = Config()
config.HistoryManager.hist_file = ":memory:"
shell = InteractiveShell.instance(config=config)
shell.run_cell("%load_ext jupyter_gpumem")
from jupyter_gpumem.faces import showing
lines = []
original = showing.show
def show(record):
    lines.append(getattr(record, "text", type(record).__name__))
showing.show = show
failures = []
shell.showtraceback = lambda *a, **k: failures.append(shell._get_exc_info()[1].__class__.__name__)
def run(cell):
    lines.clear()
    failures.clear()
    return shell.run_cell(cell, store_history=True)
ns = shell.user_ns
ns["DEVICE"] = DEVICE
NET = '''
import torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.BatchNorm1d(256), torch.nn.Dropout(), torch.nn.Linear(256, 1)).to(DEVICE)
opt = torch.optim.SGD(net.parameters(), 0.1)
state = {k: v.clone() for k, v in net.state_dict().items()}
'''
run(NET).raise_error()
STEP = '''
net.zero_grad()
x = torch.randn(batch_size, 256, device=DEVICE)
loss = net(x).pow(2).mean()
loss.backward()
opt.step()
loss.item()
'''
"""

SAME_AS_SMALL = SHELL + """
tried = run("%%gpufree --retry 6 --halve batch_size --keep batch_size\\nbatch_size = 32768" + STEP)
after = {k: v.cpu().clone() for k, v in ns["net"].state_dict().items()}
size, history = ns["batch_size"], list(shell.history_manager.input_hist_raw)
said, failed = list(lines), list(failures)
kept = [name for name in ns if "gpumem" in name], [t for t in shell.ast_transformers]
left = [name for name in ("x", "loss") if name in ns]
out = dict(ns["Out"])
run(NET).raise_error()
plain = run(f"batch_size = {size}" + STEP)
same = all(torch.equal(v.cpu(), after[k]) for k, v in ns["net"].state_dict().items())
print(json.dumps({
    "success": tried.success, "size": size, "same": same, "loss": [tried.result, plain.result], "failed": failed,
    "said": said, "cells": len(history), "kept": [kept[0], len(kept[1])], "left": left, "out": list(out.values()),
}))
"""


@pytest.mark.parametrize("device", ["cuda", "simgpu"])
def test_ends_as_if_it_had_begun_with_the_size_that_fits(run_on, device):
    seen = run_on(device, SAME_AS_SMALL, SIMGPU_MEM_MB="64").json
    assert seen["success"]
    assert seen["failed"] == []
    assert seen["size"] < 32768
    assert seen["same"], "parameters and statistics are those of the small run"
    assert seen["loss"][0] == seen["loss"][1]
    assert seen["out"] == [seen["loss"][0]]
    assert seen["cells"] == 3  # the empty one, the setup, and this
    assert seen["kept"] == [[], 0]
    assert seen["left"] == []
    tries = 32768 // seen["size"]
    assert sum("ended: " in line for line in seen["said"]) == tries.bit_length() - 1
    assert any(line.endswith(f"with batch_size={seen['size']} went through") for line in seen["said"])


CELLS = SHELL + """
def outcome(cell):
    result = run(cell)
    error = type(result.error_in_exec or result.error_before_exec).__name__
    return [result.success, error, result.result, [l for l in lines if l.startswith("gpumem")]]
seen = {}
BIG = "x = torch.empty(size, 1 << 20, dtype=torch.uint8, device=DEVICE)\\n"
seen["fits at once"] = outcome("%%gpufree --retry 3 --halve size\\nsize = 2\\n" + BIG + "size")
seen["a name from before"] = outcome("size = 256\\n") and outcome("%%gpufree --retry 3 --halve size\\n" + BIG + "size")
seen["a name from before"].append(ns["size"])
seen["no further"] = outcome("%%gpufree --retry 9 --halve size --floor 100\\nsize = 300\\n" + BIG)
seen["too few retries"] = outcome("%%gpufree --retry 1 --halve size\\nsize = 1024\\n" + BIG)
seen["nothing to halve"] = outcome("%%gpufree --retry 1\\nsize = 256\\n" + BIG)
seen["another error"] = outcome("%%gpufree --retry 3 --halve size\\nsize = 4\\n1 / 0")
seen["a word"] = outcome("%%gpufree --retry 3 --halve size\\nsize = 256 if True else 'word'\\nsize = float(size)\\n" + BIG.replace("size", "256"))
seen["await"] = outcome("%%gpufree --retry 3 --halve size\\nimport asyncio\\nsize = 256\\nawait asyncio.sleep(0)\\n" + BIG + "size")
seen["magics inside"] = outcome("%%gpufree --retry 3 --halve size\\nsize = 256\\n%time y = 1\\n" + BIG + "size")
seen["below time"] = outcome("%%time\\n%%gpufree --retry 3 --halve size\\nsize = 256\\n" + BIG)
seen["below capture"] = outcome("%%capture c\\n%%gpufree --retry 3 --halve size\\nsize = 256\\n" + BIG)
seen["semicolon"] = outcome("%%gpufree --retry 3 --halve size\\nsize = 256\\n" + BIG + "size;")
seen["a step was taken"] = outcome("%%gpufree --retry 3 --halve size\\nsize = 256\\nnet(torch.ones(4, 256, device=DEVICE)).sum().backward()\\nopt.step()\\n" + BIG)
seen["syntax"] = outcome("%%gpufree --retry 3 --halve size\\nsize = 256\\nx = (")
seen["over time"] = outcome("%%gpufree --retry 3\\n%%time\\n1")
seen["left"] = [[n for n in ns if "gpumem" in n], len(shell.ast_transformers)]
print(json.dumps(seen))
"""


def test_cells(run_on):
    seen = run_on("cuda", CELLS, SIMGPU_MEM_MB="64").json
    assert seen.pop("left") == [[], 0]
    assert seen["fits at once"] == [True, "NoneType", 2, []]
    success, _, size, said, after = seen["a name from before"]
    assert success
    assert size == after == 32
    assert len(said) == 2 * 3 + 1
    for name, words in {
        "no further": "cannot go below 100",
        "too few retries": "1 retry was allowed",
        "nothing to halve": "1 retry was allowed",
        "a word": "is no whole number",
        "a step was taken": "changed in place",
    }.items():
        success, error, _, said = seen[name]
        assert (success, error) == (False, "OutOfMemoryError"), name
        assert words in said[-1], name
    assert seen["another error"] == [False, "ZeroDivisionError", None, []]
    assert seen["await"][:3] == [True, "NoneType", 32]
    assert seen["magics inside"][:3] == [True, "NoneType", 32]
    assert seen["below time"][0]
    assert "went through" in seen["below time"][3][-1]
    assert seen["below capture"][0]
    assert seen["semicolon"][0]
    assert seen["syntax"][:2] == [False, "SyntaxError"]
    assert seen["over time"][:2] == [False, "UsageError"]


# ---------------------------------------------------------------- functions
FUNCTION = """
import json, torch, random
import jupyter_gpumem
said, sizes = [], []
@jupyter_gpumem.retry_on_oom(halve=["size"], show=lambda notice: said.append(notice.text))
def work(device, size=256, *, label="x"):
    draw = random.random()
    sizes.append((size, draw))
    return torch.empty(size, 1 << 20, dtype=torch.uint8, device=device).shape[0]
got = work(DEVICE, label="y")
held = torch.cuda.memory_allocated() if DEVICE == "cuda" else 0
error = None
try:
    work(DEVICE, 10000)
except torch.OutOfMemoryError as caught:
    error = str(caught)[:20]
print(json.dumps([got, sizes[:4], held, len(sizes), error, work.__name__]))
"""


@pytest.mark.parametrize("device", ["cuda", "simgpu"])
def test_a_function_is_called_with_half(run_on, device):
    got, sizes, held, calls, error, name = run_on(device, FUNCTION, SIMGPU_MEM_MB="64").json
    assert got == 32
    assert [size for size, _ in sizes] == [256, 128, 64, 32]
    assert len({draw for _, draw in sizes}) == 1, "each try begins with the same random state"
    assert held == 0
    assert calls == 4 + 4
    assert error is not None
    assert name == "work"


def test_a_coroutine_is_awaited_again():
    sizes = []

    @jupyter_gpumem.retry_on_oom(halve="n", tries=2, show=lambda notice: None)
    async def work(n):
        sizes.append(n)
        await asyncio.sleep(0)
        if n > 4:
            raise MemoryError
        return n

    assert asyncio.run(work(16)) == 4
    assert sizes == [16, 8, 4]


def test_what_was_written_to_bars_another_call():
    weight, said = torch.zeros(3), []

    @jupyter_gpumem.retry_on_oom(halve="n", show=lambda notice: said.append(notice.text))
    def work(n):
        weight.add_(1)
        raise MemoryError

    with pytest.raises(MemoryError):
        work(8)
    assert weight.tolist() == [1, 1, 1]
    assert "changed in place" in said[-1]


def test_without_arguments_it_decorates():
    calls = []

    @jupyter_gpumem.retry_on_oom
    def work():
        calls.append(1)
        if len(calls) < 3:
            raise MemoryError
        return "done"

    assert work() == "done"


@pytest.mark.parametrize(
    ("options", "words"),
    [({"halve": "batch"}, "no argument 'batch'"), ({"tries": 0}, "from 1 on"), ({"floor": 0}, "from 1 on")],
)
def test_bad_options(options, words):
    with pytest.raises(InputError, match=words):
        jupyter_gpumem.retry_on_oom(**options)(lambda n: n)
