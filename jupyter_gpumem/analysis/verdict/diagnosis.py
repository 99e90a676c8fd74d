"""Why there was no memory: exactly one main cause, by evidence, or *not sure*."""
from __future__ import annotations

from collections.abc import Iterable, Sequence

from jupyter_gpumem import devices, frameworks, session
from jupyter_gpumem.analysis.growth import Mark
from jupyter_gpumem.analysis.inventory import is_watched
from jupyter_gpumem.analysis.snapshot import HOST, named
from jupyter_gpumem.analysis.verdict import failures
from jupyter_gpumem.analysis.verdict.accrued import accrued
from jupyter_gpumem.analysis.verdict.failures import read as read
from jupyter_gpumem.analysis.verdict.reasons import Case, finding, most_that_fit, with_batch
from jupyter_gpumem.analysis.verdict.shortage import gather
from jupyter_gpumem.errors import InputError
from jupyter_gpumem.introspect import type_name
from jupyter_gpumem.model import Baseline, CellUse, DeviceFault, Diagnosis, Fact, Origin, OutOfMemory, Reason
from jupyter_gpumem.units import shown

_LAST_CELLS = 8


# ---------------------------------------------------------------- asking
def baseline(
    shell: session.Shell | None,
    watched: Sequence[str] | None = None,
    cells: Sequence[CellUse] = (),
    with_devices: bool = False,
) -> Baseline:
    """What is to be known before a cell runs: cheap enough for every cell. ``with_devices`` asks the drivers too, for
    some milliseconds.
    """
    errors = session.shown_errors(shell)
    mine = [a for framework in frameworks.loaded() for a in framework.allocators()]
    return Baseline(
        names={name: id(value) for name, value in session.user_names(shell).items()},
        allocators=tuple(a for a in mine if watched is None or is_watched(a.device, watched)),
        devices=tuple(named(devices.read())) if with_devices else (),
        cells=tuple(cells)[-_LAST_CELLS:],
        last_error=_named(shell, errors[0]) if errors else None,
    )


def _named(shell: session.Shell | None, error: BaseException) -> str:
    place = failures.where(shell, error)
    return f"{type_name(error)} in {place}" if place else type_name(error)


def diagnose(
    shell: session.Shell | None, error: BaseException | None = None, before: Baseline | None = None
) -> Diagnosis | DeviceFault:
    """The cause of an error, by default of the last one that tells of memory or of a device.

    Raises InputError if there is none.
    """
    for one in session.errors(shell) if error is None else [error]:
        found = read(one)
        if isinstance(found, OutOfMemory):
            return judge(shell, found, one, before)
        if found is not None:
            return found
    what = "no error of the last cells" if error is None else f"{type_name(error)} is none that"
    raise InputError(f"{what} tells of missing memory or of a fault of a device: run the cell that fails first")


def sentence(shell: session.Shell | None, oom: OutOfMemory, error: BaseException) -> str:
    """What was asked for and where, in one line; for a report of which the error is only a part."""
    return _asked(oom, oom.device, failures.origin(shell, _telling(error)))


def _telling(error: BaseException) -> BaseException:
    found = failures.telling(error)
    return found[0] if found is not None else error


def _asked(oom: OutOfMemory, device: str | None, origin: Origin) -> str:
    what = f"{_about(oom)}{shown(oom.asked)} asked" if oom.asked is not None else "asked for an untold size"
    free = f", {_about(oom)}{shown(oom.free)} free" if oom.free is not None else ""
    on = f" on {device}" if device is not None else ""
    return f"out of memory{on}: {what}{free}" + (f", {origin.place}" if origin.place else "")


def _about(oom: OutOfMemory) -> str:
    return "about " if oom.rounding > 8 << 20 else ""


# ---------------------------------------------------------------- judging
def judge(
    shell: session.Shell | None,
    out_of_memory: OutOfMemory,
    error: BaseException,
    before: Baseline | None = None,
    *,
    marks: Sequence[Mark] = (),
    seconds: float = 5.0,
) -> Diagnosis:
    """The cause of an out-of-memory error. To be called while the error is alive, in the thread that runs the cells.

    ``before`` tells what had been there before the cell; without it, names that the cell assigns are taken for its own,
    and nobody can be said to have grown. ``marks`` are looks after earlier rounds of the same work.
    """
    origin = failures.origin(shell, _telling(error))
    found = gather(shell, out_of_memory, error, before, seconds)
    batch = found.batch or _common([tensor.shape for _, tensor in origin.tensors])
    case = Case(out_of_memory, origin, found, before, accrued(found, before, marks), batch)
    main = finding(case)
    most = most_that_fit(case) if main.reason is Reason.STEP else None
    if main.reason is Reason.STEP:
        main = with_batch(shell, case, main, most)
    return Diagnosis(
        error=out_of_memory,
        origin=origin,
        reason=main.reason,
        cause=main.cause,
        cure=main.cure,
        code=main.code,
        facts=tuple(_facts(case)),
        contributing=tuple(_contributing(case, main.reason)),
        most=most,
    )


def _common(shapes: Sequence[tuple[int, ...]]) -> int | None:
    firsts = {shape[0] for shape in shapes if shape}
    return firsts.pop() if len(firsts) == 1 and max(firsts) > 1 else None


# ---------------------------------------------------------------- the evidence
def _facts(case: Case) -> Iterable[Fact]:
    found, oom = case.found, case.oom
    rounded = f" (rounded in the text to {shown(2 * oom.rounding)})" if oom.rounding else ""
    yield Fact(f"asked{rounded}", found.asked)
    if found.need is not None and found.need != found.asked:
        yield Fact("the allocator gets that in whole segments", found.need)
    limit = oom.limit is not None and found.total == oom.limit
    yield Fact("what this process may have at most" if limit else f"{found.device or 'the device'} has", found.total)
    yield Fact("free at that moment", found.free)
    if found.context:
        yield Fact("context and libraries of this process", found.context)
    yield Fact("others on the device", found.others)
    for one in found.processes[:5]:
        more = f", {shown(one.grown)} more than before the cell" if one.grown else ""
        yield Fact(f"  {one.label}{more}", one.nbytes)
    yield Fact("the failing cell's own, its frames and graphs", found.of("step"))
    yield Fact("kept by names from before, libraries, threads", found.of("before"))
    yield Fact("dangling, a clean-up frees it", found.of("dangling"))
    if found.of("stuck"):
        yield Fact("held by what Python cannot see", found.of("stuck"))
    if found.unallocated is not None:
        yield Fact("reserved, but used by no tensor", found.unallocated)
    if found.vanished:
        yield Fact("let go of since the error", found.vanished)
    if case.leak is not None:
        yield Fact(case.leak.words, case.leak.nbytes)
    if found.grown is not None:
        yield Fact("allocated since the cell began", found.grown)
    if found.partial:
        yield Fact("the search for holders ran out of time: what it did not reach counts as held by nobody")


def _contributing(case: Case, main: Reason) -> Iterable[tuple[Reason, str]]:
    """What else would be worth a clean-up, in order of the reasons."""
    found = case.found
    least = max(1, (found.total or 0) // 50)
    dangling = found.of("dangling")
    if main is not Reason.DANGLING and dangling >= least:
        yield Reason.DANGLING, f"{shown(dangling)} dangles (%gpufree)"
    if main is not Reason.OTHERS and (found.others or 0) >= least:
        yield Reason.OTHERS, f"others hold {shown(found.others)}"
    if main is not Reason.FRAGMENTS and found.device != HOST and (found.unallocated or 0) >= 2 * least:
        yield Reason.FRAGMENTS, f"{shown(found.unallocated)} is reserved, but used by no tensor"
    if main is not Reason.LEAK and case.leak is not None:
        yield Reason.LEAK, case.leak.words
