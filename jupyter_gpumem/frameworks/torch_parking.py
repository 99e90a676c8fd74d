"""Storages that move between a device and host memory under the tensors that point into them.

All tensors of a storage are set anew onto its copy, at their own offsets, sizes and strides: ``x.data = …`` keeps the
Python object, its hooks, its version, its gradient and its place in a graph. So every reference stays valid, and views
still share their memory. torch refuses that between a PrivateUse1 device and the host; there the tensor's C++ half is
exchanged (``torch._C._swap_tensor_impl``), and what it knows besides its bytes is carried over.

Only what can be seen whole is moved: a storage with a reference that no tensor found explains stays where it is.
"""
from __future__ import annotations

import functools
import gc
import struct
import sys
import traceback
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from jupyter_gpumem.frameworks.records import Relocated
from jupyter_gpumem.frameworks.torch_graph import is_node_type
from jupyter_gpumem.frameworks.torch_graph import step as _graph_step
from jupyter_gpumem.introspect import class_dict, mro

_Tensor: Any = torch._C.TensorBase
_CHUNK = 32 << 20
"""Bytes copied at a time, and the size of the buffer between; torch keeps a pinned one in its own cache afterwards."""
_PAGE = 4096
_SavedTensor: Any = torch._C._autograd.SavedTensor


# ---------------------------------------------------------------- what cannot be moved
def immovable(
    groups: Sequence[Sequence[object]], devices: Sequence[str], everything: Iterable[object]
) -> dict[int, str]:
    """Index of a group → why its storage cannot be moved to its device. A group is the tensors found on one storage.

    ``everything`` are all tensors of the process: graphs that could still run backward are looked for behind them.
    """
    found: dict[int, str] = {}
    with _as_plain():
        in_graphs = _used_by([_Tensor.grad_fn.__get__(x) for x in everything if not _is_bare(x)])
        has_graphs = _has_cuda_graphs()
        for index, (group, device) in enumerate(zip(groups, devices, strict=True)):
            why = next((words for x in group if (words := _kind_obstacle(x)) is not None), None)
            why = why or _group_obstacle(group, device, in_graphs, has_graphs)
            if why is not None:
                found[index] = why
    return found


def _is_bare(obj: object) -> bool:
    return torch._C.StorageBase in mro(type(obj))


def _kind_obstacle(x: Any) -> str | None:
    """Why a tensor of this kind cannot be set onto another storage; None too for what has no memory at all."""
    kind = type(x).__name__
    if _is_bare(x):
        return "a storage object of its own holds it; delete that first"
    if _Tensor.layout.__get__(x) is not torch.strided:
        return f"{kind} is sparse; make it dense first"
    if _Tensor.is_quantized.__get__(x):
        return f"{kind} is quantized"
    if _Tensor.is_nested.__get__(x):
        return f"{kind} is nested"
    keys = torch._C._dispatch_keys(x)
    if hasattr(type(x), "__tensor_flatten__") or keys.has(torch._C.DispatchKey.FuncTorchBatched):
        return f"{kind} keeps its values in other tensors"
    storage = _storage(x)
    if storage is None or storage.device.type == "meta":
        return None
    if keys.has(torch._C.DispatchKey.Python):
        return f"{kind} answers torch's operators by code of its own"
    return None


def _storage(x: Any) -> Any:
    try:
        return torch.Tensor.untyped_storage(x)
    except (NotImplementedError, RuntimeError, ValueError):  # uninitialised, and functorch's
        return None


def _group_obstacle(group: Sequence[Any], device: str, in_graphs: set[int], has_cuda_graphs: bool) -> str | None:
    storage = _storage(group[0])
    if storage is None or storage.device.type == "meta":
        return None
    if storage._cdata in in_graphs or any(_used_by([_Tensor.grad_fn.__get__(x)]) for x in group):
        return "an autograd graph that can still run backward uses it; run backward(), or delete the loss, first"
    if "cuda" in (storage.device.type, device.partition(":")[0]) and has_cuda_graphs:
        return "a captured CUDA graph has addresses built in; delete it first"
    count = getattr(torch._C, "_storage_Use_Count", None)
    if count is None:
        return "this version of torch cannot tell who else holds it"
    group = _with_bases(group)
    unseen = int(count(storage._cdata)) - len(group) - 1
    if unseen > 0:
        return f"{unseen} reference{'s' if unseen > 1 else ''} that Python cannot see hold it, such as a library's"
    if sys.getrefcount(storage) > _references_of_an_unheld_storage():
        return "a storage object of its own holds it; delete that first"
    if not _data_fits(str(storage.device), device) and any(_hooks(x) for x in group):
        return "it has hooks, which torch cannot keep on a device of this type; remove them first"
    return None


def _references_of_an_unheld_storage() -> int:
    """``getrefcount`` of a storage that one variable holds: it differs between versions of torch and Python."""
    tensor = torch.empty(0)
    storage = _storage(tensor)
    return sys.getrefcount(storage)


def _hooks(x: Any) -> bool:
    return any(
        bool(getattr(_Tensor, name).__get__(x)) for name in ("_backward_hooks", "_post_accumulate_grad_hooks")
    )


def _data_fits(*devices: str) -> bool:
    """Whether torch allows ``x.data = …`` between these devices."""
    return torch._C._get_privateuse1_backend_name() not in [device.partition(":")[0] for device in devices]


def _has_cuda_graphs() -> bool:
    return any(torch.cuda.CUDAGraph in mro(cls) for cls in set(map(type, gc.get_objects())))


def _used_by(nodes: Iterable[Any]) -> set[int]:
    """The storages that graphs use which can still run backward: leaves that they add to, tensors that they saved.

    A node whose saved tensors are freed ends the walk: torch raises there.
    """
    found: set[int] = set()
    seen: dict[int, object] = {}
    todo = [node for node in nodes if node is not None]
    while todo:
        obj = todo.pop()
        if id(obj) in seen:
            continue
        seen[id(obj)] = obj
        if is_node_type(type(obj)):
            if not _is_spent(obj):
                todo += _graph_step(obj)
        elif _Tensor in mro(type(obj)):
            storage = _storage(obj)
            if storage is not None:
                found.add(storage._cdata)
            node = _Tensor.grad_fn.__get__(obj)
            if node is not None:
                todo.append(node)
    seen.clear()
    return found


def _is_spent(node: Any) -> bool:
    """Whether backward has gone through and freed what the node saved. Runs no hook: a freed value has none left."""
    for name in {key for base in mro(type(node)) for key in class_dict(base) if key.startswith("_raw_saved_")}:
        try:
            value = getattr(node, name)
            for saved in value if type(value) in (tuple, list) else (value,):
                if type(saved) is _SavedTensor and getattr(saved, "data", saved) is None:
                    saved.unpack()  # None for what was never there, an error for what has been freed
        except RuntimeError:
            return True
    return False


# ---------------------------------------------------------------- moving
@dataclass
class _Move:
    """One storage on its way. Live."""

    tensors: list[Any]
    source: Any
    device: str
    target: Any = None
    checksum: int = 0
    versions: dict[int, int] = field(default_factory=dict)


def relocate(
    groups: Sequence[Sequence[object]], devices: Sequence[str], progress: Callable[[int, int], None]
) -> list[Relocated]:
    """Move the storages of some groups of tensors, each to its device, in place; all of them or none.

    A group is all tensors on one storage, none of which :func:`immovable` objects to. ``progress`` gets the bytes
    done and the bytes in all. Whatever goes wrong, in allocating, copying, comparing or setting, is raised again after
    every tensor is back where it was. Both copies are read and compared before the first tensor is set.
    """
    moves: list[_Move] = []
    undo: list[Callable[[], None]] = []
    try:
        with _as_plain():
            for group, device in zip(groups, devices, strict=True):
                tensors = _with_bases(group)
                moves.append(_Move(tensors, _storage(tensors[0]), device))
            for move in moves:
                move.target = _allocate(move.source.nbytes(), move.device)
            _copy_all(moves, progress)
            for move in moves:
                move.versions = {id(x): _version(x) for x in move.tensors}
            for move in moves:
                if _data_fits(str(move.source.device), move.device):
                    _set_data(move, undo)
            _exchange([move for move in moves if not _data_fits(str(move.source.device), move.device)], undo)
            return [Relocated(move.checksum, move.versions) for move in moves]
    except BaseException as fault:
        with _as_plain():
            while undo:
                undo.pop()()
        # a traceback that the user's session keeps must not keep the copies
        traceback.clear_frames(fault.__traceback__)
        raise
    finally:
        moves.clear()
        undo.clear()
        move = tensors = group = None  # type: ignore[assignment]


@contextmanager
def _as_plain() -> Iterator[None]:
    """Operators of torch's own, whatever modes the user is in; no graph."""
    with ExitStack() as stack:
        stack.enter_context(torch._C.DisableTorchFunction())
        stack.enter_context(torch._C._DisableTorchDispatch())
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.no_grad())
        yield


def _with_bases(group: Sequence[Any]) -> list[Any]:
    """The tensors with those bases of views that had no Python object. Bases come first."""
    found: dict[int, Any] = {}

    def add(x: Any) -> None:
        if id(x) not in found:
            if _Tensor._is_view(x):  # of a view too, where the kinds of numbers differ
                add(_Tensor._base.__get__(x))
            found[id(x)] = x

    for x in group:
        if not _is_bare(x):
            add(x)
    return list(found.values())


def _allocate(nbytes: int, device: str) -> Any:
    return torch.empty(nbytes, dtype=torch.uint8, device=device).untyped_storage()


def _bytes(storage: Any) -> Any:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def _copy_all(moves: Sequence[_Move], progress: Callable[[int, int], None]) -> None:
    total = sum(move.source.nbytes() for move in moves)
    for device in sorted({str(s.device) for move in moves for s in (move.source, move.target)}):
        _synchronize(device)
    between = _buffer(min(_CHUNK, max((move.source.nbytes() for move in moves), default=0)))
    done = 0
    for move in moves:
        source, target = _bytes(move.source), _bytes(move.target)
        for begin in range(0, source.numel(), _CHUNK):
            part = slice(begin, min(begin + _CHUNK, source.numel()))
            move.checksum = zlib.crc32(
                struct.pack("I", _copy(source[part], target[part], between[: part.stop - begin])), move.checksum
            )
            done += part.stop - begin
            progress(done, total)


def _synchronize(device: str) -> None:
    """Wait for the work in all streams of a device; it has a context, for it has the tensors, or had them."""
    kind, _, index = device.partition(":")
    wait = getattr(getattr(torch, kind, None), "synchronize", None)
    if wait is not None and kind != "cpu":
        wait(*([int(index)] if index and kind != "mps" else []))


def _buffer(nbytes: int) -> Any:
    """Host memory between the device and the copy: pinned where this torch can, as the device reads it faster."""
    try:
        return torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)
    except RuntimeError:
        return torch.empty(nbytes, dtype=torch.uint8)


def _copy(source: Any, target: Any, between: Any) -> int:
    """Copy, read what lies on the device a second time, and compare. Returns the checksum of the bytes.

    Raises RuntimeError if the two sides differ.
    """
    between.copy_(source)
    target.copy_(between)
    between.copy_(target if source.device.type == "cpu" else source)
    host = source if source.device.type == "cpu" else target
    checksum = _checksum(host)
    if checksum != _checksum(between):
        raise RuntimeError("the copy does not have the bytes of the original")
    return checksum


def _checksum(data: Any) -> int:
    """CRC-32 over the sums of each page's 64-bit words, and over the bytes behind the last page.

    Eight times as fast as over all bytes, and it still changes with any one word.
    """
    whole = data.numel() // _PAGE * _PAGE
    sums = data[:whole].view(torch.int64).view(-1, _PAGE // 8).sum(1).tolist()
    return zlib.crc32(bytes(data[whole:].tolist()), zlib.crc32(struct.pack(f"{len(sums)}q", *sums)))


# ---------------------------------------------------------------- setting tensors onto the copy
def _set_data(move: _Move, undo: list[Callable[[], None]]) -> None:
    for x in move.tensors:
        undo.append(functools.partial(_Tensor.data.__set__, x, _Tensor.data.__get__(x)))
        _set(x, _twin(x, move.target))


def _set(x: Any, twin: Any) -> None:
    _Tensor.data.__set__(x, twin)


def _exchange(moves: Sequence[_Move], undo: list[Callable[[], None]]) -> None:
    pairs = [pair for move in moves for pair in _full_twins(move)]
    gradients = [(x, grad) for x, _ in pairs if (grad := _gradient(x)) is not None]
    for x, twin in pairs:
        undo.append(functools.partial(_swap_back, x, twin, _storage(x)._cdata))
        _swap(x, twin)
    for x, grad in gradients:  # the halves that came with the exchange have none yet
        _Tensor.grad.__set__(x, grad)


def _gradient(x: Any) -> Any:
    return _Tensor.grad.__get__(x) if _Tensor.is_leaf.__get__(x) else None


def _swap(x: Any, twin: Any) -> None:
    torch._C._swap_tensor_impl(x, twin)


def _swap_back(x: Any, twin: Any, address: int) -> None:
    if _storage(x)._cdata != address:
        torch._C._swap_tensor_impl(x, twin)


def _twin(x: Any, storage: Any) -> Any:
    """A tensor that lies on ``storage`` as ``x`` lies on its own."""
    dtype, inference = _Tensor.dtype.__get__(x), _Tensor.is_inference(x)
    with torch.inference_mode(inference):
        twin: Any = torch.empty(0, dtype=dtype, device=storage.device)
        twin.set_(storage, _Tensor.storage_offset(x), _Tensor.size(x), _Tensor.stride(x))
    torch._C._set_conj(twin, _Tensor.is_conj(x))
    torch._C._set_neg(twin, _Tensor.is_neg(x))
    return twin


def _full_twins(move: _Move) -> list[tuple[Any, Any]]:
    """Twins that also have what is kept beside the bytes: base, version, whether a gradient is wanted."""
    made: dict[int, Any] = {}
    for x in move.tensors:
        base = _Tensor._base.__get__(x) if _Tensor._is_view(x) else None
        twin = _view_twin(x, base, made[id(base)]) if base is not None else _twin(x, move.target)
        if _Tensor.requires_grad.__get__(x):
            twin.requires_grad_()
        if not _Tensor._is_view(twin) and not _Tensor.is_inference(x):
            _set_version(twin, _version(x))
        made[id(x)] = twin
    return [(x, made[id(x)]) for x in move.tensors]


def _view_twin(x: Any, base: Any, base_twin: Any) -> Any:
    """A view of the base's twin. A view of another kind of numbers is no view afterwards, and shares the memory."""
    is_alike = all(of(x) == of(base) for of in (_Tensor.dtype.__get__, _Tensor.is_conj, _Tensor.is_neg))
    if not is_alike or _Tensor.is_inference(x):
        return _twin(x, base_twin.untyped_storage())
    with torch.set_grad_enabled(not base_twin.requires_grad):
        return base_twin.as_strided(_Tensor.size(x), _Tensor.stride(x), _Tensor.storage_offset(x))


def _version(x: Any) -> int:
    return 0 if _Tensor.is_inference(x) else int(_Tensor._version.__get__(x))


def _set_version(x: Any, version: int) -> None:
    ask: Any = torch._C._autograd._unsafe_set_version_counter
    try:
        ask((x,), (version,))
    except TypeError:  # torch before 2.7 takes one tensor
        ask(x, version)
