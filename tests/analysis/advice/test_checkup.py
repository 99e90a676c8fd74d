"""Each rule where it must speak and where it must not, against the allocator; and that looking changes nothing."""
from __future__ import annotations

import json

import pytest

from jupyter_gpumem.analysis.advice import checkup
from jupyter_gpumem.analysis.advice.evidence import Evidence

RUNNER = """
import gc, json, os
os.environ["IPYTHONDIR"] = __import__("tempfile").mkdtemp()
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
from jupyter_gpumem.analysis.advice import checkup
torch.set_num_threads(1)  # the machine may have others' tests on it
ON = DEVICE if DEVICE == "cpu" else DEVICE + ":0"
def net(layers=3, width=512):
    return nn.Sequential(*[part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU())]).to(ON)
def batch(rows=64, width=512):
    return torch.randn(rows, width, device=ON)
def loss_of(model, rows=64):
    return (model(batch(rows)) - 1).pow(2).mean()
def step(model, opt, rows=64):
    opt.zero_grad()
    loss = loss_of(model, rows)
    loss.backward()
    opt.step()
def used():
    gc.collect()
    return torch.accelerator.memory_allocated() if DEVICE != "cpu" else 0
def run(setup, cure):
    before = set(globals())
    exec(setup, globals())
    seen = checkup.take(None, ON)
    had = used()
    exec(cure, globals())
    told = {one.rule: [one.expected, list(one.names), one.code, one.device] for one in seen.found}
    freed = had - used()
    for name in set(globals()) - before:
        del globals()[name]
    gc.collect()
    if DEVICE != "cpu": torch.accelerator.empty_cache()
    return [told, freed, seen.partial]
print(json.dumps({name: run(*pair) for name, pair in SCENARIOS.items()}))
"""

TRAINED = "model = net(); opt = torch.optim.Adam(model.parameters()); step(model, opt)\n"
SPEAKS = {
    # rule: (names, setup, cure, how far the expected bytes may be from those that came back, also on the host)
    "zero gradients": (["model"], TRAINED + "opt.zero_grad(set_to_none=False)", "opt.zero_grad()", 0, True),
    "accumulated loss": (
        ["total"], TRAINED + "total = 0\nfor _ in range(6): total = total + loss_of(model, 640)", "del total", 0.001, True,
    ),
    "accumulated loss, a list": (
        ["losses"], TRAINED + "losses = [loss_of(model, 640) for _ in range(6)]\nlast = losses[-1]",
        "losses[:] = [one.item() for one in losses]", 0.001, True,
    ),
    "unused graphs": (
        ["preds"], TRAINED + "model.eval()\npreds = [model(batch(640)) for _ in range(3)]",
        "preds = [one.detach() for one in preds]", 0.001, True,
    ),
    "unused graphs, one of a model that nobody trains": (
        ["out"], "model = net().eval()\nout = model(batch(1280))", "out = out.detach()", 0.001, True,
    ),
    "unused graphs, in training mode": (
        ["preds"], "model = net()\npreds = [model(batch(640)) for _ in range(3)]", "preds = [one.detach() for one in preds]",
        0.001, True,
    ),
    "frozen states": (
        ["opt"], TRAINED + "for p in model[0].parameters(): p.requires_grad_(False)",
        "for p in [p for p in opt.state if not p.requires_grad]: del opt.state[p]", 0.001, True,
    ),
    "frozen states, by their steps": (
        ["opt"],
        TRAINED + "head = net(1)\nopt.add_param_group({'params': list(head.parameters())})\nhead(batch()).sum().backward(); opt.step()\n"
        "for _ in range(12): step(model, opt)",
        "for p in [p for p in opt.state if p.grad is None]: del opt.state[p]", 0.001, True,
    ),
    "single precision": (
        ["loss"], TRAINED + "opt.zero_grad(); x = batch(6400)\nloss = model(x).pow(2).mean()",
        "del loss\nwith torch.autocast(DEVICE, dtype=torch.bfloat16): out = model(x)\nloss = out.pow(2).mean()", 0.1, False,
    ),
    "checkpointing": (
        ["deep"],
        "deep = nn.Sequential(*[nn.Sequential(nn.Linear(512, 512), nn.ReLU()) for _ in range(16)]).to(ON)\n"
        "x = batch(2000)\nloss = deep(x).pow(2).mean()",
        "loss = None\nloss = checkpoint_sequential(deep, 4, x, use_reentrant=False).pow(2).mean()", 0.05, False,
    ),
    "double precision": (["x"], TRAINED + "x = torch.rand(2048, 1024, dtype=torch.float64).to(ON)", "x = x.float()", 0.001, False),
    "collected outputs": (
        ["preds"], TRAINED + "with torch.no_grad(): preds = [model(batch(100)) for _ in range(12)]",
        "preds = [one.cpu() for one in preds]", 0.001, False,
    ),
    "checkpoint left": (
        ["ckpt"], TRAINED + "ckpt = {'model': {k: v.clone() for k, v in model.state_dict().items()}, 'epoch': 3}", "del ckpt", 0.001, True,
    ),
    "copied model": (["best"], TRAINED + "best = net(); best.load_state_dict(model.state_dict())", "best = best.to('cpu')", 0.001, False),
}
SILENT = {
    "gradients after backward": TRAINED,
    "one gradient that is not zero": TRAINED + "opt.zero_grad(set_to_none=False); model[4].weight.grad[-1, -1] = 1e-9",
    "a sum of numbers": TRAINED + "total = 0\nfor _ in range(6): total += loss_of(model, 640).item()",
    "a sum of two losses": TRAINED + "total = loss_of(model, 256) + loss_of(model, 256)",
    "a penalty on the weights": TRAINED + "loss = loss_of(model) + sum(p.pow(2).sum() for p in model.parameters())",
    "losses without graphs": TRAINED + "losses = [loss_of(model, 640).detach() for _ in range(6)]",
    "losses after backward": TRAINED + "losses = [loss_of(model, 640) for _ in range(6)]\nfor one in losses: one.backward()\ndel one",
    "losses of one forward": TRAINED + "out = model(batch())\nlosses = [out[:, i].pow(2).mean() for i in range(6)]",
    "an evaluation without graphs": TRAINED + "model.eval()\nwith torch.no_grad(): preds = [model(batch(640)) for _ in range(3)]",
    "gradients of an input": "model = net().eval()\nx = batch(1280).requires_grad_()\nout = model(x)",
    "one loss of a model that is trained in evaluation mode": TRAINED + "model.eval(); opt.zero_grad()\nloss = loss_of(model)",
    "outputs that an optimizer waits for": TRAINED + "opt.zero_grad()\nout = [model(batch(256)) for _ in range(3)]",
    "parameters that were not used in a few steps":
        TRAINED + "head = net(1)\nopt.add_param_group({'params': list(head.parameters())})\nhead(batch()).sum().backward(); opt.step()\n"
        "for _ in range(3): step(model, opt)",
    "activations in bfloat16": TRAINED + "opt.zero_grad()\nwith torch.autocast(DEVICE, dtype=torch.bfloat16): loss = model(batch(6400)).float().pow(2).mean()",
    "a model in bfloat16": "model = net().bfloat16()\nout = model(batch(6400).bfloat16())",
    "checkpointed blocks":
        "deep = nn.Sequential(*[nn.Sequential(nn.Linear(512, 512), nn.ReLU()) for _ in range(8)]).to(ON).bfloat16()\nx = batch(4000).bfloat16()\n"
        "for part in deep: x = checkpoint(part, x, use_reentrant=False)\ndel part",
    "blocks with small activations":
        "deep = nn.Sequential(*[nn.Sequential(nn.Linear(512, 512), nn.ReLU()) for _ in range(8)]).to(ON)\nloss = deep(batch(64)).sum()",
    "everything in float64": "model = net().double()\nx = batch(2000).double()",
    "outputs in host memory": TRAINED + "with torch.no_grad(): preds = [model(batch(100)).cpu() for _ in range(12)]",
    "inputs in a list": TRAINED + "data = [batch(100, 300) for _ in range(12)]",
    "keys and values of a cache": TRAINED + "cache = [torch.zeros(4, 8, 128, 64, device=ON) for _ in range(12)]",
    "weights in a list": TRAINED + "shadow = [p.detach().clone() for _ in range(3) for p in model.parameters()]",
    "the model's own state": TRAINED + "state = model.state_dict()",
    "a checkpoint in host memory": TRAINED + "ckpt = {k: v.cpu() for k, v in model.state_dict().items()} if DEVICE != 'cpu' else {}",
    "two models that are trained":
        TRAINED + "other = net(); opt2 = torch.optim.Adam(other.parameters()); step(other, opt2)",
    "nothing": "",
}


def scenarios():
    found = {name: (setup, cure) for name, (_, setup, cure, _, _) in SPEAKS.items()}
    return found | {name: (setup, "") for name, setup in SILENT.items()}


RESULTS: dict[str, object] = {}
"""What each device's process printed: text and numbers, no tensor."""


@pytest.fixture
def results(run_on):
    def on(device):
        if device not in RESULTS:
            RESULTS[device] = run_on(device, f"SCENARIOS = {scenarios()!r}\n" + RUNNER).json
        return RESULTS[device]

    return on


@pytest.mark.parametrize("name", SPEAKS)
@pytest.mark.parametrize("device", ["cuda", "simgpu", "cpu"])
def test_a_rule_speaks_and_its_bytes_come_back(results, device, name):
    names, _, _, tolerance, on_host = SPEAKS[name]
    told, freed, partial = results(device)[name]
    rule = name.partition(",")[0]
    assert not partial
    if device == "cpu" and not on_host:
        assert rule not in told
        return
    if (device, rule) == ("simgpu", "single precision"):
        return  # autocast does nothing there
    expected, about, code, where = told[rule]
    assert about == names
    assert code and where == (device if device == "cpu" else f"{device}:0")
    assert expected >= 1 << 20
    if device != "cpu":
        assert freed == pytest.approx(expected, rel=max(tolerance, 1e-3)), (expected, freed)


@pytest.mark.parametrize("name", SILENT)
@pytest.mark.parametrize("device", ["cuda", "simgpu", "cpu"])
def test_no_rule_speaks(results, device, name):
    if (device, name) != ("simgpu", "activations in bfloat16"):  # autocast does nothing there
        assert results(device)[name][0] == {}


def test_no_rule_speaks_beside_the_right_one(results):
    for name in SPEAKS:
        also = {"single precision"} if name == "checkpointing" else set()
        assert set(results("cuda")[name][0]) == {name.partition(",")[0]} | also, name


HEALTHY = """
from itertools import product
def conv(): return nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()).to(ON)
def transformer(): return nn.TransformerEncoder(nn.TransformerEncoderLayer(256, 4, 512, batch_first=True), 3, enable_nested_tensor=False).to(ON)
INPUTS = {"net": (64, 512), "conv": (8, 3, 32, 32), "transformer": (4, 16, 256)}
SGD = lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9)
fired = {}
for make, optimizer, moment in product((net, conv, transformer), (SGD, torch.optim.AdamW), ("stepped", "zeroed", "forward", "evaluated", "mixed")):
    model = make(); opt = optimizer(model.parameters())
    x = torch.randn(INPUTS[make.__name__], device=ON)
    for _ in range(3):
        opt.zero_grad()
        with torch.autocast(DEVICE, dtype=torch.bfloat16, enabled=moment == "mixed"): loss = model(x).float().pow(2).mean()
        loss.backward()
        opt.step()
    history = [loss.item()]
    if moment == "zeroed": opt.zero_grad()
    if moment in ("forward", "mixed"): loss = model(x).pow(2).mean()
    if moment == "evaluated":
        model.eval()
        with torch.no_grad(): preds = [model(x).cpu() for _ in range(20)]
    fired[f"{make.__name__} {optimizer.__name__} {moment}"] = [one.rule for one in checkup.take(None, ON).found]
    model = opt = x = loss = preds = None
    gc.collect()
print(json.dumps(fired))
"""


@pytest.mark.parametrize("device", ["cuda", "simgpu", "cpu"])
def test_healthy_training_states_are_left_in_peace(run_on, device):
    fired = run_on(device, "SCENARIOS = {}\n" + RUNNER + HEALTHY).json
    assert len(fired) == 30
    assert {name: rules for name, rules in fired.items() if rules} == {}


UNTOUCHED = """
import copy, random
model = net(); opt = torch.optim.Adam(model.parameters()); step(model, opt)
opt.zero_grad(set_to_none=False)
kept = [model(batch(640)) for _ in range(3)]
total = sum(loss_of(model) for _ in range(4))
counted = torch.ones(1000, device=ON)
class Loud(torch.Tensor):
    @classmethod
    def __torch_function__(cls, *args, **kwargs): raise SystemExit("a subclass was asked")
loud = torch.ones(3).as_subclass(Loud)
class Module(nn.Module):
    def __getattr__(self, name): raise SystemExit("a module was asked")
class Table(dict):
    def items(self): raise SystemExit("a dictionary was asked")
    values = keys = __iter__ = __len__ = items
tables = Table(a=torch.ones(3))
module = Module()
gc.collect()
def state():
    cuda = torch.cuda.memory_stats(0) if DEVICE == "cuda" else torch.accelerator.memory_stats()
    return [
        hash(torch.get_rng_state().numpy().tobytes()), hash(str(random.getstate())), torch.is_grad_enabled(), torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled(DEVICE), torch.accelerator.current_device_index(), dict(cuda),
        [p._version for p in model.parameters()], [p.grad._version for p in model.parameters()], [id(p.grad) for p in model.parameters()],
        len(gc.garbage), gc.isenabled(), sorted(name for name in globals() if name not in ("before", "after", "found")), id(opt.state), len(opt.state),
    ]
checkup.take(None, ON)
state()
before = state()
found = checkup.take(None, ON)
after = state()
assert "zero gradients" in [one.rule for one in found.found], found
assert before == after, [(a, b) for a, b in zip(before, after) if a != b]
gc.collect(); count = len(gc.get_objects())
for _ in range(20): checkup.take(None, ON)
found = None
gc.collect()
total.backward()
print(json.dumps(len(gc.get_objects()) - count))
"""


@pytest.mark.parametrize("device", ["cuda", "simgpu"])
def test_looking_changes_nothing_and_keeps_nothing(run_on, device):
    assert run_on(device, "SCENARIOS = {}\n" + RUNNER + UNTOUCHED).json < 60


UNUSED = """
import json, sys, torch
from jupyter_gpumem.analysis.advice import checkup
found = checkup.take(None)
print(json.dumps([simgpu.initialising_calls(), len(found.found), list(found.looked_at)]))
"""


def test_nothing_is_initialised(run_on):
    calls, found, looked_at = run_on("cuda", UNUSED, PYTORCH_NVML_BASED_CUDA_CHECK="0").json
    assert calls == [] and found == 0
    assert "no model" in looked_at[1] or looked_at[1] == "no models"


CACHE = """
import json, torch
from jupyter_gpumem.analysis.advice import checkup
KEEP = torch.ones(1 << 20, device="cuda:0")
gone = torch.empty(100 << 20, dtype=torch.uint8, device="cuda:0"); del gone
first = [[one.rule, one.expected, *one.evidence] for one in checkup.take(None).found]
torch.cuda.empty_cache()
print(json.dumps([first, [one.rule for one in checkup.take(None).found]]))
"""


def test_cached_memory_that_others_on_the_device_lack(run_on, nvml_machine, nvml_env):
    nvml_machine.put("gpu 0 total=400M\nproc 0 pid=4242 type=C used=100M\n")
    first, after = run_on("cuda", CACHE, SIMGPU_DEVICES="1", **nvml_env).json
    assert first[0][:2] == ["cached memory", 100 << 20] and "4242" in str(first)
    assert after == []


def test_cached_memory_that_nobody_else_lacks(run_on, nvml_machine, nvml_env):
    nvml_machine.put("gpu 0 total=400M\n")
    assert run_on("cuda", CACHE, SIMGPU_DEVICES="1", **nvml_env).json == [[], []]


FRAGMENTS = """
import json, torch
from jupyter_gpumem.analysis.advice import checkup
many = [torch.empty(5 << 18, dtype=torch.float32, device="cuda:0") for _ in range(36)]
before = [one.rule for one in checkup.take(None).found]
kept = many[::2]
del many
found = checkup.take(None).found
print(json.dumps([before, [[one.rule, one.expected, *one.evidence] for one in found]]))
"""


@pytest.mark.parametrize("expands", [False, True])
def test_fragments_with_who_pins_them(run_on, expands):
    env = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"} if expands else {}
    before, found = run_on("cuda", FRAGMENTS, **env).json
    assert before == []
    if expands:
        assert found == []
    else:
        assert [one[:2] for one in found] == [["fragments", 18 * 5 << 20]]
        assert "kept[" in found[0][3]


DEVICES = """
import json, torch
from jupyter_gpumem.analysis.advice import checkup
part = torch.empty(300 << 20, dtype=torch.uint8, device="cuda:0")
first = [[one.rule, one.expected, one.code, *one.evidence] for one in checkup.take(None).found]
other = torch.empty(60 << 20, dtype=torch.uint8, device="cuda:1")
print(json.dumps([first, [one.rule for one in checkup.take(None).found]]))
"""


def test_a_device_that_is_full_beside_one_that_is_empty(run_on, nvml_machine, nvml_env):
    nvml_machine.put("gpu 0 total=360M uuid=GPU-a\ngpu 1 total=360M uuid=GPU-b\n")
    first, after = run_on("cuda", DEVICES, SIMGPU_DEVICES="2", SIMGPU_CONTEXT_MB="8", **nvml_env).json
    assert [one[:2] for one in first] == [["unused devices", None]]
    assert 'part.to("cuda:1")' in first[0][2]
    assert after == []


GROUP = """
import json, torch, torch.distributed as dist
from jupyter_gpumem.analysis.advice import checkup
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
print(json.dumps(checkup.take(None, "cpu").notes))
"""


def test_a_process_group_is_said(run_on):
    (note,) = run_on("cpu", GROUP).json
    assert "gloo" in note and "destroy_process_group" in note


LOADERS = """
import json, os, torch
from torch.utils.data import DataLoader
from jupyter_gpumem.analysis.advice import checkup
os.sched_getaffinity = lambda pid: {0}
data = list(range(64))
lazy = DataLoader(data, batch_size=4, num_workers=3)
idle = [[one.rule, one.expected, *one.evidence] for one in checkup.take(None).found]
del lazy
loader = DataLoader(data, batch_size=4, num_workers=2, persistent_workers=True)
at_work = iter(loader); next(at_work)
found = [[one.rule, one.expected, list(one.names), *one.evidence] for one in checkup.take(None).found]
del at_work, loader
few = DataLoader(data, batch_size=4, num_workers=1)
print(json.dumps([idle, found, [one.rule for one in checkup.take(None).found]]))
"""


def test_more_workers_than_processors_with_what_they_take(run_on):
    idle, found, few = run_on("cpu", LOADERS).json
    assert idle[0][:2] == ["loader workers", None]
    assert found[0][0] == "loader workers" and set(found[0][2]) <= {"loader", "at_work"}
    assert found[0][1] > 1 << 20
    assert "2 workers for 1 processors" in found[0][3]
    assert few == []


# ---------------------------------------------------------------- in this process
def test_nothing_to_advise_says_what_was_looked_at():
    found = checkup.judged(Evidence(("cpu",)))
    assert found.found == ()
    assert found.looked_at[:4] == ("no storages", "no models", "no optimizers", "no gradients")


def test_the_largest_gain_comes_first_and_unknown_gains_last(monkeypatch):
    from jupyter_gpumem.model import Advice

    def says(expected):
        return lambda evidence: Advice(str(expected), "", (), "", expected, "")

    monkeypatch.setattr(checkup, "RULES", (says(1), says(None), says(3), lambda evidence: None))
    assert [one.expected for one in checkup.judged(Evidence(())).found] == [3, 1, None]


def test_a_notebook_has_its_names(shell):
    shell.run_cell("import torch\nmodel = torch.nn.Linear(600, 600)\nmodel(torch.ones(2, 600)).sum().backward()\nmodel.zero_grad(set_to_none=False)")
    found = checkup.take(shell, "cpu")
    mine = [one for one in found.found if one.rule == "zero gradients" and "model" in one.names]
    assert mine and mine[0].code == "model.zero_grad(set_to_none=True)"
    assert json.dumps(found.looked_at)
