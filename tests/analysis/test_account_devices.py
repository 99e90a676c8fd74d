"""The whole device as the driver sees it, and the host."""
from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch

from jupyter_gpumem.analysis import account
from jupyter_gpumem.model import Device, Process, Sum

sys.path.insert(0, str(Path(__file__).parent))
from accounting import COMMON

JOINED = """
x = torch.ones(10 << 20, device=ON)
found = check()
print(json.dumps([{e.kind: e.nbytes for e in found.used.entries}, found.used.total, found.reserved.total, found.notes]))
"""


def test_the_device_as_the_driver_sees_it(run_on, nvml_machine, nvml_env):
    nvml_machine.put("gpu 0 total=1G used=300M reserved=0\nproc 0 pid=1 type=C used=200M\ngpu 1 total=1G used=0 reserved=0\n")
    parts, total, reserved, notes = run_on("cuda", COMMON + JOINED, **nvml_env, SIMGPU_CONTEXT_MB="8").json
    assert notes == []
    assert total == sum(parts.values())
    assert parts["reserved"] == reserved == 40 << 20
    assert (parts["context"], parts["others"]) == (8 << 20, 200 << 20)
    assert parts["unattributed"] == 100 << 20


def test_before_the_first_use_the_device_is_there_and_this_process_has_nothing(run_on, nvml_machine, nvml_env):
    nvml_machine.put("gpu 0 total=1G used=100M reserved=0\n")
    source = COMMON + "import simgpu\n(found,) = account.take(None)\n"
    source += "print(json.dumps([found.device, found.allocated.total, found.used.total, found.used.of('unattributed'), simgpu.initialising_calls()]))"
    assert run_on("cuda", source, **nvml_env).json == ["cuda:0", 0, 100 << 20, 100 << 20, []]


def gpu(used, processes):
    return Device("GPU-a", "gpu", 0, "A", total=1000, used=used, processes=processes)


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        (gpu(500, (Process(1, 200, own=True), Process(2, 100))), {"context": 50, "others": 100, "unattributed": 200}),
        (gpu(500, (Process(1, 100, own=True),)), {"context": 0, "others": 0, "unattributed": 350}),
        (gpu(500, (Process(1, None, own=True), Process(2, None))), {"context": None, "others": None, "unattributed": 350}),
        (gpu(500, None), {"context": None, "others": None, "unattributed": 350}),
        (gpu(500, (Process(77, 200),)), {"context": None, "others": None, "unattributed": 350}),
        (gpu(200, (Process(1, 200, own=True), Process(2, 100))), {"context": 50, "others": 100, "unattributed": None}),
        (None, {"context": None, "others": None, "unattributed": None}),
    ],
    ids=["all told", "less than reserved", "windows", "no list", "host pids", "figures of two moments", "no driver"],
)
def test_what_the_driver_does_not_tell_is_unknown(device, expected):
    used = account._used(device, 150)
    assert {kind: used.of(kind) for kind in expected} == expected
    assert used.of("reserved") == 150
    if None not in [entry.nbytes for entry in used.entries]:
        assert sum(entry.nbytes for entry in used.entries) == used.total


def of(whole):
    return {entry.kind: entry.nbytes for entry in whole.entries}


def test_host_memory_is_this_process_and_all_others():
    host = Device("cpu", "host", None, "Host memory", total=1000, used=600, processes=(Process(os.getpid(), 200, own=True),))
    mine, whole = account._host(host, Sum(150, ()))
    assert (mine.total, of(mine)) == (200, {"tensors": 150, "rest": 50})
    assert (whole.total, of(whole)) == (600, {"resident": 200, "system": 400})
    untouched, whole = account._host(host, Sum(900, ()))
    assert (untouched.total, of(untouched)) == (200, {"tensors": 200, "rest": 0})
    assert "never written" in untouched.entries[0].note


def test_of_a_host_that_tells_nothing_all_is_unknown():
    mine, whole = account._host(None, Sum(150, ()))
    assert (mine.total, whole.total) == (None, None)
    assert set(of(mine).values()) == set(of(whole).values()) == {None}
    named_only = Device("cpu", "host", None, "Host memory", total=1000, used=600)
    assert account._host(named_only, Sum(150, ()))[1].total == 600


def test_the_hosts_own_account_has_no_word_of_allocators():
    kept = torch.ones(1 << 20)
    (found,) = account.take(None, "cpu")
    assert found.reserved.total == found.used.of("resident") > kept.nbytes
    assert {entry.kind for entry in (*found.reserved.entries, *found.used.entries)} == {"tensors", "rest", "resident", "system"}
