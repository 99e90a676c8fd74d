"""One sample for a live display: what the drivers and the allocators say now.

It can be taken in any thread beside a running cell. It looks at no tensor: those belong to the thread that runs cells.
"""
from __future__ import annotations

import os
import time
from collections.abc import Sequence

from jupyter_gpumem import devices, frameworks
from jupyter_gpumem.analysis.shares import divide
from jupyter_gpumem.analysis.snapshot import named
from jupyter_gpumem.model import Allocator, CellRun, Device, Owner, Sample


def take(running: CellRun | None = None, timeout: float = 2.0) -> Sample:
    """Devices with their shares, the owners of their processes, and this process's allocators.

    Waits no longer than ``timeout`` seconds for a driver, and starts no context. If a device cannot be read, its row
    says why and the others go on.
    """
    now = time.time()
    reading = devices.read(timeout)
    found: tuple[Device, ...] = (*named(reading), devices.read_host())
    allocators = tuple(a for framework in frameworks.loaded() for a in framework.allocators())
    owners = _owners(found)
    by_pid = {owner.pid: owner for owner in owners}
    reserved = _reserved(allocators)
    own = by_pid.get(os.getpid())
    return Sample(
        time=now,
        devices=found,
        shares=tuple(divide(device, by_pid, own, reserved.get(device.alias or "")) for device in found),
        owners=owners,
        allocators=allocators,
        running=running,
        problem=reading.problem,
    )


def _owners(found: Sequence[Device]) -> tuple[Owner, ...]:
    pids = {process.pid for device in found if device.kind != "host" for process in device.processes or ()}
    pids.discard(os.getpid())
    return (*devices.owners_of([os.getpid()]), *devices.owners_of(sorted(pids), of_gpu=True))


def _reserved(allocators: Sequence[Allocator]) -> dict[str, int]:
    total: dict[str, int] = {}
    for allocator in allocators:
        total[allocator.device] = total.get(allocator.device, 0) + (allocator.reserved or 0)
    return total
