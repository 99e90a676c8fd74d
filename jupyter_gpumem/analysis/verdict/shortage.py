"""The figures of a device at the moment when memory ran out, and what held it: plain values, for the verdict.

The error's own text tells of that moment, the driver and the allocator of now. What the text says comes first; what has
been let go of since (the step's own temporary memory, an older error that this one replaced) is *vanished*.
"""
from __future__ import annotations

import dis
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from jupyter_gpumem import devices, frameworks, session
from jupyter_gpumem.analysis import holders
from jupyter_gpumem.analysis.growth import pattern
from jupyter_gpumem.analysis.holders import Look
from jupyter_gpumem.analysis.inventory import Stored
from jupyter_gpumem.analysis.references import Root
from jupyter_gpumem.analysis.snapshot import HOST, named
from jupyter_gpumem.analysis.verdict import failures
from jupyter_gpumem.introspect import frame_locals
from jupyter_gpumem.model import Allocator, Baseline, Cause, Device, OutOfMemory, Owner, Segment

_MIB = 1 << 20
_THIS_ERROR = "the error"


class Held(NamedTuple):
    """A storage, by what it has to do with the error."""

    kind: str
    """``step`` (the failing cell's own: its frames, its names, their graphs), ``before`` (earlier names, libraries,
    threads), ``dangling`` (a clean-up frees it) or ``stuck`` (nobody that Python can see holds it)."""
    nbytes: int
    path: str
    pattern: str
    name: str | None
    cause: Cause
    saved: bool
    """Only an autograd graph holds it."""
    parameter: bool
    shape: tuple[int, ...]
    pointer: int | None


class Other(NamedTuple):
    """Another process on the device."""

    label: str
    nbytes: int
    grown: int | None
    """Bytes more than at the earlier reading; None without one."""


class Shortage(NamedTuple):
    """What is known. Bytes; None where nobody tells."""

    device: str | None
    asked: int | None
    need: int | None
    """What the allocator had to get from the driver for it: it takes whole segments."""
    total: int | None
    """What this process could have at most: the device, or a limit below it."""
    free: int | None
    context: int
    others: int | None
    """All that is not this process's."""
    processes: tuple[Other, ...]
    allocated: int | None
    unallocated: int | None
    vanished: int
    held: tuple[Held, ...]
    segments: tuple[Segment, ...] | None
    batch: int | None
    """The first dimension that most of the failing frames' tensors share."""
    grown: int | None
    """Bytes that this process allocated more than when the cell began."""
    partial: bool

    def of(self, *kinds: str) -> int:
        """Bytes held by some kinds."""
        return sum(one.nbytes for one in self.held if one.kind in kinds)

    @property
    def short(self) -> int | None:
        """The bytes that were missing."""
        return None if self.need is None or self.free is None else self.need - self.free


def gather(
    shell: session.Shell | None, oom: OutOfMemory, error: BaseException, before: Baseline | None, seconds: float
) -> Shortage:
    """Look at the device of an error. Nothing is initialised, collected or freed for it."""
    device = _device(oom)
    held: tuple[Held, ...] = ()
    batch, partial = None, False
    if device is not None:
        held, batch, partial = _held(shell, device, error, before, seconds)
    machine = _machine(device)
    mine = [a for framework in frameworks.loaded() for a in framework.allocators() if a.device == device]
    reserved, allocated_now = sum(a.reserved or 0 for a in mine), sum(a.allocated for a in mine)
    if device == HOST:
        allocated_now = sum(one.nbytes for one in held)
    allocated = oom.allocated if oom.allocated is not None else allocated_now if mine else None
    segments = _segments(device)
    unallocated = oom.unallocated if oom.unallocated is not None else reserved - allocated_now if mine else None
    context = _context(oom, machine, reserved if device != HOST else allocated_now)
    free = oom.free if oom.free is not None else machine.free if machine is not None else None
    total, others = _whole(oom, machine, device, free, (allocated or 0) + (unallocated or 0) + context)
    if oom.limit is not None and (total is None or oom.limit < total):
        left = max(0, oom.limit - (allocated or 0) - (unallocated or 0))
        free, total, context, others = left if free is None else min(free, left), oom.limit, 0, 0
    return Shortage(
        device=device,
        asked=oom.asked,
        need=_need(oom, device),
        total=total,
        free=free,
        context=context,
        others=others,
        processes=_processes(oom, machine, before),
        allocated=allocated,
        unallocated=unallocated,
        vanished=max(0, oom.allocated - allocated_now - oom.rounding) if oom.allocated is not None and mine else 0,
        held=held,
        segments=segments,
        batch=batch,
        grown=_grown(device, allocated, before),
        partial=partial,
    )


# ---------------------------------------------------------------- which device
def _device(oom: OutOfMemory) -> str | None:
    """The device of the error; where the text tells none, the one of which most is in use."""
    if oom.device == HOST or (oom.device is not None and ":" in oom.device):
        return oom.device
    pools = [a for framework in frameworks.loaded() for a in framework.allocators() if a.device != HOST]
    pools = [a for a in pools if oom.device in (None, a.device.partition(":")[0])]
    fullest = max(pools, key=lambda a: a.reserved or a.allocated, default=None)
    return fullest.device if fullest is not None else f"{oom.device}:0" if oom.device is not None else None


def _machine(device: str | None) -> Device | None:
    if device == HOST:
        return devices.read_host()
    known = named(devices.read()) if device is not None else ()
    return next((one for one in known if one.alias == device), None)


def _segments(device: str | None) -> tuple[Segment, ...] | None:
    lists = [framework.segments(device) for framework in frameworks.loaded()] if device not in (None, HOST) else []
    return next((listed for listed in lists if listed is not None), None)


def _need(oom: OutOfMemory, device: str | None) -> int | None:
    """torch's allocators get 2 MiB at a time for small tensors, 20 MiB for those below 10 MiB, else whole 2 MiB."""
    asked = oom.asked
    if asked is None or oom.source != "torch" or device in (None, HOST) or str(device).startswith("mps"):
        return asked
    return 2 * _MIB if asked <= _MIB else 20 * _MIB if asked < 10 * _MIB else -(-asked // (2 * _MIB)) * 2 * _MIB


# ---------------------------------------------------------------- whose the bytes of the device are
def _context(oom: OutOfMemory, machine: Device | None, reserved: int) -> int:
    """What this process has of the device beside its allocators' memory: a context, libraries, other frameworks."""
    if oom.own is not None and oom.allocated is not None and oom.unallocated is not None:
        return max(0, oom.own - oom.allocated - oom.unallocated)
    own = [process.used or 0 for process in (machine.processes if machine else None) or () if process.own]
    return max(0, sum(own) - reserved) if own else 0


def _whole(
    oom: OutOfMemory, machine: Device | None, device: str | None, free: int | None, own: int
) -> tuple[int | None, int | None]:
    """All bytes of the device as its users see it, and those that others have."""
    total = oom.total
    if total is None and machine is not None and machine.total is not None:
        total = machine.total - (machine.reserved or 0)
    if total is None and device is not None:
        asked = [framework.hints.device_total(device) for framework in frameworks.loaded()]
        total = next((found for found in asked if found is not None), None)
    others = max(0, total - free - own) if total is not None and free is not None else None
    return total, others


def _processes(oom: OutOfMemory, machine: Device | None, before: Baseline | None) -> tuple[Other, ...]:
    """The other processes, largest first; those of the text where the driver lists none."""
    listed = [p for p in (machine.processes if machine else None) or () if not p.own and p.used is not None]
    if machine is None or machine.kind == "host":
        return tuple(Other(f"process {pid}", nbytes, None) for pid, nbytes in sorted(oom.others, key=lambda o: -o[1]))
    earlier = next((one for one in (before.devices if before else ()) if one.uuid == machine.uuid), None)
    had = {p.pid: p.used or 0 for p in earlier.processes or ()} if earlier is not None else None
    owners = {owner.pid: owner for owner in devices.owners_of([p.pid for p in listed], of_gpu=True)}
    found = [
        Other(_label(owners.get(p.pid), p.pid), p.used or 0, None if had is None else (p.used or 0) - had.get(p.pid, 0))
        for p in listed
    ]
    return tuple(sorted(found, key=lambda one: -one.nbytes))


def _label(owner: Owner | None, pid: int) -> str:
    if owner is None or owner.role in ("foreign", "hidden", "ended"):
        where = " of another container or user" if owner is not None and owner.role != "ended" else ""
        return f"process {pid}{where}"
    if owner.role in ("kernel", "child", "orphan"):
        notebook = owner.notebook.rpartition("/")[2] if owner.notebook else "another notebook"
        left = ", whose kernel has ended" if owner.role == "orphan" else ""
        return f"{notebook} (pid {pid}{left})"
    return f"{owner.name or 'process'} (pid {pid}{f', {owner.user}' if owner.user else ''})"


def _grown(device: str | None, allocated: int | None, before: Baseline | None) -> int | None:
    pools: Iterable[Allocator] = before.allocators if before is not None else ()
    then = [pool.allocated for pool in pools if pool.device == device]
    return allocated - sum(then) if then and allocated is not None else None


# ---------------------------------------------------------------- what holds this process's memory
def _held(
    shell: session.Shell | None, device: str, error: BaseException, before: Baseline | None, seconds: float
) -> tuple[tuple[Held, ...], int | None, bool]:
    names, live, leaving = holders.usual_groups(shell)
    chain = list(failures.linked(error))
    mine = [Root(_THIS_ERROR, Cause.LAST_ERROR, one) for one in chain]
    olds = _old_names(shell, error, before)
    with holders.look(shell, [device], [names, live, mine, leaving], seconds=seconds) as seen:
        # a tuple that is still growing must not be met by the look
        found = [_one(seen, stored, olds) for stored in seen.stored]
        partial = seen.walk.partial
    batch = _batch(error, device)
    return tuple(found), batch, partial


def _old_names(shell: session.Shell | None, error: BaseException, before: Baseline | None) -> Mapping[str, bool]:
    """Name → whether it was there, with this value, before the cell; if nobody looked then, whether it assigns none."""
    values = session.user_names(shell)
    if before is not None and before.names is not None:
        return {name: before.names.get(name) == id(value) for name, value in values.items()}
    stored: set[str] = set()
    for entry in failures.tracebacks(error):
        code = entry.tb_frame.f_code
        if code.co_name == "<module>" or session.cell_of_file(shell, code.co_filename) is not None:
            stored |= {i.argval for i in dis.get_instructions(code) if i.opname in ("STORE_NAME", "STORE_GLOBAL")}
    return {name: name not in stored for name in values}


def _one(seen: Look, stored: Stored, olds: Mapping[str, bool]) -> Held:
    # first the holder: finding it counts references, so that no local variable may hold the tensor yet
    holder = seen.holder(stored)
    root = seen.root(stored)
    hints = stored.framework.hints
    traits = [hints.traits(tensor) for tensor in stored.tensors]
    described = [stored.framework.describe(tensor) for tensor in stored.tensors]
    largest = max(described, key=lambda tensor: tensor.nbytes)
    return Held(
        kind=_kind(holder.cause, root, holder.name, olds),
        nbytes=stored.part.nbytes,
        path=holder.path,
        pattern=pattern(holder.path),
        name=holder.name,
        cause=holder.cause,
        saved="→ graph" in holder.path,
        parameter=any(one is not None and one.parameter for one in traits) or holder.path.endswith(".grad"),
        shape=largest.shape,
        pointer=stored.pointer,
    )


def _kind(cause: Cause, root: Root | None, name: str | None, olds: Mapping[str, bool]) -> str:
    if cause is Cause.NAME:
        return "before" if name is None or olds.get(name, True) else "step"
    if cause is Cause.LAST_ERROR:
        return "step" if root is not None and root.label == _THIS_ERROR else "dangling"
    if cause is Cause.RUNNING:
        return "step" if root is not None and root.label.startswith("running") else "before"
    if cause in (Cause.MODULE, Cause.REGISTRY):
        return "before"
    return "dangling" if cause.freeable else "stuck"


def _batch(error: BaseException, device: str) -> int | None:
    """The first dimension of most bytes of the tensors, but parameters, in the frames of the error's functions."""
    sizes: dict[int, int] = {}
    seen: set[int] = set()
    for entry in failures.tracebacks(error):
        frame = entry.tb_frame
        if frame.f_locals is frame.f_globals:
            continue
        values = frame_locals(frame)
        for value in values.values():
            if id(value) not in seen:
                seen.add(id(value))
                _count_first(value, device, sizes)
        values.clear()
    if not sizes:
        return None
    first, nbytes = max(sizes.items(), key=lambda item: item[1])
    return first if first > 1 and nbytes >= 0.6 * sum(sizes.values()) else None


def _count_first(value: object, device: str, sizes: dict[int, int]) -> None:
    for framework in frameworks.loaded():
        if framework.kind(type(value)) != "tensor" or framework.is_bare(value):
            continue
        traits = framework.hints.traits(value)
        on_device = any(part.device == device for part in framework.parts(value))
        if on_device and traits is not None and not traits.parameter:
            tensor = framework.describe(value)
            if tensor.shape:
                sizes[tensor.shape[0]] = sizes.get(tensor.shape[0], 0) + tensor.nbytes


# ---------------------------------------------------------------- would it have fitted?
def fits(found: Shortage, gone: Sequence[Held]) -> bool:
    """Whether the request would have found room, had these storages not been there."""
    if found.asked is None or found.need is None or found.short is None:
        return False
    nbytes = sum(one.nbytes for one in gone)
    pointers = {one.pointer for one in gone if one.pointer}
    if found.segments is None or not pointers or _has_room(found, set()):
        return nbytes >= found.short  # blocks are not listed, or have changed since the error
    return _has_room(found, pointers)


def _has_room(found: Shortage, gone: set[int]) -> bool:
    """Laid out block by block: a free run that is long enough, or enough whole segments for the driver."""
    asked, need, returned = found.asked or 0, found.need or 0, found.free or 0
    pool = "small" if asked <= _MIB else "large"
    for segment in found.segments or ():
        run = longest = 0
        for block in segment.blocks:
            free = block.state == "free" or block.address in gone
            run = run + block.nbytes if free else 0
            longest = max(longest, run)
        if segment.private:
            continue
        if segment.pool == pool and longest >= asked:
            return True
        returned += segment.nbytes if longest == segment.nbytes else 0
    return returned >= need
