"""Which devices CUDA will number in this process, from ``CUDA_VISIBLE_DEVICES`` alone and without asking CUDA.

Follows what torch's own parser expects of the driver (its tests were checked against driver 525.60.13). NVML ignores
the variable and numbers by PCI bus; CUDA numbers by speed unless ``CUDA_DEVICE_ORDER=PCI_BUS_ID``. So ordinals mean
something only if the order is set so, or all GPUs are alike.
"""
from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from itertools import takewhile

from jupyter_gpumem.model import Device

_NUMBER = re.compile(r"\s*([+-]?\d+)")


def visible_uuids(devices: Sequence[Device], environ: Mapping[str, str] | None = None) -> tuple[str, ...] | None:
    """The uuids of the devices that CUDA numbers 0, 1, … in this process; None where only CUDA itself can tell.

    ``environ`` is the environment as CUDA will read it, once, at its initialisation.
    """
    uuids = _named(devices, environ)
    partitioned = {device.parent for device in devices if device.kind == "mig"}
    # who names a GPU in MIG mode gets an instance of it, and CUDA chooses which
    return None if uuids is None or partitioned.intersection(uuids) else uuids


def _named(devices: Sequence[Device], environ: Mapping[str, str] | None) -> tuple[str, ...] | None:
    environ = os.environ if environ is None else environ
    value = environ.get("CUDA_VISIBLE_DEVICES")
    gpus = [device for device in devices if device.kind == "gpu"]
    if value is None:
        partitioned = any(device.kind == "mig" for device in devices)
        return None if partitioned or not _ordered(gpus, environ) else tuple(gpu.uuid for gpu in gpus)
    parts = [part.strip() for part in value.split(",")]
    if value.startswith("GPU-"):
        return _by_uuid(parts, [gpu.uuid for gpu in gpus])
    if value.startswith("MIG-"):
        return _instance(parts[0], devices)
    ordinals = _ordinals(parts)
    if ordinals and not _ordered(gpus, environ):
        return None
    return _by_ordinal(ordinals, gpus)


def _ordered(gpus: Sequence[Device], environ: Mapping[str, str]) -> bool:
    """Whether CUDA's order is known to be NVML's."""
    return environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" or len({gpu.name for gpu in gpus}) <= 1


def _ordinals(parts: Sequence[str]) -> list[int]:
    """The numbers up to the first that is none or negative; a number that comes twice leaves nothing visible."""
    found: list[int] = []
    for part in parts:
        match = _NUMBER.match(part)
        ordinal = int(match[1]) if match else -1
        if ordinal < 0:
            break
        if ordinal in found:
            return []
        found.append(ordinal)
    return found


def _by_ordinal(ordinals: Sequence[int], gpus: Sequence[Device]) -> tuple[str, ...]:
    """An ordinal out of range ends the list."""
    uuids: list[str] = []
    for ordinal in ordinals:
        if ordinal >= len(gpus):
            break
        uuids.append(gpus[ordinal].uuid)
    return tuple(uuids)


def _by_uuid(parts: Sequence[str], uuids: Sequence[str]) -> tuple[str, ...]:
    """A unique beginning of a uuid suffices; what fits none or several ends the list, a repetition empties it."""
    names = list(takewhile(lambda part: part.startswith("GPU-"), parts))
    if len(set(names)) < len(names):
        return ()
    found: list[str] = []
    for part in names:
        fitting = [uuid for uuid in uuids if uuid.startswith(part)]
        if len(fitting) != 1:
            break
        if fitting[0] in found:
            return ()
        found.append(fitting[0])
    return tuple(found)


def _instance(part: str, devices: Sequence[Device]) -> tuple[str, ...] | None:
    """CUDA uses one MIG instance, the first named. The old form ``MIG-GPU-…/gi/ci`` only CUDA can resolve."""
    if part.startswith("MIG-GPU-"):
        return None
    fitting = [device.uuid for device in devices if device.kind == "mig" and device.uuid.startswith(part)]
    return tuple(fitting) if len(fitting) == 1 else ()
