"""What may be believed of the driver's list of processes."""
from __future__ import annotations

from types import SimpleNamespace

import pynvml
import pytest

from jupyter_gpumem.devices import nvml_processes


def entry(pid, used):
    return SimpleNamespace(pid=pid, usedGpuMemory=used)


def read(lists, version="550.54.15", refusal=pynvml.NVML_ERROR_NOT_SUPPORTED):
    def ask(function, *args):
        name = getattr(function, "__name__", "")
        return next((found for key, found in lists.items() if key in name and name.endswith("_v3")), None)

    return nvml_processes.read(ask, lambda: refusal, None, nvml_processes.rules(version))


def test_a_process_in_two_lists_counts_once_with_the_larger_figure():
    processes, _ = read({"Compute": [entry(5, 10)], "Graphics": [entry(5, 30)]})
    assert [(p.pid, p.used, p.kind) for p in processes] == [(5, 30, "graphics")]


def test_no_list_at_all_is_unknown_and_an_empty_one_is_nobody():
    assert read({})[0] is None
    assert read({"Compute": []})[0] == ()


@pytest.mark.parametrize("pid", [0, 2**32 - 1, 209715200])
def test_what_is_no_pid_is_dropped_with_a_note(pid):
    processes, notes = read({"Compute": [entry(11, 100), entry(pid, 0)]})
    assert [p.pid for p in processes] == [11]
    assert any("unreadable" in note for note in notes)
