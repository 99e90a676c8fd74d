"""The processes that hold memory of a device, as the driver lists them, and what may be believed of the list."""
from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Rules:
    """What may be believed, in this process and with this driver."""

    own_pid: int | None
    """Ours, where the driver's list means our process ids."""
    largest_pid: int
    host_pids: bool
    zero_is_unknown: bool


def rules(driver_version: str) -> Rules:
    """The rules for one reading of all devices."""
    container = in_first_pid_namespace() is False
    version = tuple(int(part) for part in re.findall(r"\d+", driver_version)[:2])
    host_pids = container and version < _HOST_PIDS_BEFORE
    return Rules(
        own_pid=None if host_pids else os.getpid(),
        largest_pid=_largest_pid(),
        host_pids=host_pids,
        zero_is_unknown=container and version < _MEMORY_RIGHT_FROM,
    )


def read(
    ask: Ask, refusal: Callable[[], int], handle: Any, believed: Rules
) -> tuple[tuple[Process, ...] | None, list[str]]:
    """The processes on a device, largest first, or None if none of the lists can be read; and notes."""
    found: dict[int, tuple[int | None, str]] = {}
    readable, garbled = False, False
    for kind, function in _LISTS:
        entries = _entries(ask, refusal, function, handle)
        if entries is None:
            continue
        readable = True
        for entry in entries:
            pid, used = entry.pid, entry.usedGpuMemory
            if not 0 < pid <= believed.largest_pid:
                garbled = True
                continue
            if used == 0 and believed.zero_is_unknown:
                used = None
            if pid not in found or (used or 0) > (found[pid][0] or 0):
                found[pid] = used, kind
    processes = [Process(pid, used, kind, pid == believed.own_pid) for pid, (used, kind) in found.items()]
    processes.sort(key=lambda process: -(process.used or 0))
    notes = [_UNREADABLE] if garbled else []
    notes += [_HOST_PIDS] if believed.host_pids and processes else []
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


def _largest_pid() -> int:
    """Early drivers of the 535 branch shuffle the list when they meet an other binding: sizes stand as ids."""
    try:
        return int(Path("/proc/sys/kernel/pid_max").read_text())
    except (OSError, ValueError):
        return 2**32 - 2
