"""Iterators keep their last item, or all that they lag behind."""
from __future__ import annotations

from case import Case

CASES = (
    Case(
        name="stream_not_read_to_the_end",
        source="pytorch/pytorch#6673",
        story="one batch of a long-lived loader was taken for a look; batches stay on the device as long as the loader: the suspended generator has the batch of its last step in a local",
        cells=(
            """\
def load():
    while True:
        samples = block("samples")
        yield tag_tensor("look", samples + 1)
batches = load()
look = next(batches)
""",
        ),
        kept=frozenset({"samples", "look"}),
        holders={"samples": ("batches", "load", "samples",), "look": ("look",)},
    ),
    Case(
        name="step_counter_keeps_batch",
        source="pytorch/pytorch#1917",
        story="an iterator is kept to get one batch at a time; the batch's own name is deleted, its memory is not free: enumerate reuses its result pair, which still has the last item",
        cells=(
            """\
def loader():
    for index in range(3):
        yield block("batch") if index == 0 else index
steps = enumerate(loader())
for step, batch in steps:
    break
""",
            """\
del batch
""",
        ),
        kept=frozenset({"batch"}),
        holders={"batch": ("steps",)},
    ),
    Case(
        name="split_stream_buffer",
        source="namisan/mt-dnn#125",
        story="a generator of batches is split in two to count it first; the memory of all batches is used at once: the part that lags behind buffers every item",
        cells=(
            """\
import itertools
now, later = itertools.tee(block(f"b{index}") for index in range(2))
count = sum(1 for _item in now)
del now
""",
            """\
block("extra")
""",
        ),
        freed=frozenset({"extra"}),
        kept=frozenset({"b0", "b1"}),
        holders={"b0": ("later",), "b1": ("later",), "extra": ("Out[2]",)},
    ),
)
