"""torch's default generators: read, put back. A generator is asked for on devices that are in use already, on no other.

The state is kept as bytes: a tensor of ours would be met in every look at the host's memory.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

_HOST = "cpu"


def take(devices: Iterable[str]) -> dict[str, bytes]:
    """The states of the default generators of the host and of these devices, which must be initialised."""
    found: dict[str, bytes] = {}
    for device in (_HOST, *devices):
        if _read(device) is None:
            continue
        try:
            with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
                found[device] = bytes(_read(device).tolist())
        except RuntimeError:
            continue  # a CUDA graph is being captured: its generator can be neither read nor set
    return found


def restore(state: Mapping[str, bytes], devices: Iterable[str]) -> None:
    """Put the states back. A device without one was not in use then: it starts anew from the seed that it got."""
    for device in (_HOST, *devices):
        _set(device, state[device]) if device in state else _start_anew(device)
