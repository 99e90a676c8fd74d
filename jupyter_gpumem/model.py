"""Records of what was seen and done: frozen, plain, and without a reference to any live object.

Sizes are ``int`` bytes. ``None`` means "not available here", which is never the same as 0.
"""
from __future__ import annotations

import dataclasses
import enum
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Process(NamedTuple):
    """A process that holds memory of one device, as the driver lists it.

    A named tuple, unlike the other records: there are hundreds of them in a sample.
    """

    pid: int
    used: int | None
    """Bytes on this device; None where the driver does not say (WDDM, some containers)."""
    kind: str = "compute"
    """``compute``, ``graphics`` or ``mps``."""
    own: bool = False
    """Whether it is this very process."""


class Owner(NamedTuple):
    """Whose a process is, as far as this process may see it."""

    pid: int
    name: str | None = None
    user: str | None = None
    role: str = "other"
    """``kernel``, ``child`` (of a living kernel), ``orphan`` (its kernel has ended), ``other``, ``ended``, ``hidden``
    (of a user whose processes are not shown) or ``foreign`` (its id is of another container)."""
    kernel: str | None = None
    """The id that Jupyter gave the kernel which it is or belongs to."""
    notebook: str | None = None
    """Path with which a server started that kernel; stale after a rename, so a session manager's word is better."""


class Shares(NamedTuple):
    """How the memory of a device is divided, bytes. None: not told."""

    own: int | None
    """This kernel and its children."""
    notebooks: int | None
    """Other kernels and theirs."""
    others: int | None
    unattributed: int | None
    """Used, but by nobody that can be seen: other containers, other users, the driver itself."""
    free: int | None


@dataclass(frozen=True)
class Device:
    """Something with memory of its own, identified by ``uuid``; its index is only for showing.

    ``used`` excludes ``reserved`` (what the driver itself keeps) where the driver tells them apart.
    """

    uuid: str
    kind: str
    """``gpu``, ``mig`` (an instance of a GPU), ``accelerator`` (seen by a framework alone) or ``host``."""
    index: int | None
    name: str
    total: int | None = None
    used: int | None = None
    free: int | None = None
    reserved: int | None = None
    utilization: int | None = None
    """Per cent."""
    temperature: int | None = None
    """Degrees Celsius."""
    power: int | None = None
    """Milliwatts."""
    processes: tuple[Process, ...] | None = None
    """None where the list cannot be read; an empty tuple where the driver lists nobody."""
    parent: str | None = None
    """For a MIG instance the uuid of its GPU."""
    alias: str | None = None
    """The name that the frameworks use, such as ``cuda:0``; None if this process cannot use the device."""
    notes: tuple[str, ...] = ()
    """What a reader should know about these figures, a sentence each."""


@dataclass(frozen=True)
class DeviceReading:
    """The devices of one source at one moment, or the reason why there are none."""

    devices: tuple[Device, ...] = ()
    problem: str | None = None
    """One sentence for the user if the source is missing or broken, else None."""


@dataclass(frozen=True)
class Allocator:
    """One framework's allocator on one device, in this process."""

    framework: str
    device: str
    """``cuda:0``, ``cpu``: the name that the framework uses."""
    allocated: int
    reserved: int | None = None
    """None where the framework keeps no pool (host memory)."""
    peak: int | None = None
    """Highest ``allocated``, since the counter began or since the window that the record describes."""

    @property
    def cached(self) -> int | None:
        """Bytes that the allocator keeps and no tensor uses."""
        return None if self.reserved is None else max(0, self.reserved - self.allocated)


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


@dataclass(frozen=True)
class CellRun:
    """A cell that is running, or has run, in this kernel."""

    count: int | None
    """Its execution count, if it has one."""
    cell: str | None
    """The id that the front end gave it."""
    begun: float
    """Seconds since the epoch."""
    ended: float | None = None
    failed: bool = False
    peaks: dict[str, int] = field(default_factory=dict)
    """Device → highest allocated bytes while it ran."""
    stayed: dict[str, int] = field(default_factory=dict)
    """Device → allocated bytes after it, less those before it."""


@dataclass(frozen=True)
class Sample:
    """What a live display shows at one moment. Taken beside a running cell: nothing of it needs the main thread."""

    time: float
    """Seconds since the epoch."""
    devices: tuple[Device, ...]
    shares: tuple[Shares, ...]
    """For each device."""
    owners: tuple[Owner, ...]
    allocators: tuple[Allocator, ...]
    running: CellRun | None = None
    problem: str | None = None
    """Why there is no GPU, one sentence."""


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


class Step(enum.Enum):
    """The kinds of clean-up action."""

    NAME = "delete name"
    MOVE = "move to host"
    LAST_ERROR = "forget last error"
    OUTPUT = "forget output"
    HIDDEN = "forget namespace"
    COLLECT = "collect cycles"
    CACHE = "clear cache"
    EMPTY = "empty cache"


@dataclass(frozen=True)
class Action:
    """One step of a clean-up, as it can be shown before it is done."""

    step: Step
    target: str
    """What it is done to: a name, ``Out[3]``, ``ValueError in train()``."""
    nbytes: int | None
    """Bytes that it should give back; None if that cannot be known beforehand."""
    note: str = ""


@dataclass(frozen=True)
class Plan:
    """What a clean-up would do, in order. Nothing has been done."""

    actions: tuple[Action, ...]
    watched: tuple[str, ...]
    held: tuple[Holding, ...] = ()
    """What was asked for and would stay, with who holds it."""
    notes: tuple[str, ...] = ()

    @property
    def promised(self) -> int:
        """Bytes that the actions should give back to the frameworks' allocators."""
        return sum(a.nbytes or 0 for a in self.actions if a.step is not Step.EMPTY)


@dataclass(frozen=True)
class Report:
    """What a clean-up did."""

    plan: Plan
    done: tuple[Action, ...]
    freed: int
    """Bytes of storages that are really gone."""
    before: tuple[Allocator, ...]
    after: tuple[Allocator, ...]
    left: tuple[Holding, ...] = ()
    """Storages that were to go and are still there, with who holds them; then what still dangles."""
    faults: tuple[str, ...] = ()
    """What went wrong in our own code, a line each."""


@dataclass(frozen=True)
class CellUse:
    """What one cell, or one ``watch()`` block, did to the watched devices."""

    title: str
    """``cell [7]`` or the name given to ``watch()``."""
    before: tuple[Allocator, ...]
    after: tuple[Allocator, ...]
    """``peak`` is the highest use inside the window."""
    made: tuple[NameUse, ...] = ()
    """Names that hold more than before, largest first."""
    plan: Plan | None = None
    """For a dry run: what a clean-up would have done."""
    report: Report | None = None
    """For ``%%gpufree``."""
    failed: bool = False
    """The cell raised."""
    notes: tuple[str, ...] = ()
    brief: bool = field(default=False, compare=False)
    """Shown as one line: ``%gpumem on``."""


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

    def __str__(self) -> str:
        return "\n".join([*(h.path for h in self.holders), *self.notes])


@dataclass(frozen=True)
class Notice:
    """A line for the user below a cell."""

    text: str
    fault: bool = False
    """Something of ours went wrong."""


@dataclass(frozen=True)
class Freed:
    """Stands in ``Out`` for a value that a clean-up has freed, so that ``Out[n]`` explains itself."""

    kind: str
    nbytes: int
    when: str
    """Local time, ``14:03:22``."""
    shape: tuple[int, ...] | None = None
    dtype: str | None = None

    def __repr__(self) -> str:
        from jupyter_gpumem.units import shown

        shape = str(self.shape) if self.shape is not None else ""
        what = " ".join(word for word in (self.kind, shape, self.dtype or "") if word)
        return f"<{what}, {shown(self.nbytes)}, freed at {self.when} by gpufree>"


_PLAIN = frozenset({bool, int, float, str})


def to_json(record: Any) -> Any:
    """A record as plain dicts, lists, strings, numbers and None; enums by their value."""
    if record is None or type(record) in _PLAIN:
        return record
    if isinstance(record, enum.Enum):
        return record.value
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        return {f.name: to_json(getattr(record, f.name)) for f in dataclasses.fields(record)}
    if isinstance(record, (Process, Owner, Shares)):
        return to_json(record._asdict())
    if isinstance(record, (tuple, list)):
        return [to_json(item) for item in record]
    if isinstance(record, dict):
        return {str(key): to_json(value) for key, value in record.items()}
    return record
