"""Where the search for holders begins: four groups of roots, the most telling first.

1. *names*: what the user named; these are never dangling.
2. *live*: running frames, context variables, callbacks of the shell, library modules. Their objects are in use.
3. *leaving*: the last error, outputs, namespaces of ``%run``. A clean-up lets go of these.

What none of them reaches is the business of ``unreached.py``.
"""
from __future__ import annotations

import contextvars
import sys
import threading
import types
from collections.abc import Collection, Iterator
from typing import Any

from jupyter_gpumem import session
from jupyter_gpumem.analysis.references import Root
from jupyter_gpumem.introspect import frame_locals, is_a
from jupyter_gpumem.model import Cause

_PACKAGE = __name__.partition(".")[0]
_MACHINERY = ("IPython", "ipykernel", "tornado", "traitlets", "jupyter_client", "zmq", _PACKAGE)
"""Packages that run the cells: their frames hold the cell's result and the shell's own, not the user's objects."""


def names(shell: session.Shell | None, without: Collection[str] = ()) -> list[Root]:
    """The user's names, but for those ``without`` which the question is asked."""
    return [
        Root(name, Cause.NAME, value, name)
        for name, value in session.user_names(shell).items()
        if name not in without and not is_a(value, types.ModuleType)
    ]


def live(shell: session.Shell | None) -> list[Root]:
    """What runs, what is registered, and what libraries keep."""
    return [*_frames(), *_context(), *_registered(shell), *_modules()]


def leaving(shell: session.Shell | None, error: bool = True, output: bool = True) -> list[Root]:
    """What only the shell keeps: the last error, the outputs, the namespaces of scripts that were run."""
    roots: list[Root] = []
    if error:
        roots += [Root("last error", Cause.LAST_ERROR, value) for value in session.errors(shell)]
        roots += [Root("last error", Cause.LAST_ERROR, value) for value in session.error_leftovers(shell)]
    if output:
        roots += [Root(label, Cause.OUTPUT, value) for label, value in session.outputs(shell)]
    for file, module in session.run_namespaces(shell).items():
        roots.append(Root(run_label(file), Cause.HIDDEN, vars(module)))
    return roots


def run_label(file: str) -> str:
    """How the namespace of a script is called that ``%run`` has run."""
    return f"namespace of %run {file.rpartition('/')[2]}"


def barriers(shell: session.Shell | None) -> list[Any]:
    """What a search must not walk through."""
    ours = [
        obj
        for name, module in list(sys.modules.items())
        if (name == _PACKAGE or name.startswith(f"{_PACKAGE}.")) and is_a(module, types.ModuleType)
        for obj in (module, vars(module))
    ]
    return [*session.internals(shell), *ours]


# ---------------------------------------------------------------- the live ones
def _frames() -> Iterator[Root]:
    """Local variables of the frames that run now, in all threads: ``gc`` does not see them (CPython 3.11)."""
    threads = {thread.ident: thread.name for thread in threading.enumerate()}
    me = threading.get_ident()
    for ident, top in sys._current_frames().items():
        where = "running" if ident == me else f"thread '{threads.get(ident, ident)}'"
        frame: types.FrameType | None = _above_ours(top) if ident == me else top
        while frame is not None:
            if _package(frame) not in _MACHINERY and frame.f_locals is not frame.f_globals:
                place = f"{where}: {frame.f_code.co_name}(), line {frame.f_lineno}"
                for variable, value in frame_locals(frame).items():
                    yield Root(f"{place}, local '{variable}'", Cause.RUNNING, value)
            frame = frame.f_back


def _above_ours(frame: types.FrameType | None) -> types.FrameType | None:
    """The frame that called this package. Those of ``contextlib`` between ours work for us; a user's function between
    two of ours is the user's.
    """
    while frame is not None and _package(frame) in (_PACKAGE, "contextlib"):
        frame = frame.f_back
    return frame


def _package(frame: types.FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _context() -> Iterator[Root]:
    """Context variables: their values live in the thread's context, not in the variables."""
    for variable, value in contextvars.copy_context().items():
        yield Root(f"context variable '{variable.name}'", Cause.REGISTRY, value)


def _registered(shell: session.Shell | None) -> Iterator[Root]:
    for label, value in session.registrations(shell):
        yield Root(label, Cause.REGISTRY, value)


def _modules() -> Iterator[Root]:
    for name, module in list(sys.modules.items()):
        is_ours = name == _PACKAGE or name.startswith(f"{_PACKAGE}.")
        if is_a(module, types.ModuleType) and name not in ("__main__", "__mp_main__") and not is_ours:
            own = session.leaving_names(name)
            inner = vars(module)
            yield Root(name, Cause.MODULE, {k: v for k, v in inner.items() if k not in own} if own else inner)
