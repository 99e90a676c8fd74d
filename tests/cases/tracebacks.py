"""Errors keep frames, and frames keep their locals."""
from __future__ import annotations

from case import Case

CASES = (
    Case(
        name="plain_traceback",
        source="pytorch/pytorch#36874",
        story="a forward pass raises in an interactive shell; its memory stays after the name is rebound and the cache emptied: the shell's last error keeps the frame of step(), whose local is the activation; the weights belong to a name",
        cells=(
            """\
weights = block("weights")
def forward(batch):
    raise RuntimeError("shape mismatch")
def step():
    acts = block("acts")
    return forward(acts)
""",
            """\
step()
""",
        ),
        raises={1: "RuntimeError"},
        freed=frozenset({"acts"}),
        kept=frozenset({"weights"}),
        holders={"acts": ("step", "acts",), "weights": ("weights",)},
    ),
    Case(
        name="retry_in_except",
        source="pytorch/pytorch#27600",
        story="after an out-of-memory error the batch is halved and tried again inside the handler; that fails too and both batches stay: the second error is the last one, and its __context__ still carries the frames of the first attempt",
        cells=(
            """\
def attempt(name, mib):
    batch = block(name, mib)
    raise RuntimeError(f"out of memory with {mib} MiB")
""",
            """\
try:
    attempt("full", 2)
except RuntimeError:
    attempt("half", 1)
""",
        ),
        raises={1: "RuntimeError"},
        freed=frozenset({"full", "half"}),
        holders={"full": ("attempt", "batch",), "half": ("attempt", "batch",)},
    ),
    Case(
        name="wrapped_in_own_error",
        source="sgl-project/sglang-omni#1309",
        story="a service turns a failed batch into its own error type; traceback of the new error is cut, the memory stays: the new error's __cause__ has the frames of the encoder, with the embedding in a local",
        cells=(
            """\
cache = {"a": block("cache")}
class RequestFailed(Exception):
    pass
def encode(key):
    embedding = block("embedding")
    embedding[key]
def serve(key):
    try:
        return encode(key)
    except Exception as error:
        raise RequestFailed(str(key)) from error
""",
            """\
serve("b")
""",
        ),
        raises={1: "RequestFailed"},
        freed=frozenset({"embedding"}),
        kept=frozenset({"cache"}),
        holders={"embedding": ("encode", "embedding",), "cache": ("cache", "a",)},
    ),
    Case(
        name="task_group_errors",
        source="python/cpython#98543",
        story="two of three concurrent evaluations fail; the group error is shown and the tensors of the failed ones are never freed: the members of the last error (an exception group) keep the coroutines' frames",
        cells=(
            """\
import asyncio
results = []
async def evaluate(name, fail):
    logits = block(name)
    await asyncio.sleep(0)
    if fail:
        raise ValueError(name)
    results.append(logits)
""",
            """\
async with asyncio.TaskGroup() as group:
    for job in (("left", True), ("right", True), ("kept", False)):
        group.create_task(evaluate(*job))
""",
        ),
        raises={1: "ExceptionGroup"},
        freed=frozenset({"left", "right"}),
        kept=frozenset({"kept"}),
        holders={"left": ("evaluate", "logits",), "right": ("evaluate", "logits",), "kept": ("results",)},
        needs="python3.11",
    ),
    Case(
        name="error_inside_pipeline",
        source="pytorch/pytorch#31039",
        story="a data pipeline made of generators fails in the middle; device memory of the batches stays: the frames of the finished generators are part of the last traceback",
        cells=(
            """\
def read():
    raw = block("raw")
    yield 1
    raise OSError("truncated file")
def to_device(source):
    moved = block("moved")
    for item in source:
        yield item
""",
            """\
for item in to_device(read()):
    pass
""",
        ),
        raises={1: "OSError"},
        freed=frozenset({"raw", "moved"}),
        holders={"raw": ("read", "raw",), "moved": ("to_device", "moved",)},
    ),
    Case(
        name="kept_last_value",
        source="https://nbviewer.org/gist/4df8a6f4bdcb7cc8b29a552b58f787b8/clear_last_traceback.ipynb",
        story="the last error was put aside for later study; everything it touched stays: a user's name holds the same error object as the shell does, so its frames must survive",
        cells=(
            """\
class Probe:
    def method(self):
        acts = block("acts")
        raise ValueError("look at me later")
""",
            """\
Probe().method()
""",
            """\
import sys
problem = sys.last_value
""",
        ),
        raises={1: "ValueError"},
        kept=frozenset({"acts"}),
        holders={"acts": ("problem", "method", "acts",)},
    ),
    Case(
        name="awaited_error_in_own_frame",
        source="python-trio/trio#3108",
        story="a failed awaited call leaves its tensors until some later garbage collection, or for ever when the shell shows the error: the coroutine's frame has a list with the error that has the frame: a cycle, also held by the shell's last error",
        cells=(
            """\
import asyncio
async def demo():
    acts = block("acts")
    collected = []
    try:
        raise RuntimeError("in the nursery")
    except RuntimeError as error:
        collected.append(error)
    await asyncio.sleep(0)
    raise collected[0]
""",
            """\
await demo()
""",
        ),
        raises={1: "RuntimeError"},
        freed=frozenset({"acts"}),
        holders={"acts": ("demo", "acts",)},
    ),
    Case(
        name="good_cells_after_error",
        source="jax-ml/jax#14934",
        story="one unhandled error fills the device; many cells that work are run after it and nothing comes back: good cells do not replace the last error: frame of simulate()",
        cells=(
            """\
def simulate(steps):
    field = block("field")
    return field[steps * 10**9]
""",
            """\
simulate(3)
""",
            """\
answer = block("kept")
""",
            """\
answer.mean().item()
""",
            """\
total = 0
for value in range(5):
    total += value
""",
        ),
        raises={1: "IndexError"},
        freed=frozenset({"field"}),
        kept=frozenset({"kept"}),
        holders={"field": ("simulate", "field",), "kept": ("answer",)},
    ),
    Case(
        name="stopped_progress_loop",
        source="tqdm/tqdm#1025",
        story="a loop with a progress bar made beforehand is interrupted; the bar and all that it walks over stay: the last error's frame has bar, iterable and item; the class's set of bars only has weak references",
        cells=(
            """\
import weakref
class Bar:
    instances = weakref.WeakSet()
    def __init__(self, iterable):
        self.iterable = iterable
        Bar.instances.add(self)
    def __iter__(self):
        yield from self.iterable
def compute():
    bar = Bar([block("items")])
    for item in bar:
        squared = tag_tensor("item", item ** 2)
        raise KeyboardInterrupt
""",
            """\
compute()
""",
        ),
        raises={1: "KeyboardInterrupt"},
        freed=frozenset({"items", "item"}),
        holders={"items": ("compute", "bar", "iterable",), "item": ("compute", "squared",)},
    ),
)
