"""What torch's caching allocators say about their memory: segments, blocks, and where a block was allocated.

Only a device that is initialised is asked, so asking starts nothing. Backends without such a list (PrivateUse1, MPS,
``cudaMallocAsync``) answer None.
"""
from __future__ import annotations

import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from jupyter_gpumem.frameworks.records import Frame
from jupyter_gpumem.introspect import class_dict, mro
from jupyter_gpumem.model import Block, Segment

_TensorBase: Any = torch._C.TensorBase
_StorageBase: Any = torch._C.StorageBase
_cuda: Any = torch.cuda
_STATES = {
    "active_allocated": "allocated",
    "active_pending_free": "awaiting",
    "active_awaiting_free": "awaiting",
    "inactive": "free",
}
_PAGES = {"small": 2 << 20, "large": 20 << 20}
"""Bytes that an expandable segment gets from the driver, or gives back, at a time."""
_SPARSE_PARTS = {
    torch.sparse_coo: ("_indices", "_values"),
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}
"""The getters of the strided tensors that a sparse one consists of, by layout."""
_LIBRARIES = (str(Path(torch.__file__).parent), sysconfig.get_paths()["stdlib"], str(Path(__file__).parents[1]))
_PACKAGES = ("site-packages", "dist-packages")


# ---------------------------------------------------------------- the allocator's lists
def _backend(device: str) -> tuple[Any, int] | None:
    """The module of an initialised device's type, and the device's index."""
    device_type, _, index = device.partition(":")
    backend = getattr(torch, device_type, None)
    ready = getattr(backend, "is_initialized", None)
    return (backend, int(index)) if index and ready is not None and ready() else None


def _raw_segments(device: str) -> list[dict[str, Any]] | None:
    found = _backend(device)
    if found is None:
        return None
    backend, index = found
    ask = getattr(backend, "memory_snapshot", None)
    if ask is None:
        return None
    try:
        try:
            listed = ask(include_traces=False)  # a recorded history may be hundreds of MB
        except TypeError:  # torch before 2.13
            listed = ask()
    except RuntimeError:  # cudaMallocAsync and allocators of the user's list nothing
        return None
    return [segment for segment in listed if segment.get("device", index) == index]


def segments(device: str) -> tuple[Segment, ...] | None:
    """The segments of a device's allocator in the order of their addresses; None where it does not list them."""
    listed = _raw_segments(device)
    if listed is None:
        return None
    found = [part for raw in listed for part in _segments(device, raw)]
    return tuple(sorted(found, key=lambda segment: segment.address))


def _segments(device: str, raw: Mapping[str, Any]) -> Iterable[Segment]:
    blocks = tuple(_block(block, address) for block, address in _placed(raw))
    pool = str(raw.get("segment_type", "large"))
    private = tuple(raw.get("segment_pool_id") or (0, 0)) != (0, 0)
    segment = Segment(device, int(raw["address"]), int(raw["total_size"]), pool, blocks, private)
    page = _PAGES.get(pool, 0)
    return _by_pages(segment, page) if raw.get("is_expandable") and page and not segment.nbytes % page else [segment]


def _placed(raw: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], int]]:
    """The blocks with their addresses, which older versions leave out: they follow one another."""
    address = int(raw["address"])
    for block in raw["blocks"]:
        address = int(block.get("address", address))
        yield block, address
        address += int(block["size"])


def _block(raw: Mapping[str, Any], address: int) -> Block:
    state = _STATES.get(raw["state"], "awaiting")  # what we do not know is in use, not free
    requested = raw.get("requested_size") if state != "free" else None
    return Block(address, int(raw["size"]), state, requested)


def _by_pages(segment: Segment, page: int) -> Iterator[Segment]:
    """An expandable segment, cut where whole pages are free: emptying the cache gives those back one by one."""
    run: list[Block] = []
    for block in segment.blocks:
        begin, end = block.address - segment.address, block.address - segment.address + block.nbytes
        first, last = -(-begin // page) * page, end // page * page
        if block.state != "free" or first >= last:
            run.append(block)
            continue
        if first > begin:
            run.append(Block(block.address, first - begin, "free"))
        if run:
            yield _of_blocks(segment, run)
        yield _of_blocks(segment, [Block(segment.address + first, last - first, "free")])
        run = [Block(segment.address + last, end - last, "free")] if end > last else []
    if run:
        yield _of_blocks(segment, run)


def _of_blocks(segment: Segment, blocks: Sequence[Block]) -> Segment:
    nbytes = sum(block.nbytes for block in blocks)
    return Segment(segment.device, blocks[0].address, nbytes, segment.pool, tuple(blocks), segment.private)


def requested(device: str) -> int | None:
    """Bytes that were asked for in all allocated blocks of a device; the rest of them is rounding. None: not told."""
    found = _backend(device)
    stats = getattr(found[0], "memory_stats", None) if found is not None else None
    if found is None or stats is None:
        return None
    nbytes = stats(found[1]).get("requested_bytes.all.current")
    return None if nbytes is None else int(nbytes)


# ---------------------------------------------------------------- where a block was allocated
def allocation_sites(device: str) -> dict[int, Frame]:
    """Address of a block → the line of the user's that allocated it, for blocks allocated while torch recorded."""
    ask = getattr(_cuda.memory, "_allocation_traceback", None)  # torch 2.13
    recording = getattr(torch._C, "_cuda_isHistoryEnabled", None)
    if recording is None or not _cuda.is_initialized() or not recording():
        return {}
    found: dict[int, Frame] = {}
    for segment in _raw_segments(device) or ():
        for block, address in _placed(segment):
            if block["state"] == "active_allocated":
                frames = block.get("frames") or (ask(address) if ask is not None else None) or ()
                site = user_frame(frames_of(frames))
                if site is not None:
                    found[address] = site
    return found


def frames_of(raw: Iterable[Mapping[str, Any]]) -> tuple[Frame, ...]:
    """The frames of a recorded stack, innermost first."""
    return tuple(
        Frame(str(one.get("filename", "")), int(one.get("line", 0)), str(one.get("name", ""))) for one in raw
    )


def user_frame(frames: Iterable[Frame]) -> Frame | None:
    """The innermost frame that is neither torch's, nor another library's, nor compiled code's."""
    return next((frame for frame in frames if _is_users(frame.filename)), None)


def _is_users(filename: str) -> bool:
    if filename.startswith("<"):
        return filename.startswith("<ipython-input-")
    is_library = filename.startswith(_LIBRARIES) or any(name in filename for name in _PACKAGES)
    return filename not in ("", "??") and not is_library and not filename.endswith((".cpp", ".so", ".cu"))


# ---------------------------------------------------------------- where a tensor lies
def data_pointers(tensor: object) -> dict[int, int]:
    """Address of each storage's record under a tensor → address of its first byte; without what has no memory.

    ``storage.data_ptr()`` is not asked: of a lazily cloned storage it would make the copy.
    """
    found: dict[int, int] = {}
    try:
        with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
            for part in [_of_storage(tensor)] if issubclass(type(tensor), _StorageBase) else strided(tensor):
                storage = torch.Tensor.untyped_storage(part)
                address = _address(part, storage) if storage.device.type != "meta" else 0
                if address:
                    found[storage._cdata] = address
    except (NotImplementedError, RuntimeError, ValueError, TypeError):  # opaque and uninitialised kinds
        pass
    return found


def strided(tensor: Any) -> list[Any]:
    """The tensors with memory that one consists of: itself, the parts of a sparse one, none for a wrapper.

    To be called with torch's functions of subclasses switched off.
    """
    if any("__tensor_flatten__" in class_dict(cls) for cls in mro(type(tensor))):
        return []  # a wrapper: its own storage is invented, its inner tensors are found as attributes
    parts = _SPARSE_PARTS.get(_TensorBase.layout.__get__(tensor))
    return [tensor] if parts is None else [getattr(_TensorBase, part)(tensor) for part in parts]


def _of_storage(storage: Any) -> Any:
    """A tensor over a storage: torch tells the address without making a copy only of a tensor."""
    with torch.no_grad():  # an empty one allocates nothing
        return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def _address(tensor: Any, storage: Any) -> int:
    ask = getattr(torch._C, "_data_address", None)
    if ask is not None:
        return int(ask(tensor))
    lazy = getattr(torch._C, "_is_cow_tensor", None)
    return 0 if lazy is not None and lazy(tensor) else int(storage.data_ptr())
