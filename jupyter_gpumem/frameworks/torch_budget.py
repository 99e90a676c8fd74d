"""How much of a device torch may take: a limit for this process, and memory taken from the driver beforehand.

Both are only for devices of which this process has memory already: on any other they would start a context.
"""
from __future__ import annotations

import os
import re
from typing import Any

import torch

from jupyter_gpumem.errors import InputError
from jupyter_gpumem.frameworks import torch_peaks
from jupyter_gpumem.units import shown

_MPS_RATIO = 1.7
"""torch's own default of PYTORCH_MPS_HIGH_WATERMARK_RATIO; the fraction of MPS can be set and not be read."""
_changed: dict[str, tuple[float, float]] = {}
"""Device → its fraction before our first limit, and the one that we set last."""
_PAGE = 2 << 20


def _backend(device: str) -> tuple[Any, int]:
    device_type, _, index = device.partition(":")
    return getattr(torch, device_type), int(index or 0)


# ---------------------------------------------------------------- devices
def in_use(device: str) -> bool:
    """Whether this process has a context on an initialised device."""
    backend, index = _backend(device)
    if device.startswith("mps"):
        return int(backend.driver_allocated_memory()) > 0
    ask = getattr(torch._C, "_cuda_hasPrimaryContext", None) if device.startswith("cuda") else None
    return bool(ask(index)) if ask is not None else int(backend.memory_reserved(index)) > 0


def current(device_type: str) -> str:
    """The device on which torch makes tensors of an initialised type now."""
    return "mps:0" if device_type == "mps" else f"{device_type}:{getattr(torch, device_type).current_device()}"


def total(device: str) -> int | None:
    """Bytes of a device in use, as its limit counts them; None where that is not told."""
    backend, index = _backend(device)
    if device.startswith("mps"):
        return int(backend.recommended_max_memory())
    ask = getattr(backend, "mem_get_info", None)
    return int(ask(index)[1]) if ask is not None else None


# ---------------------------------------------------------------- the limit
def set_limit(device: str, nbytes: int) -> None:
    """Let this process reserve at most ``nbytes`` of a device in use.

    Raises InputError where torch has no such limit, and for more than the device has.
    """
    whole = total(device)
    if whole is None or not hasattr(_backend(device)[0], "set_per_process_memory_fraction"):
        raise InputError(f"this torch cannot limit what a process takes of {device}")
    if nbytes > whole:
        raise InputError(f"{shown(nbytes)} is more than {device} has: {shown(whole)}")
    fraction = nbytes / whole
    before = _changed[device][0] if device in _changed else _fraction(device)
    _set_fraction(device, fraction)
    _changed[device] = before, fraction


def end_limit(device: str) -> bool:
    """Set back what :func:`set_limit` has changed; False if that was nothing, or somebody else has changed it since."""
    before, ours = _changed.pop(device, (1.0, -1.0))
    if ours < 0 or (_can_read(device) and _fraction(device) != ours):
        return False
    _set_fraction(device, before)
    return True


def restore() -> None:
    """Set every limit of ours back."""
    for device in list(_changed):
        end_limit(device)


def _can_read(device: str) -> bool:
    return hasattr(_backend(device)[0], "get_per_process_memory_fraction")


def _fraction(device: str) -> float:
    backend, index = _backend(device)
    if device.startswith("mps"):
        return float(os.environ.get("PYTORCH_MPS_HIGH_WATERMARK_RATIO") or _MPS_RATIO)
    return float(backend.get_per_process_memory_fraction(index)) if _can_read(device) else 1.0  # torch before 2.8


def _set_fraction(device: str, fraction: float) -> None:
    backend, index = _backend(device)
    if device.startswith("mps"):
        backend.set_per_process_memory_fraction(fraction)
    else:
        backend.set_per_process_memory_fraction(fraction, index)


# ---------------------------------------------------------------- taken beforehand
def reserve(device: str, nbytes: int) -> None:
    """Have ``nbytes`` that are free inside the allocator of a device in use, for the current stream.

    In one piece, so that a tensor of that size finds room; where the allocator was told to split no large pieces
    (``max_split_size_mb``), in pieces of which it does. Raises InputError if there is no room, and then gives back
    what was got.
    """
    if device.startswith("mps"):
        raise InputError("torch's allocator for mps does not split what it keeps, so nothing can be taken beforehand")
    backend, index = _backend(device)
    piece = _largest_piece()
    sizes = [min(piece, nbytes - begin) for begin in range(0, nbytes, piece)] if piece else [nbytes]
    pieces: list[Any] = []
    said = ""
    with torch_peaks.unnoticed(), torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
        try:
            for size in sizes:
                pieces.append(torch.empty(size, dtype=torch.uint8, device=device))
        except RuntimeError as error:  # out of memory is one
            said = str(error).partition("\n")[0]
        pieces.clear()
    kept = int(backend.memory_reserved(index)) - int(backend.memory_allocated(index))
    if said or kept < nbytes:
        backend.empty_cache()
        why = said or "its allocator keeps nothing"
        raise InputError(f"{shown(nbytes)} of {device} cannot be taken beforehand: {why}")


def _largest_piece() -> int | None:
    """Bytes of the largest piece that the allocator splits; None: any."""
    words = f"{os.environ.get('PYTORCH_CUDA_ALLOC_CONF', '')},{os.environ.get('PYTORCH_ALLOC_CONF', '')}"
    found = re.search(r"max_split_size_mb\s*:\s*(\d+)", words)
    return max(_PAGE, (int(found[1]) << 20) - _PAGE) if found else None
