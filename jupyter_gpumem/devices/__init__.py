"""What the machine says about its devices. Neither pynvml nor psutil is imported before something asks."""
from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from jupyter_gpumem.devices.visibility import visible_uuids
from jupyter_gpumem.model import Device, DeviceReading, Owner

__all__ = ["Source", "keep_open", "owners_of", "read", "read_host", "unshared", "visible_uuids"]


class Source(Protocol):
    """A driver's library. A reading never raises and never takes longer than ``timeout`` seconds."""

    def read(self, timeout: float = 2.0) -> DeviceReading:
        """The devices now, or why there are none."""

    def keep_open(self, wanted: bool) -> None:
        """Stay ready between readings, or let go. Never waits."""


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


def unshared(pids: Sequence[int]) -> tuple[int, ...]:
    """Host memory that each process shares with no other, bytes; without those that have ended or cannot be asked."""
    found: tuple[int, ...] = import_module(f"{__name__}.host").unshared(pids)
    return found


def keep_open(wanted: bool) -> None:
    """Whether somebody watches: the drivers' libraries stay open between readings, or are closed. Never waits."""
    for name in _SOURCES:
        module = sys.modules.get(f"{__name__}.{name}")
        if module is None and wanted:
            try:
                module = import_module(f"{__name__}.{name}")
            except Exception:  # the next reading says why
                continue
        if module is not None:
            module.keep_open(wanted)


def owners_of(pids: Sequence[int], of_gpu: bool = False) -> tuple[Owner, ...]:
    """Whose the processes are, in the order of ``pids``. ``of_gpu``: the ids are from a driver's list."""
    found: tuple[Owner, ...] = import_module(f"{__name__}.owners").read(pids, of_gpu)
    return found


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
