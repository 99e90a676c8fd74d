"""What has changed between two moments, and what grows round by round, by holder.

A mark keeps sums by pattern and no object: ``losses[17]`` and ``losses[18]`` are both ``losses[·]``, so that a storage
which another one of the same size has replaced under the same path is no change.
"""
from __future__ import annotations

import collections
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from jupyter_gpumem import session
from jupyter_gpumem.analysis import holders
from jupyter_gpumem.analysis.holders import Look
from jupyter_gpumem.analysis.inventory import Stored
from jupyter_gpumem.analysis.references import Root
from jupyter_gpumem.analysis.snapshot import HOST, allocators
from jupyter_gpumem.errors import InputError
from jupyter_gpumem.introspect import is_a
from jupyter_gpumem.model import Allocator, Cause, Change, Growth, Leaks, Trend, Verdict
from jupyter_gpumem.units import shown

PROOF = 3
"""Steps from round to round in which a path must have grown to be called a leak."""
_WAITING = (Cause.CYCLE, Cause.FRAME)
"""What the next collection frees."""

# ---------------------------------------------------------------- patterns
_STRING = r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\""""


def _brackets(depth: int) -> str:
    """Brackets with what a key may be: text in quotes, or a name that has indices itself."""
    inner = f"|{_brackets(depth - 1)}" if depth else ""
    return rf"\[(?:[^\[\]'\"]|{_STRING}{inner})*\]"


_PARTS = re.compile(
    # a long key is cut in the middle of its quotes; a number is an attribute only of a list of modules
    rf"(?P<index>\[.{{45}}…\]|{_brackets(3)}|(?<=[\w\]])\.\d+(?!\w))"
    r"|(?P<label>(?<!\w)'[^']*')"
    r"|(?P<count> \(\d+ saved tensors\))"
)
_LINE = re.compile(r"\(\), line \d+")


def pattern(path: str) -> str:
    """A holder's path with ``[·]`` for every index and key: ``losses[17]`` → ``losses[·]``.

    The number of tensors behind a graph goes, and so does the line at which a running function stands: both change
    from look to look. Lines of frames that do not run stay.
    """
    if path.startswith(("running: ", "thread '")):
        path = _LINE.sub("()", path, count=1)
    return _PARTS.sub(_part, path)


def _part(match: re.Match[str]) -> str:
    return {"index": "[·]", "count": ""}.get(match.lastgroup or "", match[0])


# ---------------------------------------------------------------- marks
class Kept(NamedTuple):
    """What one pattern keeps."""

    nbytes: int
    storages: int


_NOTHING = Kept(0, 0)
_Key = tuple[str, Cause]


@dataclass(frozen=True)
class Mark:
    """What each holder kept at one moment. Plain values: it keeps nothing alive."""

    name: str
    time: float
    """Seconds since the epoch."""
    watched: tuple[str, ...]
    allocators: tuple[Allocator, ...]
    held: Mapping[_Key, Kept]
    """``(pattern, cause)`` → bytes and storages."""
    filling: frozenset[_Key] = frozenset()
    """Those whose storages all lie in a ``deque`` that has room up to its ``maxlen``."""
    partial: bool = False
    """The search for holders ran out of time."""

    @property
    def kept(self) -> Kept:
        """All of it."""
        return Kept(sum(one.nbytes for one in self.held.values()), sum(one.storages for one in self.held.values()))


def mark(
    shell: session.Shell | None,
    name: str,
    watched: Sequence[str],
    also: Sequence[Root] = (),
    seconds: float = 10.0,
) -> Mark:
    """One look, as sums by pattern. Nothing is collected for it, and no object is kept.

    ``also`` are further roots, for what neither a name nor running code holds.
    """
    held: dict[_Key, Kept] = {}
    with_room: set[_Key] = set()
    without: set[_Key] = set()
    filling: dict[int, bool] = {}
    with look(shell, watched, also, seconds) as seen:
        for stored in seen.stored:
            holder = seen.holder(stored)
            key = (pattern(holder.path), holder.cause)
            so_far = held.get(key, _NOTHING)
            held[key] = Kept(so_far.nbytes + stored.part.nbytes, so_far.storages + 1)
            (with_room if _is_filling(seen, stored, filling) else without).add(key)
        host_bytes = sum(stored.part.nbytes for stored in seen.stored if stored.part.device == HOST)
        partial = seen.walk.partial
    return Mark(
        name=name,
        time=time.time(),
        watched=tuple(watched),
        allocators=allocators(watched, host_bytes),
        held=held,
        filling=frozenset(with_room - without),
        partial=partial,
    )


def look(shell: session.Shell | None, watched: Sequence[str], also: Sequence[Root] = (), seconds: float = 10.0) -> Look:
    """A look, in a ``with`` block, that begins at some further roots too, after all that is in use."""
    names, live, leaving = holders.usual_groups(shell)
    return holders.look(shell, watched, [names, live, list(also), leaving], seconds=seconds)


def _is_filling(seen: Look, stored: Stored, filling: dict[int, bool]) -> bool:
    best = seen.best(stored)
    return best is not None and seen.walk.passes(best, _has_room, filling)


def _has_room(obj: object) -> bool:
    """Whether it is a bounded ``deque`` that is not yet full. Subclasses are asked through the base's own methods."""
    if not is_a(obj, collections.deque):
        return False
    most = collections.deque.__dict__["maxlen"].__get__(obj)
    return most is not None and collections.deque.__len__(obj) < most  # type: ignore[arg-type]


def diff(a: Mark, b: Mark) -> Growth:
    """What each holder keeps more or less at ``b`` than at ``a``; the bytes of all changes sum to the difference.

    Raises InputError if the marks watched different kinds of devices.
    """
    if a.held and _kinds(a) != _kinds(b):
        raise InputError(
            f"{a.name!r} watched {', '.join(a.watched)}, {b.name!r} {', '.join(b.watched)}: "
            "marks can be compared that watched the same devices"
        )
    changes = []
    for key in dict.fromkeys((*a.held, *b.held)):
        before, after = a.held.get(key, _NOTHING), b.held.get(key, _NOTHING)
        nbytes = after.nbytes - before.nbytes
        if nbytes:
            kind = "larger" if nbytes > 0 else "smaller"
            kind = "new" if key not in a.held else "gone" if key not in b.held else kind
            changes.append(Change(*key, kind, nbytes, after.storages - before.storages))
    changes.sort(key=lambda change: (-abs(change.nbytes), change.path))
    return Growth(a.name, b.name, (a.allocators, b.allocators), tuple(changes), a.partial or b.partial)


def _kinds(mark: Mark) -> set[str]:
    return {device.partition(":")[0] for device in mark.watched}


# ---------------------------------------------------------------- rounds of the same work
def trends(looks: Sequence[Mark]) -> tuple[Trend, ...]:
    """What grew from round to round, proven leaks first, then the largest growth; what was steady is left out.

    Each look is one after a round; the first round warms up, so that its look is what the others are compared with.
    """
    keys = dict.fromkeys(key for one in looks for key in one.held)
    found = [trend for key in keys if (trend := _trend(key, looks)).verdict is not Verdict.STEADY]
    found.sort(key=lambda trend: (trend.verdict is not Verdict.LEAK, trend.sizes[0] - trend.sizes[-1], trend.path))
    return tuple(found)


def _trend(key: _Key, looks: Sequence[Mark]) -> Trend:
    kept = [one.held.get(key, _NOTHING) for one in looks]
    verdict = _judged(kept)
    # what the collector or a bound will end, or what was not looked at to the end, proves nothing
    short = key[1] in _WAITING or key in looks[-1].filling or any(one.partial for one in looks[-PROOF - 1 :])
    if verdict is Verdict.LEAK and short:
        verdict = Verdict.UNSURE
    return Trend(*key, tuple(one.nbytes for one in kept), tuple(one.storages for one in kept), verdict)


def _judged(kept: Sequence[Kept]) -> Verdict:
    rose = [after.nbytes > before.nbytes and after.storages > before.storages for before, after in pairwise(kept)]
    if len(rose) >= PROOF and all(rose[-PROOF:]):
        return Verdict.LEAK
    often = len(rose) > PROOF and sum(rose[-PROOF - 1 :]) >= PROOF and kept[-1].nbytes > kept[-PROOF - 2].nbytes
    # fewer storages that get larger: a tensor to which others are appended, or one whose size only varies
    larger = all(after.nbytes > before.nbytes for before, after in pairwise(kept))
    always = bool(rose) and (all(rose) if len(rose) < PROOF else larger)
    return Verdict.UNSURE if often or always else Verdict.STEADY


def verdict(title: str, looks: Sequence[Mark]) -> Leaks:
    """What some rounds prove, from one look after each; ``rounds`` of the answer leaves out the one that warms up."""
    found = trends(looks)
    notes = [*_notes(found, looks)]
    verdicts = {trend.verdict for trend in found} | ({Verdict.UNSURE} if len(looks) < 2 else set())
    if not found and len(looks) > PROOF and _judged([one.kept for one in looks]) is Verdict.LEAK:
        verdicts.add(Verdict.UNSURE)
        new = [path for path, cause in looks[-1].held if (path, cause) not in looks[-2].held]
        step = (looks[-1].kept.nbytes - looks[-PROOF - 1].kept.nbytes) // PROOF
        listed = ", ".join(new[:3]) + (", …" if len(new) > 3 else "")
        notes.append(f"{shown(step)} more each round under other paths each time" + (f": {listed}" if listed else ""))
    worst = next((one for one in (Verdict.LEAK, Verdict.UNSURE) if one in verdicts), Verdict.STEADY)
    return Leaks(title, max(0, len(looks) - 1), worst, found, tuple(notes))


def _notes(found: Sequence[Trend], looks: Sequence[Mark]) -> list[str]:
    notes = []
    if len(looks) < 2:
        notes.append("one round proves nothing: the first one warms up")
    steps = max(1, len(looks) - 1)
    waiting = sum(trend.sizes[-1] - trend.sizes[0] for trend in found if trend.cause in _WAITING) // steps
    if waiting > 0:
        notes.append(
            f"dead cycles hold {shown(waiting)} more each round; the collector does not run for device memory: "
            "gc.collect() or %gpufree"
        )
    for trend in found:
        if (trend.path, trend.cause) in looks[-1].filling:
            notes.append(f"{trend.path} is in a deque that stops growing at its maxlen")
        elif trend.storages[0] == trend.storages[-1]:
            notes.append(f"{trend.path} holds no more storages, but larger ones")
    if any(one.partial for one in looks):
        notes.append("The search for holders ran out of time; some of this may be only for that reason.")
    return notes
