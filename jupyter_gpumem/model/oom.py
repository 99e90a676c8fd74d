"""Why there was no memory: what an error says, and its cause by evidence."""
from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from jupyter_gpumem.model.cleaning import CellUse
from jupyter_gpumem.model.holdings import Tensor
from jupyter_gpumem.model.machine import Allocator, Device


@dataclass(frozen=True)
class OutOfMemory:
    """What the text of an out-of-memory error says. Bytes; None where it does not say."""

    source: str
    """Who ran out: ``torch``, ``cuBLAS``, ``cuDNN``, ``driver``, ``jax``, ``tensorflow``, ``cupy``, ``numpy``,
    ``python``."""
    device: str | None
    """``cuda:0``, ``mps:0``, ``cpu``; a type alone (``cuda``) where no index is told."""
    asked: int | None = None
    total: int | None = None
    free: int | None = None
    limit: int | None = None
    """What this process was allowed to have, if that is less than the device."""
    own: int | None = None
    """All that this process has of the device, context and libraries included."""
    allocated: int | None = None
    unallocated: int | None = None
    """Reserved by the allocator, and used by no tensor."""
    others: tuple[tuple[int, int], ...] = ()
    """``(pid, bytes)`` of other processes."""
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    rounding: int = 0
    """The figures may be off by so many bytes, for the text rounds them."""
    text: str = ""
    """The sentence of the error that tells it."""


class Fault(enum.Enum):
    """Errors of a device, or of the memory of workers, that no free byte would have prevented."""

    ASSERT = "device-side assert"
    ILLEGAL = "illegal memory access"
    LAUNCH = "launch failure"
    NO_KERNEL = "no kernel for this GPU"
    RESOURCES = "kernel too large"
    COLLECTIVE = "communication"
    DRIVER = "driver"
    FORKED = "forked process"
    HARDWARE = "hardware"
    BUSY = "device busy"
    NO_DEVICE = "no such device"
    WORKER = "worker killed"
    SHARED_MEMORY = "shared memory"
    LIBRARY = "library did not start"


@dataclass(frozen=True)
class DeviceFault:
    """An error of the device that is not out of memory, with the one line that helps."""

    fault: Fault
    text: str
    """The sentence of the error that tells it."""
    help: str
    dead: bool = False
    """The context is lost: every further use of the device fails until the kernel restarts."""


@dataclass(frozen=True)
class Baseline:
    """What was known before the cell. Plain values: it keeps nothing alive."""

    names: Mapping[str, int] | None = None
    """The user's names → id of the value; None if nobody looked."""
    allocators: tuple[Allocator, ...] = ()
    devices: tuple[Device, ...] = ()
    """What the driver said earlier: who has *grown* since is told only with it."""
    cells: tuple[CellUse, ...] = ()
    """Cells that were watched before, oldest first."""
    last_error: str | None = None
    """An error that was still kept when the cell began: ``RuntimeError in train()``."""


class Reason(enum.Enum):
    """Why there was no memory."""

    OTHERS = "others"
    DANGLING = "dangling"
    FRAGMENTS = "fragmentation"
    STEP = "step"
    LEAK = "leak"
    TENSOR = "one tensor"
    UNSURE = "not sure"


@dataclass(frozen=True)
class Fact:
    """One piece of evidence."""

    text: str
    nbytes: int | None = None
    """None: it is no size, or the size is unknown."""


@dataclass(frozen=True)
class Origin:
    """Where memory was asked for."""

    place: str
    """``cell [3], line 2 in step()``; empty if no line of the user's is known."""
    code: str = ""
    tensors: tuple[tuple[str, Tensor], ...] = ()
    """Names in that line that are tensors."""


@dataclass(frozen=True)
class Diagnosis:
    """The cause of an out-of-memory error, by evidence."""

    error: OutOfMemory
    origin: Origin
    reason: Reason
    cause: str
    """The main cause, one sentence with its figures."""
    cure: str
    """What helps, one sentence."""
    code: str = ""
    """What may be typed for it."""
    facts: tuple[Fact, ...] = ()
    """The evidence."""
    contributing: tuple[tuple[Reason, str], ...] = ()
    """What else takes memory, though it is not the main cause."""
    most: tuple[int, int] | None = None
    """``(n, of)``: at most ``n`` of a first dimension of ``of`` can fit; an upper bound by proportion."""
    full: bool = field(default=False, compare=False)
    """Text shows the evidence too; HTML always folds it in."""
