"""Storages and what keeps them alive."""
from __future__ import annotations

import enum
from dataclasses import dataclass

from jupyter_gpumem.model.machine import Allocator, Device


@dataclass(frozen=True)
class Tensor:
    """One tensor on a storage."""

    kind: str
    """Name of its type: ``Tensor``, ``Parameter``."""
    shape: tuple[int, ...]
    dtype: str
    """Without the framework's prefix: ``float32``."""
    nbytes: int
    """Bytes that its elements span; less than the storage's for a view."""


class Cause(enum.Enum):
    """What kind of thing keeps a storage alive."""

    NAME = "name"
    MODULE = "module"
    REGISTRY = "registry"
    RUNNING = "running"
    LAST_ERROR = "last error"
    OUTPUT = "output"
    HIDDEN = "hidden namespace"
    FRAME = "dead frame"
    CYCLE = "cycle"
    GRAPH = "graph"
    CACHE = "cache"
    UNKNOWN = "unknown"

    @property
    def dangling(self) -> bool:
        """No name that the user gave, and no library's state, keeps it."""
        return self not in (Cause.NAME, Cause.MODULE, Cause.REGISTRY)

    @property
    def freeable(self) -> bool:
        """A clean-up may drop it without touching what the user or running code uses."""
        return self in (Cause.LAST_ERROR, Cause.OUTPUT, Cause.HIDDEN, Cause.FRAME, Cause.CYCLE, Cause.CACHE)


@dataclass(frozen=True)
class Holder:
    """What keeps a storage alive, as a path that a person can read."""

    path: str
    """``model.layers.3.mlp.weight``, ``Out[3]``, ``last error: train(), line 7, local 'acts'``."""
    cause: Cause
    name: str | None = None
    """The user's name at the start of the path, if there is one."""
    frees: bool | None = None
    """Whether letting go of this one alone would free the memory; None where that was not asked."""

    def __str__(self) -> str:
        return self.path


@dataclass(frozen=True)
class Holding:
    """A live storage: one allocation, counted once, however many tensors point into it."""

    framework: str
    device: str
    storage: int
    """Address of the storage's record inside the framework; unique while the storage lives."""
    nbytes: int
    tensors: tuple[Tensor, ...]
    holder: Holder
    unseen: int | None = None
    """References to the storage beyond those found; None where the framework cannot count them."""


@dataclass(frozen=True)
class Snapshot:
    """Devices, allocators and holdings at one moment."""

    time: float
    """Seconds since the epoch."""
    watched: tuple[str, ...]
    """The devices whose storages are listed: the accelerators, or ``cpu`` where there is none."""
    devices: tuple[Device, ...]
    allocators: tuple[Allocator, ...]
    holdings: tuple[Holding, ...]
    notes: tuple[str, ...] = ()
    """Why something is missing, a sentence each: no driver, a reader that failed."""
    partial: bool = False
    """The search for holders ran out of time: some are ``Cause.UNKNOWN`` only for that reason."""

    @property
    def dangling(self) -> tuple[Holding, ...]:
        """The holdings that no name of the user keeps, largest first."""
        return tuple(h for h in self.holdings if h.holder.cause.dangling)


@dataclass(frozen=True)
class NameUse:
    """What one name of the notebook holds on the watched devices."""

    name: str
    kind: str
    """Its type: ``Tensor``, ``Linear``, ``dict``."""
    nbytes: int
    """Bytes of the storages whose shortest holder starts with this name."""
    storages: int
    shape: tuple[int, ...] | None = None
    """For a tensor."""
    dtype: str | None = None
    devices: tuple[str, ...] = ()
    """Where these storages are."""
    parts: tuple[NameUse, ...] = ()
    """What it consists of, largest first, where one looked deeper."""


@dataclass(frozen=True)
class Names:
    """The storages of the watched devices, by the names that keep them, and those that no name keeps."""

    watched: tuple[str, ...]
    allocators: tuple[Allocator, ...]
    names: tuple[NameUse, ...]
    """Largest first."""
    others: tuple[Holding, ...]
    """What dangles, and what a library's own state keeps."""
    partial: bool = False
    """The search for holders ran out of time."""


@dataclass(frozen=True)
class ObjectUse:
    """One object in depth, by its parts."""

    name: str
    kind: str
    nbytes: int
    parts: tuple[NameUse, ...]
    """What it consists of: submodules with parameters, gradients and buffers apart; items; states."""


@dataclass(frozen=True)
class Why:
    """All holders of one object's storages, shortest path first."""

    name: str
    nbytes: int
    holders: tuple[Holder, ...]
    notes: tuple[str, ...] = ()
    cuts: tuple[str, ...] = ()
    """The smallest set of references to let go of that frees the memory, as paths; empty if that is not possible."""
    more: int = 0
    """Holders beyond those that are listed."""
    partial: bool = False
    """Time ran out: there may be more holders, and the cuts are not known."""
    gives_back: int | None = None
    """Bytes that letting go of this object alone would give back: less than ``nbytes`` where it shares storages. None
    where that is not known."""

    def __str__(self) -> str:
        return "\n".join([*(h.path for h in self.holders), *self.notes])
