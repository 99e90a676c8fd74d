"""True peaks of nested windows, without spoiling the user's own.

torch's allocators have one peak counter for each device and no way to set it, only to reset it. A window must reset
it to see its own peak, and would so take away what the user's ``max_memory_allocated()`` has to answer. Hence this
ledger: before each reset the counter's value is folded into every open window and into what the user has been owed
since *their* last reset, and while anything is owed the two functions of ``torch._C`` through which all of torch's
Python API reads and resets the counters are wrapped: reading gives the larger of the counter and what is owed,
a reset by the user settles the debt. The wrappers are taken away by :func:`restore`.

Owned by the thread that runs the cells; other threads only ever read.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

_FUNCTIONS = (
    # read, reset; the device type that both speak of, None for torch's current accelerator
    ("_cuda_memoryStats", "_cuda_resetPeakMemoryStats", "cuda"),
    ("_xpu_memoryStats", "_xpu_resetPeakMemoryStats", "xpu"),
    ("_accelerator_getDeviceStats", "_accelerator_resetPeakStats", None),
)
_windows: list[_Window] = []
_owed: dict[str, dict[tuple[str, str], int]] = {}
"""Device → (statistic, pool) → the peak since the user's last reset."""
_wrapped: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {}
"""Name in ``torch._C`` → the genuine function and our wrapper."""


class _Window:
    def __init__(self) -> None:
        self.peaks: dict[str, int] = {}
        self.open = True

    def close(self) -> dict[str, int]:
        """Fold in the last stretch; the window counts no longer."""
        if self.open:
            for device in _devices():
                _fold(device)
            _windows.remove(self)
            self.open = False
        return dict(self.peaks)


def open_window() -> _Window:
    """Begin to measure peaks on every device that is, or comes, in use."""
    window = _Window()
    devices = _devices()
    for device in devices:
        _fold(device)
    _windows.append(window)
    _wrap()
    for device in devices:
        _genuine_reset(device)
    return window


@contextmanager
def unnoticed() -> Iterator[None]:
    """What is allocated and freed inside raises neither the user's peaks nor those of the windows."""
    devices = _devices()
    for device in devices:
        _fold(device)
    _wrap()
    try:
        yield
    finally:
        for device in devices:
            _genuine_reset(device)


def restore() -> None:
    """Put torch's own functions back. What a wrapped window had reset is then lost to the user's peak."""
    for name, (genuine, wrapper) in list(_wrapped.items()):
        if getattr(torch._C, name) is wrapper:  # someone may have wrapped ours: then it must stay
            setattr(torch._C, name, genuine)
            del _wrapped[name]
    _owed.clear()


def _devices() -> list[str]:
    found = []
    for device_type in ("cuda", "xpu"):
        backend = getattr(torch, device_type, None)
        if backend is not None and backend.is_initialized():
            found += [f"{device_type}:{index}" for index in range(backend.device_count())]
    own = torch._C._get_privateuse1_backend_name()
    backend = getattr(torch, own, None)
    if backend is not None and getattr(backend, "is_initialized", lambda: False)():
        found += [f"{own}:{index}" for index in range(backend.device_count())]
    return found


def _functions(device: str) -> tuple[str, str, int] | None:
    device_type, _, index = device.partition(":")
    for read, reset, of_type in _FUNCTIONS:
        if hasattr(torch._C, read) and hasattr(torch._C, reset) and of_type in (device_type, None):
            return read, reset, int(index)
    return None


def _genuine(name: str) -> Callable[..., Any]:
    return _wrapped[name][0] if name in _wrapped else getattr(torch._C, name)


def _genuine_reset(device: str) -> None:
    functions = _functions(device)
    if functions is not None:
        _, reset, index = functions
        _genuine(reset)(index)


def _fold(device: str, owed: bool = True) -> None:
    """Carry the counter's present peaks into the open windows and into what the user is owed."""
    functions = _functions(device)
    if functions is None:
        return
    read, _, index = functions
    stats = _genuine(read)(index)
    for window in _windows:
        peak = int(stats["allocated_bytes"]["all"]["peak"])
        window.peaks[device] = max(window.peaks.get(device, 0), peak)
    if owed:
        debts = _owed.setdefault(device, {})
        for key, peak in _peaks(stats):
            debts[key] = max(debts.get(key, 0), peak)


def _peaks(stats: dict[str, Any]) -> list[tuple[tuple[str, str], int]]:
    return [
        ((statistic, pool), figures["peak"])
        for statistic, pools in stats.items()
        if isinstance(pools, dict)
        for pool, figures in pools.items()
        if isinstance(figures, dict) and "peak" in figures
    ]


def _device_of(of_type: str | None, index: int) -> str:
    if of_type is None:
        accelerator = torch.accelerator.current_accelerator()
        of_type = accelerator.type if accelerator is not None else "cpu"
    return f"{of_type}:{index}"


def _wrap() -> None:
    for read, reset, of_type in _FUNCTIONS:
        if hasattr(torch._C, read) and hasattr(torch._C, reset) and read not in _wrapped:
            genuine_read, genuine_reset = getattr(torch._C, read), getattr(torch._C, reset)
            wrapped_read = _reading(genuine_read, of_type)
            wrapped_reset = _resetting(genuine_reset, of_type)
            _wrapped[read] = (genuine_read, wrapped_read)
            _wrapped[reset] = (genuine_reset, wrapped_reset)
            setattr(torch._C, read, wrapped_read)
            setattr(torch._C, reset, wrapped_reset)


def _reading(genuine: Callable[..., Any], of_type: str | None) -> Callable[..., Any]:
    def read(index: int) -> Any:
        stats = genuine(index)
        for (statistic, pool), peak in _owed.get(_device_of(of_type, index), {}).items():
            figures = stats.get(statistic, {}).get(pool)
            if figures is not None and figures["peak"] < peak:
                figures["peak"] = peak
        return stats

    return read


def _resetting(genuine: Callable[..., Any], of_type: str | None) -> Callable[..., Any]:
    def reset(index: int) -> None:
        device = _device_of(of_type, index)
        _fold(device, owed=False)
        _owed.pop(device, None)
        genuine(index)

    return reset
