"""What torch says about its tensors and allocators.

Three rules hold throughout. Tensors are recognised by ``issubclass(type(o), TensorBase)``: ``isinstance`` and
``torch.is_tensor`` run a proxy's ``__class__``. Attributes are read through torch's own C getters with
``__torch_function__`` switched off: a subclass or a mode may override them. And nothing is called that initialises a
device: ``mem_get_info``, ``current_device``, ``synchronize`` and the like never appear here, ``get_device_properties``
only behind ``is_initialized``.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from jupyter_gpumem.frameworks import Hints, Kind, torch_advice, torch_budget, torch_history, torch_peaks, torch_random
from jupyter_gpumem.frameworks.records import Part, Rehearsal
from jupyter_gpumem.frameworks.torch_allocator import allocation_sites as allocation_sites
from jupyter_gpumem.frameworks.torch_allocator import data_pointers as data_pointers
from jupyter_gpumem.frameworks.torch_allocator import requested as requested
from jupyter_gpumem.frameworks.torch_allocator import segments as segments
from jupyter_gpumem.frameworks.torch_allocator import strided as _strided
from jupyter_gpumem.frameworks.torch_budget import end_limit as end_limit
from jupyter_gpumem.frameworks.torch_budget import in_use as in_use
from jupyter_gpumem.frameworks.torch_budget import reserve as reserve
from jupyter_gpumem.frameworks.torch_budget import set_limit as set_limit
from jupyter_gpumem.frameworks.torch_budget import total as total
from jupyter_gpumem.frameworks.torch_graph import is_node_type
from jupyter_gpumem.frameworks.torch_graph import step as _graph_step
from jupyter_gpumem.frameworks.torch_loader import resizable as resizable
from jupyter_gpumem.frameworks.torch_parking import immovable as immovable
from jupyter_gpumem.frameworks.torch_parking import relocate as relocate
from jupyter_gpumem.frameworks.torch_peaks import open_window as open_window
from jupyter_gpumem.frameworks.torch_versions import mark_versions as mark_versions
from jupyter_gpumem.introspect import instance_dict, mro
from jupyter_gpumem.model import Allocator, Tensor

name = "torch"
hints: Hints = torch_advice
record = torch_history.start
end_record = torch_history.stop
write_record = torch_history.dump
peak_site = torch_history.peak_site

_TensorBase: Any = torch._C.TensorBase
_StorageBase: Any = torch._C.StorageBase
_weak: Any = StorageWeakRef
_no_function = torch._C.DisableTorchFunction
tables: tuple[str, ...] = ("_parameters", "_buffers", "_modules")


# ---------------------------------------------------------------- devices and allocators
def _backend(device_type: str) -> Any:
    """``torch.cuda``, ``torch.xpu``, …: the module that torch registers under the type's name."""
    return getattr(torch, device_type, None)


def _initialized_types() -> list[str]:
    types = [t for t in ("cuda", "xpu") if _backend(t) is not None and _backend(t).is_initialized()]
    if torch.backends.mps.is_built() and torch.backends.mps.is_available():
        types.append("mps")
    own = torch._C._get_privateuse1_backend_name()
    backend = _backend(own)
    if backend is not None and getattr(backend, "is_initialized", lambda: False)():
        types.append(own)
    return types


def devices() -> tuple[str, ...]:
    """Accelerators on which this process's torch is initialised."""
    found = []
    for device_type in _initialized_types():
        count = 1 if device_type == "mps" else _backend(device_type).device_count()
        found += [f"{device_type}:{index}" for index in range(count)]
    return tuple(found)


def may_use() -> str | None:
    """The type of the accelerator that this build can use, whether it has been used or not.

    Only what can be known without asking the driver: whether there *is* such a device, NVML says.
    """
    initialized = _initialized_types()
    if initialized:
        return initialized[0]
    backend = _backend(own := torch._C._get_privateuse1_backend_name())
    if backend is not None and getattr(backend, "is_available", lambda: False)():
        return own
    accelerator = getattr(torch, "accelerator", None)  # torch 2.6 and later
    if accelerator is not None:
        # check_available=False: the check would call cudaGetDeviceCount, after which a fork is poisoned
        current = accelerator.current_accelerator(check_available=False)
        return None if current is None else str(current.type)
    return "cuda" if torch.version.cuda or torch.version.hip else None


def uuids() -> dict[str, str]:
    """Device → NVML's uuid, for CUDA once it is initialised: then asking for properties starts nothing more."""
    if not _backend("cuda").is_initialized():
        return {}
    found = {}
    for index in range(torch.cuda.device_count()):
        uuid = getattr(torch.cuda.get_device_properties(index), "uuid", None)
        if uuid is not None:
            text = str(uuid)
            found[f"cuda:{index}"] = text if text.startswith(("GPU-", "MIG-")) else f"GPU-{text}"
    return found


def _stats(device: str) -> dict[str, Any]:
    """The allocator's counters, flat: ``allocated_bytes.all.current`` and so on; empty where there are none."""
    device_type, _, index = device.partition(":")
    backend = _backend(device_type)
    if device_type == "mps":
        return {
            "allocated_bytes.all.current": torch.mps.current_allocated_memory(),
            "reserved_bytes.all.current": torch.mps.driver_allocated_memory(),
        }
    stats = getattr(backend, "memory_stats", None)
    return dict(stats(int(index))) if stats is not None else {}


def allocators() -> tuple[Allocator, ...]:
    """Allocated, reserved and peak bytes of each initialised device."""
    found = []
    for device in devices():
        stats = _stats(device)
        found.append(
            Allocator(
                framework=name,
                device=device,
                allocated=int(stats.get("allocated_bytes.all.current", 0)),
                reserved=int(stats.get("reserved_bytes.all.current", 0)),
                peak=stats.get("allocated_bytes.all.peak"),
            )
        )
    return tuple(found)


def activity() -> tuple[int, ...]:
    """Allocations and frees so far on each device."""
    counters: list[int] = []
    for device in devices():
        stats = _stats(device)
        counters.append(int(stats.get("allocation.all.allocated", stats.get("allocated_bytes.all.current", 0))))
        counters.append(int(stats.get("allocation.all.freed", 0)))
    return tuple(counters)


def random_states() -> dict[str, bytes]:
    """The states of the default generators of the host and of the initialised devices."""
    return torch_random.take(devices())


def restore_random(states: Mapping[str, bytes]) -> None:
    """Put such states back."""
    torch_random.restore(states, devices())


def current_device() -> str | None:
    """Where torch makes tensors of the accelerator that is initialised; None where none is."""
    initialized = _initialized_types()
    return torch_budget.current(initialized[0]) if initialized else None


def restore() -> None:
    """Take back what windows and limits have changed in torch."""
    torch_peaks.restore()
    torch_budget.restore()


def empty_cache() -> None:
    """Give unused cached memory back to the driver. It resets no context and frees no tensor."""
    for device_type in _initialized_types():
        backend = _backend(device_type)
        if hasattr(backend, "empty_cache"):
            backend.empty_cache()


def held_caches() -> tuple[str, ...]:
    """Autocast's weight cache, if autocast was entered and never left.

    The cache lives in C++ and no Python object refers to it; torch clears it when the outermost autocast ends.
    """
    depth = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    return ("autocast cache",) if depth > 0 and torch.is_autocast_cache_enabled() else ()


def clear_caches() -> None:
    """Clear autocast's weight cache; the weights are cast anew when they are next used."""
    torch.clear_autocast_cache()


# ---------------------------------------------------------------- tensors
def find(objects: Iterable[object]) -> list[object]:
    """The tensors and storages among ``objects``, found by type alone."""
    objects = objects if isinstance(objects, list) else list(objects)
    wanted = {cls for cls in set(map(type, objects)) if _TensorBase in cls.__mro__ or _StorageBase in cls.__mro__}
    return [obj for obj in objects if type(obj) in wanted]


def kind(cls: type) -> Kind | None:
    """What the objects of a type are: ``tensor`` (or storage), ``node``, ``optimizer``, ``module``; None for others."""
    bases = mro(cls)
    if _TensorBase in bases or _StorageBase in bases:
        return "tensor"
    if torch.nn.Module in bases:
        return "module"
    if torch.optim.Optimizer in bases:
        return "optimizer"
    return "node" if is_node_type(cls) else None


def _storages(obj: Any) -> list[Any]:
    """The storage objects under a tensor. Some kinds have none, or hold their data in other tensors."""
    if issubclass(type(obj), _StorageBase):
        return [obj]
    with _no_function():
        found = [torch.Tensor.untyped_storage(part) for part in _strided(obj)]
        python_key = torch._C._dispatch_keys(obj).has(torch._C.DispatchKey.Python)
        for storage in found:
            if python_key and storage.device.type != "meta":  # asking a fake tensor for its pointer warns
                storage.data_ptr()  # raises for a wrapper made by _make_wrapper_subclass: no data behind it
        return found


def parts(tensor: object) -> list[Part]:
    """The real storages under a tensor, as ``(device, address, nbytes)``.

    None for meta and fake tensors (their storage's device is ``meta``), for wrappers, uninitialised parameters and
    the opaque kinds of which torch offers no storage (mkldnn, functorch's).
    """
    try:
        storages = _storages(tensor)
    except (NotImplementedError, RuntimeError, ValueError):
        return []
    found = []
    for storage in storages:
        device = storage.device
        if device.type != "meta":
            found.append(Part(str(device), storage._cdata, storage.nbytes()))
    return found


def is_bare(tensor: object) -> bool:
    """Whether it is a storage: torch keeps its Python object once a tensor has been asked for it."""
    return issubclass(type(tensor), _StorageBase)


def describe(tensor: object) -> Tensor:
    """Type, shape and dtype; a bare storage counts as bytes."""
    if issubclass(type(tensor), _StorageBase):
        try:
            size = tensor.nbytes()  # type: ignore[attr-defined]
        except RuntimeError:  # torch before 2.5: the storage has been collected, and its Python object is still there
            size = 0
        return Tensor(type(tensor).__name__, (size,), "uint8", size)
    with _no_function():
        try:
            shape = tuple(int(size) for size in _TensorBase.shape.__get__(tensor))
        except RuntimeError:  # a nested tensor has no single shape
            shape = (int(_TensorBase.size(tensor, 0)),)
        dtype = str(_TensorBase.dtype.__get__(tensor)).removeprefix("torch.")
        nbytes = _TensorBase.numel(tensor) * _TensorBase.element_size(tensor)
    return Tensor(type(tensor).__name__, shape, dtype, nbytes)


def unseen(tensors: Sequence[object]) -> int | None:
    """References to a storage beyond the tensors found on it and the storage's own Python object.

    ``torch._C._storage_Use_Count`` is private and exact: one for each tensor (C++ ones too) and one for Python. A view
    keeps its base alive, which may have lost its Python object; to ask for it would make it one.
    """
    count = getattr(torch._C, "_storage_Use_Count", None)
    if count is None or issubclass(type(tensors[0]), _StorageBase):
        return None
    try:
        with _no_function():
            if _TensorBase.layout.__get__(tensors[0]) is not torch.strided:
                return None
            storage = _storages(tensors[0])[0]
            views = [_TensorBase._is_view(tensor) for tensor in tensors if not is_bare(tensor)]
    except (NotImplementedError, RuntimeError, ValueError, IndexError):
        return None
    return max(0, int(count(storage._cdata)) - len(tensors) - 1 - (bool(views) and all(views)))


def is_base(tensor: object, others: Iterable[object]) -> bool:
    """Whether one of ``others`` is a view that was made of the tensor: a reference that ``gc`` does not see."""
    with _no_function():
        if is_bare(tensor) or _TensorBase._is_view(tensor):
            return False
        views = [other for other in others if not is_bare(other) and _TensorBase._is_view(other)]
        return any(_TensorBase._base.__get__(view) is tensor for view in views)


def referents(obj: object) -> Sequence[object]:
    """A leaf's gradient: it is not a referent for ``gc``."""
    if not issubclass(type(obj), _TensorBase):
        return ()
    with _no_function():
        # reading .grad of a non-leaf warns
        grad = _TensorBase.grad.__get__(obj) if _TensorBase.is_leaf.__get__(obj) else None
    return () if grad is None else (grad,)


def graph(obj: object) -> Sequence[object]:
    """The next step into an autograd graph from a tensor or from a node."""
    if is_node_type(type(obj)):
        return _graph_step(obj)
    if not issubclass(type(obj), _TensorBase):
        return ()
    with _no_function():
        node = _TensorBase.grad_fn.__get__(obj)
    return () if node is None else (node,)


def submodules(obj: object) -> Iterator[tuple[str, object]]:
    """Names and values of a module's parameters, buffers and submodules: attributes to a person, items of three
    dictionaries to the interpreter.
    """
    inner = instance_dict(obj) or {}
    for table in tables:
        for key, value in list((inner.get(table) or {}).items()):
            if value is not None:
                yield str(key), value


# ---------------------------------------------------------------- actions on tensors
def to_host(tensor: object) -> object:
    """A copy in host memory without a graph; a leaf that requires grad stays one, a parameter a parameter."""
    with _no_function(), torch.no_grad():
        copy: Any = _TensorBase.cpu(_TensorBase.detach(tensor))
        requires_grad = _TensorBase.is_leaf.__get__(tensor) and _TensorBase.requires_grad.__get__(tensor)
    if type(tensor) is torch.nn.Parameter:
        return torch.nn.Parameter(copy, requires_grad=requires_grad)
    return copy.requires_grad_() if requires_grad else copy


def rehearse(
    function: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object], sizes: Mapping[int, int]
) -> Rehearsal:
    """Make a call on tensors without memory: see ``torch_forecast``, which few sessions need."""
    made: Rehearsal = import_module(f"{__package__}.torch_forecast").rehearse(function, args, kwargs, sizes)
    return made


def free_bytes(device: str) -> int | None:
    """What is free on a device where this process has memory already."""
    found: int | None = import_module(f"{__package__}.torch_forecast").free_bytes(device)
    return found


class _Remembered:
    def __init__(self, tensors: Iterable[object]) -> None:
        self._refs: dict[int, tuple[Any, int]] = {}
        self.add(tensors)

    def add(self, tensors: Iterable[object]) -> None:
        for tensor in tensors:
            try:
                storages = _storages(tensor)
            except (NotImplementedError, RuntimeError, ValueError):
                continue
            for storage in storages:
                if not self.knows(storage._cdata):
                    self._refs[storage._cdata] = (_weak(storage), storage.nbytes())

    def gone(self) -> int:
        return sum(nbytes for ref, nbytes in self._refs.values() if ref.expired())

    def alive(self) -> int:
        dead = [address for address, (ref, _) in self._refs.items() if ref.expired()]
        for address in dead:
            del self._refs[address]
        return sum(nbytes for _, nbytes in self._refs.values())

    def knows(self, address: int) -> bool:
        known = self._refs.get(address)
        return known is not None and not known[0].expired()


def remember(tensors: Iterable[object]) -> _Remembered:
    """Remember the storages of some tensors through weak C++ references."""
    return _Remembered(tensors)


