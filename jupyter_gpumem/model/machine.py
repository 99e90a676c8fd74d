"""What the machine and the frameworks' allocators say: devices, processes, samples."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


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
