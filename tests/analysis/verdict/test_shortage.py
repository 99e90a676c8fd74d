"""Figures at the moment of the error: what the text says before what the driver says now; would it have fitted?"""
from __future__ import annotations

import pytest

from jupyter_gpumem.analysis.verdict import shortage
from jupyter_gpumem.analysis.verdict.shortage import Held, Shortage, fits
from jupyter_gpumem.model import Allocator, Baseline, Block, Cause, Device, OutOfMemory, Owner, Process, Segment

MIB = 1 << 20
EMPTY = Shortage("cuda:0", None, None, None, None, 0, None, (), None, None, 0, (), None, None, None, False)


def held(nbytes, pointer=None, kind="dangling"):
    return Held(kind, nbytes, "x", "x", "x", Cause.CYCLE, False, False, (1,), pointer)


def segment(*blocks, pool="large", private=False):
    """Of ``(MiB, state)``; addresses count from 1 MiB times the number of the first."""
    address, made = 1000 * MIB, []
    for size, state in blocks:
        made.append(Block(address, size * MIB, state))
        address += size * MIB
    return Segment("cuda:0", 1000 * MIB, sum(b.nbytes for b in made), pool, tuple(made), private)


def at(mib):
    return (1000 + mib) * MIB


@pytest.mark.parametrize(("mib", "device", "source", "need"), [
    (0.5, "cuda:0", "torch", 2), (4, "cuda:0", "torch", 20), (11, "cuda:0", "torch", 12), (4, "xpu:0", "torch", 20),
    (4, "cpu", "torch", 4), (4, "mps:0", "torch", 4), (4, "cuda:0", "cupy", 4),
])  # fmt: skip
def test_torch_gets_whole_segments(mib, device, source, need):
    assert shortage._need(OutOfMemory(source, device, int(mib * MIB)), device) == need * MIB


def test_an_untold_size_needs_an_unknown_one():
    assert shortage._need(OutOfMemory("driver", "cuda"), "cuda:0") is None
    assert EMPTY.short is None
    assert not fits(EMPTY, [held(10**12)])


def case(asked, free, *segments):
    asked *= MIB
    return EMPTY._replace(
        asked=asked, need=shortage._need(OutOfMemory("torch", "cuda:0", asked), "cuda:0"), free=free * MIB, segments=segments or None
    )


def test_without_a_list_of_blocks_bytes_decide():
    assert fits(case(100, 20), [held(80 * MIB)])
    assert not fits(case(100, 20), [held(79 * MIB)])


def test_a_free_run_in_a_segment_is_room():
    found = case(30, 0, segment((20, "allocated"), (10, "free"), (20, "allocated")))
    assert fits(found, [held(20 * MIB, at(0))])
    assert fits(found, [held(20 * MIB, at(30))])
    assert not fits(case(30, 0, segment((20, "allocated"), (20, "allocated"), (8, "free"))), [held(20 * MIB, at(0))])


def test_whole_segments_go_back_to_the_driver():
    first, second = segment((40, "allocated")), segment((30, "allocated"), (10, "allocated"))
    assert fits(case(60, 20, first), [held(40 * MIB, at(0))])
    assert not fits(case(60, 20, second), [held(30 * MIB, at(0))]), "its other block pins it"


@pytest.mark.parametrize("more", [{"private": True}, {"pool": "small"}], ids=["private", "small"])
def test_room_in_another_pool_is_none(more):
    assert not fits(case(20, 0, segment((20, "allocated"), (10, "allocated"), **more)), [held(20 * MIB, at(0))])


# ---------------------------------------------------------------- whose it is
GPU = Device("GPU-1", "gpu", 0, "A", 1000, 700, 300, 0, processes=(Process(1, 400, own=True), Process(2, 200), Process(3, None)), alias="cuda:0")


def test_context_is_what_is_not_the_allocators():
    assert shortage._context(OutOfMemory("torch", "cuda:0", own=300, allocated=150, unallocated=50), GPU, 0) == 100
    assert shortage._context(OutOfMemory("torch", "cuda:0"), GPU, 350) == 50
    assert shortage._context(OutOfMemory("torch", "cuda:0"), None, 350) == 0


def test_the_text_of_the_error_goes_before_the_driver():
    told = OutOfMemory("torch", "cuda:0", total=900)
    assert shortage._whole(told, GPU, "cuda:0", 100, 300) == (900, 500)
    assert shortage._whole(OutOfMemory("torch", "cuda:0"), GPU, "cuda:0", 100, 300) == (1000, 600)
    assert shortage._whole(OutOfMemory("torch", "cuda:0"), None, "cuda:0", None, 300) == (None, None)


def test_who_has_grown_needs_an_earlier_reading(monkeypatch):
    monkeypatch.setattr(shortage.devices, "owners_of", lambda pids, of_gpu: tuple(Owner(pid, "python", "ann") for pid in pids))
    oom = OutOfMemory("torch", "cuda:0")
    (now,) = shortage._processes(oom, GPU, None)
    assert (now.label, now.nbytes, now.grown) == ("python (pid 2, ann)", 200, None)
    earlier = Device("GPU-1", "gpu", 0, "A", processes=(Process(2, 50),))
    (now,) = shortage._processes(oom, GPU, Baseline(devices=(earlier,)))
    assert now.grown == 150
    (new,) = shortage._processes(oom, GPU, Baseline(devices=(Device("GPU-1", "gpu", 0, "A", processes=()),)))
    assert new.grown == 200


def test_without_a_driver_the_text_lists_the_others():
    found = shortage._processes(OutOfMemory("torch", "cuda:0", others=((7, 10), (8, 30))), None, None)
    assert [(one.label, one.nbytes) for one in found] == [("process 8", 30), ("process 7", 10)]


@pytest.mark.parametrize(("owner", "label"), [
    (Owner(5, "python", "ann", "kernel", "k1", "work/train.ipynb"), "train.ipynb (pid 5)"),
    (Owner(5, "python", "ann", "kernel", "k1"), "another notebook (pid 5)"),
    (Owner(5, "python", "ann", "orphan", "k1", "a.ipynb"), "a.ipynb (pid 5, whose kernel has ended)"),
    (Owner(5, role="hidden"), "process 5 of another container or user"),
    (Owner(5, role="ended"), "process 5"),
    (None, "process 5"),
    (Owner(5, "python"), "python (pid 5)"),
], ids=lambda value: value if isinstance(value, str) else "")  # fmt: skip
def test_a_process_by_the_best_name_that_it_has(owner, label):
    assert shortage._label(owner, 5) == label


def test_growth_of_this_process_needs_figures_from_before():
    before = Baseline(allocators=(Allocator("torch", "cuda:0", 100), Allocator("torch", "cuda:1", 7)))
    assert shortage._grown("cuda:0", 250, before) == 150
    assert shortage._grown("cuda:0", 250, Baseline()) is None
    assert shortage._grown("cuda:0", 250, None) is None
