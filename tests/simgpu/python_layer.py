"""torch's Python layer for the simulated device.

On the CPU build ``torch.cuda`` is there but believes in no device. It is given the functions of ``torch._C`` that a CUDA
build has, and goes on with its own code: as lazily as on a real machine, with its own queue of calls that wait for the
initialisation. Each call that initialises CUDA, or makes a context on a device, is written down.
"""
from __future__ import annotations

import ctypes
import functools
import json
import os
import sys
import traceback
import types
from collections.abc import Callable
from typing import Any

import torch

_StackCallback = ctypes.CFUNCTYPE(ctypes.c_longlong)


class Call(str):
    """The name of a call; ``stack`` has the lines that led to it, ``file:line function``, innermost last."""

    __slots__ = ("stack",)
    stack: list[str]


initialising: list[Call] = []
"""The calls that initialised CUDA, or made a context."""


def _record(name: str) -> None:
    call = Call(name)
    frames = [(f.f_code, line) for f, line in traceback.walk_stack(None) if f.f_code.co_filename != __file__][:12]
    call.stack = [f"{code.co_filename}:{line} {code.co_name}" for code, line in reversed(frames)]
    initialising.append(call)


def _index(device: Any, current: Callable[[], int]) -> int:
    if device is None:
        return current()
    if isinstance(device, int):
        return device if device >= 0 else current()
    index = torch.device(device).index
    return current() if index is None else index


class Recording:
    """torch's recording of allocations: what ``torch._C`` of a CUDA build has for it. Stacks are Python's."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._stacks: list[list[dict[str, object]]] = [[]]
        self._callback: Any = None

    def switch(self, enabled: str | None, context: str | None, stacks: str, max_entries: int, *_: object) -> None:
        torch.cuda._lazy_init()
        self._library.simgpu_record(None, 0)
        self._stacks[1:] = []
        self._callback = _StackCallback(self._take_stack) if enabled else None
        if self._callback is not None:
            self._library.simgpu_record(self._callback, min(max_entries, 2**62))

    def is_on(self) -> bool:
        return self._callback is not None

    def _take_stack(self) -> int:
        frames: list[dict[str, object]] = []
        frame = sys._getframe().f_back
        while frame is not None:
            code = frame.f_code
            frames.append({"filename": code.co_filename, "line": frame.f_lineno, "name": code.co_name})
            frame = frame.f_back
        self._stacks.append(frames)
        return len(self._stacks) - 1

    def snapshot(self, *_: object) -> dict[str, object]:
        segments = json.loads(self._library.simgpu_snapshot_json())
        traces = json.loads(self._library.simgpu_trace_json())
        known = len(self._stacks)
        for one in [*(block for segment in segments for block in segment["blocks"]), *(e for t in traces for e in t)]:
            stack = one.pop("stack")
            one["frames"] = self._stacks[stack] if stack < known else []
        return {"segments": segments, "device_traces": traces}


def patch_cuda(library: Any) -> types.ModuleType:
    """Make ``torch.cuda`` believe in the simulated devices."""
    cuda = torch.cuda
    count = library.simgpu_device_count()
    cuda._cudart = types.SimpleNamespace(cudaMemGetInfo=lambda device: torch._C._accelerator_getMemoryInfo(device))
    cuda._is_in_bad_fork = lambda: bool(library.simgpu_in_bad_fork())
    # What NVML would say, without asking it: the simulated device does not follow CUDA_VISIBLE_DEVICES, except that
    # with MIG instances in it torch has to ask CUDA.
    cuda._device_count_nvml = lambda: -1 if os.environ.get("CUDA_VISIBLE_DEVICES", "").startswith("MIG-") else count
    _patch_c(library, count)
    _watch(library)
    return cuda


def _patch_c(library: Any, count: int) -> None:
    """The functions of ``torch._C`` that a CUDA build has; those for any accelerator serve for many."""
    cuda, c = torch.cuda, torch._C
    recording = Recording(library)

    def init() -> None:  # torch.cuda._lazy_init calls it, once
        _record("_lazy_init")
        library.simgpu_initialise()
        cuda.default_generators = tuple(torch.Generator() for _ in range(count))

    def get_device_count() -> int:
        if not library.simgpu_initialised():
            _record("cudaGetDeviceCount")
            library.simgpu_asked()
        return count

    def set_device(device: int) -> None:
        cuda._lazy_init()
        c._accelerator_setDeviceIndex(device)

    def exchange(device: int) -> int:
        if device < 0:
            return -1
        cuda._lazy_init()
        return c._accelerator_exchangeDevice(device)

    def maybe_exchange(device: int) -> int:
        return -1 if device < 0 else c._accelerator_maybeExchangeDevice(device)

    def synchronize() -> None:
        current = library.simgpu_current_device()
        if not library.simgpu_has_context(current):
            _record("synchronize: context")
            library.simgpu_make_context(current)

    def set_fraction(fraction: float, device: int) -> None:  # the real one asks the driver for the total
        if not library.simgpu_has_context(device):
            _record("setMemoryFraction: context")
            library.simgpu_make_context(device)
        library.simgpu_set_fraction(device, fraction)

    def properties(device: int) -> types.SimpleNamespace:
        return types.SimpleNamespace(
            name=library.simgpu_name(device).decode(),
            major=8,
            minor=0,
            total_memory=library.simgpu_total(device),
            multi_processor_count=1,
            uuid=library.simgpu_uuid(device).decode().removeprefix("GPU-"),
        )

    cuda._get_device_properties = properties
    cuda._exchange_device, cuda._maybe_exchange_device = exchange, maybe_exchange
    functions = {
        "init": init,
        "getDeviceCount": get_device_count,
        "getDevice": lambda: library.simgpu_current_device(),
        "setDevice": set_device,
        "exchangeDevice": exchange,
        "maybeExchangeDevice": maybe_exchange,
        "synchronize": synchronize,
        "getCurrentRawStream": lambda device: 0,  # torch._dynamo takes it from every CUDA build
        "isInBadFork": cuda._is_in_bad_fork,
        "memoryStats": c._accelerator_getDeviceStats,
        "resetPeakMemoryStats": c._accelerator_resetPeakStats,
        "resetAccumulatedMemoryStats": c._accelerator_resetAccumulatedStats,
        "emptyCache": c._accelerator_emptyCache,
        "setMemoryFraction": set_fraction,
        "getMemoryFraction": library.simgpu_fraction,
        "hasPrimaryContext": lambda device: bool(library.simgpu_has_context(device)),
        "memorySnapshot": recording.snapshot,
        "record_memory_history": recording.switch,
        "isHistoryEnabled": recording.is_on,
    }
    for name, function in functions.items():
        setattr(c, f"_cuda_{name}", function)


def _watch(library: Any) -> None:
    """Write down the calls that initialise CUDA while it is not, and those that make a context where there is none."""
    cuda, accelerator = torch.cuda, torch.accelerator

    def watched(name: str, function: Callable[..., Any], context: bool = False) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            new = not library.simgpu_initialised()
            if context and not new:
                new = not library.simgpu_has_context(_index(next(iter((*args, *kwargs.values())), None), library.simgpu_current_device))
            if new:
                _record(name)
            return function(*args, **kwargs)

        return call

    for name in ("current_device", "set_device", "synchronize", "get_device_properties", "device_memory_used"):
        setattr(cuda, name, watched(name, getattr(cuda, name)))
    cuda.mem_get_info = cuda.memory.mem_get_info = watched("mem_get_info", cuda.mem_get_info, context=True)
    for name in ("current_device_index", "current_device_idx", "set_device_index", "set_device_idx", "current_stream"):
        setattr(accelerator, name, watched(f"accelerator.{name}", getattr(accelerator, name)))
    get_memory_info = watched("accelerator.get_memory_info", accelerator.get_memory_info, context=True)
    accelerator.get_memory_info = accelerator.memory.get_memory_info = get_memory_info


def make_module(library: Any, name: str) -> types.ModuleType:
    """``torch.simgpu``: the module that torch wants for a device of type PrivateUse1."""
    torch.utils.rename_privateuse1_backend(name)
    module = types.ModuleType(f"torch.{name}")

    def current() -> int:
        return library.simgpu_current_device()

    def set_fraction(fraction: float, device: Any = None) -> None:
        library.simgpu_set_fraction(_index(device, current), fraction)

    class Device:
        def __init__(self, device: Any) -> None:
            self.index = _index(device, current)

        def __enter__(self) -> None:
            self.previous = current()
            library.simgpu_set_device(self.index)

        def __exit__(self, *_: object) -> None:
            library.simgpu_set_device(self.previous)

    functions: dict[str, Any] = {
        "is_available": lambda: True,
        "is_initialized": lambda: bool(library.simgpu_initialised()),
        "_lazy_init": lambda: None,
        "device_count": lambda: library.simgpu_device_count(),
        "current_device": current,
        "set_device": lambda device: library.simgpu_set_device(_index(device, current)),
        "_is_in_bad_fork": lambda: False,
        "manual_seed": lambda seed: None,
        "manual_seed_all": lambda seed: None,
        "get_rng_state": lambda device=None: torch.get_rng_state(),
        "set_rng_state": lambda state, device=None: None,
        "get_amp_supported_dtype": lambda: [torch.float16, torch.bfloat16],
        "device": Device,
        "mem_get_info": torch.accelerator.get_memory_info,
        "set_per_process_memory_fraction": set_fraction,
        "get_per_process_memory_fraction": lambda device=None: library.simgpu_fraction(_index(device, current)),
    }
    for shared in (
        "memory_allocated",
        "memory_reserved",
        "max_memory_allocated",
        "max_memory_reserved",
        "memory_stats",
        "reset_peak_memory_stats",
        "empty_cache",
        "synchronize",
    ):
        functions[shared] = getattr(torch.accelerator, shared)
    vars(module).update(functions)
    torch._register_device_module(name, module)
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=False)
    return module
