"""The peak of a call before it is made, and the largest batch with which it fits.

A framework rehearses the call on tensors without memory; what it would allocate is played through a model of the
allocator, from the segments as they are now. Nothing is allocated, and the session stays as it is.
"""
from __future__ import annotations

import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jupyter_gpumem import devices, frameworks, randomness, session
from jupyter_gpumem.analysis import sites
from jupyter_gpumem.analysis import snapshot as _snapshot
from jupyter_gpumem.analysis.inventory import is_watched
from jupyter_gpumem.analysis.replay import Piece, Pool, rounded
from jupyter_gpumem.errors import InputError
from jupyter_gpumem.frameworks import Framework
from jupyter_gpumem.frameworks.records import Allocation, Input, Rehearsal, RehearsalError
from jupyter_gpumem.model import BatchPeak, DevicePeak, Entry, Forecast, PeakOperation

_MOST = 14
"""Rehearsals in one forecast."""
_NARROW = 16
"""Between batches as near as this the middle is tried."""
_SECONDS = 60.0
"""After which no further batch is tried."""
_KINDS = ("parameters", "gradients", "optimizer", "buffers", "inputs", "activations", "temporaries")
_UNSEEN = "not counted: workspaces of cuBLAS, cuDNN and custom kernels, and what another stream keeps back for a while"
_UNSEEN_HOST = "not counted: what operations allocate for themselves, and what is no tensor"


def take(
    shell: session.Shell | None,
    words: str,
    function: Callable[..., object],
    args: Sequence[object] = (),
    kwargs: Mapping[str, object] | None = None,
    device: str | None = None,
    batches: bool = True,
) -> Forecast:
    """The forecast of ``function(*args, **kwargs)``; ``words`` is the call as the user wrote it.

    Raises InputError if the call cannot be rehearsed, or ``device`` does not exist.
    """
    watched = _snapshot.watched_devices(device)
    found = frameworks.loaded()
    if not found:
        raise InputError("a forecast needs a framework: import torch first")
    desk = _Desk(found[0], watched, function, args, kwargs or {})
    rehearsal, problem = _tried(shell, desk, {})
    if rehearsal is None:
        raise InputError(problem)
    peaks = desk.peaks(shell, rehearsal)
    notes = [text + (f" ({sites.with_code(shell, frame)})" if frame else "") for text, frame in rehearsal.notes]
    notes += dict.fromkeys(_UNSEEN_HOST if peak.device == _snapshot.HOST else _UNSEEN for peak in peaks)
    search = _Search(desk, shell, rehearsal.inputs, peaks) if batches and rehearsal.inputs and peaks else None
    if search is None:
        return Forecast(words, peaks, notes=tuple(notes))
    notes.insert(0, f"the batch is the first dimension of {search.told()}")
    rows = tuple(search.at(batch) for batch in _around(search.batch))
    largest, exact = search.largest()
    rows += (search.at(largest),) if largest and largest > rows[-1].batch else ()
    return Forecast(words, peaks, search.batch, rows, largest, exact, tuple(notes))


def _tried(shell: session.Shell | None, desk: _Desk, sizes: Mapping[int, int]) -> tuple[Rehearsal | None, str]:
    """A rehearsal, or why there is none. No error goes on: its frames would keep what the call was made with."""
    try:
        return desk.rehearse(sizes), ""
    except RehearsalError as refusal:
        where = f" ({sites.with_code(shell, refusal.frame)})" if refusal.frame else ""
        return None, f"no forecast: {refusal}{where}"


@dataclass(frozen=True)
class _Device:
    """A device as it is when the forecast begins."""

    name: str
    baseline: int
    limit: int | None
    segments: Any
    """None where the allocator lists none."""
    grows: bool


class _Desk:
    """One call, and the devices as they are now."""

    def __init__(
        self,
        framework: Framework,
        watched: Sequence[str],
        function: Callable[..., object],
        args: Sequence[object],
        kwargs: Mapping[str, object],
    ) -> None:
        self._framework, self._watched = framework, watched
        self._call = (function, args, kwargs)
        self._known: dict[str, _Device] = {}
        # before a rehearsal, whose copies may wait for the next collection of garbage
        self._host_bytes = _snapshot.host_storage_bytes() if _snapshot.HOST in watched else None

    def rehearse(self, sizes: Mapping[int, int]) -> Rehearsal:
        """Make the call once, and put the random generators back. Raises RehearsalError."""
        before = randomness.take()
        try:
            return self._framework.rehearse(*self._call, sizes)
        finally:
            before.restore()

    def peaks(self, shell: session.Shell | None, rehearsal: Rehearsal) -> tuple[DevicePeak, ...]:
        """What the call needs on each device, the largest first."""
        used = dict.fromkeys(one.device for one in rehearsal.allocations if one.nbytes)
        mine = [name for name in used if is_watched(name, self._watched)] or list(used)
        found = [_peak(shell, self._device(name), rehearsal) for name in mine]
        return tuple(sorted(found, key=lambda one: one.baseline - one.peak))

    def _device(self, name: str) -> _Device:
        if name not in self._known:
            self._known[name] = self._look(name)
        return self._known[name]

    def _look(self, name: str) -> _Device:
        if name == _snapshot.HOST:
            held = self._host_bytes if self._host_bytes is not None else _snapshot.host_storage_bytes()
            free = devices.read_host().free
            return _Device(name, held, None if free is None else held + free, None, False)
        segments = self._framework.segments(name)
        own = next((one for one in self._framework.allocators() if one.device == name), None)
        held, reserved = (own.allocated, own.reserved or 0) if own is not None else (0, 0)
        known = {one.alias: one.free for one in _snapshot.named(devices.read())}
        free = known.get(name)
        free = self._framework.free_bytes(name) if free is None else free
        grows = self._framework.hints.expands()
        return _Device(name, held, None if free is None else reserved + free, segments, grows)


# ---------------------------------------------------------------- one device
def _peak(shell: session.Shell | None, device: _Device, rehearsal: Rehearsal) -> DevicePeak:
    """Play what happened on one device through its allocator."""
    pool = None if device.segments is None else Pool(device.segments, device.limit, device.grows)
    step = 1 if device.name == _snapshot.HOST else 512
    mine = {n: one for n, one in enumerate(rehearsal.allocations) if one.device == device.name}
    sizes = {n: one.nbytes for n, one in mine.items() if one.existing}
    pieces: dict[int, Piece | None] = {n: pool.at(mine[n].address) for n in sizes} if pool is not None else {}
    counted = {n: piece.nbytes if (piece := pieces.get(n)) else rounded(sizes[n], step) for n in sizes}
    unrelated = device.baseline - sum(counted.values())
    now = highest = device.baseline
    reserved = pool.reserved if pool is not None else None
    at = -1
    for place, (number, nbytes) in enumerate(rehearsal.events):
        if number not in mine:
            continue
        now -= counted.pop(number, 0)
        piece = pieces.pop(number, None)
        if pool is not None and piece is not None:
            pool.give(piece)
        if nbytes:
            piece = pieces[number] = pool.take(nbytes) if pool is not None else None
            counted[number] = piece.nbytes if piece is not None else rounded(nbytes, step)
            now += counted[number]
        if pool is not None and reserved is not None:
            reserved = max(reserved, pool.reserved)
        if now > highest:
            highest, at = now, place
    fits = None if device.limit is None else not pool.failed if pool is not None else highest <= device.limit
    parts = _parts(mine, rehearsal, at, unrelated, highest)
    made = mine[rehearsal.events[at][0]] if at >= 0 else None
    operation = _operation(shell, made) if made is not None and made.operation else None
    return DevicePeak(
        device.name, device.baseline, highest, now, reserved, device.limit, fits, parts, operation
    )


def _parts(
    mine: Mapping[int, Allocation], rehearsal: Rehearsal, at: int, unrelated: int, peak: int
) -> tuple[Entry, ...]:
    """What is allocated after the event ``at``, by kind."""
    alive = {n: one.nbytes for n, one in mine.items() if one.existing}
    born: dict[int, int] = {}
    for place, (number, nbytes) in enumerate(rehearsal.events[: at + 1]):
        if number in mine:
            alive[number] = nbytes
            born.setdefault(number, place)
    ends = {number: place for place, (number, nbytes) in enumerate(rehearsal.events) if not nbytes and place > at}
    backward = [place for place, (n, size) in enumerate(rehearsal.events) if size and _is_backward(rehearsal, n)]
    sums: Counter[str] = Counter()
    for number, nbytes in alive.items():
        kind = mine[number].kind
        if kind == "activations":
            end = ends.get(number, len(rehearsal.events))
            between = bisect_right(backward, end) > bisect_right(backward, born[number])
            kind = "activations" if between else "temporaries"
        sums[kind] += nbytes
    entries = [Entry(kind, sums[kind]) for kind in _KINDS if sums[kind]]
    rounding = peak - unrelated - sum(sums.values())
    return (*entries, *([Entry("rounding", rounding)] if rounding else []), Entry("unrelated", unrelated))


def _is_backward(rehearsal: Rehearsal, number: int) -> bool:
    made = rehearsal.allocations[number]
    return not made.existing and made.kind in ("temporaries", "gradients")


def _operation(shell: session.Shell | None, made: Allocation) -> PeakOperation:
    return PeakOperation(made.operation, made.made, sites.with_code(shell, made.frame) if made.frame else None)


# ---------------------------------------------------------------- batches
def _batch(inputs: Sequence[Input]) -> int:
    """The first dimension of the largest input; one with further dimensions tells more than a row of numbers."""
    return max(1, max(inputs, key=lambda one: (len(one.shape) > 1, one.nbytes)).shape[0])


def _around(batch: int) -> list[int]:
    return sorted({max(1, batch // 4), max(1, batch // 2), batch, batch * 2, batch * 4})


class _Search:
    """Forecasts of one call with other batches, each made once.

    Inputs with as many rows as the batch are resized, and those with a multiple of it: what was flattened. Where the
    call cannot be made so, the multiples are left alone.
    """

    def __init__(
        self, desk: _Desk, shell: session.Shell | None, inputs: Sequence[Input], peaks: tuple[DevicePeak, ...]
    ) -> None:
        self._desk, self._shell = desk, shell
        self.batch = batch = _batch(inputs)
        self._inputs = [one for one in inputs if one.shape[0] and one.shape[0] % batch == 0]
        self._until = time.monotonic() + _SECONDS
        self._known = {self.batch: peaks}
        self._rows = {self.batch: _row(self.batch, peaks)}
        equal = [one for one in self._inputs if one.shape[0] == batch]
        if len(equal) < len(self._inputs) and self.at(batch * 2).problem:
            self._inputs = equal
            del self._rows[batch * 2]

    def told(self) -> str:
        """The inputs that are resized, each kind once."""
        return ", ".join(dict.fromkeys(f"{one.dtype} {'×'.join(map(str, one.shape))}" for one in self._inputs))

    def at(self, batch: int) -> BatchPeak:
        """The call with this batch."""
        if batch not in self._rows:
            sizes = {one.identity: one.shape[0] // self.batch * batch for one in self._inputs}
            rehearsal, problem = _tried(self._shell, self._desk, sizes)
            if rehearsal is None:
                self._rows[batch] = BatchPeak(batch, (), None, problem.removeprefix("no forecast: "))
            else:
                peaks = self._known[batch] = self._desk.peaks(self._shell, rehearsal)
                self._rows[batch] = _row(batch, peaks)
        return self._rows[batch]

    def largest(self) -> tuple[int | None, bool]:
        """The largest batch that fits, and whether the next one does not."""
        while len(self._rows) < _MOST and time.monotonic() < self._until:
            low, high = self._bounds()
            if high is not None and high - low <= 1:
                return low, True
            guess = self._guess(low, high)
            if guess is None or self.at(guess).problem:
                break
        low, high = self._bounds()
        known = any(row.fits is not None for row in self._rows.values())
        return (low if known else None), high is not None and high - low <= 1

    def _bounds(self) -> tuple[int, int | None]:
        """The largest batch known to fit, and the smallest known not to."""
        return (
            max((row.batch for row in self._rows.values() if row.fits), default=0),
            min((row.batch for row in self._rows.values() if row.fits is False), default=None),
        )

    def _guess(self, low: int, high: int | None) -> int | None:
        """Where the limit should be, if the need grows in proportion. None if it does not grow, or none is known."""
        if high is not None and high - low <= _NARROW:
            return (low + high) // 2
        known = sorted((batch, peaks[0]) for batch, peaks in self._known.items())
        ends = [point for point in known if high is None or not low or point[0] in (low, high)][-2:]
        limit = known[0][1].limit
        if len(ends) < 2 or limit is None:
            return None
        (first, one), (second, other) = ends
        # what is reserved grows in steps, and not at all between near batches
        steps = [(a, b) for a, b in ((one.reserved, other.reserved), (one.peak, other.peak)) if a and b and b > a]
        if not steps:
            return None if high is None else (low + high) // 2
        need, more = steps[0]
        guess = max(low + 1, first + int((limit - need) * (second - first) / (more - need)))
        if high is None:
            return guess
        margin = (high - low) // 8  # each answer is to cut off something
        return min(max(guess, low + margin), high - margin)


def _row(batch: int, peaks: Sequence[DevicePeak]) -> BatchPeak:
    answers = {peak.fits for peak in peaks}
    fits = False if False in answers else None if None in answers else True
    return BatchPeak(batch, tuple((peak.device, peak.peak) for peak in peaks), fits)
