"""What the texts of errors mean: the wordings of torch, CUDA, JAX, TensorFlow, CuPy, numpy and Python.

Only text is read here, so no framework is imported. The wordings are those of public reports; their sizes are powers of
1024, whether they say ``GB`` or ``GiB``, and rounded to what they print.
"""
from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

from jupyter_gpumem.model import DeviceFault, Fault, OutOfMemory
from jupyter_gpumem.units import parse

_MOST = 20_000
"""Letters that are read at each end of a text: XLA appends its whole buffer assignment."""
_SIZE = r"(\d[\d,]*(?:\.\d*)?(?:e[+-]?\d+)?)\s*(bytes|[KMGTP]i?B?\b|B\b)"
_ITEM = {
    "bool": 1, "uint8": 1, "int8": 1, "half": 2, "bfloat16": 2, "int16": 2, "float": 4, "int32": 4, "uint32": 4,
    "double": 8, "int64": 8, "uint64": 8, "complex64": 8, "complex128": 16,
}  # fmt: skip
"""TensorFlow's names of types → bytes of an element."""
_RESTART = "the context is lost: only a kernel restart gives the device back"


class _Size(NamedTuple):
    nbytes: int
    rounding: int
    """Half of the last digit."""


def _size(number: str, unit: str) -> _Size:
    scale = parse(f"1{'' if unit == 'bytes' else unit}")
    number = number.replace(",", "")
    decimals = len(number.partition(".")[2])
    exact = scale == 1 or "." not in number or "e" in number
    rounding = 0 if exact else math.ceil(scale / 10**decimals / 2)
    return _Size(round(float(number) * scale), rounding)


def _find(pattern: str, text: str) -> _Size | None:
    """The first size that a pattern finds; in it ``SIZE`` stands for one."""
    match = re.search(pattern.replace("SIZE", _SIZE), text, re.IGNORECASE)
    return _size(match[1], match[2]) if match else None


def _bytes(size: _Size | None) -> int | None:
    return None if size is None else size.nbytes


def _sentence(text: str, start: int) -> str:
    """The line around a place, shortened."""
    begin = text.rfind("\n", 0, start) + 1
    end = text.find("\n", start)
    line = text[begin : end if end >= 0 else None].strip()
    return line if len(line) <= 300 else f"{line[:299]}…"


def read(text: str, default: str | None = None) -> OutOfMemory | DeviceFault | None:
    """What a text tells; None if it speaks neither of missing memory nor of a fault of the device.

    ``default`` is the type of device that an allocator means which does not name one.
    """
    text = text if len(text) <= 2 * _MOST else f"{text[:_MOST]}\n{text[-_MOST:]}"
    return out_of_memory(text, default) or _fault(text)


# ---------------------------------------------------------------- out of memory
def out_of_memory(text: str, default: str | None = None) -> OutOfMemory | None:
    """What a text says of missing memory; None if it says nothing of it."""
    for reader in (_mps, _torch, _host, _jax, _tensorflow, _cupy, _libraries):
        found = reader(text, default)
        if found is not None:
            return found
    return None


_TORCH = re.compile(r"(\w[\w ]*?)?\s*out of memory[.!] Tried to allocate|can not allocate memory block", re.IGNORECASE)
_TYPES = {"cuda": "cuda", "hip": "cuda", "xpu": "xpu"}


def _torch(text: str, default: str | None) -> OutOfMemory | None:
    match = _TORCH.search(text)
    if match is None:
        return None
    # only its own sentence: a text of several tries has more of them
    said = text[match.start() : match.start() + 2000]
    word = (match[1] or "").rpartition(" ")[2].lower()
    kind = "xpu" if "block" in match[0] else _TYPES.get(word, default)
    index = re.search(r"\b(?:GPU|XPU|Device)\s+(\d+)\b", said)
    asked = _find("Tried to allocate SIZE", said)
    allocated = _find("SIZE (?:is allocated by PyTorch|already allocated)", said)
    unallocated = _find("SIZE is reserved by PyTorch but unallocated", said)
    held = _find("SIZE (?:reserved in total by PyTorch|cached)", said)
    if unallocated is None and held is not None:  # torch before 2.1; before 1.4 it was what is cached
        cached = held.nbytes - (allocated.nbytes if allocated and "cached" not in said else 0)
        unallocated = _Size(max(0, cached), held.rounding)
    total = _find("total capaci?ty of SIZE", said) or _find("SIZE total capacity", said)
    free = _find("of which SIZE is free", said) or _find(r"SIZE free\b", said)
    limit, own = _find("SIZE allowed;", said), _find("this process has SIZE memory in use", said)
    others = re.findall(rf"\bProcess (\d+) has {_SIZE} memory in use", said)
    known = [size for size in (asked, total, free, limit, own, allocated, unallocated) if size is not None]
    return OutOfMemory(
        source="torch",
        device=f"{kind}:{index[1]}" if kind and index else kind,
        asked=_bytes(asked),
        total=_bytes(total),
        free=_bytes(free),
        limit=_bytes(limit),
        own=_bytes(own),
        allocated=_bytes(allocated),
        unallocated=_bytes(unallocated),
        others=tuple((int(pid), _size(number, unit).nbytes) for pid, number, unit in others),
        rounding=max((size.rounding for size in known), default=0),
        text=_sentence(text, match.start()),
    )


_MPS = re.compile(r"MPS backend out of memory|Invalid buffer size: ", re.IGNORECASE)


def _mps(text: str, default: str | None) -> OutOfMemory | None:
    match = _MPS.search(text)
    if match is None:
        return None
    asked = _find("Tried to allocate SIZE", text) or _find("Invalid buffer size: SIZE", text)
    allocated, other = _find("MPS allocated: SIZE", text), _find("other allocations: SIZE", text)
    limit = _find("max allowed: SIZE", text)
    own = allocated.nbytes + other.nbytes if allocated and other else None
    return OutOfMemory(
        source="torch",
        device="mps:0",
        asked=_bytes(asked),
        free=max(0, limit.nbytes - own) if limit and own is not None else None,
        limit=_bytes(limit),
        own=own,
        allocated=_bytes(allocated),
        rounding=max((size.rounding for size in (asked, allocated, limit) if size), default=0),
        text=_sentence(text, match.start()),
    )


_HOST = (
    (r"DefaultCPUAllocator: (?:can't allocate memory|not enough memory): you tried to allocate SIZE", "torch"),
    (r"unable to mmap SIZE from file", "torch"),
    (r"Unable to allocate SIZE for an array", "numpy"),
)
_ARRAY = re.compile(r"for an array with shape \(([\d, ]*)\) and data type (\w+)")


def _host(text: str, default: str | None) -> OutOfMemory | None:
    for pattern, source in _HOST:
        match = re.search(pattern.replace("SIZE", _SIZE), text)
        if match is None:
            continue
        size = _size(match[1], match[2])
        array = _ARRAY.search(text)
        shape = tuple(int(part) for part in re.findall(r"\d+", array[1])) if array else None
        return OutOfMemory(
            source=source,
            device="cpu",
            asked=size.nbytes,
            shape=shape,
            dtype=array[2] if array else None,
            rounding=size.rounding,
            text=_sentence(text, match.start()),
        )
    return None


_JAX = re.compile(r"RESOURCE_EXHAUSTED|Resource exhausted: Out of memory")


def _jax(text: str, default: str | None) -> OutOfMemory | None:
    match = _JAX.search(text)
    if match is None or "OOM when allocating tensor" in text:
        return None
    asked = _find("Out of memory (?:while trying to allocate|allocating) SIZE", text)
    asked = asked or _find("Attempting to (?:allocate|reserve) SIZE", text)
    free = _find("There (?:are|is) SIZE free", text)
    if asked is None and "out of memory" not in text.lower():
        return None  # quotas and queues are exhausted under the same name
    return OutOfMemory(
        source="jax",
        device=None,
        asked=_bytes(asked),
        free=_bytes(free),
        rounding=asked.rounding if asked else 0,
        text=_sentence(text, match.start()),
    )


_TENSORFLOW = re.compile(
    r"OOM when allocating tensor with shape\s*\[([\d,]*)\](?: and type (\w+))?(?:[^\n]*?device:(\w+):(\d+))?"
)


def _tensorflow(text: str, default: str | None) -> OutOfMemory | None:
    match = _TENSORFLOW.search(text)
    if match is None:
        return None
    shape = tuple(int(part) for part in match[1].split(",") if part)
    item = _ITEM.get(match[2] or "")
    kind = {"GPU": "cuda", "CPU": "cpu"}.get((match[3] or "").upper())
    return OutOfMemory(
        source="tensorflow",
        device=None if kind is None else "cpu" if kind == "cpu" else f"{kind}:{match[4]}",
        asked=math.prod(shape) * item if item else None,
        shape=shape,
        dtype=match[2],
        text=_sentence(text, match.start()),
    )


_CUPY = re.compile(r"Out of memory allocating [\d,]+ bytes|out of memory to allocate [\d,]+ bytes")


def _cupy(text: str, default: str | None) -> OutOfMemory | None:
    match = _CUPY.search(text)
    if match is None:
        return None
    held = _find("allocated so far: SIZE", text) or _find(r"\(total SIZE", text)
    return OutOfMemory(
        source="cupy",
        device="cuda",
        asked=_bytes(_find("out of memory (?:allocating|to allocate) SIZE", text)),
        limit=_bytes(_find("limit set to: SIZE", text)) or None,
        allocated=_bytes(held),
        text=_sentence(text, match.start()),
    )


_LIBRARIES = (
    (re.compile(r"\b(?:CUBLAS|HIPBLAS|ROCBLAS)_STATUS_ALLOC_FAILED"), "cuBLAS", "cuda"),
    (re.compile(r"\bCUDNN_STATUS_(?:ALLOC_FAILED|INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)"), "cuDNN", "cuda"),
    (re.compile(r"\b(?:CUSOLVER_STATUS|CUSPARSE_STATUS|CUFFT)_ALLOC_FAILED"), "CUDA library", "cuda"),
    (re.compile(r"(?:CUDA|HIP)(?: driver)? error: out of memory", re.IGNORECASE), "driver", "cuda"),
    (re.compile(r"CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|hipErrorOutOfMemory"), "driver", "cuda"),
    (re.compile(r"Cuda failure (?:\d+ )?'out of memory'", re.IGNORECASE), "NCCL", "cuda"),
    (re.compile(r"(?:UR|PI|ZE)_RESULT_ERROR_OUT_OF_DEVICE_MEMORY"), "driver", "xpu"),
    (re.compile(r"(?:UR|PI|ZE)_RESULT_ERROR_OUT_OF_HOST_MEMORY"), "driver", "cpu"),
    (re.compile(r"^std::bad_alloc", re.MULTILINE), "python", "cpu"),
)


def _libraries(text: str, default: str | None) -> OutOfMemory | None:
    for pattern, source, device in _LIBRARIES:
        match = pattern.search(text)
        if match is not None:
            asked = _find(r"failed to allocate [\d.]+\s*[KMGT]?i?B? \(SIZE\)", text)
            return OutOfMemory(source, device, _bytes(asked), text=_sentence(text, match.start()))
    return None


# ---------------------------------------------------------------- what is not
_FAULTS: tuple[tuple[str, Fault, str, bool], ...] = (
    (
        r"DataLoader worker \(pid(?:\(s\))? [\d, ]+\) is killed by signal: Bus error|bus error encountered in worker"
        r"|unable to (?:write to file|open shared memory object|allocate shared memory)",
        Fault.SHARED_MEMORY,
        "shared memory (/dev/shm) is full: num_workers=0, or start the container with --shm-size=8g",
        False,
    ),
    (
        r"DataLoader worker \(pid(?:\(s\))? [\d, ]+\) (?:is killed by signal: Killed|exited unexpectedly)",
        Fault.WORKER,
        "the system ended a worker, mostly because host memory was full: fewer workers, smaller prefetch_factor",
        False,
    ),
    (
        r"device-side assert triggered|cudaErrorAssert|CUDA_ERROR_ASSERT",
        Fault.ASSERT,
        "an index or a label is out of range on the device; to see which, run it on the CPU, or with "
        f"CUDA_LAUNCH_BLOCKING=1; {_RESTART}",
        True,
    ),
    (
        r"illegal memory access|illegal instruction was encountered|misaligned address|CUDA_ERROR_ILLEGAL_ADDRESS"
        r"|invalid program counter|Memory access fault by GPU",
        Fault.ILLEGAL,
        f"a kernel wrote or read where it must not, which is no lack of memory; {_RESTART}",
        True,
    ),
    (
        r"unspecified launch failure|the launch timed out|CUDA_ERROR_LAUNCH_FAILED",
        Fault.LAUNCH,
        f"a kernel failed; CUDA_LAUNCH_BLOCKING=1 shows which; {_RESTART}",
        True,
    ),
    (
        r"uncorrectable (?:ECC|NVLink) error|CUDA_ERROR_ECC_UNCORRECTABLE|GPU (?:is lost|has fallen off the bus)"
        r"|\bXid\b|hardware stack error",
        Fault.HARDWARE,
        f"the GPU itself has a fault: see nvidia-smi -q and dmesg for Xid, and use another one; {_RESTART}",
        True,
    ),
    (
        r"no kernel image is available|invalid device function|is not compatible with the current PyTorch installation",
        Fault.NO_KERNEL,
        "this build has no code for this GPU: install one that lists its architecture in torch.cuda.get_arch_list()",
        False,
    ),
    (
        r"too many resources requested for launch|out of resource: (?:shared memory|registers|threads)",
        Fault.RESOURCES,
        "the kernel wants more registers or shared memory than a core has: smaller blocks or fewer num_stages",
        False,
    ),
    (
        r"NCCL error|nccl(?:Unhandled|System|Internal|Remote|Invalid)\w*(?:Error|Argument|Usage)|RCCL error"
        r"|NCCL (?:operation|communicator)[^\n]*(?:fail|abort)",
        Fault.COLLECTIVE,
        "processes could not talk to each other, often because another rank has failed: its log, or NCCL_DEBUG=INFO, "
        "tells why",
        False,
    ),
    (
        r"Cannot re-initialize CUDA in forked subprocess|(?:CUDA|HIP)(?: driver)? error: initialization error",
        Fault.FORKED,
        "CUDA was used before the process was forked: multiprocessing.set_start_method('spawn'), or do not touch the "
        "device in workers",
        False,
    ),
    (
        r"driver version is insufficient|driver on your system is too old|forward compatibility was attempted"
        r"|driver/library version mismatch|unsupported display driver|system not yet initialized"
        r"|unsupported PTX version|PTX was compiled with an unsupported toolchain",
        Fault.DRIVER,
        "driver and CUDA do not fit together: update the driver (then reboot), or install a build for an older CUDA",
        False,
    ),
    (
        r"devices? ?(?:\(s\))? ?(?:is|are|is/are) busy or unavailable",
        Fault.BUSY,
        "another process has the device for itself (exclusive mode, or MIG without an instance): %gpumem shows who",
        False,
    ),
    (
        r"no CUDA-capable device is detected|No (?:CUDA|HIP) GPUs are available|invalid device ordinal",
        Fault.NO_DEVICE,
        "this process sees no such device: look at CUDA_VISIBLE_DEVICES, and at %gpumem for those that there are",
        False,
    ),
    (
        r"(?:CUBLAS|HIPBLAS)_STATUS_NOT_INITIALIZED|CUDNN_STATUS_NOT_INITIALIZED"
        r"|unable to find an engine to execute this computation",
        Fault.LIBRARY,
        "a library could not start: mostly the device is full (%gpumem shows it), or an earlier error has killed the "
        "context",
        False,
    ),
)


def _fault(text: str) -> DeviceFault | None:
    for pattern, fault, words, dead in _FAULTS:
        match = re.search(pattern, text, re.IGNORECASE)
        if match is not None:
            return DeviceFault(fault, _sentence(text, match.start()), words, dead)
    return None


# ---------------------------------------------------------------- tracebacks that are only text
_LINE = re.compile(r'File "([^"\n]+)", line (\d+), in (\S+)')


def frames(text: str) -> Iterator[tuple[str, int, str]]:
    """``(file, line, function)`` of a traceback in a text, outermost first, as workers send theirs."""
    for match in _LINE.finditer(text):
        yield match[1], int(match[2]), match[3]
