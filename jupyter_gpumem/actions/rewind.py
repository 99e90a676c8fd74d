"""The session as it was before a try, and the way back to it.

Back go: names, the random states, gradients that are new, buffers of modules. What cannot go back but can be seen is a
reason not to try again: parameters that were written to, names whose value is gone. What cannot be seen are files,
iterators, and changes inside the user's own objects.
"""
from __future__ import annotations

import gc
import weakref
from collections.abc import Collection
from dataclasses import dataclass

from jupyter_gpumem import frameworks, randomness, session
from jupyter_gpumem.analysis import holders
from jupyter_gpumem.analysis.inventory import collections_waiting
from jupyter_gpumem.analysis.objects import names_in_use
from jupyter_gpumem.model import Tensor


@dataclass(frozen=True)
class Bindings:
    """What the text of a cell does to names of the notebook."""

    bound: frozenset[str] = frozenset()
    needed: frozenset[str] = frozenset()
    """Of these, the names that are read before they are bound: a second run needs their values."""


class Start:
    """The moment before the first try.

    Values of names that the cell binds anew are held here only as far as a second run needs them, or they hold no
    tensor: a cell that binds ``model`` anew may count on the memory of the old one.
    """

    def __init__(self, shell: session.Shell | None = None, bindings: Bindings | None = None) -> None:
        """Without ``bindings`` names are left alone: the work is a function."""
        self._shell = shell
        self._bindings = bindings
        self._ids: dict[str, int] = {}
        self._kept: dict[str, object] = {}
        self._weak: dict[str, weakref.ref[object]] = {}
        """Of those that are not kept: a new object may have got the id of one that has died."""
        if bindings is not None:
            values = session.user_names(shell)
            self._ids = {name: id(value) for name, value in values.items()}
            rebound = {name: value for name, value in values.items() if name in bindings.bound}
            heavy = {use.name for use in names_in_use(rebound, None, session.internals(shell))}
            self._kept = {n: v for n, v in rebound.items() if n in bindings.needed or n not in heavy}
            for name in values.keys() - self._kept.keys():
                weak = _weak(values[name], in_depth=name in heavy)
                self._weak.update({name: weak} if weak is not None else {})
        self._random = randomness.take()
        with collections_waiting():
            objects = gc.get_objects()
            self._versions = [framework.mark_versions(objects) for framework in frameworks.loaded()]
            del objects

    @property
    def names(self) -> Collection[str]:
        """The names that there were."""
        return self._ids.keys()

    def _is_old(self, name: str, value: object) -> bool:
        """Whether a name has the value that it had."""
        weak = self._weak.get(name)
        return self._ids.get(name) == id(value) and (weak is None or weak() is not None)

    def refusal(self) -> str | None:
        """Why a second run would not be what the first would have been; None where nothing speaks against it."""
        written = [tensor for versions in self._versions for tensor in versions.written()]
        if written:
            others = len(written) - 1
            more = f" and {others} more tensor{'s' if others > 1 else ''}" if others else ""
            what = f"{_path(self._shell, written[0])}{more}"
            return f"{what} changed in place, so a second run would begin with other values"
        values = session.user_names(self._shell) if self._ids else {}
        for name in self._ids:
            if name in self._kept:
                continue
            if name not in values:
                return f"{name!r} was deleted, and its value is gone"
            assert self._bindings is not None
            if not self._is_old(name, values[name]) and name not in self._bindings.bound:
                return f"{name!r} was bound anew in a way that the cell's text does not show, and its value is gone"
        return None

    def put_back(self) -> None:
        """Go back. Names of the try are deleted; one whose earlier value is gone is deleted too, as the cell binds
        it before it reads it.
        """
        if self._bindings is not None:
            for name, value in session.user_names(self._shell).items():
                if self._is_old(name, value):
                    continue
                if name in self._kept:
                    session.namespace(self._shell)[name] = self._kept[name]
                else:
                    session.delete_name(self._shell, name)
            session.namespace(self._shell).update(
                {name: value for name, value in self._kept.items() if name not in session.namespace(self._shell)}
            )
        for versions in self._versions:
            versions.put_back()
        self._random.restore()

    def restore_random(self) -> None:
        """Only the random states: what is done between two tries may have drawn."""
        self._random.restore()


def _weak(value: object, in_depth: bool) -> weakref.ref[object] | None:
    """To a value, or to a tensor in it where it is a list, say, to which there are no weak references."""
    try:
        return weakref.ref(value)
    except TypeError:
        inside = holders.tensors_in(value).values() if in_depth else ()
        return next((weakref.ref(tensor) for tensor in inside), None)


def _path(shell: session.Shell | None, tensor: object) -> str:
    """A name for a tensor that the user knows it by."""
    with holders.look(shell, None, of=tensor) as seen:
        found = [seen.holder(stored).path for stored in seen.stored]
    return found[0] if found else _words(tensor)


def _words(tensor: object) -> str:
    for framework in frameworks.loaded():
        if framework.kind(type(tensor)) == "tensor":
            record: Tensor = framework.describe(tensor)
            return f"a {record.kind} of shape {record.shape}"
    return "a tensor"
