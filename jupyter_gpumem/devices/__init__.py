"""What the machine says about its devices. Neither pynvml nor psutil is imported before something asks."""
from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from jupyter_gpumem.devices.visibility import visible_uuids
from jupyter_gpumem.model import Device, DeviceReading

__all__ = ["Source", "process_names", "read", "read_host", "visible_uuids"]


class Source(Protocol):
    """A driver's library. A reading never raises and never takes longer than ``timeout`` seconds."""

    def read(self, timeout: float = 2.0) -> DeviceReading:
        """The devices now, or why there are none."""


_SOURCES = ("nvml",)


def read(timeout: float = 2.0) -> DeviceReading:
    """The devices of all drivers. Metrics that a driver does not give are None."""
    readings = [_read(name, timeout) for name in _SOURCES]
    problems = [reading.problem for reading in readings if reading.problem]
    found = tuple(device for reading in readings for device in reading.devices)
    return DeviceReading(found, " ".join(problems) or None)


def read_host() -> Device:
    """Host memory, or the control group's share of it."""
    source = import_module(f"{__name__}.host")
    device: Device = source.read()
    return device


def process_names(pids: Sequence[int], of_gpu: bool = False) -> dict[int, str]:
    """Process id → ``name (user)``, or why it has none. ``of_gpu``: the ids are from a driver's list."""
    names: dict[int, str] = import_module(f"{__name__}.host").process_names(pids, of_gpu)
    return names


def _read(name: str, timeout: float) -> DeviceReading:
    try:
        source: Source = import_module(f"{__name__}.{name}")  # its fit is checked below
    except Exception as error:  # a vendor's package may fail in any way when it is imported; the reason is shown
        reason = f"{type(error).__name__}: {error}"
        return DeviceReading(problem=f"{name.upper()} cannot be read ({reason}): reinstall its Python package.")
    return source.read(timeout)


if TYPE_CHECKING:  # mypy checks here that every module fits the protocol
    from jupyter_gpumem.devices import nvml

    _: tuple[Source, ...] = (nvml,)
