"""The processes that hold memory of a device, as the driver lists them, and what may be believed of the list."""
from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml

from jupyter_gpumem.devices.namespaces import in_first_pid_namespace
from jupyter_gpumem.model import Process

_LISTS = (
    ("compute", "nvmlDeviceGetComputeRunningProcesses"),
    ("graphics", "nvmlDeviceGetGraphicsRunningProcesses"),
    ("mps", "nvmlDeviceGetMPSComputeRunningProcesses"),
)
_HOST_PIDS_BEFORE = (535, 113)
"""Until then the list has the host's process ids, even for a container."""
_MEMORY_RIGHT_FROM = (565, 57)
"""Until then, in a container, the memory is looked up under the wrong id and comes out as 0."""
_UNREADABLE = "Parts of the process list are unreadable with this driver."
_HOST_PIDS = "The driver lists the host's process ids, which mean nothing in this container."
_UNSAID = "The driver does not say how much memory each process holds."

Ask = Callable[..., Any]


def read(
    ask: Ask, refusal: Callable[[], int], handle: Any, driver_version: str
) -> tuple[tuple[Process, ...] | None, list[str]]:
    """The processes on a device, largest first, or None if none of the lists can be read; and notes."""
    entries: dict[int, Process] = {}
    readable, garbled = False, False
    container = in_first_pid_namespace() is False
    version = tuple(int(part) for part in re.findall(r"\d+", driver_version)[:2])
    host_pids = container and version < _HOST_PIDS_BEFORE
    for kind, function in _LISTS:
        found = _entries(ask, refusal, function, handle)
        if found is None:
            continue
        readable = True
        for entry in found:
            if not _is_pid(entry.pid):
                garbled = True
                continue
            own = entry.pid == os.getpid() and not host_pids
            used = entry.usedGpuMemory
            if used == 0 and container and version < _MEMORY_RIGHT_FROM:
                used = None
            known = entries.get(entry.pid)
            if known is None or (used or 0) > (known.used or 0):
                entries[entry.pid] = Process(int(entry.pid), None if used is None else int(used), kind, own)
    processes = sorted(entries.values(), key=lambda process: -(process.used or 0))
    notes = [_UNREADABLE] if garbled else []
    notes += [_HOST_PIDS] if host_pids and processes else []
    notes += [_UNSAID] if any(process.used is None for process in processes) else []
    return (tuple(processes) if readable else None), notes


def _entries(ask: Ask, refusal: Callable[[], int], function: str, handle: Any) -> list[Any] | None:
    """Version 3 of the call, else 2, else the first: pynvml does not fall back by itself."""
    for suffix in ("_v3", "_v2"):
        call = getattr(pynvml, function + suffix, None)
        found: list[Any] | None = ask(call, handle)
        if found is not None:
            return found
        if refusal() != pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
            return None
    first: list[Any] | None = ask(_first_version, function, handle)
    return first


class _Entry(ctypes.Structure):
    """``nvmlProcessInfo_v1_t``."""

    _fields_ = [("pid", ctypes.c_uint), ("usedGpuMemory", ctypes.c_ulonglong)]


class _Plain:
    def __init__(self, pid: int, used: int | None) -> None:
        self.pid = pid
        self.usedGpuMemory = used


def _first_version(function: str, handle: Any) -> list[_Plain]:
    """The unversioned call of drivers before 450, for which pynvml has no wrapper any more. Raises NVMLError."""
    call = pynvml._nvmlGetFunctionPointer(function)
    count = ctypes.c_uint(0)
    status = call(handle, ctypes.byref(count), None)
    if status not in (pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_INSUFFICIENT_SIZE):
        pynvml._nvmlCheckReturn(status)
    room = count.value * 2 + 5  # some may start meanwhile
    entries = (_Entry * room)()
    count = ctypes.c_uint(room)
    pynvml._nvmlCheckReturn(call(handle, ctypes.byref(count), entries))
    unknown = ctypes.c_ulonglong(-1).value
    return [_Plain(e.pid, None if e.usedGpuMemory == unknown else e.usedGpuMemory) for e in entries[: count.value]]


def _is_pid(pid: int) -> bool:
    """Early drivers of the 535 branch shuffle the list when they meet an other binding: sizes stand as ids."""
    try:
        most = int(Path("/proc/sys/kernel/pid_max").read_text())
    except (OSError, ValueError):
        most = 2**32 - 2
    return 0 < pid <= most
