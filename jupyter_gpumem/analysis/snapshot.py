"""Everything seen at one moment: devices, allocators, holdings; which devices are watched; what a name holds."""
from __future__ import annotations

import difflib
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

from jupyter_gpumem import devices, frameworks, session
from jupyter_gpumem.analysis import holders
from jupyter_gpumem.analysis.inventory import frozen_notes, is_watched, take_inventory
from jupyter_gpumem.errors import InputError
from jupyter_gpumem.model import Allocator, Device, DeviceReading, Snapshot

HOST = "cpu"
_KNOWN_TYPES = ("cuda", "xpu", "mps")
"""Accepted unseen while no framework is imported that could say."""
_gpu_present: dict[int, bool] = {}
"""Process id → whether the driver lists a GPU; asked once, for every cell wants to know."""


def watched_devices(choice: str | None = None) -> tuple[str, ...]:
    """The devices to look at: the accelerators of the imported frameworks, or ``cpu`` where there is none.

    ``choice`` names one (``cuda:1``), a type of them (``cuda``) or ``cpu``; several with commas.
    Raises InputError for a device that does not exist.
    """
    present = [device for framework in frameworks.loaded() for device in framework.devices()]
    if choice is None:
        return tuple(present) or _types_to_come() or (HOST,)
    return tuple(_chosen(part.strip(), present) for part in choice.split(","))


def _types_to_come() -> tuple[str, ...]:
    """The type of accelerator that a framework will use at the user's first call, if the driver lists one."""
    types = {kind for framework in frameworks.loaded() if (kind := framework.may_use()) is not None}
    if "cuda" in types and not _has_gpu():
        types.discard("cuda")
    return tuple(sorted(types))


def _has_gpu() -> bool:
    known = _gpu_present.get(os.getpid())
    if known is None:
        known = _gpu_present[os.getpid()] = bool(devices.read().devices)
    return known


def _chosen(choice: str, present: Sequence[str]) -> str:
    types = {device.partition(":")[0] for device in present} | set(_types_to_come()) | {HOST}
    accepted = sorted({*present, *types})
    to_come = not frameworks.loaded() and choice.partition(":")[0] in _KNOWN_TYPES
    if choice in accepted or to_come:
        return choice
    near = difflib.get_close_matches(choice, accepted, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise InputError(f"no device {choice!r} here; there is: {', '.join(accepted)}{hint}")


# ---------------------------------------------------------------- figures
def allocators(watched: Sequence[str], host_bytes: int | None = None) -> tuple[Allocator, ...]:
    """The allocators of the watched devices. For the host the sum of its storages stands in: torch keeps no count."""
    found = [
        allocator
        for framework in frameworks.loaded()
        for allocator in framework.allocators()
        if is_watched(allocator.device, watched)
    ]
    if HOST in watched and frameworks.loaded():
        nbytes = host_bytes if host_bytes is not None else host_storage_bytes()
        found.append(Allocator(frameworks.loaded()[0].name, HOST, nbytes))
    return tuple(found)


def host_storage_bytes() -> int:
    """Bytes of all storages in host memory; a full look at the live objects."""
    with take_inventory() as inventory:
        return inventory.bytes_on([HOST]).get(HOST, 0)


def take(shell: session.Shell | None = None, device: str | None = None, seconds: float = 10.0) -> Snapshot:
    """Devices, allocators and holdings now. Nothing is imported, initialised, collected or freed for it.

    Raises InputError if ``device`` does not exist.
    """
    watched = watched_devices(device)
    found, partial = holders.holdings(shell, watched, seconds)
    reading = devices.read()
    host_bytes = sum(holding.nbytes for holding in found if holding.device == HOST)
    return Snapshot(
        time=time.time(),
        watched=watched,
        devices=(*named(reading), devices.read_host()),
        allocators=allocators(watched, host_bytes),
        holdings=found,
        notes=tuple(note for note in (reading.problem, _partial_note(partial), *frozen_notes()) if note),
        partial=partial,
    )


def _partial_note(partial: bool) -> str | None:
    return "The search for holders ran out of time; some are missing." if partial else None


def named(reading: DeviceReading) -> Iterable[Device]:
    """The driver's devices under the names that the frameworks use, joined by uuid and never by index."""
    by_uuid = {uuid: device for framework in frameworks.loaded() for device, uuid in framework.uuids().items()}
    if not by_uuid:
        by_uuid = {uuid: f"cuda:{index}" for index, uuid in enumerate(devices.visible_uuids(reading.devices) or ())}
    return [replace(device, alias=by_uuid.get(device.uuid)) for device in reading.devices]


def total_bytes(watched: Sequence[str]) -> int | None:
    """Memory of the smallest watched device, where the driver or the system tells."""
    known = [devices.read_host()] if HOST in watched else devices.read().devices
    return min((device.total for device in known if device.total), default=None)


def totals() -> dict[str, int]:
    """The frameworks' name of a device, ``cpu`` too → bytes of the whole device, where that is told."""
    known = {device.alias: device.total for device in named(devices.read())}
    known[HOST] = devices.read_host().total
    return {name: total for name, total in known.items() if name is not None and total}
