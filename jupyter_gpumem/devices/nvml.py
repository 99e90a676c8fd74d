"""NVIDIA's GPUs and MIG instances, through pynvml.

Every call passes :meth:`_Driver.ask`, where an error becomes "not available": each metric can be missing alone, a
device that fails takes down its own row, and handles are got anew at each reading, for a handle that has failed once
may crash the process. NVML is open only while it is read: an open one keeps laptop GPUs awake and refuses resets.

A driver can hang. A reading therefore runs in a thread of its own, which nobody waits for longer than the timeout.
"""
from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pynvml

from jupyter_gpumem.devices import nvml_processes
from jupyter_gpumem.devices.nvml_texts import MIG_PARENT_HIDDEN, NUMA, UNIFIED, init_problem, lost
from jupyter_gpumem.model import Device, DeviceReading

_reading: threading.Thread | None = None
"""The thread that reads, or hangs. After a fork the child's copy is not alive."""
_NUMA_NAMES = re.compile(r"\bG[HB]\d00")


def read(timeout: float = 2.0) -> DeviceReading:
    """The GPUs now, or in one sentence why there are none. Never raises; returns within ``timeout`` seconds.

    NVML's counted initialisation is undone afterwards, so the user's own use of pynvml is not affected.
    """
    global _reading
    if _reading is not None and _reading.is_alive():
        return DeviceReading(problem="NVML is not answering; the driver may be stuck (see dmesg).")
    result: list[DeviceReading] = []
    _reading = threading.Thread(target=lambda: result.append(_read()), name="jupyter_gpumem-nvml", daemon=True)
    _reading.start()
    _reading.join(timeout)
    if not result:
        return DeviceReading(problem=f"NVML did not answer within {timeout:g} s; the driver may be stuck (see dmesg).")
    _reading = None
    return result[0]


def _read() -> DeviceReading:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return DeviceReading(problem=init_problem(error.value))
    try:
        driver = _Driver()
        count = driver.ask(pynvml.nvmlDeviceGetCount)
        devices = [device for index in range(count or 0) for device in _gpu(driver, index)]
        problem = None if devices else "The NVIDIA driver is loaded but lists no GPU."
        return DeviceReading(tuple(devices), problem)
    except Exception as fault:  # a reader that fails takes down its own row, with its reason
        return DeviceReading(problem=f"Reading NVML failed: {type(fault).__name__}: {fault}")
    finally:
        try:
            pynvml.nvmlShutdown()
        except pynvml.NVMLError:
            pass  # the driver went away meanwhile: nothing is open any more


class _Driver:
    """The one way to the driver, and the reason of its last refusal."""

    def __init__(self) -> None:
        self.refusal = 0
        version = self.ask(pynvml.nvmlSystemGetDriverVersion)
        self.believed = nvml_processes.rules(_text(version) if version is not None else "")

    def ask(self, function: Callable[..., Any] | None, *args: Any) -> Any:
        """The answer, or None if the driver has none; ``refusal`` is then NVML's code."""
        self.refusal = 0
        if function is None:
            self.refusal = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
            return None
        try:
            return function(*args)
        except pynvml.NVMLError as error:
            self.refusal = error.value
        return None


def _text(value: str | bytes) -> str:
    """Names are bytes in bindings before 11.525."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _gpu(driver: _Driver, index: int) -> Iterator[Device]:
    """A GPU, then its MIG instances."""
    handle = driver.ask(pynvml.nvmlDeviceGetHandleByIndex, index)
    if handle is None:
        yield lost(index, driver.refusal)
        return
    uuid = driver.ask(pynvml.nvmlDeviceGetUUID, handle)
    if uuid is None:
        yield lost(index, driver.refusal)
        return
    mode = driver.ask(getattr(pynvml, "nvmlDeviceGetMigMode", None), handle)
    partitioned = mode is not None and mode[0] == 1
    yield _device(driver, handle, "gpu", index, _text(uuid), None, partitioned)
    if partitioned:
        yield from _instances(driver, handle, _text(uuid))


def _instances(driver: _Driver, parent: Any, parent_uuid: str) -> Iterator[Device]:
    for index in range(driver.ask(pynvml.nvmlDeviceGetMaxMigDeviceCount, parent) or 0):
        handle = driver.ask(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, parent, index)
        uuid = driver.ask(pynvml.nvmlDeviceGetUUID, handle) if handle is not None else None
        if uuid is not None:  # else there is no instance of this number, or it has just been destroyed
            yield _device(driver, handle, "mig", index, _text(uuid), parent_uuid, False)


def _device(
    driver: _Driver, handle: Any, kind: str, index: int, uuid: str, parent: str | None, partitioned: bool
) -> Device:
    name = _text(driver.ask(pynvml.nvmlDeviceGetName, handle) or f"GPU {index}")
    processes, notes = nvml_processes.read(driver.ask, lambda: driver.refusal, handle, driver.believed)
    memory, memory_notes = _memory(driver, handle, partitioned)
    if memory is None and UNIFIED in memory_notes and processes is not None:
        known = [process.used for process in processes if process.used is not None]
        memory = (_host_total(), sum(known) if known or not processes else None, None, None)
    total, used, free, reserved = memory or (None, None, None, None)
    if _NUMA_NAMES.search(name):
        memory_notes.append(NUMA)
    load = driver.ask(pynvml.nvmlDeviceGetUtilizationRates, handle)
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


_Memory = tuple[int | None, int | None, int | None, int | None]
"""Total, used, free, reserved."""


def _memory(driver: _Driver, handle: Any, partitioned: bool) -> tuple[_Memory | None, list[str]]:
    """Version 2 tells the driver's own reserve apart; version 1, of drivers before 510, counts it as used."""
    second = getattr(pynvml, "nvmlMemory_v2", None)
    info = driver.ask(pynvml.nvmlDeviceGetMemoryInfo, handle, second) if second is not None else None
    first = info is None and driver.refusal in (0, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, _OLD_STRUCT)
    if first:
        info = driver.ask(pynvml.nvmlDeviceGetMemoryInfo, handle)
    if info is None:
        if driver.refusal == pynvml.NVML_ERROR_NOT_SUPPORTED and not partitioned:
            return None, [UNIFIED]
        if driver.refusal == pynvml.NVML_ERROR_NO_PERMISSION:
            return None, [MIG_PARENT_HIDDEN if partitioned else "No permission to read this GPU's memory."]
        return None, [f"The driver does not give the memory of this GPU (NVML error {driver.refusal})."]
    host = _host_total()
    # a GPU that claims the host's own memory; one that merely is as large is told apart by the last few per cent
    notes = [UNIFIED] if host and 0.9 <= info.total / host <= 1.02 and not partitioned else []
    if first:
        notes.append("Used includes what this old driver reserves for itself.")
        return (int(info.total), int(info.used), int(info.free), None), notes
    return (int(info.total), int(info.used), int(info.free), int(info.reserved)), notes


_OLD_STRUCT = 25
"""NVML_ERROR_ARGUMENT_VERSION_MISMATCH; old bindings have no name for it."""


def _host_total() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None
