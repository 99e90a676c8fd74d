"""The same work again with half of its size, after it ran out of memory.

The clean-up between two tries comes after the ``except`` block: while an error is handled it holds the frames of the
try that failed, and with them its batch. Hence two steps: ``failed`` judges and puts the session back, ``clean`` frees
what is then nobody's.
"""
from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any

from jupyter_gpumem import session
from jupyter_gpumem.actions import cleaning
from jupyter_gpumem.actions.planning import Request
from jupyter_gpumem.actions.rewind import Start
from jupyter_gpumem.analysis.snapshot import allocators, watched_devices
from jupyter_gpumem.analysis.verdict import diagnosis
from jupyter_gpumem.errors import InputError
from jupyter_gpumem.introspect import is_a
from jupyter_gpumem.model import Notice, OutOfMemory
from jupyter_gpumem.units import shown

_MISSING = object()


class Tries:
    """Runs of the same work, each with half of the size of the one before. ``say`` gets a line for each that ends."""

    def __init__(
        self,
        start: Start,
        *,
        halved: Sequence[str] = (),
        most: int = 3,
        floor: int = 1,
        watched: Sequence[str] = (),
        say: Callable[[Notice], object],
        shell: session.Shell | None = None,
    ) -> None:
        self.number = 1
        self.sizes: dict[str, object] = {}
        """Name → its value in the first try."""
        self._start = start
        self._halved = tuple(halved)
        self._most = most
        self._floor = floor
        self._watched = tuple(watched)
        self._say = say
        self._shell = shell
        self._allocated = 0
        self._ended = False

    # -------------------------------------------------------- called by the loop
    def again(self) -> bool:
        """Whether to run now. Cleans up first where a try has failed."""
        if self._ended:
            return False
        if self.number > 1:
            self.clean()
        return True

    def size(self, name: str, value: object) -> object:
        """What a name that is halved is bound to, where the first try binds it to ``value``."""
        self.sizes[name] = value
        return self._now(name)

    def failed(self, error: BaseException) -> bool:
        """Whether another try follows. If so, the session is as it was before the first one. Never raises."""
        try:
            return self._failed(error)
        except Exception as fault:
            self._tell(f"not tried again, for our own fault: {type(fault).__name__}: {fault}", fault=True)
            return False

    def clean(self) -> None:
        """Free what the try has left, now that its error is gone. Never raises."""
        try:
            request = Request(self._watched, error_only=True)
            cleaning.free(self._shell, request)
            self._start.restore_random()
            back = self._allocated - self._allocated_now()
            given = f"{shown(back)} given back; " if back > 0 else ""
            self._tell(f"{given}try {self.number}{self._sizes()}")
        except Exception as fault:
            self._tell(f"the clean-up failed: {type(fault).__name__}: {fault}", fault=True)

    def show(self, value: object) -> None:
        """What the cell shows, as IPython shows it."""
        sys.displayhook(value)

    def done(self) -> None:
        """The work went through."""
        self._ended = True
        if self.number > 1:
            self._tell(f"try {self.number}{self._sizes()} went through")

    # -------------------------------------------------------- inside
    def _failed(self, error: BaseException) -> bool:
        read = diagnosis.read(error)
        if not isinstance(read, OutOfMemory):
            return False
        reason = self._reason_to_stop()
        ended = f"try {self.number}{self._sizes()} ended: {diagnosis.sentence(self._shell, read, error)}"
        if reason is not None:
            self._tell(f"{ended}. Not tried again: {reason}")
            return False
        first = "" if self.number > 1 else (
            ". Names, random states, gradients and buffers go back to what they were;"
            " files, iterators and changes inside other objects do not"
        )
        self._tell(f"{ended}{first}")
        self._allocated = self._allocated_now()
        self._start.put_back()
        self.number += 1
        self._bind()
        return True

    def _reason_to_stop(self) -> str | None:
        if self.number > self._most:
            return f"{self._most} {'retry was' if self._most == 1 else 'retries were'} allowed"
        for name in self._halved:
            value = self._first(name)
            if value is _MISSING:
                return f"there is no {name!r} to halve"
            if not _is_size(value):
                return f"{name!r} is no whole number above 0, and cannot be halved"
        now, then = ([self._at(name, self.number + more) for name in self._halved] for more in (0, 1))
        if self._halved and now == then:
            return f"{' and '.join(self._halved)} cannot go below {self._floor}"
        return self._start.refusal()

    def _first(self, name: str) -> object:
        """The value of the first try, whether the work binds it or found it bound."""
        if name not in self.sizes:
            self.sizes[name] = session.user_names(self._shell).get(name, _MISSING)
        return self.sizes[name]

    def _at(self, name: str, number: int) -> object:
        """The size in a try. One that begins below the floor stays what it is."""
        value = self._first(name)
        if not _is_size(value):
            return value
        assert isinstance(value, int)
        return max(min(self._floor, value), value >> (number - 1))

    def _now(self, name: str) -> object:
        return self._at(name, self.number)

    def _bind(self) -> None:
        """Give the notebook's own names their new size."""
        for name in self._halved:
            if name in self._start.names:
                session.namespace(self._shell)[name] = self._now(name)

    def _sizes(self) -> str:
        words = [f"{name}={self._now(name)}" for name in self._halved if self._first(name) is not _MISSING]
        return f" with {', '.join(words)}" if words else ""

    def _allocated_now(self) -> int:
        return sum(allocator.allocated for allocator in allocators(self._watched))

    def _tell(self, text: str, fault: bool = False) -> None:
        self._say(Notice(f"{'jupyter_gpumem' if fault else 'gpumem'}: {text}", fault=fault))


def _is_size(value: object) -> bool:
    return is_a(value, int) and not is_a(value, bool) and value >= 1  # type: ignore[operator]


# ---------------------------------------------------------------- for functions
def retrying(
    function: Callable[..., Any],
    names: Sequence[str],
    tries: int,
    floor: int,
    device: str | None,
    show: Callable[[Notice], object],
) -> Callable[..., Any]:
    """A function that is called again after it ran out of memory; see ``jupyter_gpumem.retry_on_oom``."""
    if tries < 1 or floor < 1:
        raise InputError(f"tries and floor are numbers from 1 on; not {tries} and {floor}")
    signature = inspect.signature(function)
    missing = [name for name in names if name not in signature.parameters]
    if missing:
        raise InputError(f"no argument {missing[0]!r} to halve; there is: {', '.join(signature.parameters) or 'none'}")

    def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[inspect.BoundArguments, Tries]:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        runs = Tries(
            Start(),
            halved=names,
            most=tries,
            floor=floor,
            watched=watched_devices(device),
            say=show,
            shell=session.current(),
        )
        runs.sizes.update({name: bound.arguments[name] for name in names})
        return bound, runs

    def halved(bound: inspect.BoundArguments, runs: Tries) -> None:
        bound.arguments.update({name: runs.size(name, runs.sizes[name]) for name in names})

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def later(*args: Any, **kwargs: Any) -> Any:
            bound, runs = begin(args, kwargs)
            while runs.again():
                halved(bound, runs)
                try:
                    value = await function(*bound.args, **bound.kwargs)
                except Exception as error:
                    if not runs.failed(error):
                        raise
                else:
                    runs.done()
            return value

        return later

    @functools.wraps(function)
    def now(*args: Any, **kwargs: Any) -> Any:
        bound, runs = begin(args, kwargs)
        while runs.again():
            halved(bound, runs)
            try:
                value = function(*bound.args, **bound.kwargs)
            except Exception as error:
                if not runs.failed(error):
                    raise
            else:
                runs.done()
        return value

    return now
