"""Which of several causes is the main one, and how large a batch can be. Figures by hand, in MiB."""
from __future__ import annotations

import pytest

from jupyter_gpumem.analysis.verdict import reasons
from jupyter_gpumem.analysis.verdict.accrued import Accrued
from jupyter_gpumem.analysis.verdict.reasons import Case
from jupyter_gpumem.analysis.verdict.shortage import Held, Other, Shortage
from jupyter_gpumem.model import Baseline, Cause, Origin, OutOfMemory, Reason

MIB = 1 << 20


def held(kind, mib, name="x", shape=(7,), parameter=False):
    return Held(kind, mib * MIB, name, name, name, Cause.NAME, False, parameter, shape, None)


def case(asked=100, free=50, total=1000, others=0, unallocated=0, vanished=0, holds=(), leak=None, grew=None, batch=None, before=None, rounding=0, context=0):
    processes = (Other("them", others * MIB, None if grew is None else grew * MIB),) if others else ()
    told = None if asked is None else asked * MIB
    found = Shortage(
        "cuda:0", told, told, None if total is None else total * MIB, None if free is None else free * MIB, context * MIB,
        others * MIB, processes, 0, unallocated * MIB, vanished * MIB, tuple(holds), None, batch, None, False,
    )  # fmt: skip
    return Case(OutOfMemory("torch", "cuda:0", told, rounding=rounding), Origin(""), found, before, leak, batch)


def reason(**figures):
    return reasons.finding(case(**figures)).reason


LEAK = Accrued("losses[·]", 600 * MIB, True, "losses[·] keeps 9 graphs")


@pytest.mark.parametrize(("figures", "expected"), [
    ({"asked": 1100}, Reason.TENSOR),
    ({"asked": 980, "context": 30}, Reason.TENSOR),
    ({"asked": 900, "others": 200, "free": 100}, Reason.TENSOR),
    ({"asked": 300, "others": 750, "free": 250}, Reason.OTHERS),
    ({"holds": [held("step", 920)]}, Reason.STEP),
    ({"holds": [held("before", 930)]}, Reason.STEP),
    ({"holds": [held("step", 500), held("before", 450)]}, Reason.STEP),
    ({"holds": [held("before", 500), held("step", 200)], "vanished": 250}, Reason.STEP),
    ({"holds": [held("dangling", 500), held("before", 450)]}, Reason.DANGLING),
    ({"holds": [held("dangling", 500)], "others": 400}, Reason.DANGLING),
    ({"holds": [held("dangling", 500)], "others": 400, "grew": 300}, Reason.OTHERS),
    ({"holds": [held("dangling", 500)], "others": 400, "grew": 20}, Reason.DANGLING),
    ({"holds": [held("before", 500)], "unallocated": 300}, Reason.FRAGMENTS),
    ({"holds": [held("before", 700)], "unallocated": 200, "leak": LEAK}, Reason.LEAK),
    ({"holds": [held("before", 200)], "unallocated": 700, "leak": LEAK}, Reason.FRAGMENTS),
    ({"holds": [held("before", 950)], "leak": LEAK}, Reason.LEAK),
    ({"holds": [held("step", 950)], "leak": Accrued("x", 10 * MIB, False, "")}, Reason.STEP),
    ({"holds": [held("before", 500)], "others": 400}, Reason.OTHERS),
    ({"holds": [held("before", 640), held("dangling", 30)], "others": 200, "free": 80, "asked": 120}, Reason.OTHERS),
    ({"holds": [held("before", 500), held("dangling", 40)], "others": 45, "unallocated": 60}, Reason.STEP),
    ({"holds": [held("before", 500), held("dangling", 60)], "others": 70, "free": 20}, Reason.UNSURE),
    ({"asked": None, "others": 900}, Reason.UNSURE),
    ({"free": None, "total": None}, Reason.UNSURE),
    ({"free": 300}, Reason.UNSURE),
])  # fmt: skip
def test_one_main_cause(figures, expected):
    assert reason(**figures) is expected


def test_a_rounded_text_does_not_make_a_tensor_too_large():
    assert reason(asked=1001, rounding=5 * MIB, holds=[held("dangling", 960)]) is Reason.DANGLING


def test_an_older_errors_frames_are_gone_by_now():
    old = Baseline(last_error="ValueError in cell [3]")
    found = reasons.finding(case(vanished=600, holds=[held("before", 300)], before=old))
    assert found.reason is Reason.DANGLING
    assert "ValueError in cell [3]" in found.cause
    assert reason(vanished=600, holds=[held("before", 350)]) is Reason.STEP, "without one it was the step's own"


def test_a_limit_of_the_system_is_said():
    assert "a limit of the system" in reasons.finding(case(free=300)).cause


def test_expandable_segments_are_not_advised_twice(monkeypatch):
    import torch  # noqa: F401  # who reads the setting

    figures = {"holds": [held("before", 500)], "unallocated": 300}
    assert "expandable_segments:True" in reasons.finding(case(**figures)).code
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    assert "expandable" not in reasons.finding(case(**figures)).code


# ---------------------------------------------------------------- batches
def test_the_batch_that_can_fit_is_bounded_by_proportion():
    step = [held("step", 700, shape=(64, 10)), held("step", 100, parameter=True), held("before", 200)]
    assert reasons.most_that_fit(case(asked=100, holds=step, batch=64)) == (56, 64)  # 64 · 700 / 800


def test_a_batch_from_before_shrinks_too():
    step = [held("step", 800, shape=(64, 10)), held("before", 100, shape=(64, 3))]
    with_it = reasons.most_that_fit(case(asked=200, holds=step, batch=64))
    assert with_it == (58, 64)  # 64 · 1000 / 1100; with the old batch counted as fixed it would be 57


@pytest.mark.parametrize("figures", [{"batch": None}, {"batch": 64, "asked": None}, {"batch": 64, "holds": [held("before", 1000)]}])
def test_no_bound_without_its_parts(figures):
    assert reasons.most_that_fit(case(**figures)) is None


def test_the_name_of_the_batch_size_is_found(shell):
    shell.run_cell("epochs, batch_size = 64, 64")
    step = case(holds=[held("step", 950, shape=(64, 10))], batch=64)
    found = reasons.with_batch(shell, step, reasons.finding(step), (57, 64))
    assert found.code == "%%gpufree --retry 3 --halve batch_size"
    assert "at most 57 of 64 can fit, an upper bound" in found.cure


def test_names_from_before_are_let_go_of_not_the_batch(shell):
    full = case(holds=[held("before", 950, name="cache"), held("before", 20, name="net")], batch=64)
    found = reasons.with_batch(shell, full, reasons.finding(full), None)
    assert "cache (950.0 MiB)" in found.cure
    assert found.code == "%gpufree --to-host cache"
