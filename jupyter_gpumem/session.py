"""Where IPython keeps things: the one file that knows. It takes a shell and imports none.

Every function also answers for plain Python, where ``shell`` is None: the names are those of ``__main__``, the
outputs are ``builtins._``, the last error is in ``sys.last_*``.
"""
from __future__ import annotations

import builtins
import gc
import re
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any

Shell = Any
"""An ``InteractiveShell``. IPython before 9 has no types that mypy could check against."""

_MISSING = object()
_STRUCTURE = re.compile(r"In|Out|_ih|_oh|_dh|_i+|_i\d+|exit|quit|open|get_ipython|_ipython_display_formatter")
_UNDERS = ("_", "__", "___")
_OUTPUT_NAME = re.compile(r"_{1,3}|_\d+")
_CELL_FILE = re.compile(r"<ipython-input-(\d+)-")
_LAST = ("last_exc", "last_value", "last_traceback", "last_type")


def current() -> Shell | None:
    """The running shell, or None in plain Python."""
    ipython = sys.modules.get("IPython")
    get_ipython = getattr(ipython, "get_ipython", None)
    return get_ipython() if get_ipython is not None else None


def namespace(shell: Shell | None) -> dict[str, Any]:
    """The dictionary in which cells run."""
    return shell.user_ns if shell is not None else vars(sys.modules["__main__"])


def user_names(shell: Shell | None) -> dict[str, Any]:
    """The names that the user gave, with their values.

    IPython keeps its own in ``user_ns_hidden`` too. A name is the user's if it is bound to anything else: after
    ``out, _ = rnn(x)`` the name ``_`` is.
    """
    names = list(namespace(shell).items())
    if shell is None:
        return {n: v for n, v in names if isinstance(n, str) and not (n.startswith("__") and n.endswith("__"))}
    hidden = shell.user_ns_hidden
    hook = shell.displayhook
    return {
        name: value
        for name, value in names
        if isinstance(name, str)
        and hidden.get(name, _MISSING) is not value
        and not _STRUCTURE.fullmatch(name)
        and not (name in _UNDERS and getattr(hook, name, _MISSING) is value)
        and not (name.startswith("__") and name.endswith("__") and name not in _UNDERS)
    }


def count_at_start(shell: Shell) -> int | None:
    """The execution count of a cell that is about to run; None for a shell without history.

    Newer IPython counts before ``pre_run_cell``, older after it; what tells them apart is that the cell's input is
    stored later than both.
    """
    if shell.history_manager is None:
        return None
    count: int = shell.execution_count
    return count - 1 if count > len(shell.history_manager.input_hist_parsed) else count


def cell_of_file(shell: Shell | None, filename: str) -> int | None:
    """The execution count of the cell that was compiled under a file name; None if it is no cell's.

    Of equal cells it is the last one. IPython 7 has no table of the names, but its compiler gives each again.
    """
    numbered = _CELL_FILE.match(filename)
    if numbered:
        return int(numbered[1]) or None
    compiler: Any = getattr(shell, "compile", None)
    known = getattr(compiler, "_filename_map", None)
    if known is not None:
        return known.get(filename)  # type: ignore[no-any-return]
    history = getattr(getattr(shell, "history_manager", None), "input_hist_raw", None)
    if "ipykernel_" not in filename or not hasattr(compiler, "get_code_name"):
        return None
    cells = list(enumerate(history or ()))[1:]
    return next((n for n, code in reversed(cells) if compiler.get_code_name(code, code, n) == filename), None)


# ---------------------------------------------------------------- outputs
def outputs(shell: Shell | None) -> list[tuple[str, Any]]:
    """The values that the shell keeps only because they were shown, each under the label a user knows best."""
    if shell is None:
        return [("_", vars(builtins)["_"])] if "_" in vars(builtins) else []
    labelled: list[tuple[str, Any]] = [(f"Out[{n}]", value) for n, value in list(_history(shell).items())]
    hook = shell.displayhook
    labelled += [(name, getattr(hook, name)) for name in _UNDERS if hasattr(hook, name)]
    labelled += [
        (name, value)
        for name, value in list(shell.user_ns_hidden.items())
        if isinstance(name, str) and _OUTPUT_NAME.fullmatch(name)
    ]
    labelled += [("last result", result.result) for result in _results(shell)]
    seen: set[int] = set()
    kept = []
    for label, value in labelled:
        if id(value) not in seen:
            seen.add(id(value))
            kept.append((label, value))
    return kept


def _history(shell: Shell) -> dict[Any, Any]:
    """``Out``. The user may have bound another thing to that name; ``_oh`` is the shell's own."""
    history = shell.user_ns.get("_oh")
    return history if isinstance(history, dict) else {}


def replace_outputs(shell: Shell | None, values: Iterable[Any], record: Callable[[Any], Any]) -> None:
    """Put ``record(value)`` wherever the shell keeps one of ``values`` as an output.

    The same record goes to every place: IPython sees by identity whether ``_`` is still its own.    """
    records = {id(value): record(value) for value in values}
    if shell is None:
        if id(vars(builtins).get("_")) in records:
            vars(builtins)["_"] = records[id(vars(builtins)["_"])]
        return
    own = {name for name, value in shell.user_ns.items() if shell.user_ns_hidden.get(name, _MISSING) is value}
    own |= {name for name in _UNDERS if getattr(shell.displayhook, name, _MISSING) is shell.user_ns.get(name)}
    for table in (_history(shell), shell.user_ns_hidden, shell.user_ns):
        for key, value in list(table.items()):
            mine = table is not shell.user_ns or (key in own and _OUTPUT_NAME.fullmatch(str(key)))
            if mine and id(value) in records:
                table[key] = records[id(value)]
    for name in _UNDERS:
        value = getattr(shell.displayhook, name, None)
        if id(value) in records:
            setattr(shell.displayhook, name, records[id(value)])
    for cell in _results(shell):
        if id(cell.result) in records:
            cell.result = records[id(cell.result)]


# ---------------------------------------------------------------- the last error
def errors(shell: Shell | None) -> list[BaseException]:
    """The exceptions that the shell or Python keep as the last one, each once; not those that hang on them."""
    found: list[Any] = list(shown_errors(shell))
    for cell in _results(shell) if shell is not None else ():
        found += [cell.error_in_exec, cell.error_before_exec]
    return _each_once(found)


def shown_errors(shell: Shell | None) -> list[BaseException]:
    """Those of :func:`errors` that were shown: to find the results of cells takes a look at all objects."""
    found = [getattr(sys, name, None) for name in ("last_exc", "last_value")]
    for formatter in _formatters(shell) if shell is not None else ():
        found += [getattr(formatter, name, None) for name in ("evalue", "value", "last_syntax_error")]
    return _each_once(found)


def _each_once(found: Iterable[Any]) -> list[BaseException]:
    return list({id(error): error for error in found if isinstance(error, BaseException)}.values())


def error_leftovers(shell: Shell | None) -> list[Any]:
    """What else stands for the last error: tracebacks, and the debugger that has been used on it."""
    found = [getattr(sys, "last_traceback", None)]
    if shell is not None:
        for formatter in _formatters(shell):
            found += [getattr(formatter, "tb", None), _debugger(formatter)]
    return [leftover for leftover in found if leftover is not None]


def _results(shell: Shell | None) -> list[Any]:
    """The results of cells that are still alive: the last one, and those that asyncio tasks of earlier cells keep."""
    cls = getattr(sys.modules.get("IPython.core.interactiveshell"), "ExecutionResult", None)
    if cls is None:
        return []
    last = getattr(shell, "last_execution_result", None)  # gc.freeze() may hide it
    found = {id(obj): obj for obj in (*gc.get_referrers(cls), last) if type(obj) is cls}
    return list(found.values())


def _formatters(shell: Shell) -> list[Any]:
    found = [getattr(shell, name, None) for name in ("InteractiveTB", "SyntaxTB")]
    return [formatter for formatter in found if formatter is not None]


def _debugger(formatter: Any) -> Any:
    """The formatter's debugger if it stands on a stack. It keeps the frames after ``%debug`` has ended."""
    debugger = getattr(formatter, "pdb", None)
    return debugger if getattr(debugger, "stack", None) or getattr(debugger, "curframe", None) else None


def forget_error(shell: Shell | None, running: Any = None) -> None:
    """Drop the references to the last error. ``%debug`` and ``%tb`` then have nothing to show.

    ``running`` is the ``ExecutionResult`` of a cell that is still to be reported: its error says that the cell failed.
    """
    for name in _LAST:
        if hasattr(sys, name):
            delattr(sys, name)
    if shell is None:
        return
    for formatter in _formatters(shell):
        for name in ("tb", "etype", "evalue", "value", "last_syntax_error"):
            if getattr(formatter, name, None) is not None:
                setattr(formatter, name, None)
        if _debugger(formatter) is not None:
            formatter.pdb = None
    for cell in _results(shell):
        if cell is not running:
            cell.error_in_exec = cell.error_before_exec = None


# ---------------------------------------------------------------- hidden namespaces
def run_namespaces(shell: Shell | None) -> dict[str, types.ModuleType]:
    """File → the module in which ``%run`` ran it. IPython keeps each until ``%reset``."""
    return dict(getattr(shell, "_main_mod_cache", None) or {})


def forget_namespace(shell: Shell, file: str) -> None:
    """Let go of one such module."""
    shell._main_mod_cache.pop(file, None)


# ---------------------------------------------------------------- what the search must know
def registrations(shell: Shell | None) -> list[tuple[str, Any]]:
    """What the user has registered with the shell: event callbacks, as ``(label, callback)``."""
    if shell is None:
        return []
    return [
        (f"shell callback '{event}'", callback)
        for event, callbacks in list(shell.events.callbacks.items())
        for callback in list(callbacks)
        if not (getattr(callback, "__module__", None) or "").startswith("jupyter_gpumem")
    ]


def internals(shell: Shell | None) -> list[Any]:
    """Objects through which a search must not walk: they hold outputs, errors and names as the shell's property."""
    found: list[Any] = [vars(sys.modules["__main__"]), sys.modules["__main__"]]
    if shell is None:
        return found
    found += [shell.user_ns, shell.user_ns_hidden, shell.user_module, vars(shell.user_module), _history(shell)]
    found += [shell.displayhook, vars(shell.displayhook), shell.history_manager, *_formatters(shell)]
    found += [*_results(shell), getattr(shell, "_main_mod_cache", None)]
    found += [value for name, value in list(shell.user_ns.items()) if name in ("_oh", "Out", "_ih", "In")]
    return [obj for obj in found if obj is not None]


def leaving_names(module: str) -> tuple[str, ...]:
    """Globals of a module in which Python and the shell keep the last error and the last output."""
    return {"sys": _LAST, "builtins": ("_",)}.get(module, ())


def own_names(shell: Shell | None) -> set[str]:
    """Names that exist without the user's doing: built-ins, IPython's, imported modules' own."""
    return set(dir(builtins)) | {"In", "Out", "get_ipython", "exit", "quit"}


def delete_name(shell: Shell | None, name: str) -> None:
    """Delete a name of the user's namespace."""
    namespace(shell).pop(name, None)
