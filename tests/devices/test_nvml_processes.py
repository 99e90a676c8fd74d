"""What may be believed of the driver's list of processes."""
from __future__ import annotations

import ctypes

import pynvml
import pytest

from jupyter_gpumem.devices import nvml_processes
from jupyter_gpumem.model import Process


def entry(pid, used):
    return pid, used


def read(lists, version="550.54.15", refusal=pynvml.NVML_ERROR_NOT_SUPPORTED):
    def ask(function, name, *args):
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


def test_a_short_list_takes_one_call_and_a_long_one_two(nvml_machine):
    def calls_for(count):
        nvml_machine.put("gpu 0\n" + "".join(f"proc 0 pid={pid} used=1M\n" for pid in range(1, count + 1)))
        pynvml.nvmlInit()
        before = len(nvml_machine.calls())
        found = nvml_processes._list(NAME, nvml_processes._VERSIONS[0][1], pynvml.nvmlDeviceGetHandleByIndex(0))
        made = [name for name, _ in nvml_machine.calls()[before:] if "Processes" in name]
        pynvml.nvmlShutdown()
        return len(found), len(made)

    assert calls_for(0) == (0, 1)
    assert calls_for(64) == (64, 1)
    assert calls_for(65) == (65, 2)


def test_the_buffer_has_room_for_the_widest_entries(nvml_machine):
    """Early 535 drivers write 32 bytes an entry, whatever room for 24 was meant."""
    seen = []

    def driver(handle, count, buffer):
        seen.append((count._obj.value, ctypes.sizeof(buffer)))
        count._obj.value = 0
        return 0

    assert nvml_processes._list(install(driver), nvml_processes._VERSIONS[0][1], None) == []
    ((entries, size),) = seen
    assert size >= 32 * entries


NAME = "nvmlDeviceGetComputeRunningProcesses_v3"


def install(driver):
    """Stands for one function of the driver until the fixture clears pynvml's cache."""
    pynvml._nvmlGetFunctionPointer_cache[NAME] = driver
    return NAME


@pytest.mark.parametrize(
    ("processes", "container", "total"),
    [
        (None, False, None),
        ((), False, 0),
        ((), True, None),
        ((Process(1, 5), Process(2, None)), True, 5),
        ((Process(1, None),), False, None),
    ],
)
def test_what_processes_hold_together_is_never_a_made_up_zero(monkeypatch, processes, container, total):
    monkeypatch.setattr(nvml_processes, "in_first_pid_namespace", lambda: not container)
    assert nvml_processes.total(processes, nvml_processes.rules("580.1")) == total
