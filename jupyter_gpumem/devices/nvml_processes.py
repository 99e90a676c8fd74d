"""The processes that hold memory of a device, as the driver lists them, and what may be believed of the list.

pynvml's own wrappers are passed over for the lists, not for the library: they make a Python object of every entry,
which costs more than all other calls of a reading together, ask twice where once suffices, and do not fall back to
older versions of the call.
"""
from __future__ import annotations

import ctypes
import os
import re
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
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
_HIDDEN = "The driver names no process to this container; who uses the memory cannot be seen from here."
_UNSAID = "The driver does not say how much memory each process holds (usual on Windows and WSL)."
_UNSAID_IN_CONTAINER = "In a container this driver does not say how much memory each process holds: update to 565.57."

_Entry = tuple[int, int | None]
"""Process id, bytes."""
Ask = Callable[..., Any]


@dataclass(frozen=True)
class Rules:
    """What may be believed, in this process and with this driver."""

    own_pid: int | None
    """Ours, where the driver's list means our process ids."""
    largest_pid: int
    container: bool
    """The driver may know processes that it does not tell us of."""
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
        container=container,
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
        for pid, used in entries:
            if not 0 < pid <= believed.largest_pid:
                garbled = True
                continue
            if used == 0 and believed.zero_is_unknown:
                used = None
            if pid not in found or (used or 0) > (found[pid][0] or 0):
                found[pid] = used, kind
    if not readable:
        return None, []
    processes = [Process(pid, used, kind, pid == believed.own_pid) for pid, (used, kind) in found.items()]
    processes.sort(key=lambda process: process.used or 0, reverse=True)
    return tuple(processes), list(_notes(processes, garbled, believed))


def _notes(processes: list[Process], garbled: bool, believed: Rules) -> Iterable[str]:
    if garbled:
        yield _UNREADABLE
    if believed.host_pids and processes:
        yield _HOST_PIDS
    if believed.container and not processes:
        yield _HIDDEN
    if any(process.used is None for process in processes):
        yield _UNSAID_IN_CONTAINER if believed.zero_is_unknown else _UNSAID


def total(processes: tuple[Process, ...] | None, believed: Rules) -> int | None:
    """What the processes hold together; None where it is not told, which an empty list in a container is not either."""
    known = [process.used for process in processes or () if process.used is not None]
    if not known and (processes is None or processes or believed.container):
        return None
    return sum(known)


# ---------------------------------------------------------------- the call
_VERSIONS = (("_v3", struct.Struct("@IQII")), ("_v2", struct.Struct("@IQII")), ("", struct.Struct("@IQ")))
"""``nvmlProcessInfo_v2_t`` (id, bytes, GPU instance, compute instance) and ``nvmlProcessInfo_v1_t``."""
_WIDEST = 32
"""Bytes of an entry as early drivers of the 535 branch write it: there must be room, though we read 24 a piece."""
_ROOM = 64
"""Entries asked for at first: enough for one call to do."""
_UNKNOWN = 2**64 - 1
"""NVML_VALUE_NOT_AVAILABLE: under WDDM only Windows knows."""


def _entries(ask: Ask, refusal: Callable[[], int], function: str, handle: Any) -> list[_Entry] | None:
    """By version 3 of the call, else 2, else the first, of drivers before 450."""
    for suffix, layout in _VERSIONS:
        found: list[_Entry] | None = ask(_list, function + suffix, layout, handle)
        if found is not None:
            return found
        if refusal() != pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
            break
    return None


def _list(function: str, layout: struct.Struct, handle: Any) -> list[_Entry]:
    """One version of the call. Raises NVMLError."""
    call = _pointer(function)
    room = _ROOM
    while True:
        buffer = (ctypes.c_ulonglong * (room * _WIDEST // 8))()
        count = ctypes.c_uint(room)
        status = call(handle, ctypes.byref(count), buffer)
        if status != pynvml.NVML_ERROR_INSUFFICIENT_SIZE or count.value <= room:
            break
        room = count.value * 2  # some may start meanwhile
    if status != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(status)
    filled = memoryview(buffer).cast("B")[: count.value * layout.size]
    return [(entry[0], None if entry[1] == _UNKNOWN else entry[1]) for entry in layout.iter_unpack(filled)]


def _pointer(function: str) -> Any:
    """A function of the library that pynvml has loaded. Raises NVMLError if the driver does not have it."""
    # the old distribution named pynvml, which hides nvidia-ml-py where both are installed, keeps this in a submodule
    home = pynvml if hasattr(pynvml, "_nvmlGetFunctionPointer") else pynvml.nvml
    return home._nvmlGetFunctionPointer(function)


@cache
def _largest_pid() -> int:
    """Early drivers of the 535 branch shuffle the list when they meet an other binding: sizes stand as ids."""
    try:
        return int(Path("/proc/sys/kernel/pid_max").read_text())
    except (OSError, ValueError):
        return 2**32 - 2
