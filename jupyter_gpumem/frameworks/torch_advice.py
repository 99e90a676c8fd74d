"""What advice needs to know of torch: kinds of tensors and nodes, loaders, what a device can do, values that are zero.

Only :func:`zeros` reads values, and only when it is called. It copies small pieces to the host and looks there: nothing
is allocated on the device, so no figure of the allocator changes.
"""
from __future__ import annotations

import os
from typing import Any

import torch
import torch.utils.data.dataloader as _loading

from jupyter_gpumem.frameworks.records import Loader, Traits, Zeros
from jupyter_gpumem.frameworks.torch_graph import saved_fields
from jupyter_gpumem.introspect import instance_dict, module_of, mro, type_name

_cuda: Any = torch.cuda
_TensorBase: Any = torch._C.TensorBase
_StorageBase: Any = torch._C.StorageBase
_no_function = torch._C.DisableTorchFunction
_no_dispatch = torch._C._DisableTorchDispatch
_FIRST, _PIECE = 4 << 10, 4 << 20
"""Bytes that are read at a time: few at first, for values are rarely zero."""
_ROLES = {"AccumulateGrad": "leaf", "AddBackward0": "sum", "CheckpointFunctionBackward": "checkpoint"}
_CHECKPOINT = "torch.utils.checkpoint"


# ---------------------------------------------------------------- tensors
def traits(tensor: object) -> Traits | None:
    """What a tensor is to autograd, and whether it holds floating point numbers; None for a bare storage."""
    if issubclass(type(tensor), _StorageBase):
        return None
    with _no_function():
        return Traits(
            parameter=torch.nn.Parameter in mro(type(tensor)),
            trains=bool(_TensorBase.requires_grad.__get__(tensor)),
            leaf=bool(_TensorBase.is_leaf.__get__(tensor)),
            floating=bool(_TensorBase.is_floating_point(tensor)),
        )


def number(value: object) -> float | None:
    """A plain number, or that of a tensor with one element in host memory; None for anything else."""
    if type(value) in (int, float):
        return float(value)  # type: ignore[arg-type]
    if type(value) is not torch.Tensor:
        return None
    with _no_function(), _no_dispatch(), torch.no_grad():
        on_host = value.device.type == "cpu" and value.numel() == 1
        return float(value.item()) if on_host else None


def pinned(tensor: object) -> bool:
    """Whether it lies in page-locked host memory. Asked only where CUDA has been used: the driver is asked."""
    if not _cuda.is_initialized() or not pinned_bytes():
        return False
    with _no_function():
        return bool(_TensorBase.is_pinned(tensor))


def pinned_bytes() -> int | None:
    """Page-locked host memory that torch's host allocator keeps, used or cached; None where it does not count."""
    ask = getattr(torch._C, "_cuda_hostMemoryStats", None)
    if ask is None or not _cuda.is_initialized():
        return None
    return int(ask().get("allocated_bytes", {}).get("current", 0))


def zeros(tensor: object, most: int) -> Zeros:
    """Whether all elements are 0, from about ``most`` bytes of them; unknown for what is not one dense block."""
    if issubclass(type(tensor), _StorageBase) or hasattr(type(tensor), "__tensor_flatten__"):
        return Zeros(None, 0, 0)
    with _no_function(), _no_dispatch(), torch.no_grad():
        try:
            return _zeros(_flat(tensor), most)
        except (NotImplementedError, RuntimeError):  # sparse, opaque, a type without comparison; a stream in capture
            return Zeros(None, 0, 0)


def _flat(tensor: Any) -> Any:
    """All elements in the order of their addresses. Raises NotImplementedError where they are not one block."""
    numel, following = _TensorBase.numel(tensor), 1
    sizes = zip(_TensorBase.stride(tensor), _TensorBase.size(tensor), strict=True)
    for stride, size in sorted(pair for pair in sizes if pair[1] != 1):
        if stride != following:
            raise NotImplementedError
        following *= size
    return _TensorBase.as_strided(tensor, (numel,), (1,), _TensorBase.storage_offset(tensor))


def _zeros(flat: Any, most: int) -> Zeros:
    size, width = flat.numel(), flat.element_size()
    if (torch.version.cuda or torch.version.hip) and _cuda.is_initialized() and _cuda.is_current_stream_capturing():
        raise NotImplementedError  # to copy now would end the user's capture
    read, whole = 0, size * width
    for begin, end in _pieces(size, width, most):
        read += (end - begin) * width
        if bool((flat[begin:end].cpu() != 0).any()):
            return Zeros(False, read, whole)
    return Zeros(True, read, whole)


def _pieces(size: int, width: int, most: int) -> list[tuple[int, int]]:
    """A small piece in front and then all of it; of more than ``most`` bytes pieces at equal distances."""
    first, piece = max(1, _FIRST // width), max(1, _PIECE // width)
    if size * width > most:
        count = max(2, most // _FIRST)
        starts = {index * max(0, size - first) // (count - 1) for index in range(count)}
        return [(start, min(size, start + first)) for start in sorted(starts)]
    return [(0, min(size, first)), *((at, min(size, at + piece)) for at in range(first, size, piece))]


# ---------------------------------------------------------------- nodes
def node_role(node: object) -> str | None:
    """``leaf`` (ends in a tensor that gets a gradient), ``sum``, ``checkpoint`` (computes again); None for others."""
    name = type_name(node)
    if name in _ROLES:
        return _ROLES[name]
    fields = saved_fields(type(node)) or ()
    return "checkpoint" if any(_is_checkpointed(node, field) for field in fields) else None


def _is_checkpointed(node: object, field: str) -> bool:
    try:
        saved = getattr(node, field)
    except (RuntimeError, AttributeError):  # freed after backward
        return False
    data = getattr(saved, "data", None)
    return data is not None and module_of(type(data)) == _CHECKPOINT


# ---------------------------------------------------------------- loaders
def is_loader(cls: type) -> bool:
    """Whether objects of a type load batches in processes of their own."""
    bases = mro(cls)
    return _loading.DataLoader in bases or _loading._MultiProcessingDataLoaderIter in bases


def loader(obj: object) -> Loader:
    """How many processes a loader wants, how many batches each of them keeps ready, and those that live now."""
    inner = instance_dict(obj) or {}
    iterator = inner.get("_iterator")
    at_work = inner if "_workers" in inner else (instance_dict(iterator) or {}) if iterator is not None else {}
    workers = inner.get("num_workers", inner.get("_num_workers", 0))
    prefetch = inner.get("prefetch_factor", inner.get("_prefetch_factor"))
    handles = [(instance_dict(one) or {}).get("_popen") for one in at_work.get("_workers") or ()]
    pids = [(instance_dict(handle) or {}).get("pid") for handle in handles if handle is not None]
    return Loader(workers, prefetch, tuple(pid for pid in pids if type(pid) is int))


# ---------------------------------------------------------------- devices
def bfloat16(device: str) -> bool | None:
    """Whether mixed precision in bfloat16 runs fast on a device; None where that cannot be told without starting it."""
    device_type, _, index = device.partition(":")
    backend: Any = getattr(torch, device_type, None)
    if backend is None or not getattr(backend, "is_initialized", lambda: False)():
        return None
    if device_type == "cuda":
        return bool(torch.version.hip) or _cuda.get_device_properties(int(index)).major >= 8
    supported = getattr(backend, "get_amp_supported_dtype", None)
    return torch.bfloat16 in supported() if supported is not None else None


def device_total(device: str) -> int | None:
    """Bytes of a CUDA device that is in use, as torch knows them."""
    device_type, _, index = device.partition(":")
    if device_type != "cuda" or not _cuda.is_initialized():
        return None
    return int(_cuda.get_device_properties(int(index)).total_memory)


def default_float() -> str:
    """The floating point type of new tensors."""
    return str(torch.get_default_dtype()).removeprefix("torch.")


def expands() -> bool:
    """Whether the environment asks for segments that grow, of which free pages go back."""
    words = f"{os.environ.get('PYTORCH_CUDA_ALLOC_CONF', '')},{os.environ.get('PYTORCH_ALLOC_CONF', '')}"
    return "expandable_segments:true" in words.lower().replace(" ", "")


def collective() -> str | None:
    """The backend of the process group that is initialised: ``nccl``, ``gloo``; None if there is none."""
    distributed: Any = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized():
        return None
    return str(distributed.get_backend())
