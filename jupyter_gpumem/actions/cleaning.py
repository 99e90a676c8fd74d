"""Plan, apply and report: what goes, what really came back, and who holds the rest."""
from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

from jupyter_gpumem import frameworks, session
from jupyter_gpumem.actions import moving
from jupyter_gpumem.actions.planning import Prepared, Request, prepare
from jupyter_gpumem.analysis import holders, roots
from jupyter_gpumem.analysis.snapshot import allocators
from jupyter_gpumem.model import Action, Freed, Holding, Plan, Report, Step


def plan(shell: session.Shell | None, request: Request) -> Plan:
    """What a clean-up would do. Raises InputError for names that cannot be deleted."""
    return prepare(shell, request).plan


def free(shell: session.Shell | None, request: Request, running: Any = None) -> Report:
    """Plan a clean-up and do it at once.

    ``running`` is the ``ExecutionResult`` of a cell that has ended but is not yet reported: it goes on to say whether
    the cell failed. Raises InputError for names that cannot be deleted; then nothing has changed.
    """
    return apply(shell, prepare(shell, request), running)


def apply(shell: session.Shell | None, prepared: Prepared, running: Any = None) -> Report:
    """Do what has been planned. A step that fails does not keep the others from being done."""
    watched = prepared.plan.watched
    before = allocators(watched)
    done: list[Action] = []
    faults: list[str] = []
    for action in prepared.plan.actions:
        try:
            _STEPS[action.step](shell, action, prepared, running)
        except Exception as fault:  # reported, line by line; the user's session goes on
            faults.append(f"{action.step.value} {action.target}: {type(fault).__name__}: {fault}")
        else:
            done.append(action)
    prepared.outputs.clear()
    prepared.errors.clear()
    prepared.frames.clear()
    prepared.moves.clear()
    return Report(
        plan=prepared.plan,
        done=tuple(done),
        freed=sum(remembered.gone() for remembered in prepared.everything),
        before=before,
        after=allocators(watched),
        left=_left(shell, prepared),
        faults=tuple(faults),
    )


def _left(shell: session.Shell | None, prepared: Prepared) -> tuple[Holding, ...]:
    """What was promised and is still there, and what was asked for and could not be promised."""
    request = prepared.request
    gone = sum(remembered.gone() for remembered in prepared.promised)
    broken = gone < prepared.plan.promised and bool(prepared.storages)
    if not broken and not prepared.plan.held:
        return ()
    asked = set(prepared.storages) | {(h.device, h.storage) for h in prepared.plan.held}
    found, _ = holders.holdings(shell, request.watched)
    return tuple(holding for holding in found if (holding.device, holding.storage) in asked)


# ---------------------------------------------------------------- the steps
def _delete_name(shell: session.Shell | None, action: Action, prepared: Prepared, running: Any) -> None:
    value = session.namespace(shell).get(action.target)
    session.delete_name(shell, action.target)
    if any(value is output for output in prepared.outputs):
        session.replace_outputs(shell, [value], _record)
        prepared.outputs[:] = [output for output in prepared.outputs if output is not value]


def _move(shell: session.Shell | None, action: Action, prepared: Prepared, running: Any) -> None:
    for move in prepared.moves:
        if move.name == action.target:
            session.namespace(shell)[move.name] = moving.move(move, prepared.plan.watched)


def _forget_error(shell: session.Shell | None, action: Action, prepared: Prepared, running: Any) -> None:
    session.forget_error(shell, running)
    for frame in prepared.frames:
        try:
            frame.clear()
        except RuntimeError:
            continue  # still running
        # before Python 3.13 the copy of the variables that a formatter has read survives clear(), until read anew
        frame.f_locals  # noqa: B018
    prepared.frames.clear()
    prepared.errors.clear()


def _forget_output(shell: session.Shell | None, action: Action, prepared: Prepared, running: Any) -> None:
    session.replace_outputs(shell, prepared.outputs, _record)
    prepared.outputs.clear()


def _forget_namespace(shell: session.Shell | None, action: Action, prepared: Prepared, running: Any) -> None:
    for file in session.run_namespaces(shell):
        if action.target == roots.run_label(file):
            session.forget_namespace(shell, file)


def _collect(shell: session.Shell | None, action: Action, prepared: Prepared, running: Any) -> None:
    """Collect, and once more if finalizers may have made more garbage.

    A freeze is lifted for good: freezing again would freeze what lives now, and no cycle of that would ever be freed.
    """
    if prepared.request.thaws:
        gc.unfreeze()
    if gc.collect():
        gc.collect()


def _clear_cache(shell: session.Shell | None, action: Action, prepared: Prepared, running: Any) -> None:
    for framework in frameworks.loaded():
        framework.clear_caches()


def _empty_cache(shell: session.Shell | None, action: Action, prepared: Prepared, running: Any) -> None:
    for framework in frameworks.loaded():
        framework.empty_cache()


_STEPS: dict[Step, Callable[[session.Shell | None, Action, Prepared, Any], None]] = {
    Step.NAME: _delete_name,
    Step.MOVE: _move,
    Step.LAST_ERROR: _forget_error,
    Step.OUTPUT: _forget_output,
    Step.HIDDEN: _forget_namespace,
    Step.COLLECT: _collect,
    Step.CACHE: _clear_cache,
    Step.EMPTY: _empty_cache,
}


def _record(value: object) -> Freed:
    """What stands in ``Out`` for a freed value."""
    when = time.strftime("%H:%M:%S")
    for framework in frameworks.loaded():
        if framework.kind(type(value)) == "tensor":
            tensor = framework.describe(value)
            return Freed(tensor.kind, _nbytes(value), when, tensor.shape, tensor.dtype)
    return Freed(type(value).__name__, _nbytes(value), when)


def _nbytes(value: object) -> int:
    parts = {
        part
        for tensor in holders.tensors_in(value).values()
        for framework in frameworks.loaded()
        if framework.kind(type(tensor)) == "tensor"
        for part in framework.parts(tensor)
    }
    return sum(part.nbytes for part in parts)
