"""torch's default generators: read, and put back. Only the host's and those of devices that are in use are touched.

A state is kept as bytes: a tensor of ours would be met by every look at the host's memory.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

_HOST = "cpu"
_UNREAD = b""
"""In the place of a state that cannot be read; its generator is left alone."""


def take(devices: Iterable[str]) -> dict[str, bytes]:
    """The states of the default generators of the host and of ``devices``, which must be initialised."""
    found: dict[str, bytes] = {}
    with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
        for device in (_HOST, *devices):
            try:
                state = _read(device)
            except RuntimeError:
                state = None  # a CUDA graph is being captured: until it is done, nobody may read this generator
            found[device] = bytes(state.tolist()) if state is not None else _UNREAD
    return found


def restore(states: Mapping[str, bytes], devices: Iterable[str]) -> None:
    """Put the states back. A device without one was not in use then: its generator begins anew from its seed."""
    with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
        for device in (_HOST, *devices):
            generator = _generator(device)
            if states.get(device) == _UNREAD:
                continue
            if device in states:
                state = torch.tensor(list(states[device]), dtype=torch.uint8, device=_HOST)
                if generator is not None:
                    generator.set_state(state)
                else:
                    _backend(device).set_rng_state(state, device)
            elif generator is not None:
                generator.manual_seed(generator.initial_seed())


def _backend(device: str) -> Any:
    return getattr(torch, device.partition(":")[0], None)


def _generator(device: str) -> torch.Generator | None:
    """The default generator of a device, without torch's functions that would initialise it; None: not told."""
    if device == _HOST:
        return torch.default_generator
    device_type, _, index = device.partition(":")
    if device_type == "mps":
        ask: Any = torch.mps._get_default_mps_generator
        found: torch.Generator = ask()
        return found
    generators = getattr(_backend(device), "default_generators", ())
    return generators[int(index)] if len(generators) > int(index) else None


def _read(device: str) -> torch.Tensor | None:
    generator = _generator(device)
    if generator is not None:
        return generator.get_state()
    ask = getattr(_backend(device), "get_rng_state", None)
    state: torch.Tensor | None = ask(device) if ask is not None else None
    return state
