"""torch's Python layer for the simulated device.

On the CPU build ``torch.cuda`` is there but believes in no device. It is made to believe, as lazily as on a real
machine: nothing is initialised until something is used, and each call that would initialise CUDA is written down.
"""
from __future__ import annotations

import functools
import os
import types
from collections.abc import Callable
from typing import Any

import torch

initialising: list[str] = []
"""Names of the calls that would initialise CUDA."""


def _index(device: Any, current: Callable[[], int]) -> int:
    if device is None:
        return current()
    if isinstance(device, int):
        return device if device >= 0 else current()
    index = torch.device(device).index
    return current() if index is None else index


def _recorded(name: str, function: Callable[..., Any], initialise: Callable[[], None]) -> Callable[..., Any]:
    @functools.wraps(function)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        initialising.append(name)
        initialise()
        return function(*args, **kwargs)

    return recorded


def patch_cuda(library: Any) -> types.ModuleType:
    """Make ``torch.cuda`` believe in the simulated devices."""
    cuda, c = torch.cuda, torch._C

    def initialise() -> None:
        cuda._initialized = True

    def lazy_init() -> None:
        if not cuda._initialized:
            initialising.append("_lazy_init")
            initialise()

    def current() -> int:
        return library.simgpu_current_device()

    def is_available() -> bool:
        if os.environ.get("PYTORCH_NVML_BASED_CUDA_CHECK") != "1":
            initialising.append("is_available: cudaGetDeviceCount")
        return True

    def memory_info(device: Any = None) -> tuple[int, int]:
        return c._accelerator_getMemoryInfo(_index(device, current))

    def properties(device: Any = None) -> types.SimpleNamespace:
        index = _index(device, current)
        return types.SimpleNamespace(
            name=f"Simulated GPU {index}",
            major=8,
            minor=0,
            total_memory=c._accelerator_getMemoryInfo(index)[1],
            multi_processor_count=1,
            uuid=f"00000000-0000-0000-0000-{index:012d}",  # the mock NVML's, without the GPU- in front, as in torch
        )

    cuda._lazy_init = lazy_init
    cuda.device_count = lambda: library.simgpu_device_count()
    cuda.is_available = is_available
    cuda.set_device = lambda device: library.simgpu_set_device(_index(device, current))
    cuda.default_generators = tuple(torch.Generator() for _ in range(library.simgpu_device_count()))
    cuda.current_device = _recorded("current_device", current, initialise)
    cuda.synchronize = _recorded("synchronize", lambda device=None: None, initialise)
    cuda.mem_get_info = cuda.memory.mem_get_info = _recorded("mem_get_info", memory_info, initialise)
    cuda.get_device_properties = _recorded("get_device_properties", properties, initialise)
    cuda._get_device_properties = properties
    cuda.device_memory_used = _recorded("device_memory_used", cuda.device_memory_used, initialise)
    torch.accelerator.get_memory_info = _recorded("accelerator.get_memory_info", torch.accelerator.get_memory_info, initialise)
    for name in ("current_device_index", "current_device_idx", "current_stream"):
        setattr(torch.accelerator, name, _recorded(f"accelerator.{name}", getattr(torch.accelerator, name), initialise))
    _patch_c(library, c, cuda, current)
    return cuda


def _patch_c(library: Any, c: Any, cuda: Any, current: Callable[[], int]) -> None:
    """The functions of ``torch._C`` that a CUDA build has, by their counterparts for any accelerator."""
    from simgpu import snapshot

    c._cuda_getDevice = current
    c._cuda_setDevice = lambda device: library.simgpu_set_device(device)
    c._cuda_memoryStats = c._accelerator_getDeviceStats
    c._cuda_resetPeakMemoryStats = c._accelerator_resetPeakStats
    c._cuda_resetAccumulatedMemoryStats = c._accelerator_resetAccumulatedStats
    c._cuda_emptyCache = c._accelerator_emptyCache
    c._cuda_isInBadFork = lambda: False
    c._cuda_exchangeDevice = cuda._exchange_device = lambda device: c._accelerator_exchangeDevice(device)
    c._cuda_maybeExchangeDevice = cuda._maybe_exchange_device = lambda device: c._accelerator_maybeExchangeDevice(device)
    traces = [[] for _ in range(library.simgpu_device_count())]
    c._cuda_memorySnapshot = lambda *args, **kwargs: {**snapshot(), "device_traces": traces}


def make_module(library: Any, name: str) -> types.ModuleType:
    """``torch.simgpu``: the module that torch wants for a device of type PrivateUse1."""
    torch.utils.rename_privateuse1_backend(name)
    module = types.ModuleType(f"torch.{name}")

    def current() -> int:
        return library.simgpu_current_device()

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
        "is_initialized": lambda: bool(library.simgpu_initialized()),
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
