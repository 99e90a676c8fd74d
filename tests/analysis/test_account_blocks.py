"""Storages in the allocator's blocks: fragments, pools, what no tensor lies in, and where it was allocated."""
from __future__ import annotations

import sys
from pathlib import Path

import pytest

from jupyter_gpumem.analysis import account

sys.path.insert(0, str(Path(__file__).parent))
from accounting import COMMON

FRAGMENTS = """
small = [torch.ones(1 << 16, device=ON) for _ in range(8)]  # 256 KiB each: one segment of 2 MiB
keep = small[3]
del small
large = torch.ones(9 << 18, device=ON)  # 9 MiB of a segment of 20 MiB
other = torch.ones(1 << 20, device=ON)  # 4 MiB of it
gone = torch.ones(8 << 20, device=ON); del gone
found = check()
pinned = [s for s in found.segments if s.free and not s.returnable]
before = found.reserved.of("cached"), found.reserved.of("fragments")
torch.accelerator.empty_cache()
after = check()
print(json.dumps([[[p.holder.path for p in s.pins] for s in pinned], before, [after.reserved.of("cached"), after.reserved.of("fragments")],
                  found.reserved.total - after.reserved.total, [s.free for s in pinned]]))
"""


def test_fragments_are_pinned_by_the_right_names_and_the_rest_is_returned(run_on):
    pins, (cached, fragments), after, returned, free = run_on("cuda", COMMON + FRAGMENTS).json
    assert sorted(sorted(names) for names in pins) == [["keep"], ["large", "other"]]
    assert cached == returned == 32 << 20
    assert after == [0, fragments]
    assert sum(free) == fragments


HIDDEN = """
net = torch.nn.Linear(1024, 512, bias=False).to(ON)
x = torch.randn(4, 1024, device=ON)
autocast = torch.autocast(DEVICE, dtype=torch.bfloat16)
autocast.__enter__()
net(x)  # the weight's copy in bfloat16 stays in a cache of C++, which nothing in Python refers to
(found,) = account.take(None, ON)
autocast.__exit__(None, None, None)
(after,) = account.take(None, ON)
assert sum(e.nbytes for e in found.allocated.entries) == found.allocated.total
print(json.dumps([found.allocated.of("unexplained"), account.explained(found), after.allocated.of("unexplained"),
                  [e.note for e in found.allocated.entries if e.kind == "unexplained"],
                  [[b.nbytes, b.holder is None] for s in found.segments for b in s.blocks if b.state == "allocated"]]))
"""


def test_what_python_cannot_see_is_said(run_on):
    unexplained, share, after, (note,), blocks = run_on("cuda", COMMON + HIDDEN).json
    assert (unexplained, after) == (1 << 20, 0)
    assert share == pytest.approx(2 / 3, abs=0.01)
    assert note == "1 block that no tensor found lies in, perhaps: autocast cache"
    assert [1 << 20, True] in blocks
    assert [2 << 20, False] in blocks


IN_A_CAPSULE = """
capsule = torch.utils.dlpack.to_dlpack(torch.ones(1 << 20, device=ON))
found = check(0)
del capsule
print(json.dumps([found.allocated.total, found.allocated.of("names"), found.allocated.of("dangling") + found.allocated.of("unexplained"), check().allocated.total]))
"""


@pytest.mark.parametrize("device", ["cuda", "simgpu"])
def test_what_a_foreign_object_holds_dangles_or_is_unexplained(run_on, device):
    assert run_on(device, COMMON + IN_A_CAPSULE).json == [4 << 20, 0, 4 << 20, 0]


SHARED = """
whole = torch.ones(1000, device=ON)
part = whole.untyped_storage()[400:800]          # a storage of its own inside the block of another
found = check(0)
print(json.dumps([{e.kind: e.nbytes for e in found.allocated.entries}, whole.untyped_storage().nbytes(), part.nbytes()]))
"""


def test_a_storage_inside_anothers_block_is_counted_and_taken_off_again(run_on):
    kinds, whole, part = run_on("cuda", COMMON + SHARED).json
    assert (kinds["names"], kinds["outside"], kinds["rounding"], kinds["unexplained"]) == (whole + part, -part, 96, 0)


def test_overlapping_spans_of_a_block_are_counted_once():
    block = account._Taken(account.Block(1000, 512, "allocated", 500))
    holder = account.Holder("x", account.Cause.NAME, "x")
    assert block.lay(1000, 1100, holder) == 100
    assert block.lay(1200, 1300, holder) == 100
    assert block.lay(1050, 1250, holder) == 100, "100 of them between the two"
    assert block.lay(1000, 1300, holder) == 0
    assert block.lay(1500, 1600, holder) == 12, "the block ends there"
    assert block.spans == [(1000, 1300), (1500, 1512)]


RECORDED = """
import torch._C
torch._C._cuda_isHistoryEnabled = lambda: True
genuine = torch.cuda.memory_snapshot
def snapshot(**kwargs):
    found = genuine(**kwargs)
    for s in found:
        for b in s["blocks"]:
            b["frames"] = [{"filename": torch.__file__, "line": 1, "name": "t"}, {"filename": "/home/me/train.py", "line": 7, "name": "step"}]
    return found
torch.cuda.memory_snapshot = snapshot
x = torch.ones(1000, device=ON)
print(json.dumps([[b.state, b.site] for s in check().segments for b in s.blocks]))
"""


def test_blocks_say_where_they_were_allocated(run_on):
    blocks = run_on("cuda", COMMON + RECORDED).json
    assert blocks == [["allocated", "train.py:7 in step()"], ["free", None]]


PRIVATE = """
genuine = torch.cuda.memory_snapshot
pools = {}
def snapshot(**kwargs):
    found = genuine(**kwargs)
    for s in found:
        s["segment_pool_id"] = pools.get(s["address"], (0, 0))
    return found
torch.cuda.memory_snapshot = snapshot
kept = torch.ones(1 << 18, device=ON)       # 1 MiB of a segment of 2 MiB
free = torch.ones(8 << 20, device=ON); del free
before = check()
pools = {s.address: (0, 1) for s in before.segments}
after = check()
print(json.dumps([{e.kind: e.nbytes for e in a.reserved.entries} for a in (before, after)] + [[e.note for e in after.reserved.entries if e.kind == "private"], [s.returnable for s in after.segments]]))
"""


def test_free_memory_of_a_graphs_pool_is_not_promised_to_the_driver(run_on):
    before, after, (note,), returnable = run_on("cuda", COMMON + PRIVATE).json
    mib = 1 << 20
    assert before == {"allocated": mib, "awaiting": 0, "cached": 32 * mib, "fragments": mib}
    assert after == {"allocated": mib, "awaiting": 0, "cached": 0, "fragments": 0, "private": 33 * mib}
    assert "CUDA graphs" in note
    assert returnable == [False, False]
