"""Host memory: the machine's, or the share that a control group (a container, a batch job) allows."""
from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import psutil

from jupyter_gpumem.devices.namespaces import in_first_pid_namespace
from jupyter_gpumem.model import Device, Process


def read(cgroups: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")) -> Device:
    """Host memory now, bytes. ``free`` is what can be had without swapping."""
    memory = psutil.virtual_memory()
    total, used = int(memory.total), int(memory.total - memory.available)
    notes: tuple[str, ...] = ()
    limit = _limit(cgroups, membership)
    if limit is not None and limit[0] < total:
        total, used = limit
        notes = ("The limit of this container or job; the machine has more.",)
    own = Process(os.getpid(), int(psutil.Process().memory_info().rss), own=True)
    return Device(
        uuid="cpu",
        kind="host",
        index=None,
        name="Host memory",
        total=total,
        used=used,
        free=max(0, total - used),
        processes=(own,),
        alias="cpu",
        notes=notes,
    )


def _limit(cgroups: Path, membership: Path) -> tuple[int, int] | None:
    """The tightest memory limit of the control groups that this process is in, and what is used of it."""
    found: list[tuple[int, int]] = []
    for folder, limit_file, used_file in _groups(cgroups, membership):
        limit, used = _number(folder / limit_file), _number(folder / used_file)
        if limit is not None and used is not None:
            found.append((limit, max(0, used - (_reclaimable(folder) or 0))))
    return min(found, default=None)


def _groups(cgroups: Path, membership: Path) -> list[tuple[Path, str, str]]:
    """Folders of this process's groups and their parents: version 2 has one tree, version 1 one for memory."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
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
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None  # "max": no limit


def _reclaimable(folder: Path) -> int | None:
    """Cached file pages, which the kernel gives up before it kills anybody."""
    try:
        lines = (folder / "memory.stat").read_text().splitlines()
    except OSError:
        return None
    stats = dict(line.split(" ", 1) for line in lines if " " in line)
    value = stats.get("inactive_file", "")
    return int(value) if value.isdigit() else None


def process_names(pids: Sequence[int]) -> dict[int, str]:
    """Process id → ``python (ann)``, or why it has no name here."""
    return {pid: _process_name(pid) for pid in pids}


def _process_name(pid: int) -> str:
    try:
        process = psutil.Process(pid)
        name = process.name()
    except psutil.NoSuchProcess:
        return "ended" if in_first_pid_namespace() else "of another container"
    except psutil.AccessDenied:
        return "not visible"
    try:
        return f"{name} ({process.username()})"
    except (psutil.Error, KeyError):  # KeyError: a user id without a name
        return name
