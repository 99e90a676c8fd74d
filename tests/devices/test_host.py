"""Host memory and the limits of control groups."""
from __future__ import annotations

import os
import subprocess
import sys
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


def test_a_process_is_named_with_its_user():
    name = host.process_names([os.getpid()])[os.getpid()]
    assert name == f"{psutil.Process().name()} ({psutil.Process().username()})"


GONE = 2**22 - 3


@pytest.mark.parametrize(("first", "words"), [(True, "ended"), (None, "ended"), (False, "of another container")])
def test_a_process_that_is_gone(monkeypatch, first, words):
    monkeypatch.setattr(host, "in_first_pid_namespace", lambda: first)
    assert host.process_names([GONE]) == {GONE: words}


def test_a_process_that_proc_hides_is_not_called_ended(monkeypatch):
    def forbid(pid, signal):
        raise PermissionError

    monkeypatch.setattr(host.os, "kill", forbid)
    assert host.process_names([GONE]) == {GONE: "not visible"}


def test_a_zombie_has_ended():
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    try:
        assert host.process_names([child.pid])[child.pid].endswith(", ended")
    finally:
        child.wait()


@pytest.mark.parametrize(("opened", "named"), [("/dev/nvidia0", True), ("/dev/nvidiactl", True), ("/dev/null", False), (None, False)])
def test_in_a_container_a_drivers_pid_is_named_only_if_it_uses_a_gpu(tmp_path, monkeypatch, opened, named):
    """It may be the host's number of somebody else."""
    folder = tmp_path / str(os.getpid()) / "fd"
    folder.mkdir(parents=True)
    if opened:
        (folder / "7").symlink_to(opened)
    monkeypatch.setattr(host._has_gpu_open, "__defaults__", (tmp_path,))
    monkeypatch.setattr(host, "in_first_pid_namespace", lambda: False)
    assert ("(" in host.process_names([os.getpid()], of_gpu=True)[os.getpid()]) is named
    assert "(" in host.process_names([os.getpid()])[os.getpid()], "not from a driver: no doubt"
