"""Notebook sessions that a seed makes: some work at the start, then what people do to a device's memory.

A session is a list of cells. Each is one of the habits below, with sizes drawn at random: it allocates, trains,
evaluates, keeps, drops, and fails. The last cells are not part of it: how a user gets his memory back is the driver's.
"""
from __future__ import annotations

import random
from dataclasses import dataclass
from string import Template

CAPACITY = 256
"""MiB of the device."""
BEGIN = """\
import asyncio, functools, gc, itertools, queue, threading
from concurrent.futures import ThreadPoolExecutor
import torch
from torch import nn
device = torch.device("cuda")
losses, predictions, failures, seen, total = [], [], [], {}, 0.0
def buffer(mib):
    return torch.empty(int(mib * 2**20), dtype=torch.uint8, device=device)
def network(width, depth=2):
    return nn.Sequential(*(nn.Linear(width, width) for _ in range(depth))).to(device)
def batch(rows, width):
    return torch.ones(rows, width, device=device)
"""
WORK = Template("""\
def work(sizes):
    parts = [torch.empty(int(mib * 2**20), dtype=torch.uint8, device="cuda") for mib in sizes]
    return sum(part.numel() for part in parts)
import torch
done = work($sizes)
""")


@dataclass(frozen=True)
class Session:
    """What one user did."""

    seed: int
    needs: float
    """MiB of the work."""
    work: str
    """The cell that runs first, on the fresh device, and again at the end."""
    cells: tuple[str, ...]
    habits: tuple[str, ...]
    """The habit from which each cell comes."""


# $n is the habit's number in its session, $big and $mib are sizes in MiB, $rows and $width those of a network
HABITS: dict[str, tuple[int, str]] = {
    # ------------------------------------------------ names
    "buffer": (4, "buffer$n = buffer($mib)"),
    "buffer bound again": (3, "scratch = buffer($mib)"),
    "loop variables": (2, "for index in range(3):\n    current = buffer($mib)\n    image = current[:4096]"),
    "throw-away name": (1, "result$n, _ = buffer(2), buffer($mib)"),
    "deleted": (2, "temporary$n = buffer($mib)\n---\ndel temporary$n"),
    # ------------------------------------------------ training and evaluation
    "training": (4, """\
model$n = network($width)
optimizer$n = torch.optim.Adam(model$n.parameters())
for step in range(2):
    optimizer$n.zero_grad()
    loss = model$n(batch($rows, $width)).pow(2).mean()
    loss.backward()
    optimizer$n.step()
"""),
    "losses with their graphs": (3, """\
model$n = network($width)
for step in range(3):
    loss = model$n(batch($rows, $width)).pow(2).mean()
    losses.append(loss)
    total = total + loss
"""),
    "evaluation with its graph": (3, """\
model$n = network($width)
for step in range(3):
    predictions.append(model$n(batch($rows, $width)))
"""),
    "evaluation": (2, """\
model$n = network($width)
with torch.no_grad():
    score$n = [model$n(batch($rows, $width)).mean().item() for _ in range(3)]
"""),
    "model made in a loop": (3, """\
for width in (128, 256, $width):
    net = network(width)
    optim = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    net(batch($rows, width)).sum().backward()
    optim.step()
"""),
    "models kept for later": (1, """\
found$n = {}
for trial in range(3):
    found$n[trial] = network($width), batch($rows, $width)
"""),
    "hook that keeps outputs": (3, """\
model$n = network($width)
for name, layer in model$n.named_children():
    layer.register_forward_hook(lambda layer, inputs, output, name=name: seen.update({(name, len(seen)): output}))
for _ in range(3):
    model$n(batch($rows, $width))
"""),
    "hook of a gradient": (1, """\
kept$n = []
weights$n = torch.ones(2**18, device=device, requires_grad=True)
handle$n = weights$n.register_hook(kept$n.append)
(weights$n * 2).sum().backward()
"""),
    "second derivatives": (1, """\
model$n = network(128)
loss = model$n(batch($rows, 128)).pow(2).mean()
gradients$n = torch.autograd.grad(loss, model$n.parameters(), create_graph=True)
"""),
    "view of a large one": (2, "corner$n = buffer($mib)[:1024]"),
    # ------------------------------------------------ shown
    "output": (3, "torch.zeros($mib * 2**18, device=device)"),
    "output of a model": (2, "model$n = network($width)\n---\nmodel$n(batch($rows, $width))"),
    "outputs in a container": (2, "{'logits': torch.ones($mib, 2**18, device=device), 'rows': $rows}"),
    "looked at and deleted": (2, "table$n = torch.zeros($mib * 2**18, device=device)\n---\ntable$n\n---\ndel table$n"),
    "output of a magic": (1, "%time buffer($mib)"),
    "captured": (1, "%%capture said$n\ndisplay(torch.zeros($mib * 2**18, device=device))"),
    # ------------------------------------------------ out of memory
    "out of memory, forward": (4, """\
def forward$n():
    activations = []
    while True:
        activations.append(buffer($mib))
forward$n()
"""),
    "out of memory, one allocation": (2, """\
def prepare$n(mib):
    inputs = buffer(mib)
    return inputs, buffer(10 * mib)
prepare$n($big)
"""),
    "out of memory, backward": (3, """\
class Hungry$n(torch.autograd.Function):
    @staticmethod
    def forward(context, inputs):
        context.save_for_backward(inputs)
        return inputs * 1
    @staticmethod
    def backward(context, gradient):
        workspace = [buffer($big) for _ in range(64)]
        return gradient
model$n = network($width)
def step$n():
    loss = Hungry$n.apply(model$n(batch($rows, $width))).sum()
    loss.backward()
step$n()
"""),
    "out of memory, optimizer": (3, """\
model$n = network(1024, 4)
optimizer$n = torch.optim.Adam(model$n.parameters())
def fit$n():
    filled = []
    loss = model$n(batch(16, 1024)).sum()
    loss.backward()
    try:
        while True:
            filled.append(buffer(4))
    except torch.OutOfMemoryError:
        del filled[-2:]
    optimizer$n.step()
fit$n()
"""),
    "out of memory, to the device": (1, """\
def upload$n():
    data = [torch.empty($big * 2**20, dtype=torch.uint8) for _ in range(32)]
    return [part.to(device) for part in data]
uploaded$n = upload$n()
"""),
    "out of memory, smaller and smaller": (2, """\
def attempt$n(mib):
    data = [buffer(mib) for _ in range(12)]
    return len(data)
def search$n(mib):
    try:
        return attempt$n(mib)
    except torch.OutOfMemoryError:
        return search$n(mib - 8)
best$n = search$n(48)
"""),
    "out of memory, at the top": (2, "rows$n = []\nwhile True:\n    rows$n.append(buffer($mib))"),
    "out of memory, from another": (2, """\
class Failed$n(Exception):
    pass
def run$n():
    held = buffer($big)
    try:
        more = [buffer($big) for _ in range(64)]
    except RuntimeError as error:
        raise Failed$n("no luck") from error
run$n()
"""),
    "out of memory, in a comprehension": (1, "grid$n = [[buffer($mib) for _ in range(8)] for _ in range(64)]"),
    "out of memory, in a thread's result": (1, """\
def job$n():
    return [buffer($mib) for _ in range(200)]
with ThreadPoolExecutor(1) as pool$n:
    pool$n.submit(job$n).result()
"""),
    "out of memory, awaited": (1, """\
async def serve$n():
    state = buffer($big)
    await asyncio.sleep(0)
    return [buffer($big) for _ in range(64)]
await serve$n()
"""),
    # ------------------------------------------------ other errors
    "wrong shape": (3, """\
model$n = network($width)
def evaluate$n():
    kept = buffer($mib)
    hidden = model$n(batch($rows, $width))
    return hidden @ hidden
evaluate$n()
"""),
    "wrong key": (2, "def lookup$n():\n    part = buffer($big)\n    return {}[part.numel()]\nlookup$n()"),
    "interrupted": (2, "def forever$n():\n    state = buffer($big)\n    raise KeyboardInterrupt\nforever$n()"),
    "error under %time": (1, "def slow$n():\n    part = buffer($big)\n    raise ValueError\n---\n%time slow$n()"),
    "error in a cell with %%time": (1, "%%time\ndef slow$n():\n    part = buffer($big)\n    raise ValueError\nslow$n()"),
    "syntax": (1, "broken = = 1"),
    "error kept by a name": (2, """\
def breaks$n():
    part = buffer($big)
    raise ValueError("kept")
try:
    breaks$n()
except ValueError as error:
    failures.append(error)
"""),
    "error in a cycle": (3, """\
def attempt$n():
    part = buffer($big)
    try:
        raise ValueError("caught")
    except ValueError as error:
        kept = error
    return kept.args
attempt$n()
"""),
    "error that its object keeps": (2, """\
class Job$n:
    def run(self):
        self.data = buffer($mib)
        try:
            self.step()
        except ValueError as error:
            self.error = error
    def step(self):
        local = buffer($mib)
        raise ValueError
Job$n().run()
"""),
    "error of a generator": (1, """\
def read$n():
    raw = buffer($mib)
    yield 1
    raise OSError("truncated")
def moved$n(source):
    moved = buffer($mib)
    yield from source
list(moved$n(read$n()))
"""),
    # ------------------------------------------------ stopped in the middle
    "generator": (2, """\
def batches$n():
    while True:
        part = buffer($mib)
        yield part
source$n = batches$n()
first$n = next(source$n)
"""),
    "loop that was left": (2, """\
def batches$n():
    for index in itertools.count():
        yield index, buffer($mib)
stream$n = enumerate(batches$n())
for index, item in stream$n:
    if index:
        break
"""),
    "loop over a temporary, failed": (1, """\
def batches$n():
    held = buffer($mib)
    while True:
        yield buffer($mib)
for item in batches$n():
    assert item.numel() < 0, "not the data"
"""),
    "two ways of one iterator": (1, "left$n, right$n = itertools.tee(buffer($mib) for _ in range(3))\nlast$n = list(left$n)[-1]"),
    # ------------------------------------------------ threads and tasks
    "thread that failed": (1, """\
def worker$n():
    part = buffer($mib)
    raise ValueError("in a thread")
thread$n = threading.Thread(target=worker$n)
thread$n.start()
thread$n.join()
"""),
    "results of threads": (2, """\
with ThreadPoolExecutor(2) as pool$n:
    futures$n = [pool$n.submit(buffer, $mib) for _ in range(3)]
"""),
    "thread that waits": (1, """\
ready$n, full$n = threading.Event(), queue.Queue(maxsize=1)
def produce$n():
    while True:
        part = buffer(1)
        full$n.put(part)
        ready$n.set()
producer$n = threading.Thread(target=produce$n, daemon=True)
producer$n.start()
ready$n.wait(30)
"""),
    "value of a thread": (1, """\
local$n = threading.local()
local$n.buffer = buffer($mib)
"""),
    "task that failed": (1, """\
async def fetch$n():
    part = buffer($mib)
    await asyncio.sleep(0)
    raise ValueError("in a task")
task$n = asyncio.ensure_future(fetch$n())
await asyncio.wait([task$n])
"""),
    # ------------------------------------------------ registries and cycles of the notebook
    "registry of a class": (3, """\
class Layer$n:
    made = []
    def __init__(self):
        self.state = buffer($mib)
        Layer$n.made.append(self)
for _ in range(2):
    Layer$n()
"""),
    "cache of a function": (2, """\
@functools.lru_cache(None)
def table$n(mib):
    return buffer(mib)
table$n($mib).numel()
"""),
    "default argument": (1, "def remember$n(mib, known={}):\n    return known.setdefault(mib, buffer(mib)).numel()\nremember$n($mib)"),
    "objects that know each other": (3, """\
class Trainer$n:
    def __init__(self):
        self.data = buffer($mib)
        self.callback = lambda: self.data
for _ in range(3):
    trainer = Trainer$n()
"""),
    "closure that calls itself": (1, """\
def make$n():
    part = buffer($big)
    def visit(depth):
        return visit(depth - 1) if depth else part.numel()
    return visit(2)
make$n()
"""),
    "script": (1, """\
%%writefile script$n.py
import torch
weights = torch.empty($mib * 2**20, dtype=torch.uint8, device="cuda")
def predict():
    return weights.numel()
---
%run script$n.py
"""),
    # ------------------------------------------------ sizes
    "interleaved sizes": (3, """\
pieces$n = [buffer(mib) for _ in range(6) for mib in (3, 0.5, 12)]
del pieces$n[::3]
"""),
    "interleaved, half of it gone": (2, """\
pieces$n = [buffer(0.25 + index % 5) for index in range(40)]
pieces$n = pieces$n[::4]
"""),
    "many small ones": (1, "small$n = [torch.zeros(256, device=device) for _ in range(2000)]\ndel small$n[1:]"),
}


def make(seed: int) -> Session:
    """The session of a seed, the same at all times."""
    rng = random.Random(seed)
    needs = rng.uniform(0.6, 0.8) * CAPACITY
    sizes = [round(part * needs, 1) for part in rng.choice(((1.0,), (0.5, 0.3, 0.2), (0.6, 0.2, 0.1, 0.1), (0.25,) * 4))]
    weights = [weight for weight, _ in HABITS.values()]
    chosen = rng.choices(list(HABITS), weights, k=rng.randint(3, 12))
    cells, habits = [BEGIN], ["begin"]
    for number, habit in enumerate(chosen):
        source = Template(HABITS[habit][1]).substitute(
            n=number,
            mib=rng.choice((2, 4, 6, 12, 24)),
            big=rng.choice((8, 16, 24, 40)),
            rows=rng.choice((64, 256, 1024)),
            width=rng.choice((256, 512, 1024)),
        )
        # most people press the button once more after an error
        parts = source.split("---\n") * (2 if rng.random() < 0.1 else 1)
        cells += parts
        habits += [habit] * len(parts)
    return Session(seed, needs, WORK.substitute(sizes=sizes), tuple(cells), tuple(habits))
