"""A small view keeps its whole storage."""
from __future__ import annotations

from case import Case

CASES = (
    Case(
        name="small_slice_of_big_block",
        source="pytorch/pytorch#50432",
        story="the sum of all tensors that one can find is a few bytes, the allocator says megabytes: a slice keeps the whole storage, and the big tensor itself is gone",
        cells=(
            """\
probe = block("big", 4)
probe = probe[3:5]
""",
        ),
        kept=frozenset({"big"}),
        holders={"big": ("probe",)},
    ),
    Case(
        name="class_tokens_of_batches",
        source="ViCCo-Group/thingsvision#150",
        story="only one row per image is extracted, memory grows as if all rows were kept: the list's items are views of the whole outputs",
        cells=(
            """\
def extract(name, fail=False):
    output = block(name).view(512, 512)
    if fail:
        raise ValueError("no such layer")
    return output[0]
features = [extract(f"img{index}") for index in range(2)]
""",
            """\
extract("tmp", fail=True)
""",
        ),
        raises={1: "ValueError"},
        freed=frozenset({"tmp"}),
        kept=frozenset({"img0", "img1"}),
        holders={"img0": ("features",), "img1": ("features",), "tmp": ("extract", "output",)},
    ),
)
