"""Where every byte of a device is: three sums that close, and whose tensors pin the allocator's segments.

Allocated bytes are told apart by what keeps them, reserved bytes by whether they can go back to the driver, the
device's used bytes by whose they are. Where the allocator lists its blocks, each storage is found in its block, and
what no tensor lies in is *unexplained*: it is said, never hidden.
"""
from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from jupyter_gpumem import devices, frameworks, session
from jupyter_gpumem.analysis import holders, sites
from jupyter_gpumem.analysis.holders import Look
from jupyter_gpumem.analysis.inventory import Stored, frozen_notes, is_watched
from jupyter_gpumem.analysis.snapshot import HOST, named, watched_devices
from jupyter_gpumem.analysis.words import is_node
from jupyter_gpumem.frameworks import Framework
from jupyter_gpumem.frameworks.records import Frame
from jupyter_gpumem.model import Account, Allocator, Block, Cause, Device, Entry, Holder, Segment, Sum

_KINDS = ("names", "graphs", "dangling", "libraries", "running")
_BY_CAUSE = {Cause.NAME: "names", Cause.MODULE: "libraries", Cause.REGISTRY: "libraries", Cause.RUNNING: "running"}
_CHANGED = "Memory changed while it was looked at: another thread allocates or frees."
_PARTIAL = "The search for holders ran out of time: what it did not reach counts as dangling."
_UNLISTED = "This allocator does not list its blocks."
_PRIVATE = "free in pools of CUDA graphs or of yours: theirs while they live"
_HOST_NOTE = "Torch keeps no count of host memory: the total is that of the tensors found."


class _Held(NamedTuple):
    """A storage, in plain values."""

    kind: str
    nbytes: int
    pointer: int | None
    """Address of its first byte."""
    holder: Holder


class _Figures(NamedTuple):
    """What an allocator says of itself."""

    allocator: Allocator
    segments: tuple[Segment, ...] | None
    requested: int | None
    sites: dict[int, Frame]
    caches: tuple[str, ...]
    """Caches of the framework that no look can read."""


def explained(account: Account) -> float:
    """The share of the allocated bytes whose holder, or rounding, is known: 0 to 1."""
    total = account.allocated.total
    return 1.0 - (account.allocated.of("unexplained") or 0) / total if total else 1.0


def take(shell: session.Shell | None, device: str | None = None, seconds: float = 10.0) -> tuple[Account, ...]:
    """An account for each framework on each watched device. Nothing is initialised, collected or freed for it.

    To be called in the thread that runs the cells, between them. Raises InputError if ``device`` does not exist.
    """
    watched = watched_devices(device)
    before = _activity()
    with holders.look(shell, watched, seconds=seconds) as seen:
        held: dict[tuple[str, str], list[_Held]] = {}
        in_graphs: dict[int, bool] = {}
        for stored in seen.stored:
            key = (stored.framework.name, stored.part.device)
            held.setdefault(key, []).append(_held(seen, stored, in_graphs))
        partial = seen.walk.partial
        # while the look keeps the tensors alive: none that it found can be missing from the allocator's list
        found = [
            _figures(framework, allocator)
            for framework in frameworks.loaded()
            for allocator in framework.allocators()
            if is_watched(allocator.device, watched)
        ]
    changed = _activity() != before
    reading = devices.read()
    known = [*named(reading), devices.read_host()]
    by_alias = {one.alias: one for one in known if one.alias is not None}
    found += _without_allocator(watched, held, by_alias, {one.allocator.device for one in found})
    reserved: dict[str, int] = {}
    for one in found:
        reserved[one.allocator.device] = reserved.get(one.allocator.device, 0) + (one.allocator.reserved or 0)
    accounts = []
    for one in found:
        framework, place = one.allocator.framework, one.allocator.device
        mine = held.get((framework, place), [])
        allocated, segments = _allocated(one, mine)
        machine = by_alias.get(place)
        notes = [*([_PARTIAL] if partial else []), *frozen_notes()]
        notes += [_CHANGED] if changed and place != HOST else []
        notes += [_HOST_NOTE] if place == HOST else [_UNLISTED] if one.segments is None else []
        notes += [reading.problem] if machine is None and reading.problem else []
        kept, used = (
            _host(machine, allocated) if place == HOST else (_reserved(one), _used(machine, reserved[place]))
        )
        places = {address: sites.place(shell, frame) for address, frame in one.sites.items()}
        segments = tuple(_with_sites(segment, places) for segment in segments) if places else segments
        accounts.append(
            Account(framework, place, allocated, kept, used, segments, tuple(notes), partial)
        )
    return tuple(accounts)


def _activity() -> list[tuple[int, ...]]:
    return [framework.activity() for framework in frameworks.loaded()]


def _without_allocator(
    watched: Sequence[str],
    held: Mapping[tuple[str, str], Sequence[_Held]],
    by_alias: Iterable[str],
    present: Iterable[str],
) -> list[_Figures]:
    """The host, whose total its tensors are, and devices that a framework can use but has not initialised."""
    found = []
    for framework in frameworks.loaded():
        to_come = framework.may_use()
        for place in by_alias:
            if not is_watched(place, watched) or place in present:
                continue
            if place == HOST or place.partition(":")[0] == to_come:
                nbytes = sum(one.nbytes for one in held.get((framework.name, place), ()))
                reserved = None if place == HOST else 0
                found.append(_Figures(Allocator(framework.name, place, nbytes, reserved), None, nbytes, {}, ()))
    return found


# ---------------------------------------------------------------- what keeps a storage
def _held(seen: Look, stored: Stored, in_graphs: dict[int, bool]) -> _Held:
    # first the holder: finding it counts references, so that no local variable may hold the tensor yet
    holder = seen.holder(stored)
    kind = _BY_CAUSE.get(holder.cause, "dangling")
    if kind == "names" and _through_graph(seen, stored, in_graphs):
        kind = "graphs"
    return _Held(kind, stored.part.nbytes, stored.pointer, holder)


def _through_graph(seen: Look, stored: Stored, in_graphs: dict[int, bool]) -> bool:
    """Whether the name keeps it only as a part of an autograd graph."""
    best = seen.best(stored)
    return best is not None and seen.walk.passes(best, is_node, in_graphs)


def _figures(framework: Framework, allocator: Allocator) -> _Figures:
    device = allocator.device
    sites = framework.allocation_sites(device)
    return _Figures(
        allocator, framework.segments(device), framework.requested(device), sites, framework.held_caches()
    )


# ---------------------------------------------------------------- allocated
def _allocated(figures: _Figures, held: Sequence[_Held]) -> tuple[Sum, tuple[Segment, ...]]:
    parts = [Entry(kind, sum(one.nbytes for one in held if one.kind == kind)) for kind in _KINDS]
    known = sum(one.nbytes for one in held)
    if figures.allocator.device == HOST:
        return Sum(known, tuple(parts)), ()
    if figures.segments is not None:
        return _by_blocks(figures, figures.segments, held, parts)
    total, requested = figures.allocator.allocated, figures.requested
    rest = (total if requested is None else requested) - known
    rounding = None if requested is None else total - requested
    notes = ["with the rounding of all blocks"] if requested is None else []
    parts += [Entry("rounding", rounding), _unexplained(max(0, rest), figures, notes)]
    parts += [_outside(-rest)] if rest < 0 else []
    return Sum(total, tuple(parts)), ()


def _unexplained(nbytes: int, figures: _Figures, notes: list[str]) -> Entry:
    caches = [f"perhaps: {cache}" for cache in figures.caches] if nbytes else []
    return Entry("unexplained", nbytes, ", ".join([*notes, *caches]))


def _outside(nbytes: int) -> Entry:
    return Entry("outside", -nbytes, "memory that is not this allocator's, or counted with another tensor's")


class _Taken:
    """An allocated block while storages are laid into it."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.spans: list[tuple[int, int]] = []
        """The bytes that lie under storages, ``(begin, end)``, apart from each other."""
        self.holder: Holder | None = None

    def lay(self, begin: int, end: int, holder: Holder) -> int:
        """Lay a storage into the block; the bytes of the block that no other one lies on already."""
        end = min(end, self.block.address + self.block.nbytes)
        apart = [span for span in self.spans if span[1] <= begin or span[0] >= end]
        under = [span for span in self.spans if not (span[1] <= begin or span[0] >= end)]
        before = sum(b - a for a, b in under)
        begin, end = min([begin, *(a for a, _ in under)]), max([end, *(b for _, b in under)])
        self.spans = [*apart, (begin, end)]
        self.holder = self.holder or holder  # they come largest first
        return end - begin - before


def _by_blocks(
    figures: _Figures, segments: Sequence[Segment], held: Sequence[_Held], parts: list[Entry]
) -> tuple[Sum, tuple[Segment, ...]]:
    """The sum by blocks. A storage counts with all its bytes; those on which another one lies too are taken off
    again as *outside*, like those in no block at all.
    """
    taken = [_Taken(block) for segment in segments for block in segment.blocks if block.state == "allocated"]
    starts = [one.block.address for one in taken]
    outside = 0
    for one in held:
        at = bisect_right(starts, one.pointer) - 1 if one.pointer is not None else -1
        pointer = one.pointer or 0
        inside = at >= 0 and pointer < taken[at].block.address + taken[at].block.nbytes
        outside += one.nbytes - (taken[at].lay(pointer, pointer + one.nbytes, one.holder) if inside else 0)
    used = [(one.block.nbytes, sum(end - begin for begin, end in one.spans)) for one in taken if one.spans]
    empty = [one.block.nbytes for one in taken if not one.spans]
    rounding = sum(size - inside for size, inside in used)
    notes = [f"{len(empty)} block{'s' * (len(empty) != 1)} that no tensor found lies in"] if empty else []
    parts += [Entry("rounding", rounding), _unexplained(sum(empty), figures, notes)]
    parts += [_outside(outside)] if outside else []
    by_address = {one.block.address: one.holder for one in taken if one.holder is not None}
    filled = tuple(
        replace(s, blocks=tuple(replace(b, holder=by_address.get(b.address)) for b in s.blocks)) for s in segments
    )
    return Sum(sum(one.block.nbytes for one in taken), tuple(parts)), filled


# ---------------------------------------------------------------- reserved
def _reserved(figures: _Figures) -> Sum:
    allocator = figures.allocator
    if allocator.reserved is None:
        parts = [Entry("allocated", allocator.allocated), Entry("cached", None), Entry("fragments", None)]
        return Sum(None, tuple(parts))
    if figures.segments is None:
        note = "an unknown part of it cannot be returned" if allocator.cached else ""
        parts = [Entry("allocated", allocator.allocated), Entry("awaiting", None)]
        parts += [Entry("cached", allocator.cached, note), Entry("fragments", None)]
        return Sum(allocator.reserved, tuple(parts))
    states = dict.fromkeys(("allocated", "awaiting"), 0)
    for segment in figures.segments:
        for block in segment.blocks:
            if block.state != "free":
                states[block.state] += block.nbytes
    cached = sum(segment.free for segment in figures.segments if segment.returnable)
    private = sum(segment.free for segment in figures.segments if segment.private)
    fragments = sum(segment.free for segment in figures.segments) - cached - private
    parts = [Entry(state, nbytes) for state, nbytes in states.items()]
    parts += [Entry("cached", cached), Entry("fragments", fragments)]
    parts += [Entry("private", private, _PRIVATE)] if private else []
    return Sum(sum(segment.nbytes for segment in figures.segments), tuple(parts))


# ---------------------------------------------------------------- the whole device
def _used(device: Device | None, reserved: int) -> Sum:
    """``reserved`` is what all frameworks of this process have reserved on the device."""
    processes = (device.processes if device is not None else None) or ()
    own = [process.used for process in processes if process.own]
    rest_of = [process.used for process in processes if not process.own]
    context = max(0, sum(used or 0 for used in own) - reserved) if any(used is not None for used in own) else None
    others = None if None in rest_of else sum(used or 0 for used in rest_of)
    note = ""
    if device is None or device.processes is None:
        others = None
    elif not own and reserved:
        others, note = None, "this process cannot be told from the others in the driver's list"
    total = device.used if device is not None else None
    # what is not told of this process and of others is in it; below 0 the driver's figures are of different moments
    rest = total - reserved - (context or 0) - (others or 0) if total is not None else None
    unattributed = Entry("unattributed", rest if rest is not None and rest >= 0 else None)
    if unattributed.nbytes and (context is None or others is None):
        missing = [name for name, known in (("context", context), ("others", others)) if known is None]
        unattributed = replace(unattributed, note=f"with {' and '.join(missing)}, which the driver does not tell")
    parts = (Entry("reserved", reserved), Entry("context", context), Entry("others", others, note), unattributed)
    return Sum(total, parts)


def _host(host: Device | None, allocated: Sum) -> tuple[Sum, Sum]:
    """This process's resident memory, its tensors and the rest; and the host's: this process, and all others with the
    system.
    """
    resident = next((process.used for process in (host.processes if host else None) or () if process.own), None)
    if host is None or host.used is None or resident is None:
        mine = Sum(resident, (Entry("tensors", None), Entry("rest", None)))
        return mine, Sum(host.used if host else None, (Entry("resident", resident), Entry("system", None)))
    own = min(resident, host.used)
    tensors = min(allocated.total or 0, own)
    note = "less than allocated: pages never written take no memory" if tensors < (allocated.total or 0) else ""
    mine = Sum(own, (Entry("tensors", tensors, note), Entry("rest", own - tensors)))
    return mine, Sum(host.used, (Entry("resident", own), Entry("system", host.used - own)))


# ---------------------------------------------------------------- where it was allocated
def _with_sites(segment: Segment, sites: Mapping[int, str]) -> Segment:
    return replace(segment, blocks=tuple(replace(b, site=sites.get(b.address)) for b in segment.blocks))
