"""NVIDIA's GPUs and MIG instances, through pynvml.

Every call passes :meth:`_Driver.ask`, where an error becomes "not available": each metric can be missing alone, a
device that fails takes down its own row, and handles are got anew at each reading. NVML is open only while it is read,
or while somebody watches (:func:`keep_open`): an open one keeps laptop GPUs awake and refuses resets.

A driver can hang. A reading therefore runs in a thread of its own, which nobody waits for longer than the timeout.
That thread alone calls NVML; those who wait share only its :class:`_Call`, guarded by ``_lock``.
"""
from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from typing import Any

import pynvml

from jupyter_gpumem.devices import nvml_processes, nvml_texts
from jupyter_gpumem.model import Device, DeviceReading

_NUMA_NAMES = re.compile(r"\bG[HB]\d00")


# ---------------------------------------------------------------- a reading, in its thread
class _Call:
    """A reading under way. The thread writes ``reading``, once; a caller who gave up sets ``overdue``."""

    def __init__(self) -> None:
        self.reading: DeviceReading | None = None
        self.overdue = False
        self.thread = threading.Thread(target=self._run, name="jupyter_gpumem-nvml", daemon=True)

    def _run(self) -> None:
        try:
            self.reading = _read()
        except Exception as error:  # nobody is above us in this thread: the fault goes where it is seen
            self.reading = DeviceReading(problem=nvml_texts.fault(error))


_call: _Call | None = None
_lock = threading.Lock()
_watched = False
_held = False
"""NVML counts its initialisations: one more than the readings' own is held. ``_lock`` guards it and ``_watched``."""


def _forget() -> None:
    """In the child of a fork: the parent's thread does not live here, and its lock may have been held."""
    global _call, _lock, _watched, _held
    _call, _lock, _watched, _held = None, threading.Lock(), False, False


def keep_open(wanted: bool) -> None:
    """Leave NVML open from one reading to the next, or close it. Opening costs far more than a reading.

    After a reading that met a fault it is closed all the same, so that the next one begins anew. Never waits.
    """
    global _watched, _held
    with _lock:
        _watched = wanted
        let_go = _held and not wanted
        _held = _held and wanted
    if let_go:  # in a thread: a driver that hangs must not stop the caller
        threading.Thread(target=_shut_down, name="jupyter_gpumem-nvml", daemon=True).start()


def _settle(opened: bool, clean: bool) -> None:
    """After a reading: keep its initialisation, or undo it and the one that was kept."""
    global _held
    with _lock:
        before = _held
        _held = _watched and clean
        surplus = opened + before - _held
    for _ in range(surplus):
        _shut_down()


def _shut_down() -> None:
    try:
        pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        pass  # the driver went away meanwhile: nothing is open any more


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def read(timeout: float = 2.0) -> DeviceReading:
    """The GPUs now, or in one sentence why there are none. Never raises; returns within ``timeout`` seconds.

    Callers in several threads share one reading. While one hangs, further calls return at once and start nothing.
    NVML's counted initialisation is undone afterwards, so the user's own use of pynvml is not affected.
    """
    global _call
    with _lock:
        if _call is None or _call.reading is not None or not _call.thread.is_alive():
            _call = _Call()
            try:
                _call.thread.start()
            except RuntimeError as error:  # no more threads to be had
                _call = None
                return DeviceReading(problem=nvml_texts.fault(error))
        elif _call.overdue:
            return DeviceReading(problem=nvml_texts.NOT_ANSWERING)
        call = _call
    call.thread.join(timeout)
    if call.reading is None:
        call.overdue = True
        return DeviceReading(problem=nvml_texts.late(timeout))
    return call.reading


def _read() -> DeviceReading:
    opened = clean = False
    try:
        pynvml.nvmlInit()
        opened = True
        driver = _Driver()
        count = driver.ask(pynvml.nvmlDeviceGetCount)
        if count is None:
            return DeviceReading(problem=nvml_texts.init_problem(driver.refusal))
        devices = [device for index in range(count) for device in _rows(driver, index)]
        clean = bool(devices) and not driver.lost
        return DeviceReading(tuple(devices), None if devices else nvml_texts.NO_GPU)
    except pynvml.NVMLError as error:
        return DeviceReading(problem=nvml_texts.init_problem(error.value))
    finally:
        _settle(opened, clean)


# ---------------------------------------------------------------- the driver
_GONE = frozenset({1, 9, 15, 16})
"""Not initialised, driver unloaded, GPU lost, GPU must be reset: the handle is void."""
_OLD_STRUCT = 25
"""NVML_ERROR_ARGUMENT_VERSION_MISMATCH; old bindings have no name for it."""


class _Driver:
    """The one way to the driver, and the reason of its last refusal."""

    def __init__(self) -> None:
        self.refusal = 0
        self.gone = 0
        """The code that made the handles of the present GPU void: a further call may crash the whole process."""
        self.lost = False
        """Whether that happened to any GPU of this reading."""
        version = self.ask(pynvml.nvmlSystemGetDriverVersion)
        self.believed = nvml_processes.rules(_text(version) if version is not None else "")

    def ask(self, function: Callable[..., Any] | None, *args: Any) -> Any:
        """The answer, or None if the driver has none; ``refusal`` is then NVML's code."""
        self.refusal = self.gone
        if self.gone:
            return None
        if function is None:
            self.refusal = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
            return None
        try:
            return function(*args)
        except pynvml.NVMLError as error:
            self.refusal = error.value
            if error.value in _GONE:
                self.gone = error.value
                self.lost = True
        return None


def _text(value: str | bytes) -> str:
    """Names are bytes in bindings before 11.525."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


# ---------------------------------------------------------------- rows
def _rows(driver: _Driver, index: int) -> list[Device]:
    """A GPU and its MIG instances, or why it cannot be read; other GPUs go on."""
    driver.gone = 0
    try:
        return _gpu(driver, index)
    except Exception as error:  # shown in the row of this GPU
        return [nvml_texts.unread(index, nvml_texts.fault(error))]


def _gpu(driver: _Driver, index: int) -> list[Device]:
    handle = driver.ask(pynvml.nvmlDeviceGetHandleByIndex, index)
    uuid = driver.ask(pynvml.nvmlDeviceGetUUID, handle) if handle is not None else None
    if uuid is None:
        return [nvml_texts.lost(index, driver.refusal)]
    uuid = _text(uuid)
    mode = driver.ask(getattr(pynvml, "nvmlDeviceGetMigMode", None), handle)
    partitioned = mode is not None and mode[0] == 1
    rows = [_device(driver, handle, "gpu", index, uuid, None, partitioned)]
    if partitioned:
        rows += _instances(driver, handle, uuid)
    if driver.gone:
        return [nvml_texts.lost(index, driver.gone, uuid, rows[0].name)]
    return rows


def _instances(driver: _Driver, parent: Any, parent_uuid: str) -> list[Device]:
    rows = []
    for index in range(driver.ask(pynvml.nvmlDeviceGetMaxMigDeviceCount, parent) or 0):
        handle = driver.ask(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, parent, index)
        uuid = driver.ask(pynvml.nvmlDeviceGetUUID, handle) if handle is not None else None
        if uuid is not None:  # else there is no instance of this number, or it has just been destroyed
            rows.append(_device(driver, handle, "mig", index, _text(uuid), parent_uuid, False))
    return rows


def _device(
    driver: _Driver, handle: Any, kind: str, index: int, uuid: str, parent: str | None, partitioned: bool
) -> Device:
    name = _text(driver.ask(pynvml.nvmlDeviceGetName, handle) or f"GPU {index}")
    processes, notes = nvml_processes.read(driver.ask, lambda: driver.refusal, handle, driver.believed)
    whole = kind == "gpu" and not partitioned
    figures, memory_notes = _memory(driver, handle, whole, partitioned)
    total, used, free, reserved = figures
    if nvml_texts.UNIFIED in memory_notes:
        used = nvml_processes.total(processes, driver.believed)
    if _NUMA_NAMES.search(name):
        memory_notes.append(nvml_texts.NUMA)
    # of MIG there is no utilisation: some tools show 0 % for it
    load = driver.ask(pynvml.nvmlDeviceGetUtilizationRates, handle) if whole else None
    return Device(
        uuid=uuid,
        kind=kind,
        index=index,
        name=name,
        total=total,
        used=used,
        free=free,
        reserved=reserved,
        utilization=None if load is None else int(load.gpu),
        temperature=driver.ask(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
        power=driver.ask(pynvml.nvmlDeviceGetPowerUsage, handle),
        processes=processes,
        parent=parent,
        notes=(*memory_notes, *notes),
    )


# ---------------------------------------------------------------- memory
_Figures = tuple[int | None, int | None, int | None, int | None]
"""Total, used, free, reserved."""
_NONE: _Figures = (None, None, None, None)


def _memory(driver: _Driver, handle: Any, whole: bool, partitioned: bool) -> tuple[_Figures, list[str]]:
    """Version 2 tells the driver's own reserve apart; version 1, of drivers before 510, counts it as used."""
    second = getattr(pynvml, "nvmlMemory_v2", None)
    info = driver.ask(pynvml.nvmlDeviceGetMemoryInfo if second is not None else None, handle, second)
    first = info is None and driver.refusal in (pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, _OLD_STRUCT)
    if first:
        info = driver.ask(pynvml.nvmlDeviceGetMemoryInfo, handle)
    if info is None:
        return _without_figures(driver.refusal, whole, partitioned)
    if first:
        return (int(info.total), int(info.used), int(info.free), None), [nvml_texts.FIRST_VERSION]
    figures = (int(info.total), int(info.used), int(info.free), int(info.reserved))
    host = _host_total()
    # a GPU that claims the host's own memory; one that merely is as large is told apart by the last few per cent
    if not whole or not host or not 0.9 <= info.total / host <= 1.02:
        return figures, []
    if info.reserved:  # a driver that keeps a part for itself has a memory of its own
        return figures, [nvml_texts.PERHAPS_UNIFIED]
    return (host, None, None, None), [nvml_texts.UNIFIED]


def _without_figures(refusal: int, whole: bool, partitioned: bool) -> tuple[_Figures, list[str]]:
    if refusal == pynvml.NVML_ERROR_NOT_SUPPORTED and whole:  # GB10, Jetson, every GPU on the host's own chip
        return (_host_total(), None, None, None), [nvml_texts.UNIFIED]
    if refusal == pynvml.NVML_ERROR_NO_PERMISSION:
        return _NONE, [nvml_texts.MIG_PARENT_HIDDEN if partitioned else nvml_texts.NO_PERMISSION]
    return _NONE, [nvml_texts.no_memory(refusal)]


def _host_total() -> int | None:
    """What Linux calls MemTotal, bytes."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None
