"""Whose a process is: a notebook's kernel, its child, an orphan of a kernel that has ended, somebody else's.

No rights are needed for the kernel and the user; the notebook's path stands in the environment, which only the same
user may read. What was found is believed for a few seconds, for looking costs about a millisecond a process.
"""
from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import psutil

from jupyter_gpumem.devices.namespaces import in_first_pid_namespace
from jupyter_gpumem.model import Owner

_CONNECTION = re.compile(r"(?:^|[/\\=])kernel-([^/\\\s]+)\.json$")
"""The connection file that Jupyter passes to a kernel on its command line."""
_BELIEVED = 5.0
"""Seconds."""
_MOST = 4096
"""Processes remembered; a kernel that has ended is known by its children's session only while it is remembered."""

_known: dict[int, tuple[float, Owner]] = {}
_kernels: dict[int, tuple[str, str | None]] = {}
"""Session (the kernel's process id) → kernel's id and notebook."""


def read(pids: Sequence[int], of_gpu: bool = False) -> tuple[Owner, ...]:
    """The owners of processes, in the order of ``pids``.

    ``of_gpu``: the ids come from a driver. Inside a container they may be the host's and hit somebody else here by
    chance, so a process is believed to be the one meant only if it has a GPU open.
    """
    now = time.monotonic()
    doubtful = of_gpu and in_first_pid_namespace() is False
    _forget_oldest(_known)
    _forget_oldest(_kernels)
    found = []
    for pid in pids:
        since, owner = _known.get(pid, (-_BELIEVED, None))
        if owner is None or now - since >= _BELIEVED:
            owner = Owner(pid, role="foreign") if doubtful and not _has_gpu_open(pid) else _owner(pid)
            _known.pop(pid, None)  # the dictionary's order is that of the looks
            # not all at once: the next looks at processes seen together are spread
            _known[pid] = (now - pid % 8 / 4, owner)
        found.append(owner)
    return tuple(found)


def _forget_oldest(table: dict[int, Any]) -> None:
    while len(table) > _MOST:
        del table[next(iter(table))]


def _owner(pid: int) -> Owner:
    try:
        process = psutil.Process(pid)
        name = process.name()
    except psutil.NoSuchProcess:
        if _is_hidden(pid):
            return Owner(pid, role="hidden")
        return Owner(pid, role="ended" if in_first_pid_namespace() is not False else "foreign")
    except psutil.AccessDenied:
        return Owner(pid, role="hidden")
    user = _user(process)
    kernel = _kernel(process)
    if kernel is not None:
        return Owner(pid, name, user, *kernel)
    ended = _ask(process.status) == psutil.STATUS_ZOMBIE
    return Owner(pid, name, user, "ended" if ended else "other")


def _kernel(process: psutil.Process) -> tuple[str, str | None, str | None] | None:
    """Role, kernel and notebook of a process that has to do with a kernel."""
    top, kernel = None, None
    for one in (process, *(_ask(process.parents) or ())):
        found = _kernel_in(_ask(one.cmdline) or ())
        if found is not None and kernel in (None, found):
            # a forked child shows its kernel's command line: the kernel is the topmost with that id
            top, kernel = one, found
    if top is not None and kernel is not None:
        session = _session(top.pid)
        leads = session == top.pid  # jupyter_client starts a kernel in a session of its own
        notebook = _notebook(top) if leads else _kernels.get(session or 0, (None, None))[1]
        if leads:
            _kernels[top.pid] = kernel, notebook
        role = "orphan" if not leads and not _alive(session) else "kernel" if top.pid == process.pid else "child"
        return role, kernel, notebook
    session = _session(process.pid)
    if session in (None, process.pid):
        notebook = _notebook(process)  # it has left the session, but not the environment
        return ("orphan", None, notebook) if notebook is not None else None
    assert session is not None
    leader = _kernel_in(_ask(psutil.Process(session).cmdline) or ()) if _alive(session) else None
    if leader is not None:
        return "child", leader, _kernels.get(session, (None, _notebook(process)))[1]
    if session in _kernels and not _alive(session):
        return ("orphan", *_kernels[session])
    notebook = _notebook(process)
    return ("orphan", None, notebook) if notebook is not None and not _alive(session) else None


def _kernel_in(command: Iterable[str]) -> str | None:
    for argument in command:
        match = _CONNECTION.search(argument)
        if match:
            return match[1]
    return None


def _notebook(process: psutil.Process) -> str | None:
    environment: dict[str, str] | None = _ask(process.environ)
    return environment.get("JPY_SESSION_NAME") if environment else None


def _user(process: psutil.Process) -> str | None:
    try:
        user: str | None = _ask(process.username)
        return user
    except KeyError:  # a user id without a name
        return None


def _ask(method: Callable[[], Any]) -> Any:
    """What psutil answers, or None where it may not or cannot."""
    try:
        return method()
    except (psutil.Error, OSError):
        return None


def _session(pid: int) -> int | None:
    """From /proc where there is one: ``os.getsid`` knows nothing of processes outside its own pid namespace."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[3])
    except (OSError, IndexError, ValueError):
        pass
    try:
        return os.getsid(pid)
    except (AttributeError, OSError):
        return None


def _alive(pid: int | None) -> bool:
    try:
        return pid is not None and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _is_hidden(pid: int) -> bool:
    """Whether it lives although /proc does not show it: other users' processes where that is mounted hidepid=2."""
    if os.name != "posix":  # elsewhere os.kill kills
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        pass
    return False


def _has_gpu_open(pid: int, proc: Path = Path("/proc")) -> bool:
    try:
        return any(os.readlink(file).startswith("/dev/nvidia") for file in (proc / str(pid) / "fd").iterdir())
    except OSError:
        return False  # gone, or of another user: then nobody can tell
