"""How the memory of a device is divided between this kernel, other notebooks, other processes and nobody known."""
from __future__ import annotations

from collections.abc import Mapping

from jupyter_gpumem.model import Device, Owner, Process, Shares

_OF_KERNELS = ("kernel", "child", "orphan")


def divide(
    device: Device, owners: Mapping[int, Owner], own: Owner | None = None, reserved: int | None = None
) -> Shares:
    """The shares of a device. ``own`` is this process. ``reserved`` is what its allocator has of the device, which
    stands in where the driver does not say what the process uses (Windows, some containers).

    Whatever is used and not explained is *unattributed*: it is never taken to be nobody's.
    """
    by_role: dict[str, list[int]] = {"own": [], "notebooks": [], "others": []}
    own_known = False
    for process in device.processes or ():
        whose = _whose(process, owners.get(process.pid), own)
        own_known |= whose == "own" and process.used is not None
        by_role[whose].append(process.used or 0)
    mine: int | None = sum(by_role["own"])
    if not own_known and reserved:
        mine = reserved
    told = device.processes is not None
    if not told and not reserved:
        mine = None
    used = device.used
    known = (mine or 0) + sum(by_role["notebooks"]) + sum(by_role["others"])
    return Shares(
        own=mine,
        notebooks=sum(by_role["notebooks"]) if told else None,
        others=sum(by_role["others"]) if told else None,
        unattributed=max(0, used - known) if used is not None else None,
        free=device.free,
    )


def _whose(process: Process, owner: Owner | None, own: Owner | None) -> str:
    if process.own:
        return "own"
    if owner is None or owner.role not in _OF_KERNELS:
        return "others"
    mine = own is not None and own.kernel is not None and owner.kernel == own.kernel
    return "own" if mine else "notebooks"
