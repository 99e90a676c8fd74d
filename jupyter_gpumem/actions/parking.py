"""Parking: what some objects have on a device goes to host memory in place, and comes back to where it was.

Each is planned first and then done as a whole or not at all. What is parked is remembered weakly, by its storage: a
model that is deleted meanwhile leaves nothing of ours behind. Owned by the thread that runs the cells.
"""
from __future__ import annotations

import difflib
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from jupyter_gpumem import devices, frameworks, session
from jupyter_gpumem.actions.relocation import Key, Move, Progress, Way, joined, key_of, moves_of, relocated
from jupyter_gpumem.analysis import names as _names
from jupyter_gpumem.analysis.inventory import Stored, is_watched
from jupyter_gpumem.analysis.snapshot import HOST, allocators, named, watched_devices
from jupyter_gpumem.errors import InputError
from jupyter_gpumem.frameworks.records import Relocated
from jupyter_gpumem.introspect import type_name
from jupyter_gpumem.model import Direction, Moved, ParkedName, Parking
from jupyter_gpumem.units import shown

_HOST_MARGIN = 20
"""One part in so many of the host's memory stays free."""


@dataclass(frozen=True)
class _Parked:
    """A storage in host memory that came from a device."""

    label: str
    device: str
    nbytes: int
    checksum: int
    versions: Mapping[int, int]
    handle: frameworks.Remembered


_parked: dict[Key, _Parked] = {}
_gone: Counter[str] = Counter()
"""Name → bytes that were parked under it and have been deleted since; forgotten once it has been told."""


# ---------------------------------------------------------------- what is asked for
def values(shell: session.Shell | None, wanted: Iterable[str]) -> dict[str, object]:
    """The objects of some names. Raises InputError for a name that is not there, with the nearest one."""
    known = session.user_names(shell)
    found: dict[str, object] = {}
    for name in wanted:
        if name not in known:
            _prune()
            if nbytes := _gone.pop(name, 0):
                raise InputError(f"{name!r} was parked and has been deleted since: its {shown(nbytes)} are free")
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise InputError(f"no name {name!r} in this notebook{hint}")
        found[name] = known[name]
    return found


def labelled(shell: session.Shell | None, objects: Sequence[object]) -> dict[str, object]:
    """Objects under the names that a person knows them by, or their types. Raises InputError for a name as text."""
    known = {id(value): name for name, value in session.user_names(shell).items()}
    found: dict[str, object] = {}
    for obj in objects:
        if type(obj) is str:
            raise InputError(f"give the object itself, {obj}, not its name as text")
        label = known.get(id(obj), type_name(obj))
        while label in found and found[label] is not obj:
            label += "'"
        found[label] = obj
    if not found:
        raise InputError("nothing to park: give models, optimizers or tensors")
    return found


def parked_names() -> tuple[ParkedName, ...]:
    """What lies in host memory and is to go back, by name, largest first."""
    _prune()
    found: Counter[tuple[str, str]] = Counter()
    for entry in _parked.values():
        found[entry.label, entry.device] += entry.nbytes
    return tuple(ParkedName(label, device, nbytes) for (label, device), nbytes in found.most_common())


def parked_under(labels: Collection[str]) -> frozenset[Key]:
    """The storages that were parked under some names, whoever holds them now. Raises InputError if there are none."""
    _prune()
    found = frozenset(key for key, entry in _parked.items() if entry.label in labels)
    if not found:
        _refuse_restore(dict.fromkeys(labels))
    return found


def _prune() -> None:
    for key, entry in list(_parked.items()):
        if not entry.handle.knows(key[1]):
            _gone[entry.label] += entry.nbytes
            del _parked[key]


# ---------------------------------------------------------------- parking
def plan_park(shell: session.Shell | None, objects: Mapping[str, object], device: str | None = None) -> Parking:
    """What :func:`park` would do, and what is in its way. Changes nothing.

    Raises InputError if the objects hold nothing on the device.
    """
    moves, obstacles = _plan_park(shell, objects, device)
    return Parking(Direction.PARK, _summary(moves), False, obstacles=obstacles, notes=_strangers(moves))


def park(
    shell: session.Shell | None,
    objects: Mapping[str, object],
    device: str | None = None,
    progress: Progress | None = None,
) -> Parking:
    """Move what the objects have on the watched devices to host memory, under every reference, and empty the cache.

    All of it moves, or none: raises InputError with the reasons, and everything is where it was.
    """
    moves, obstacles = _plan_park(shell, objects, device)
    if obstacles:
        raise InputError(f"nothing was moved: {joined(obstacles)}")
    watched = sorted({move.way.device for move in moves})
    before = allocators(watched)
    done = relocated(moves, progress)
    for move, moved in zip(moves, done, strict=True):
        handle = move.framework.remember(move.tensors[:1])
        address = move.framework.parts(move.tensors[0])[0].address
        _parked[move.framework.name, address] = _Parked(
            move.label, move.way.device, move.nbytes, moved.checksum, moved.versions, handle
        )
    _empty_caches()
    summary, notes = _summary(moves), _strangers(moves)
    moves.clear()
    return Parking(Direction.PARK, summary, True, before, allocators(watched), notes=notes)


def _plan_park(
    shell: session.Shell | None, objects: Mapping[str, object], device: str | None
) -> tuple[list[Move], tuple[str, ...]]:
    watched = watched_devices(device)
    if HOST in watched:
        raise InputError("nothing to park: there is no accelerator in use, and host memory is where things would go")
    _prune()

    def going(stored: Stored) -> Way | None:
        return Way(stored.part.device, HOST) if is_watched(stored.part.device, watched) else None

    moves, obstacles = moves_of(shell, objects, going)
    if not moves and not obstacles:
        _refuse_park(shell, objects, watched)
    host = devices.read_host()
    need, room = sum(move.nbytes for move in moves), max(0, (host.free or 0) - (host.total or 0) // _HOST_MARGIN)
    if need > room:
        obstacles = (*obstacles, f"host memory has room for {shown(room)}, and {shown(need)} are needed")
    return moves, obstacles


def _refuse_park(shell: session.Shell | None, objects: Mapping[str, object], watched: Sequence[str]) -> None:
    words = ", ".join(objects)
    there, _ = moves_of(shell, objects, _coming_back)
    nbytes, lies = sum(move.nbytes for move in there), bool(there)
    there.clear()
    if lies:
        raise InputError(f"{words}: parked already, {shown(nbytes)} in host memory; %gpurestore brings it back")
    raise InputError(f"{words}: nothing of it is on {', '.join(watched)}")


# ---------------------------------------------------------------- restoring
def plan_restore(
    shell: session.Shell | None,
    objects: Mapping[str, object] | None = None,
    only: Collection[Key] | None = None,
) -> Parking:
    """What :func:`restore` would do, and what is in its way. Changes nothing."""
    moves, obstacles = _plan_restore(shell, objects, only)
    return Parking(Direction.RESTORE, _summary(moves), False, obstacles=obstacles, notes=_strangers(moves))


def restore(
    shell: session.Shell | None,
    objects: Mapping[str, object] | None = None,
    progress: Progress | None = None,
    only: Collection[Key] | None = None,
) -> Parking:
    """Bring back what is parked of the objects, or everything, to the devices that it came from.

    All of it moves, or none: raises InputError with the reasons, and everything is where it was. What the user has
    changed in host memory comes back as changed, and the notes say so. ``only`` are the storages to look at.
    """
    moves, obstacles = _plan_restore(shell, objects, only)
    if obstacles:
        raise InputError(f"nothing was moved: {joined(obstacles)}")
    watched = sorted({move.way.device for move in moves})
    before = allocators(watched)
    try:
        done = relocated(moves, progress)
    except BaseException:
        if _reserved(watched) > sum(a.reserved or 0 for a in before):
            _empty_caches()  # the segments that the failed attempt took from the driver
        raise
    notes = (*_strangers(moves), *_changes(moves, done), *_told_gone())
    for move in moves:
        _parked.pop(move.key, None)
    summary = _summary(moves)
    moves.clear()
    return Parking(Direction.RESTORE, summary, True, before, allocators(watched), notes=notes)


def _plan_restore(
    shell: session.Shell | None, objects: Mapping[str, object] | None, only: Collection[Key] | None = None
) -> tuple[list[Move], tuple[str, ...]]:
    _prune()
    wanted = set(_parked) if only is None else set(_parked) & set(only)

    def coming(stored: Stored) -> Way | None:
        return _coming_back(stored) if key_of(stored) in wanted else None

    moves, obstacles = moves_of(shell, objects, coming)
    if not moves and not obstacles and only is None:
        _refuse_restore(objects)
    return moves, (*obstacles, *_room(shell, moves))


def _refuse_restore(objects: Mapping[str, object] | None) -> None:
    gone = "; ".join(_told_gone())
    if objects is None:
        raise InputError(f"nothing is parked{f': {gone}' if gone else ''}")
    there = ", ".join(one.name for one in parked_names()) or "nothing"
    raise InputError(f"{', '.join(objects)}: nothing of it is parked; parked: {there}")


def _told_gone() -> list[str]:
    told = [f"{name} was parked and has been deleted since: its {shown(n)} are free" for name, n in _gone.items()]
    _gone.clear()
    return told


def _coming_back(stored: Stored) -> Way | None:
    entry = _parked.get(key_of(stored)) if stored.part.device == HOST else None
    return Way(entry.device, entry.device, entry.label) if entry is not None else None


def _changes(moves: Sequence[Move], done: Sequence[Relocated]) -> list[str]:
    """What was changed in host memory, which is the user's right."""
    counted, uncounted = 0, 0
    for move, moved in zip(moves, done, strict=True):
        entry = _parked.get(move.key)
        if entry is not None and entry.checksum != moved.checksum:
            known = any(entry.versions.get(ref, count) != count for ref, count in moved.versions.items())
            counted, uncounted = counted + known, uncounted + (not known)
    notes = [f"{counted} of the storages were changed in host memory: the changed bytes are back"] if counted else []
    if uncounted:
        notes.append(
            f"{uncounted} of the storages have other bytes than when they were parked, though torch counted no change "
            "(a write through NumPy or .data leaves no count): the bytes of the host are back"
        )
    return notes


# ---------------------------------------------------------------- room on the device
def _reserved(watched: Sequence[str]) -> int:
    return sum(allocator.reserved or 0 for allocator in allocators(watched))


def _room(shell: session.Shell | None, moves: Sequence[Move]) -> list[str]:
    """A sentence for each device that certainly has no room for what is to come back, with who holds it."""
    need: Counter[str] = Counter()
    for move in moves:
        need[move.way.device] += move.nbytes
    if not need:
        return []
    free = {device.alias: device for device in named(devices.read()) if device.alias in need}
    found = []
    for name, nbytes in need.items():
        device = free.get(name)
        cached = sum(a.cached or 0 for a in allocators([name]))
        if device is not None and device.free is not None and nbytes > device.free + cached:
            room = f"{shown(device.free)} free and {shown(cached)} cached"
            found.append(f"{name} has {room}, and {shown(nbytes)} are to come back; it is held by {_who(shell, name)}")
    return found


def _who(shell: session.Shell | None, device: str) -> str:
    """The largest names on a device, and the other processes."""
    seen, _ = _names.take(shell, (device,))
    words = [f"{use.name} ({shown(use.nbytes)})" for use in seen.names[:3]]
    for known in named(devices.read()):
        if known.alias == device:
            words += [f"process {p.pid} ({shown(p.used)})" for p in known.processes or () if not p.own][:3]
    return ", ".join(words) or "no name of yours"


def _empty_caches() -> None:
    for framework in frameworks.loaded():
        framework.empty_cache()


def _summary(moves: Sequence[Move]) -> tuple[Moved, ...]:
    found: dict[tuple[str, str], Moved] = {}
    for move in moves:
        known = found.get((move.label, move.way.device), Moved(move.label, move.way.device, 0, 0, 0))
        found[move.label, move.way.device] = replace(
            known,
            nbytes=known.nbytes + move.nbytes,
            storages=known.storages + 1,
            tensors=known.tensors + len(move.tensors),
        )
    return tuple(sorted(found.values(), key=lambda moved: -moved.nbytes))


def _strangers(moves: Sequence[Move]) -> tuple[str, ...]:
    count = sum(move.strangers for move in moves)
    if not count:
        return ()
    words = "tensor that these names do not hold points" if count == 1 else "tensors that these names do not hold point"
    return (f"{count} {words} into the same memory and moves along",)


# ---------------------------------------------------------------- for a block of code
class Parked:
    """Objects that are in host memory inside a ``with`` block. See ``jupyter_gpumem.parked``."""

    def __init__(self, shell: session.Shell | None, objects: Mapping[str, object], device: str | None) -> None:
        self._shell = shell
        self._objects = dict(objects)
        self._device = device
        self._keys: frozenset[Key] = frozenset()
        self.parking: Parking | None = None
        """What was parked at the beginning."""
        self.restoring: Parking | None = None
        """What came back at the end."""

    def __enter__(self) -> Parked:
        before = set(_parked)
        try:
            self.parking = park(self._shell, self._objects, self._device)
        finally:
            self._objects.clear()  # a model that is deleted in the block is not kept for it
        self._keys = frozenset(set(_parked) - before)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.restoring = restore(self._shell, None, only=self._keys)
        except InputError as refusal:
            if kind is None:
                raise
            warnings.warn(f"jupyter_gpumem: still parked: {refusal}", stacklevel=2)
