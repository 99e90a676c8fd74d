"""Host memory and the limits of control groups."""
from __future__ import annotations

import os
from types import SimpleNamespace

import psutil
import pytest

from jupyter_gpumem.devices import host


@pytest.fixture
def groups(tmp_path):
    """``groups(membership, {file: text})`` → a reading of a machine with these control groups."""

    def read(membership, files):
        base = tmp_path / "cgroup"
        base.mkdir(exist_ok=True)
        for name, text in files.items():
            file = base / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        member = tmp_path / "self"
        member.write_text(membership)
        return host.read(base, member)

    return read


def test_without_a_limit_it_is_the_machine(groups):
    device = groups("0::/\n", {})
    assert device.total == psutil.virtual_memory().total
    assert device.free == device.total - device.used
    assert device.notes == ()


def test_version_2(groups):
    device = groups(
        "0::/job\n",
        {"job/memory.max": "1073741824\n", "job/memory.current": "314572800", "job/memory.stat": "inactive_file 104857600\n"},
    )
    assert (device.total, device.used, device.free) == (1 << 30, 200 << 20, 824 << 20)
    assert "container or job" in device.notes[0]


def test_the_limit_of_a_parent_counts(groups):
    device = groups(
        "0::/slice/job\n",
        {
            "slice/job/memory.max": "max",
            "slice/job/memory.current": "5",
            "slice/memory.max": str(2 << 30),
            "slice/memory.current": "9",
        },
    )
    assert device.total == 2 << 30


def test_version_1(groups):
    device = groups(
        "5:cpu:/x\n4:memory:/docker/abc\n",
        {"memory/memory.limit_in_bytes": str(1 << 30), "memory/memory.usage_in_bytes": "1024"},
    )
    assert (device.total, device.used) == (1 << 30, 1024)


def test_version_1_counts_the_cache_of_children_apart(groups):
    device = groups(
        "4:memory:/job\n",
        {
            "memory/job/memory.limit_in_bytes": str(1 << 30),
            "memory/job/memory.usage_in_bytes": str(500 << 20),
            "memory/job/memory.stat": f"inactive_file 0\ntotal_inactive_file {100 << 20}\n",
        },
    )
    assert device.used == 400 << 20


def test_free_is_no_more_than_a_parents_other_children_leave(groups):
    files = {"s/job/memory.max": 1 << 30, "s/job/memory.current": 0, "s/memory.max": 2 << 30, "s/memory.current": 2000 << 20}
    device = groups("0::/s/job\n", {name: str(number) for name, number in files.items()})
    assert (device.total, device.used, device.free) == (1 << 30, 0, 48 << 20)


def test_free_is_no_more_than_the_machine_has(groups, monkeypatch):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=8 << 30, available=1 << 30))
    device = groups("0::/job\n", {"job/memory.max": str(4 << 30), "job/memory.current": "0"})
    assert (device.total, device.free) == (4 << 30, 1 << 30)


def test_a_limit_above_the_machine_is_none(groups):
    device = groups("0::/\n", {"memory.max": str(1 << 60), "memory.current": "5"})
    assert device.total == psutil.virtual_memory().total


def test_own_process_is_listed():
    (own,) = host.read().processes
    assert own.own
    assert own.pid == os.getpid()
    assert own.used > 1 << 20


def test_what_ending_a_process_would_give_back():
    (own,) = host.unshared([os.getpid()])
    assert 1 << 20 < own <= psutil.Process().memory_info().rss
    assert host.unshared([]) == () == host.unshared([2**22 + 1])
