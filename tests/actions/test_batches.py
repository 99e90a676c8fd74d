"""Parts give the gradients of the whole with a lower peak, and the largest size is what trying every size gives."""
from __future__ import annotations

import dataclasses
import typing

import numpy
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from jupyter_gpumem.actions import batches
from jupyter_gpumem.errors import InputError

few = settings(max_examples=60, deadline=None, phases=[Phase.generate])


# ---------------------------------------------------------------- parts
class Pair(typing.NamedTuple):
    images: object
    labels: object


@dataclasses.dataclass(frozen=True)
class Sample:
    tokens: object
    mask: object = None
    made: list = dataclasses.field(default_factory=list, init=False)

    def __post_init__(self):
        self.made.append(1)


@few
@given(st.integers(1, 40), st.integers(1, 50))
def test_parts_are_nearly_equal_views_in_order(length, n):
    whole = torch.arange(length * 2).reshape(length, 2)
    parts, shares = zip(*batches.micro_batches(whole, n), strict=True)
    sizes = [len(part) for part in parts]
    assert len(parts) == min(n, length)
    assert max(sizes) - min(sizes) <= 1
    assert torch.equal(torch.cat(parts), whole)
    assert shares == tuple(size / length for size in sizes)
    assert sum(shares) == pytest.approx(1)
    assert {part.untyped_storage().data_ptr() for part in parts} == {whole.untyped_storage().data_ptr()}


def test_containers_are_kept_and_what_is_no_batch_passes_through():
    x, y = torch.arange(6.0), torch.arange(12).reshape(6, 2)
    batch = {
        "pair": Pair(x, [y, None]),
        "sample": Sample(y, x),
        "texts": list("abcdef"),
        "other": ("one", "two"),
        "rate": 0.5,
        "temperature": torch.tensor(2.0),
        "array": numpy.arange(6),
        "sizes": torch.Size([2, 3]),
    }
    (first, share), (second, _) = batches.micro_batches(batch, 2)
    assert share == 0.5
    assert type(first["pair"]) is Pair and type(first["sample"]) is Sample
    assert first["pair"].images.tolist() == [0, 1, 2] and second["pair"].labels[0].tolist() == y[3:].tolist()
    assert first["pair"].labels[1] is None
    assert second["sample"].mask.tolist() == [3, 4, 5]
    assert batch["sample"].made == [1], "no __init__ runs again"
    assert (first["texts"], second["texts"]) == (list("abc"), list("def"))
    assert first["other"] is batch["other"] and first["rate"] == 0.5 and first["temperature"] is batch["temperature"]
    assert second["array"].tolist() == [3, 4, 5] and first["sizes"] is batch["sizes"]
    assert batch["pair"].images is x, "the batch itself is unchanged"


@pytest.mark.parametrize(
    ("make", "n", "words"),
    [
        (lambda: {"x": torch.zeros(4), "deep": [torch.zeros(3, 2)]}, 2, r"batch\['x'\] has 4, batch\['deep'\]\[0\] has 3"),
        (lambda: Sample(torch.zeros(4), torch.zeros(5)), 2, r"batch.tokens has 4, batch.mask has 5"),
        (lambda: torch.tensor(1.0), 2, "nothing to cut"),
        (list, 2, "nothing to cut"),
        (lambda: torch.zeros(0, 3), 2, "first dimension of the batch is 0"),
        (lambda: [torch.zeros(4), {1}], 2, r"batch\[1\] is of type set"),
        (lambda: torch.zeros(4), 0, "whole number from 1 on; not 0"),
        (lambda: torch.zeros(4), 2.0, "whole number from 1 on; not 2.0"),
        (lambda: torch.zeros(4), True, "whole number from 1 on; not True"),
    ],
)
def test_what_cannot_be_cut_is_refused_at_once(make, n, words):
    with pytest.raises(InputError, match=words):
        batches.micro_batches(make(), n)


GRADIENTS = """
import json, torch
from torch import nn
from torch.nn import functional as F
from jupyter_gpumem.actions.batches import micro_batches
torch.manual_seed(0)
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.attend, self.out = nn.Embedding(20, 8), nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 3)
    def forward(self, x):
        x = self.embed(x)
        return self.out(self.attend(x, x, x, need_weights=False)[0].mean(1))
kinds = {
    "linear": (nn.Linear(6, 3), lambda n: torch.randn(n, 6)),
    "mlp": (nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 3)), lambda n: torch.randn(n, 6)),
    "convolution": (nn.Sequential(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)), lambda n: torch.randn(n, 2, 6, 6)),
    "attention": (Attention(), lambda n: torch.randint(20, (n, 5))),
}
worst = {}
for kind, (model, make) in kinds.items():
    model = model.double().to(DEVICE)
    for n, parts in ((8, 4), (11, 4), (7, 3), (5, 9)):
        x, y = make(n).to(DEVICE), torch.randint(3, (n,)).to(DEVICE)
        if x.is_floating_point():
            x = x.double()
        model.zero_grad()
        F.cross_entropy(model(x), y).backward()
        whole = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        for (px, py), share in micro_batches((x, y), parts):
            (F.cross_entropy(model(px), py) * share).backward()
        for a, p in zip(whole, model.parameters()):
            worst[kind] = max(worst.get(kind, 0.0), (a - p.grad).abs().max().item())
print(json.dumps(worst))
"""


@pytest.mark.parametrize("device", ["cpu", "cuda", "simgpu"])
def test_the_gradients_are_those_of_the_whole_batch(run_on, device):
    worst = run_on(device, GRADIENTS).json
    assert len(worst) == 4
    assert all(difference < 1e-6 for difference in worst.values()), worst


TOKENS = """
import json, torch
from torch.nn import functional as F
from jupyter_gpumem.actions.batches import micro_batches
torch.manual_seed(0)
model = torch.nn.Linear(5, 4).double()
x, y = torch.randn(6, 7, 5).double(), torch.randint(4, (6, 7))
y[0, 2:] = y[3, 1:] = -100
def loss(x, y):
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten())
loss(x, y).backward()
whole = model.weight.grad.clone()
wrong = {}
for recipe in ("share", "tokens"):
    model.zero_grad()
    for (px, py), share in micro_batches((x, y), 4):
        weight = share if recipe == "share" else ((py != -100).sum() / (y != -100).sum()).item()
        (loss(px, py) * weight).backward()
    wrong[recipe] = (whole - model.weight.grad).abs().max().item()
print(json.dumps(wrong))
"""


def test_a_mean_over_tokens_takes_the_weights_of_the_documented_recipe(run_on):
    wrong = run_on("cpu", TOKENS).json
    assert wrong["tokens"] < 1e-6 < wrong["share"]


PEAK = """
import json, torch
from jupyter_gpumem.actions.batches import micro_batches
model = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh()) for _ in range(6)]).to(DEVICE)
x = torch.randn(4096, 64, device=DEVICE)
peak = getattr(torch, DEVICE).max_memory_allocated
reset = torch.cuda.reset_peak_memory_stats if DEVICE == "cuda" else torch.accelerator.reset_peak_memory_stats
said = []
for parts in (1, 2, 8):
    model.zero_grad(); reset()
    before = peak()
    for part, share in micro_batches(x, parts):
        (model(part).square().mean() * share).backward()
    said.append(peak() - before)
print(json.dumps(said))
"""


@pytest.mark.parametrize("device", ["cuda", "simgpu"])
def test_the_peak_is_lower(run_on, device):
    whole, halves, eighths = run_on(device, PEAK).json
    assert halves < 0.6 * whole
    assert eighths < 0.25 * whole


# ---------------------------------------------------------------- a loader
def test_what_is_no_loader_is_refused():
    with pytest.raises(InputError, match=r"takes a torch.utils.data.DataLoader; not list"):
        batches.resizable([1, 2])


def test_a_loader_is_found_by_its_framework():
    loader = torch.utils.data.DataLoader(range(5), batch_size=2)
    assert [len(batch) for batch in batches.resizable(loader)] == [2, 2, 1]


# ---------------------------------------------------------------- the largest size
@few
@given(st.integers(0, 200), st.integers(1, 220), st.integers(1, 64), st.integers(1, 200))
def test_the_search_gives_the_largest(true, guess, stride, most):
    asked = []

    def fits(n):
        assert 1 <= n <= most
        asked.append(n)
        return n <= true

    assert batches.largest(fits, guess, stride, most) == min(true, most)
    assert len(asked) == len(set(asked)), "no size is tried twice"


def test_a_good_guess_needs_two_tries():
    asked = []
    assert batches.largest(lambda n: asked.append(n) or n <= 70, 70, 1, 1 << 20) == 70
    assert asked == [70, 71]


SEARCH = """
import gc, json, random, numpy, simgpu, torch
from jupyter_gpumem import randomness
from jupyter_gpumem.actions import batches
OOM = torch.OutOfMemoryError
backend = getattr(torch, DEVICE)
simgpu.set_capacity(0, 48 << 20)
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.BatchNorm1d(256), torch.nn.ReLU(), torch.nn.Dropout(), torch.nn.Linear(256, 256)).to(DEVICE)
def infer(n):
    with torch.no_grad():
        return model(torch.randn(n * 1000, 256, device=DEVICE))
def train(n):
    model(torch.randn(n * 1000, 256, device=DEVICE)).square().mean().backward()
def blocks(n):
    return [torch.empty(6 << 20, dtype=torch.uint8, device=DEVICE) for _ in range(n)]
def cycle(n):
    box = [torch.empty(n << 22, dtype=torch.uint8, device=DEVICE)]
    box.append(box)
    random.random(), numpy.random.rand(), torch.rand(1)
    return box
def works(step, n):
    oom = False
    try:
        step(n)
    except OOM:
        oom = True
    model.zero_grad()
    if step is cycle:
        gc.collect()
    backend.empty_cache()
    return not oom
draws = {}
def drawing(step):
    def again(n):
        draws.setdefault(step.__name__, set()).add((random.random(), numpy.random.rand(), torch.rand(1).item()))
        return step(n)
    return again
found = {}
for step in (infer, train, blocks, cycle):
    brute = max(n for n in range(1, 20) if works(step, n))
    for forecast in (None, lambda n: n <= brute, *((lambda n: n < 3, lambda n: n <= brute + 3, lambda n: None) if step is blocks else ())):
        before = randomness.take()
        statistics = model[1].running_mean.tolist()
        lines = []
        n = batches.find_batch_size(drawing(step), 1, None, None, lambda notice: lines.append(notice.text), forecast)
        first = torch.rand(1).item(), random.random(), numpy.random.rand()
        before.restore()
        unchanged = first == (torch.rand(1).item(), random.random(), numpy.random.rand())
        unchanged = unchanged and model[1].running_mean.tolist() == statistics and model[0].weight.grad is None
        before.restore()
        found.setdefault(step.__name__, []).append([n == brute, unchanged, len(lines), backend.memory_reserved() < 16 << 20])
print(json.dumps([found, {name: len(drawn) for name, drawn in draws.items()}, lines]))
"""


@pytest.mark.parametrize("device", ["cuda", "simgpu"])
def test_the_answer_is_what_trying_every_size_gives(run_on, device):
    found, draws, lines = run_on(device, SEARCH).json
    assert set(found) == {"infer", "train", "blocks", "cycle"}
    for step, runs in found.items():
        for right, unchanged, _, given_back in runs:
            assert right and unchanged and given_back, (step, runs)
        assert runs[1][2] < runs[0][2], "a forecast saves tries"
    assert draws == dict.fromkeys(found, 1), "each try draws the same numbers"
    assert any("does not fit: " in line and "asked" in line for line in lines)
    assert any(" fits, peak " in line for line in lines)
    assert lines[-1].endswith("is the largest that fits")


ENDS = """
import json, torch
from jupyter_gpumem.actions import batches
from jupyter_gpumem.errors import InputError
lines = []
def search(step, start=1, most=None):
    lines.clear()
    return batches.find_batch_size(step, start, most, None, lambda notice: lines.append(notice.text))
def block(n):
    return torch.empty(n << 20, dtype=torch.uint8, device=DEVICE)
said = [search(block, most=9), lines[-1]]
said += [search(lambda n: block(1000)), lines[-1]]
weight = torch.zeros(1, device=DEVICE)
said += [search(lambda n: weight.add_(1), most=4), lines[-1]]
class Broken(Exception):
    pass
def broken(n):
    torch.rand(1)
    raise Broken
torch.manual_seed(2); expected = torch.rand(1).item(); torch.manual_seed(2)
try:
    search(broken)
except Broken:
    said.append(torch.rand(1).item() == expected)
print(json.dumps(said))
"""


def test_the_ends_of_a_search(run_on):
    most, most_line, none, none_line, four, changed_line, restored = run_on("cuda", ENDS).json
    assert (most, most_line) == (9, "gpumem: 9 is the largest that fits, and the most that was allowed")
    assert (none, none_line) == (0, "gpumem: not even 1 fits")
    assert four == 4 and changed_line.endswith("the most that was allowed")
    assert restored, "another error passes, and the generators are those of the start"


@pytest.mark.parametrize(
    ("start", "most", "words"),
    [(0, 4, "start is a whole number"), (8, 4, "start is 8 and most is 4"), (1, 0, "most is a whole number"), (1, None, "give most=")],
)
def test_a_search_that_makes_no_sense_is_refused_before_a_try(monkeypatch, start, most, words):
    monkeypatch.setattr(batches, "watched_devices", lambda device: ("cpu",))

    def step(n):
        raise AssertionError("tried")

    with pytest.raises(InputError, match=words):
        batches.find_batch_size(step, start, most, None, print)


def test_on_the_host_a_size_is_found_too():
    lines = []

    def step(n):
        if n > 5:
            raise MemoryError("Unable to allocate 8.00 GiB for an array with shape (1,) and data type float64")
        return torch.zeros(n)

    assert batches.find_batch_size(step, 1, 64, "cpu", lambda notice: lines.append(notice.text)) == 5
    assert lines[0] == "gpumem: 1 fits"


FORECAST = """
import json, simgpu, torch
from jupyter_gpumem.actions import batches
simgpu.set_capacity(0, 64 << 20)
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.Tanh(), torch.nn.Linear(256, 256)).to(DEVICE)
tried = []
def step(n):
    tried.append(n)
    model(torch.randn(n * 500, 256, device=DEVICE)).square().mean().backward()
plain = batches.find_batch_size(step, 1, None, None, lambda notice: None)
lines = []
found = batches.find_batch_size(step, 1, None, None, lambda notice: lines.append(notice.text), batches.by_forecast(step, None))
print(json.dumps([found == plain, lines, model[0].weight.grad is None]))
"""


@pytest.mark.parametrize("device", ["cuda", "simgpu"])
def test_a_forecast_shows_where_to_begin_and_the_tries_decide(run_on, device):
    same, lines, clean = run_on(device, FORECAST).json
    assert same and clean
    if device == "cuda":
        assert "by forecast" in lines[0] and len(lines) <= 6, lines
    assert lines[-1].endswith("is the largest that fits")


def test_what_cannot_be_rehearsed_is_not_foreseen(monkeypatch):
    def refuse(*args, **kwargs):
        raise InputError("no forecast")

    monkeypatch.setattr(batches.forecast, "take", refuse)
    assert batches.by_forecast(print, None)(3) is None
