"""The last verdict, as the pages get it: told when it changes, and put away."""
from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from jupyter_gpumem.faces.verdicts import Verdicts
from jupyter_gpumem.model import DeviceFault, Diagnosis, Fault, Origin, OutOfMemory, Reason

OOM = OutOfMemory("torch", "cuda:0", asked=500 << 20, free=100 << 20)


def diagnosis(reason=Reason.DANGLING, **more):
    origin = Origin("cell [3], line 2 in step()", "held = torch.zeros(n)")
    return Diagnosis(OOM, origin, reason, "1.0 GiB dangles", "free what dangles", "%gpufree", **more)


@pytest.fixture
def live():
    return SimpleNamespace(watched=True)


@pytest.fixture
def sent():
    return []


@pytest.fixture
def verdicts(live, sent):
    return Verdicts(lambda message: sent.append(json.loads(json.dumps(message, allow_nan=False))), live)


def ended(cell="c1", success=False):
    return SimpleNamespace(info=SimpleNamespace(cell_id=cell), success=success)


def test_a_verdict_is_told_with_its_three_lines(verdicts, sent):
    verdicts.after(ended(), diagnosis(), 7 << 20)
    (message,) = sent
    assert message["kind"] == "verdict"
    assert message["verdict"] == {
        "id": 1,
        "kind": "out of memory",
        "asked": "out of memory on cuda:0: 500.0 MiB asked, 100.0 MiB free; cell [3], line 2 in step(): held = torch.zeros(n)",
        "cause": "1.0 GiB dangles",
        "cure": "free what dangles",
        "code": "%gpufree",
        "dangling": True,
        "given_back": 7 << 20,
    }
    assert verdicts.now == message["verdict"]


@pytest.mark.parametrize(
    ("found", "dangling"),
    [
        (diagnosis(Reason.OTHERS), False),
        (diagnosis(Reason.OTHERS, contributing=((Reason.DANGLING, "1.0 GiB dangles"),)), True),
        (DeviceFault(Fault.ASSERT, "an index is out of bounds", "restart the kernel", dead=True), False),
    ],
)
def test_what_a_clean_up_helps_against_is_told(verdicts, found, dangling):
    verdicts.after(ended(), found, 0)
    assert verdicts.now["dangling"] is dangling


def test_a_fault_of_the_device_has_its_line_and_what_helps(verdicts):
    verdicts.after(ended(), DeviceFault(Fault.ASSERT, "an index is out of bounds", "restart the kernel", dead=True), 0)
    said = verdicts.now
    assert (said["kind"], said["asked"], said["cause"], said["cure"]) == (
        "fault", "device-side assert: an index is out of bounds", "", "restart the kernel",
    )


def test_a_text_without_end_is_cut(verdicts):
    verdicts.after(ended(), DeviceFault(Fault.DRIVER, "x" * 100_000, "restart the kernel"), 0)
    assert len(json.dumps(verdicts.now)) < 5000


def test_it_has_the_fields_of_its_example(verdicts, sent):
    records = json.loads((Path(__file__).resolve().parents[1] / "protocol" / "records.json").read_text())["messages"]
    example = next(case["message"] for case in records if case["what"] == "a verdict")
    verdicts.after(ended(), diagnosis(), 0)
    assert {name: type(value) for name, value in sent[0]["verdict"].items()} == {
        name: type(value) for name, value in example["verdict"].items()
    }


def test_other_cells_leave_it_alone_and_cost_no_message(verdicts, sent):
    verdicts.after(ended("c1"), diagnosis(), 0)
    verdicts.after(ended("c2", success=True), None, 0)
    verdicts.after(ended("c1"), None, 0)
    verdicts.after(ended(None, success=True), None, 0)
    assert len(sent) == 1
    assert verdicts.now is not None


def test_it_goes_when_its_cell_goes_through(verdicts, sent):
    verdicts.after(ended("c1"), diagnosis(), 0)
    verdicts.after(ended("c1", success=True), None, 0)
    assert verdicts.now is None
    assert sent[-1] == {"kind": "verdict", "verdict": None}
    verdicts.after(ended("c1", success=True), None, 0)
    assert len(sent) == 2


def test_it_is_dismissed_for_all_pages_but_not_the_next_one(verdicts, sent):
    verdicts.after(ended(), diagnosis(), 0)
    first = verdicts.now["id"]
    verdicts.after(ended(), diagnosis(), 0)
    assert verdicts.dismiss(first) is False
    assert verdicts.now is not None
    assert verdicts.dismiss(verdicts.now["id"]) is True
    assert verdicts.now is None
    assert sent[-1]["verdict"] is None
    assert verdicts.dismiss(first) is False


def test_nothing_is_sent_while_nobody_watches(verdicts, live, sent):
    live.watched = False
    verdicts.after(ended(), diagnosis(), 0)
    assert sent == []
    assert verdicts.now is not None, "a page that comes later gets it with its lease"


def test_a_page_that_cannot_be_reached_does_not_reach_the_cell(live, caplog):
    def broken(message):
        raise OSError("no connection")

    Verdicts(broken, live).after(ended(), diagnosis(), 0)
    assert "no connection" in caplog.text
