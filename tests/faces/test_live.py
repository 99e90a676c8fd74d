"""Samples for pages that hold a lease, and silence for all others."""
from __future__ import annotations

import os
import queue
import threading
from types import SimpleNamespace

import pytest

from jupyter_gpumem.faces import live as module
from jupyter_gpumem.faces.live import Live


@pytest.fixture
def sent():
    return queue.Queue()


@pytest.fixture
def live(sent):
    made = Live(sent.put)
    yield made
    made.stop()
    assert not threads()


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "jupyter_gpumem-live"]


def cell(cell_id="c"):
    return SimpleNamespace(cell_id=cell_id)


def test_without_a_lease_there_is_no_thread_and_no_message(live, sent):
    live.begin(cell(), 1)
    assert not threads()
    assert sent.empty()
    assert not live.watched


def test_a_lease_brings_samples_until_it_is_given_back(live, sent):
    assert live.watch("page", 50, 30, True) == {"interval": 50, "lease": 30}
    first, second = sent.get(timeout=30), sent.get(timeout=30)
    assert (first["kind"], first["interval"]) == ("sample", 50)
    assert second["time"] > first["time"]
    (thread,) = threads()
    assert live.unwatch("page") == {"watching": 0}
    thread.join(10)
    assert not thread.is_alive()


def test_the_shortest_of_several_intervals_counts(live, sent):
    live.watch("slow", 60_000, 30, True)
    assert sent.get(timeout=30)["interval"] == 60_000
    live.watch("fast", 50, 30, True)
    assert sent.get(timeout=30)["interval"] == 50
    assert live.unwatch("fast") == {"watching": 1}
    assert threads()


def test_a_page_that_does_not_renew_is_forgotten(live, sent, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    live.watch("page", 50, 1, True)
    assert live._interval(now[0]) == 0.05
    now[0] += 1.5
    assert live._interval(now[0]) is None
    assert not live.watched


def test_a_page_that_is_only_heard_between_cells_is_waited_for_while_one_runs(live, monkeypatch):
    live._leases["page"] = module._Lease(0.1, 1000.0, False)
    live.begin(cell(), 1)
    assert live._interval(1100.0) == 0.1
    assert live._interval(1000.0 + module._PATIENCE + 1) == module._SLOW, "slower, for it may be gone"
    live._runs.clear()
    assert live._interval(1100.0) is None


def test_pages_without_end_are_not_kept(live):
    for number in range(100):
        live._leases[f"{number}"] = module._Lease(60, float("inf"), True)
        live.watch(f"page {number}", 60_000, 30, True)
    assert len(live._leases) <= module._MOST_PAGES + 1


def test_a_sample_says_which_cell_runs(live):
    assert live.sample()["running"] is None
    live.begin(cell("abc"), 7)
    running = live.sample()["running"]
    assert (running["count"], running["cell"], running["ended"]) == (7, "abc", None)


def test_the_outermost_of_nested_cells_is_the_one_that_runs(live):
    outer, inner = cell("outer"), cell("inner")
    live.begin(outer, 1)
    live.begin(inner, None)
    assert live.sample()["running"]["cell"] == "outer"
    live.end(inner, None, False)
    assert live.running
    live.end(outer, 1, False)
    assert not live.running


def test_an_inner_cell_without_an_end_ends_with_the_outer(live):
    outer = cell("outer")
    live.begin(outer, 1)
    live.begin(cell("lost"), 2)
    live.end(outer, 1, False)
    assert not live.running


def test_an_end_without_a_begin_is_nothing(live, sent):
    live.end(cell(), 1, False)
    assert sent.empty()


def until(sent, kind):
    while True:
        message = sent.get(timeout=30)
        if message["kind"] == kind:
            return message


def test_the_end_of_a_cell_is_told_with_what_stayed(live, sent):
    import torch

    live.watch("page", 60_000, 30, True)
    info = cell()
    live.begin(info, 3)
    live._runs[0].before = {"cpu": 10}
    kept = torch.zeros(10)
    live.end(info, 3, failed=True)
    run = until(sent, "cell")["run"]
    assert (run["count"], run["failed"]) == (3, True)
    assert run["ended"] >= run["begun"]
    assert kept.numel() == 10


ON_GPU = """
import json, queue, torch
from types import SimpleNamespace
from jupyter_gpumem.faces.live import Live
torch.zeros(1, device="cuda")
sent = queue.Queue()
live = Live(sent.put)
live.watch("page", 60_000, 30, True)
info = SimpleNamespace(cell_id="c")
live.begin(info, 1)
kept = torch.zeros(2**20, dtype=torch.uint8, device="cuda")
gone = torch.zeros(2**22, dtype=torch.uint8, device="cuda")
del gone
live.end(info, 1, False)
while (message := sent.get(timeout=60))["kind"] != "cell":
    pass
live.stop()
print(json.dumps(message["run"]))
"""


def test_peaks_and_what_stayed_on_a_gpu(run_on):
    run = run_on("cuda", ON_GPU).json
    assert run["stayed"]["cuda:0"] == 2**20
    assert run["peaks"]["cuda:0"] >= 2**20 + 2**22


def test_a_fault_is_told_once(live, sent, monkeypatch):
    def broken(*_):
        raise OSError("no more files")

    monkeypatch.setattr(Live, "take", broken)
    live._leases["page"] = module._Lease(60, float("inf"), True)
    for _ in range(3):
        live._push(1)
    assert sent.get_nowait() == {"kind": "fault", "text": "OSError: no more files"}
    assert sent.empty()
    monkeypatch.undo()
    live._push(1)
    assert sent.get_nowait()["kind"] == "sample"


def test_a_page_that_cannot_be_reached_is_a_line_in_the_log(monkeypatch, caplog):
    def broken(_):
        raise OSError("socket is closed")

    live = Live(broken)
    live._leases["page"] = module._Lease(60, float("inf"), True)
    for _ in range(3):
        live._push(1)
    assert len(caplog.records) == 1
    assert "socket is closed" in caplog.text


def test_a_fault_of_a_reader_does_not_reach_the_cell(live, sent, monkeypatch):
    live.watch("page", 60_000, 30, True)
    monkeypatch.setattr(module, "_allocated", lambda frameworks: 1 / 0)
    info = cell()
    live.begin(info, 1)
    live.end(info, 1, False)
    assert "ZeroDivisionError" in until(sent, "fault")["text"]
    assert not live.running


def test_a_fork_of_the_kernel_serves_no_page(live, monkeypatch):
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert live.watch("page", 50, 30, True)["lease"] == 0
    assert not threads()


class Viewer:
    """Notes what it is shown; ``wants`` is what it answers."""

    def __init__(self, wants=True):
        self.wants, self.taken, self.over = wants, queue.Queue(), threading.Event()

    def show(self, taken):
        self.taken.put(taken)
        return self.wants() if callable(self.wants) else self.wants

    def ended(self):
        self.over.set()


def test_a_viewer_gets_records_and_no_message_is_sent_for_it(live, sent):
    viewer = Viewer()
    live.follow("viewer", viewer, 0.05, 600)
    first, second = viewer.taken.get(timeout=30), viewer.taken.get(timeout=30)
    assert second.time > first.time
    assert {device.kind for device in first.devices} >= {"host"}
    info = cell("abc")
    live.begin(info, 7)
    while viewer.taken.get(timeout=30).running is None:
        pass
    live.end(info, 7, False)
    assert not live.watched
    assert sent.empty(), "no page is there to hear it"


def test_a_viewer_is_told_when_no_cell_has_run_for_long(live, monkeypatch):
    viewer = Viewer()
    now = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(threading.Thread, "start", lambda self: None)
    live.follow("viewer", viewer, 1.0, 300)
    now[0] += 299
    info = cell()
    live.begin(info, 1)
    now[0] += 500
    assert live._interval(now[0]) == 1.0, "the cell runs"
    now[0] += 200
    assert live._interval(now[0]) == module._SLOW, "for so long that nobody may be looking any more"
    live.end(info, 1, False)
    assert live._interval(now[0] + 299) == 1.0, "the end of a cell renews it"
    assert not viewer.over.is_set()
    now[0] += 301
    live._push_all()
    assert viewer.over.is_set()
    assert not live._leases


@pytest.mark.parametrize("wants", [False, lambda: 1 / 0], ids=["gone", "broken"])
def test_a_viewer_that_is_gone_is_asked_once(live, wants):
    viewer = Viewer(wants)
    live.follow("viewer", viewer, 0.05, 600)
    assert viewer.taken.get(timeout=30)
    for thread in threads():
        thread.join(30)
    assert not live._leases
    assert viewer.taken.empty()
    assert not viewer.over.is_set()


def test_a_page_and_a_viewer_are_both_served(live, sent):
    viewer = Viewer()
    live.follow("viewer", viewer, 60, 600)
    assert viewer.taken.get(timeout=30)
    live.watch("page", 60_000, 30, True)
    assert until(sent, "sample"), "it does not wait for the next interval"
    live.unwatch("viewer")
    assert live.watched


def test_nvml_is_open_while_somebody_watches_and_closed_afterwards(sent, nvml_machine):
    nvml_machine.put("gpu 0 uuid=GPU-a total=16G\n")
    live = Live(sent.put)
    live.watch("page", 50, 30, True)
    sent.get(timeout=30)
    sent.get(timeout=30)
    assert nvml_machine.open_count() == 1
    live.stop()
    for thread in threading.enumerate():
        if thread.name == "jupyter_gpumem-nvml":
            thread.join(10)
    assert nvml_machine.open_count() == 0


def test_leases_that_come_and_go_at_once_leave_one_thread_or_none(live, sent):
    def page(name):
        for _ in range(50):
            live.watch(name, 50, 30, True)
            live.unwatch(name)

    pages = [threading.Thread(target=page, args=(f"{n}",)) for n in range(4)]
    for one in pages:
        one.start()
    for one in pages:
        one.join(60)
    live.stop()
    assert not threads()
    live.watch("page", 50, 30, True)
    while not sent.empty():
        sent.get_nowait()
    assert sent.get(timeout=30)["kind"] == "sample"
