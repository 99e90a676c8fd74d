"""Host memory: the machine's, or the share that a control group (a container, a batch job) allows.

It is read beside cells that compute in Python. There each system call may cost the five milliseconds for which Python
leaves a thread waiting, so as few as possible are made.
"""
from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import psutil

from jupyter_gpumem.model import Device, Process


def read(cgroups: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")) -> Device:
    """Host memory now, bytes. ``free`` is what can be had without swapping."""
    memory = psutil.virtual_memory()
    total, free = int(memory.total), int(memory.available)
    used = total - free
    notes: tuple[str, ...] = ()
    limits = _limits(cgroups, membership, total)
    if limits:
        total, used = min(limits)
        # a parent's neighbours, or the machine's, may leave less than the tightest limit says
        free = max(0, min(free, *(limit - taken for limit, taken in limits)))
        notes = ("The limit of this container or job; the machine has more.",)
    own = Process(os.getpid(), int(_this_process(os.getpid()).memory_info().rss), own=True)
    return Device(
        uuid="cpu",
        kind="host",
        index=None,
        name="Host memory",
        total=total,
        used=used,
        free=free,
        processes=(own,),
        alias="cpu",
        notes=notes,
    )


def unshared(pids: Sequence[int]) -> tuple[int, ...]:
    """What ending each process would give back, bytes: its pages that no other process has too.

    Processes that have ended, or that may not be asked, are left out. About a millisecond a process.
    """
    found = []
    for pid in pids:
        try:
            found.append(int(psutil.Process(pid).memory_full_info().uss))
        except (psutil.Error, OSError):
            continue
    return tuple(found)


@lru_cache(maxsize=1)
def _this_process(pid: int) -> psutil.Process:
    """Made anew in a fork."""
    return psutil.Process(pid)


def _limits(cgroups: Path, membership: Path, total: int) -> list[tuple[int, int]]:
    """The memory limits below the machine's of the control groups that this process is in, and what is used of each."""
    found: list[tuple[int, int]] = []
    for folder, limit_file, used_file in _groups(cgroups, membership):
        limit = _number(folder / limit_file)
        if limit is None or limit >= total:
            continue
        used = _number(folder / used_file)
        if used is not None:
            found.append((limit, max(0, used - (_reclaimable(folder) or 0))))
    return found


def _text(file: Path) -> str | None:
    """A small file of the kernel's, in three system calls."""
    try:
        opened = os.open(file, os.O_RDONLY)
    except OSError:
        return None
    try:
        return os.read(opened, 1 << 16).decode()
    except OSError:
        return None
    finally:
        os.close(opened)


def _groups(cgroups: Path, membership: Path) -> list[tuple[Path, str, str]]:
    """Folders of this process's groups and their parents: version 2 has one tree, version 1 one for memory."""
    found = []
    for line in (_text(membership) or "").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            base, files = cgroups, ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            base, files = cgroups / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        folder = base / path.lstrip("/")
        # inside a container the path may be the host's, while the container's own tree is mounted at the base
        found += [(parent, *files) for parent in (folder, *folder.parents) if parent == base or base in parent.parents]
    return found


def _number(file: Path) -> int | None:
    text = (_text(file) or "").strip()
    return int(text) if text.isdigit() else None  # "max": no limit


def _reclaimable(folder: Path) -> int | None:
    """Cached file pages, which the kernel gives up before it kills anybody. Version 1 counts children apart."""
    lines = (_text(folder / "memory.stat") or "").splitlines()
    stats = dict(line.split(" ", 1) for line in lines if " " in line)
    value = stats.get("total_inactive_file") or stats.get("inactive_file", "")
    return int(value) if value.isdigit() else None
