"""Whether the same work, done again and again, leaves more behind each time; and a check of it for tests.

The functions given here are the only code of the user's that this package runs, because that is what was asked for.
"""
from __future__ import annotations

import functools
import gc
import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

from jupyter_gpumem import frameworks, session
from jupyter_gpumem.analysis import growth
from jupyter_gpumem.analysis.growth import PROOF, Mark
from jupyter_gpumem.analysis.inventory import take_inventory
from jupyter_gpumem.analysis.references import Root
from jupyter_gpumem.analysis.snapshot import watched_devices
from jupyter_gpumem.errors import InputError, LeakError
from jupyter_gpumem.introspect import type_name
from jupyter_gpumem.model import Cause, Leaks, Trend, Verdict
from jupyter_gpumem.units import series, shown, signed

_P = ParamSpec("_P")
_R = TypeVar("_R")
_NO_RESULT: Any = object()


class LeakWatch:
    """Looks after each round of the same work, and the verdict on them."""

    def __init__(self, shell: session.Shell | None, device: str | None = None, title: str = "rounds") -> None:
        self.title = title
        self._shell = shell
        self._device = device
        self._looks: list[Mark] = []

    def round(self) -> None:
        """Look once; to be called after each round, the first of which warms up.

        Raises InputError if the device does not exist.
        """
        self._look(())

    def _look(self, also: Sequence[Root]) -> None:
        name = f"round {len(self._looks)}"
        self._looks.append(growth.mark(self._shell, name, watched_devices(self._device), also))

    def judge(self) -> Leaks:
        """What the rounds so far prove. To prove a leak takes four: one that warms up and three in which it grows."""
        return growth.verdict(self.title, self._looks)


def find_leak(
    shell: session.Shell | None,
    function: Callable[..., object],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    rounds: int = 5,
    device: str | None = None,
) -> Leaks:
    """Call a function once to warm up and then ``rounds`` times, with a look after each call, and judge.

    Raises InputError if ``rounds`` is less than one, or for a function whose call would run nothing (``async def``, a
    generator). What the function raises comes through untouched.
    """
    _check(function, rounds, least=1)
    watch = LeakWatch(shell, device, _name(function))
    kwargs = {} if kwargs is None else kwargs
    for _ in range(1 + rounds):
        function(*args, **kwargs)
        watch._look(_own_roots(function, args, kwargs))
    return watch.judge()


def assert_no_leak(shell: session.Shell | None, rounds: int | None = None, device: str | None = None) -> LeakCheck:
    """A check that fails with :class:`LeakError`, for a ``with`` block or as a decorator; see :class:`LeakCheck`.

    ``rounds`` is for the decorator. Raises InputError if it is less than three.
    """
    if rounds is not None and rounds < PROOF:
        raise InputError(f"rounds={rounds} cannot prove a leak: it takes {PROOF} rounds after the one that warms up")
    return LeakCheck(shell, rounds, device)


class LeakCheck(LeakWatch):
    """Asserts that nothing leaks. Make it with :func:`assert_no_leak`.

    In a ``with`` block it judges the rounds after each of which ``round()`` was called, four or more. Without any
    such call the block is one round, of which only this can be said: after a ``gc.collect()``, which the check does,
    no storage that was made in the block may be alive without a name, a module, a registry or running code to keep
    it. An exception in the block comes through untouched, and nothing is judged.

    As a decorator with ``rounds`` it calls the function once to warm up and then ``rounds`` times, always with the
    same arguments, and returns the last result; without ``rounds`` it judges each call like a block.
    """

    def __init__(self, shell: session.Shell | None, rounds: int | None, device: str | None) -> None:
        super().__init__(shell, device, "the block")
        self._rounds = rounds
        self._before: dict[str, frameworks.Remembered] = {}

    def __enter__(self) -> LeakCheck:
        if self._rounds is not None:
            raise InputError("rounds= is for a decorated function; in a with block call round() after each round")
        self.begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.end()

    def begin(self) -> None:
        """Begin anew, as a ``with`` block does."""
        self._looks.clear()
        with take_inventory() as inventory:
            tensors = [stored.tensors[0] for stored in inventory.storages.values()]
            self._before = {framework.name: framework.remember(tensors) for framework in frameworks.loaded()}
            tensors.clear()

    def end(self) -> None:
        """Judge, as the end of a ``with`` block does.

        Raises LeakError for a leak, InputError if ``round()`` was called, but not often enough for a proof.
        """
        self._end(())

    def _end(self, also: Sequence[Root]) -> None:
        if not self._looks:
            self._judge_block(also)
        elif len(self._looks) <= PROOF:
            raise InputError(
                f"round() was called {len(self._looks)} times: a leak is proved by {PROOF} rounds after the one that "
                "warms up; without any call the block is judged as a whole"
            )
        else:
            self._judge_rounds()

    def _judge_rounds(self) -> None:
        leaks = self.judge()
        if leaks.verdict is Verdict.LEAK:
            raise LeakError(_text(leaks))

    def _judge_block(self, also: Sequence[Root]) -> None:
        gc.collect()
        left: dict[str, growth.Kept] = {}
        with growth.look(self._shell, watched_devices(self._device), also) as seen:
            for stored in seen.stored:
                before = self._before.get(stored.framework.name)
                if before is not None and before.knows(stored.part.address):
                    continue
                holder = seen.holder(stored)
                unsure = holder.cause is Cause.UNKNOWN and seen.walk.partial
                if holder.cause.dangling and holder.cause is not Cause.RUNNING and not unsure:
                    path = growth.pattern(holder.path)
                    nbytes, storages = left.get(path, (0, 0))
                    left[path] = growth.Kept(nbytes + stored.part.nbytes, storages + 1)
        if left:
            raise LeakError(_left_text(self.title, left))

    def __call__(self, function: Callable[_P, _R]) -> Callable[_P, _R]:
        """Decorate a function; see the class.

        Raises InputError for a function whose call would run nothing (``async def``, a generator).
        """
        _check(function, PROOF, least=PROOF)

        @functools.wraps(function)
        def checked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            check = LeakCheck(self._shell, self._rounds, self._device)
            check.title = _name(function)
            if check._rounds is None:
                check.begin()
            result = _NO_RESULT
            for _ in range(1 + (check._rounds or 0)):
                result = _NO_RESULT  # so that two results never live at once
                result = function(*args, **kwargs)
                if check._rounds is not None:
                    check._look(_own_roots(function, args, kwargs, result))
            check._end(_own_roots(function, args, kwargs, result))
            return result  # type: ignore[no-any-return]

        return checked


# ---------------------------------------------------------------- functions to run
def _check(function: Callable[..., object], rounds: int, least: int) -> None:
    if rounds < least:
        raise InputError(f"rounds={rounds}: at least {least} is needed")
    lazy = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    if type(function) in (types.FunctionType, types.MethodType) and any(is_lazy(function) for is_lazy in lazy):
        raise InputError(f"{_name(function)} is async or a generator: a call of it alone would run nothing")


def _name(function: object) -> str:
    if type(function) is types.MethodType:
        function = function.__func__
    return f"{function.__name__}()" if type(function) is types.FunctionType else type_name(function)


def _own_roots(
    function: object, args: Sequence[object], kwargs: Mapping[str, object], result: object = _NO_RESULT
) -> list[Root]:
    """What our own frames hold on behalf of the caller: a search passes over those frames."""
    roots = [Root("the function", Cause.RUNNING, function)]
    roots += [Root(f"argument {number}", Cause.RUNNING, value) for number, value in enumerate(args, 1)]
    roots += [Root(f"argument '{name}'", Cause.RUNNING, value) for name, value in kwargs.items()]
    return roots if result is _NO_RESULT else [*roots, Root("the result", Cause.RUNNING, result)]


# ---------------------------------------------------------------- what a failed check says
_REMEDIES = {
    Cause.OUTPUT: "%gpufree lets go of outputs; a line that ends in a semicolon makes none",
    Cause.LAST_ERROR: "%gpufree forgets the last error",
    Cause.HIDDEN: "%gpufree forgets the namespaces of %run",
    Cause.CYCLE: "gc.collect() or %gpufree",
    Cause.FRAME: "gc.collect() or %gpufree",
    Cause.GRAPH: "break the cycle: no collector sees it",
}


def _text(leaks: Leaks) -> str:
    lines = [f"{leaks.verdict.value} in {leaks.rounds} rounds of {leaks.title}, after one that warmed up"]
    for trend in leaks.trends:
        short = "" if trend.verdict is Verdict.LEAK else f"   {trend.verdict.value}"
        lines.append(f"  {trend.path}   {series(trend.sizes, PROOF + 1)}   ({_step(trend)} a round){short}")
        if trend.verdict is Verdict.LEAK:
            lines.append(f"      to free it: {_remedy(trend.path, trend.cause)}")
    return "\n".join([*lines, *(f"  {note}" for note in leaks.notes)])


def _left_text(title: str, left: Mapping[str, growth.Kept]) -> str:
    nbytes, storages = (sum(column) for column in zip(*left.values(), strict=True))
    many = f"{storages} storages" if storages > 1 else "a storage"
    lines = [f"leak: {many} made in {title}, {shown(nbytes)}, still there and kept by no name"]
    largest_first = sorted(left.items(), key=lambda pair: -pair[1].nbytes)
    return "\n".join([*lines, *(f"  {path}   {shown(kept.nbytes)}" for path, kept in largest_first)])


def _step(trend: Trend) -> str:
    last = trend.sizes[-PROOF - 1 :]
    return signed((last[-1] - last[0]) // max(1, len(last) - 1))


def _remedy(path: str, cause: Cause) -> str:
    if cause in _REMEDIES:
        return _REMEDIES[cause]
    path = path.rpartition(", ")[2] if cause is Cause.RUNNING else path
    head, graph, _ = path.partition(" → graph")
    if graph:
        return f"keep a number (.item()) or .detach() in {head}: as it is, it keeps its whole graph"
    box, index, _ = path.partition("[·]")
    return f"clear or bound {box}" if index else f"let go of {path}"
