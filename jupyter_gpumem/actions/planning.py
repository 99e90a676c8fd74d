"""From a request to a plan: which actions would give back which storages.

The roots of the search are parted into those that stay and those that the request lets go of. A storage is promised
if no root that stays reaches it. So one search answers what would be freed, by which action, and who holds the rest.
"""
from __future__ import annotations

import builtins
import difflib
import gc
import inspect
import types
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from jupyter_gpumem import frameworks, session
from jupyter_gpumem.actions import moving
from jupyter_gpumem.actions.emptying import empty_actions
from jupyter_gpumem.analysis import holders, roots
from jupyter_gpumem.analysis.holders import Look
from jupyter_gpumem.analysis.inventory import Stored
from jupyter_gpumem.analysis.references import Root, walk
from jupyter_gpumem.analysis.snapshot import HOST
from jupyter_gpumem.errors import InputError
from jupyter_gpumem.introspect import is_a
from jupyter_gpumem.model import Action, Cause, Plan, Step

_OF_ERROR = {Cause.LAST_ERROR, Cause.FRAME, Cause.CYCLE}


@dataclass(frozen=True)
class Request:
    """What a clean-up is asked to do."""

    watched: tuple[str, ...]
    names: tuple[str, ...] = ()
    """Names to delete."""
    dangling: bool = True
    """Free what no name keeps."""
    error: bool = True
    """The last error may go."""
    output: bool = True
    """Outputs may go."""
    kept_outputs: frozenset[int] = frozenset()
    """ids of output values that stay in any case."""
    is_new: Callable[[Stored], bool] | None = None
    """Which storages are the request's business; None for all."""
    error_only: bool = False
    """Of what dangles only the last error, and what nothing reaches, may go."""
    movable: bool = False
    """Containers that hold other values too are kept, and only the tensors in them moved to the host."""

    @property
    def thaws(self) -> bool:
        """Whether ``gc.freeze()`` is lifted: not by the clean-up that comes by itself after an error."""
        return not self.error_only


@dataclass
class Prepared:
    """A plan and the live objects that it speaks of: to be applied at once or dropped."""

    request: Request
    plan: Plan
    outputs: list[object] = field(default_factory=list)
    """Values that leave ``Out`` and its like."""
    namespaces: list[str] = field(default_factory=list)
    moves: list[moving.Move] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    """The last error and those that hang on it, unless something that stays holds them."""
    frames: list[types.FrameType] = field(default_factory=list)
    """Frames of these errors that may be cleared."""
    promised: list[frameworks.Remembered] = field(default_factory=list)
    everything: list[frameworks.Remembered] = field(default_factory=list)
    storages: frozenset[tuple[str, int]] = frozenset()
    """``(device, address)`` of what was promised."""


def check_names(shell: session.Shell | None, names: Iterable[str]) -> None:
    """Raise InputError for a name that cannot be deleted, with the nearest one that can."""
    known = session.user_names(shell)
    for name in names:
        if not name.isidentifier():
            raise InputError(f"{name!r} is not a Python name; give names of this notebook, as: %gpufree batch model")
        if name in known:
            if is_a(known[name], types.ModuleType):
                raise InputError(f"{name!r} is a module; give the name of a value in it")
        elif hasattr(builtins, name):
            raise InputError(f"{name!r} is built into Python, not a name of this notebook")
        else:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise InputError(f"no name {name!r} in this notebook{hint}")


def prepare(shell: session.Shell | None, request: Request) -> Prepared:
    """Look, and plan what the request asks for. Changes nothing.

    Raises InputError for names that cannot be deleted.
    """
    check_names(shell, request.names)
    values = session.user_names(shell)
    outputs = _leaving_outputs(shell, request, {id(values[name]) for name in request.names})
    groups = _groups(shell, request, outputs)
    errors = _linked_errors(session.errors(shell))
    with holders.look(shell, request.watched, groups, also=[*errors, *_frames_of(errors)], exhaustive=True) as seen:
        return _planned(shell, request, seen, outputs, errors)


def _leaving_outputs(shell: session.Shell | None, request: Request, named: set[int]) -> dict[str, object]:
    """Label → value of the outputs that the request lets go of."""
    everything = request.dangling and request.output and not request.error_only
    return {
        label: value
        for label, value in session.outputs(shell)
        if id(value) in named or (everything and id(value) not in request.kept_outputs)
    }


def _groups(shell: session.Shell | None, request: Request, outputs: dict[str, object]) -> list[list[Root]]:
    values = session.user_names(shell)
    go = roots.leaving(shell)
    leaving = [root for root in go if _leaves(root, request, outputs)]
    staying = [root for root in go if root not in leaving]
    deleted = [Root(name, Cause.NAME, values[name], name) for name in request.names]
    return [roots.names(shell, without=request.names), [*roots.live(shell), *staying], deleted, leaving]


def _leaves(root: Root, request: Request, outputs: dict[str, object]) -> bool:
    if root.cause is Cause.OUTPUT:
        return root.label in outputs
    if root.cause is Cause.LAST_ERROR:
        return request.dangling and request.error
    return request.dangling and not request.error_only


def _planned(
    shell: session.Shell | None,
    request: Request,
    seen: Look,
    outputs: dict[str, object],
    errors: Sequence[BaseException],
) -> Prepared:
    mine = [stored for stored in seen.stored if request.is_new is None or request.is_new(stored)]
    by_root: dict[tuple[Cause, str], list[Stored]] = {}
    unreached: list[Stored] = []
    for stored in mine:
        root = seen.root(stored)
        if root is None:
            unreached.append(stored)
        else:
            by_root.setdefault((root.cause, root.label), []).append(stored)
    prepared = Prepared(request, Plan((), request.watched))
    promised: list[Stored] = []
    actions = [
        *_name_actions(shell, request, seen, by_root, promised, prepared),
        *_leaving_actions(shell, request, by_root, promised, prepared, outputs),
        *_collect_actions(request, seen, unreached, promised),
    ]
    actions += _cache_actions(request, promised)

    if any(action.step is Step.LAST_ERROR for action in actions):
        prepared.errors = [error for error in errors if _is_leaving(seen, error)]
        prepared.frames = _may_clear(seen, _frames_of(prepared.errors))
    wanted = _asked_for(request, seen, mine)
    kept = [stored for stored in wanted if stored not in promised]
    prepared.plan = Plan(
        actions=tuple(actions),
        watched=request.watched,
        held=tuple(holding for holding in [seen.holding(stored) for stored in kept]),
        notes=_unseen_notes(promised),
    )
    prepared.promised = _remembered(promised)
    prepared.everything = _remembered(seen.stored)
    prepared.storages = frozenset((s.part.device, s.part.address) for s in promised)
    return prepared


def _remembered(stored: Sequence[Stored]) -> list[frameworks.Remembered]:
    tensors = [tensor for one in stored for tensor in one.tensors[:1]]
    return [framework.remember(t for t in tensors if framework.kind(type(t))) for framework in frameworks.loaded()]


def _asked_for(request: Request, seen: Look, mine: Sequence[Stored]) -> list[Stored]:
    """What the user wanted to go: the storages of the names given, and what dangles."""
    inside: set[int] = set()
    for name in request.names:
        inside |= holders.tensors_in(session.user_names(seen.shell)[name]).keys()
    found = [stored for stored in mine if any(id(tensor) in inside for tensor in stored.tensors)]
    if request.dangling:
        causes = _OF_ERROR if request.error_only else set(Cause)
        rest = [stored for stored in mine if stored not in found]
        found += [s for s in rest if seen.holder(s).cause.dangling and seen.holder(s).cause in causes]
    return found


# ---------------------------------------------------------------- the actions
def _bytes(stored: Iterable[Stored]) -> int:
    return sum(one.part.nbytes for one in stored)


def _name_actions(
    shell: session.Shell | None,
    request: Request,
    seen: Look,
    by_root: dict[tuple[Cause, str], list[Stored]],
    promised: list[Stored],
    prepared: Prepared,
) -> list[Action]:
    actions = []
    values = session.user_names(shell)
    for name in request.names:
        held = by_root.pop((Cause.NAME, name), [])
        nbytes = _bytes(held)
        if request.movable and moving.is_mixed(values[name], request.watched):
            if HOST in request.watched:
                continue  # there is nowhere else to move to
            prepared.moves.append(moving.plan_move(seen, name, values[name]))
            actions.append(Action(Step.MOVE, name, nbytes, "it holds other values too and stays"))
        else:
            actions.append(Action(Step.NAME, name, nbytes))
        promised += held
    return actions


def _leaving_actions(
    shell: session.Shell | None,
    request: Request,
    by_root: dict[tuple[Cause, str], list[Stored]],
    promised: list[Stored],
    prepared: Prepared,
    outputs: dict[str, object],
) -> list[Action]:
    """The last error, outputs and namespaces that hold something, or are the value of a deleted name."""
    actions = []
    for (cause, label), stored in by_root.items():
        if cause is Cause.LAST_ERROR and request.error and request.dangling:
            actions.append(Action(Step.LAST_ERROR, label, _bytes(stored), "its frames are cleared; %debug needs them"))
        elif cause is Cause.OUTPUT and label in outputs:
            actions.append(Action(Step.OUTPUT, label, _bytes(stored)))
            prepared.outputs.append(outputs[label])
        elif cause is Cause.HIDDEN and request.dangling and not request.error_only:
            actions.append(Action(Step.HIDDEN, label, _bytes(stored)))
            prepared.namespaces.append(label)
        else:
            continue
        promised += stored
    actions += _also_holding(shell, request, promised, prepared, outputs, {action.target for action in actions})
    # a deleted name goes from the outputs too, whoever else holds its value
    gone = {id(value) for name, value in session.user_names(shell).items() if name in request.names}
    prepared.outputs += [v for v in outputs.values() if id(v) in gone and not any(v is o for o in prepared.outputs)]
    return actions


def _also_holding(
    shell: session.Shell | None,
    request: Request,
    promised: Sequence[Stored],
    prepared: Prepared,
    outputs: dict[str, object],
    listed: Collection[str],
) -> list[Action]:
    """What leaves too because it holds, besides what is listed, something that is promised."""
    actions = []
    wanted = [tensor for stored in promised for tensor in stored.tensors]
    barriers = [*roots.barriers(shell), promised, wanted, *(stored.tensors for stored in promised)]
    for root in roots.leaving(shell) if wanted else ():
        if root.label in listed or not _leaves(root, request, outputs):
            continue
        reached = walk([[root], []], [wanted], barriers)
        holds = len(reached.missing) < len({id(tensor) for tensor in wanted})
        reached.clear()
        if not holds:
            continue
        listed = {*listed, root.label}
        if root.cause is Cause.OUTPUT:
            actions.append(Action(Step.OUTPUT, root.label, 0, "it holds the same memory"))
            prepared.outputs.append(outputs[root.label])
        elif root.cause is Cause.HIDDEN:
            actions.append(Action(Step.HIDDEN, root.label, 0, "it holds the same memory"))
            prepared.namespaces.append(root.label)
        else:
            actions.append(Action(Step.LAST_ERROR, root.label, 0, "it holds the same memory; %debug needs it"))
    return actions


def _collect_actions(
    request: Request, seen: Look, unreached: Sequence[Stored], promised: list[Stored]
) -> list[Action]:
    dead = [stored for stored in unreached if seen.holder(stored).cause in (Cause.CYCLE, Cause.FRAME)]
    if not request.dangling and not promised:
        return []
    promised += dead if request.dangling else []
    frozen = gc.get_freeze_count() if request.thaws else 0
    note = f"gc.freeze() is lifted: the {frozen} objects that it hides are seen and collected again" if frozen else ""
    return [Action(Step.COLLECT, "unreachable objects", _bytes(dead) if not frozen else None, note)]


def _cache_actions(request: Request, promised: Sequence[Stored]) -> list[Action]:
    actions = [
        Action(Step.CACHE, cache, None, "autocast was entered and not left")
        for framework in frameworks.loaded()
        for cache in framework.held_caches()
        if request.dangling and not request.error_only
    ]
    return [*actions, *empty_actions(request.watched, promised)]


def _unseen_notes(promised: Sequence[Stored]) -> tuple[str, ...]:
    """Storages with more references than could be found: they may stay."""
    unsure = [s for s in promised if s.framework.unseen(s.tensors)]
    if not unsure:
        return ()
    return (f"{len(unsure)} of the storages have references that Python cannot see; they may stay",)


# ---------------------------------------------------------------- the last error
def _linked_errors(errors: Iterable[BaseException]) -> list[BaseException]:
    """The errors, their causes and contexts, and the members of groups, each once."""
    get = BaseException.__dict__
    found: dict[int, BaseException] = {}
    todo = list(errors)
    while todo:
        error = todo.pop()
        if id(error) not in found:
            found[id(error)] = error
            linked = [get["__cause__"].__get__(error), get["__context__"].__get__(error)]
            linked += getattr(error, "exceptions", None) or () if _is_group(error) else ()
            todo += [other for other in linked if isinstance(other, BaseException)]
    return list(found.values())


def _is_group(error: BaseException) -> bool:
    group = getattr(builtins, "BaseExceptionGroup", None)
    return group is not None and issubclass(type(error), group)


def _frames_of(errors: Iterable[BaseException]) -> list[types.FrameType]:
    found: dict[int, types.FrameType] = {}
    for error in errors:
        trace = error.__traceback__
        while trace is not None:
            found[id(trace.tb_frame)] = trace.tb_frame
            trace = trace.tb_next
    return list(found.values())


def _is_leaving(seen: Look, obj: object) -> bool:
    """Whether nothing that stays holds an object of the last error."""
    path = seen.walk.path(obj)
    return path is None or path[0].cause is Cause.LAST_ERROR


def _may_clear(seen: Look, frames: Sequence[types.FrameType]) -> list[types.FrameType]:
    """The frames that are over and nobody's. Clearing the frame of a suspended generator would end the generator."""
    codes = {frame.f_code for frame in frames}
    if gc.get_freeze_count():  # it may hide the generators
        frames = [frame for frame in frames if not frame.f_code.co_flags & _SUSPENDS]
    suspended = {
        id(getattr(obj, frame))
        for obj in gc.get_objects()
        if type(obj) in _GENERATORS
        for code, frame in [_GENERATORS[type(obj)]]
        if getattr(obj, code) in codes
    }
    return [frame for frame in frames if id(frame) not in suspended and _is_leaving(seen, frame)]


_SUSPENDS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_GENERATORS: dict[type, tuple[str, str]] = {
    types.GeneratorType: ("gi_code", "gi_frame"),
    types.CoroutineType: ("cr_code", "cr_frame"),
    types.AsyncGeneratorType: ("ag_code", "ag_frame"),
}
