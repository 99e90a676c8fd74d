"""The causes of a shortage, each as a question: with this alone gone, would the request have found room?

A tensor that no emptying makes room for comes first, then a step that does not fit beside the names from before it. Of
the rest what has come while the cell ran goes before what can be given back at once, that before what has grown over
the cells, and that before what merely is there.
"""
from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from jupyter_gpumem import frameworks, session
from jupyter_gpumem.analysis.snapshot import HOST
from jupyter_gpumem.analysis.verdict.accrued import Accrued
from jupyter_gpumem.analysis.verdict.shortage import Held, Shortage, fits
from jupyter_gpumem.model import Baseline, Origin, OutOfMemory, Reason
from jupyter_gpumem.units import shown

_EXPAND = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
_LEAST_DANGLING, _LEAST_OTHERS = 100, 20
"""A hundredth, a twentieth of the device: less is no cause, though a request may fail for want of less."""


class Case(NamedTuple):
    """All that is known of one error."""

    oom: OutOfMemory
    origin: Origin
    found: Shortage
    before: Baseline | None
    leak: Accrued | None
    batch: int | None

    @property
    def dangling(self) -> list[Held]:
        return [one for one in self.found.held if one.kind == "dangling"]

    @property
    def step(self) -> int:
        """What the failing cell is known to have held, with what its operation has let go of since."""
        old_error = self.before is not None and self.before.last_error is not None
        return self.found.of("step") + (0 if old_error else self.found.vanished)

    @property
    def room(self) -> int | None:
        """What would be free with all gone but what was there before the cell."""
        total = self.found.total
        return None if total is None else total - self.found.context - self.found.of("before", "stuck")


class Finding(NamedTuple):
    """A cause, and what helps."""

    reason: Reason
    cause: str
    cure: str
    code: str = ""


def finding(case: Case) -> Finding:
    """The main cause."""
    for judged in (_too_large, _step, _others_grew, _dangling, _fragments, _leaked, _others, _nothing_else):
        found = judged(case)
        if found is not None:
            return found
    return _unsure(case)


def _too_large(case: Case) -> Finding | None:
    asked, total, others = case.found.asked, case.found.total, case.found.others or 0
    if asked is None or total is None:
        return None
    room = total - case.found.context
    whole = asked - case.oom.rounding > room
    if not whole and not (asked - case.oom.rounding > room - others and asked >= others):
        return None
    shape = f" of shape {'×'.join(map(str, case.oom.shape))}" if case.oom.shape else ""
    have = f"{shown(room)} is all that {case.found.device} can give" if whole or not others else (
        f"{shown(room - others)} is all that other processes leave of {case.found.device}"
    )
    return Finding(
        Reason.TENSOR,
        f"one tensor{shape} alone takes {shown(asked)}, and {have}",
        "make it smaller: work in pieces, with a smaller batch or a smaller dtype"
        + ("" if case.found.device == HOST else ", or keep it in host memory (device='cpu')"),
    )


def _step(case: Case) -> Finding | None:
    asked, room = case.found.asked, case.room
    if asked is None or room is None or case.step + asked - case.oom.rounding <= room:
        return None
    if case.leak is not None:
        # without what has grown it would have fitted
        held = case.leak.nbytes
        if case.step + asked <= room + held:
            return None
    return _as_step(case)


def _as_step(case: Case) -> Finding:
    asked, room, kept = case.found.asked or 0, case.room or 0, case.found.of("before", "stuck")
    own = f"this step holds {shown(case.step)} and asks for {shown(asked)} more" if case.step else (
        f"this step asks for {shown(asked)}"
    )
    names = f", beside {shown(kept)} that was there before" if kept else ""
    cause = f"{own}; with all else gone {shown(max(0, room))} would be free{names}"
    if kept > case.step + asked:
        largest = _largest(case.found.held, "before")
        movable = {one.name for one in case.found.held if one.kind == "before"}
        name = largest.partition(" (")[0]
        code = f"%gpufree --to-host {name}" if name in movable else "%gpumem"
        cure = f"move a name from before to the host, or let go of it; the largest is {largest}"
        return Finding(Reason.STEP, cause, cure, code)
    return Finding(Reason.STEP, cause, "make the step smaller; --forecast tells what it needs")


def _largest(held: Iterable[Held], kind: str) -> str:
    sizes: dict[str, int] = {}
    for one in held:
        if one.kind == kind:
            name = one.name or one.path
            sizes[name] = sizes.get(name, 0) + one.nbytes
    name, nbytes = max(sizes.items(), key=lambda item: item[1], default=("nothing", 0))
    return f"{name} ({shown(nbytes)})"


def _dangling(case: Case) -> Finding | None:
    found = case.found
    short = found.short
    if short is None or short <= 0:
        return None
    gone = case.dangling
    nbytes = sum(one.nbytes for one in gone)
    if nbytes * _LEAST_DANGLING >= (found.total or 0) and gone and fits(found, gone):
        who = _largest(gone, "dangling")
        return Finding(
            Reason.DANGLING,
            f"{shown(nbytes)} dangles, held by no name of yours, and would have been enough: mostly {who}",
            "free what dangles, and run the cell again",
            "%gpufree",
        )
    old = case.before.last_error if case.before is not None else None
    if old is not None and found.vanished >= short:
        return Finding(
            Reason.DANGLING,
            f"an earlier error ({old}) still held its frames, up to {shown(found.vanished)}, which would have been "
            "enough; this error has replaced it",
            "run the cell again; free what an error leaves before the next try",
            "%gpufree",
        )
    return None


def _others_grew(case: Case) -> Finding | None:
    found = case.found
    short = found.short
    grew = [one for one in found.processes if one.grown is not None and one.grown > 0]
    more = sum(one.grown or 0 for one in grew)
    if short is None or short <= 0 or more < short or more * _LEAST_OTHERS < (found.total or 0):
        return None
    who = max(grew, key=lambda one: one.grown or 0)
    return Finding(
        Reason.OTHERS,
        f"{who.label} took {shown(who.grown)} more of {found.device} meanwhile, and has {shown(who.nbytes)} now",
        *_cure_others(case),
    )


def _fragments(case: Case) -> Finding | None:
    found = case.found
    asked, unallocated = found.asked, found.unallocated
    if asked is None or unallocated is None or found.device == HOST or asked > unallocated + case.oom.rounding:
        return None
    leaked = _leaked(case)
    if leaked is not None and case.leak is not None and case.leak.nbytes > unallocated:
        return leaked
    free = f", and the device had {shown(found.free)} free" if found.free is not None else ""
    cause = (
        f"fragmentation: {shown(unallocated)} of the reserved memory was free, {shown(asked)} was asked, but no free "
        f"piece is as long{free}"
    )
    if any(framework.hints.expands() for framework in frameworks.loaded()):
        return Finding(Reason.FRAGMENTS, cause, "move names to host memory and back, or restart the kernel", "%gpumem")
    return Finding(
        Reason.FRAGMENTS, cause, "set it in the environment before torch is imported, after a restart", _EXPAND
    )


def _leaked(case: Case) -> Finding | None:
    leak, short = case.leak, case.found.short
    if leak is None or short is None or short <= 0 or leak.nbytes < short:
        return None
    how = "keep a number (.item()) or a detached copy there: each entry keeps its graph" if leak.saved else (
        "empty it before the next round, or keep less in it"
    )
    name = leak.path.partition("[")[0].partition(".")[0].partition(" ")[0]
    return Finding(Reason.LEAK, f"{leak.words}, and would have been enough", how, f"%gpumem --why {name}")


def _others(case: Case) -> Finding | None:
    found = case.found
    short = found.short
    if short is None or short <= 0 or _weighty_others(case) < short:
        return None
    listed = ", ".join(f"{one.label} {shown(one.nbytes)}" for one in found.processes[:2])
    who = f"others hold {shown(found.others)} of {found.device}" + (f": {listed}" if listed else "")
    return Finding(Reason.OTHERS, f"{who}; without them it would have fitted", *_cure_others(case))


def _weighty_others(case: Case) -> int:
    others = case.found.others or 0
    return others if others * _LEAST_OTHERS >= (case.found.total or 0) else 0


def _cure_others(case: Case) -> tuple[str, str]:
    if case.found.device == HOST:
        return "end what else needs memory on this machine", ""
    return "shut it down where it runs (the sidebar lists who), or use another device", "%gpumem"


def _nothing_else(case: Case) -> Finding | None:
    """Neither what dangles nor what others hold would have been enough, not even together."""
    found = case.found
    short = found.short
    if short is None or short <= 0 or found.others is None or found.partial:
        return None
    if found.of("dangling") + _weighty_others(case) >= short:
        return None
    return _as_step(case)


def _unsure(case: Case) -> Finding:
    found, words = case.found, "the evidence is short"
    if found.asked is None:
        words = "the error does not say how much was asked for"
    elif found.short is None:
        words = "nobody tells how much was free"
    elif found.short <= 0:
        words = f"{shown(found.free)} was free and less was asked for: a limit of the system or of the driver"
    elif found.others or case.dangling or found.unallocated:
        words = "several things hold a part of it, and none alone would have been enough"
    code = "%gpufree" if case.dangling else "%gpumem" if found.device == HOST else "%gpumem --account"
    return Finding(Reason.UNSURE, f"not sure: {words}", "see where the memory is", code)


# ---------------------------------------------------------------- how large a batch can be
def most_that_fit(case: Case) -> tuple[int, int] | None:
    """An upper bound by proportion: all but parameters, and what the batch does not shape, grows with it."""
    batch, room, asked = case.batch, case.room, case.found.asked
    if batch is None or room is None or asked is None:
        return None
    fixed = sum(one.nbytes for one in case.found.held if one.kind == "step" and one.parameter)
    scaled = [
        one
        for one in case.found.held
        if one.kind == "before" and not one.parameter and any(size % batch == 0 and size for size in one.shape)
    ]
    with_it = sum(one.nbytes for one in scaled)
    variable = case.step - fixed + asked + with_it
    bound = int(batch * max(0, room + with_it - fixed) / variable) if variable > 0 else batch
    return (bound, batch) if 0 < bound < batch else None


def with_batch(
    shell: session.Shell | None, case: Case, found: Finding, most: tuple[int, int] | None
) -> Finding:
    """A step that is too large, with the cure of a smaller batch where one is seen."""
    if found.code:
        return found
    if case.batch is None:
        return found._replace(code="%gpumem --forecast step(...)")
    values = session.user_names(shell)
    names = [name for name, value in values.items() if type(value) is int and value == case.batch]
    name = next((name for name in names if "batch" in name or name == "bs"), names[0] if names else "batch_size")
    bound = f": at most {most[0]} of {most[1]} can fit, an upper bound by proportion" if most else ""
    return found._replace(cure=f"a smaller batch{bound}", code=f"%%gpufree --retry 3 --halve {name}")
