"""The error that matters among those that hang on one, and the line of the user's that it came from.

An error is read through the interpreter's own descriptors: neither its ``__str__`` nor any property of it is run.
"""
from __future__ import annotations

import linecache
import re
import sys
import sysconfig
import types
from collections.abc import Iterator

from jupyter_gpumem import frameworks, session
from jupyter_gpumem.analysis.sites import place
from jupyter_gpumem.frameworks import error_texts
from jupyter_gpumem.frameworks.records import Frame
from jupyter_gpumem.introspect import frame_locals, instance_dict, is_a, module_of, type_name
from jupyter_gpumem.model import DeviceFault, Origin, OutOfMemory, Tensor

_GET = BaseException.__dict__
_MOST = 50
"""Errors that are followed."""
_LIBRARIES = (sysconfig.get_paths()["stdlib"], sysconfig.get_paths()["platstdlib"])
_PACKAGES = ("site-packages", "dist-packages", "/jupyter_gpumem/")
_CODE = 70
"""Letters of a line of code."""


# ---------------------------------------------------------------- the error
def read(error: BaseException) -> OutOfMemory | DeviceFault | None:
    """What an error, or one that hangs on it, says of missing memory or of a fault of the device; None if nothing.

    Cheap: types and text. Members of groups, causes, contexts, and tracebacks of workers in a text are looked into.
    """
    found = telling(error)
    return found[1] if found is not None else None


def telling(error: BaseException) -> tuple[BaseException, OutOfMemory | DeviceFault] | None:
    """The error that tells it, and what it says."""
    for one in linked(error):
        said = _said(one)
        if said is not None:
            return one, said
    return None


def linked(error: BaseException) -> Iterator[BaseException]:
    """An error, the members of a group, and those that it came from, nearest first, each once."""
    todo, seen = [error], set[int]()
    while todo and len(seen) < _MOST:
        one = todo.pop(0)
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        todo = [*_members(one), *_before(one), *todo]


def _members(error: BaseException) -> list[BaseException]:
    """Of a group, also of the backport for Python before 3.11, which is a class of its own with the same parts."""
    group = getattr(sys.modules["builtins"], "BaseExceptionGroup", None)
    backport = getattr(sys.modules.get("exceptiongroup"), "BaseExceptionGroup", None)
    if not any(kind is not None and is_a(error, kind) for kind in (group, backport)):
        return []
    inner = instance_dict(error) or {}
    args = _GET["args"].__get__(error)
    parts = inner.get("_exceptions") or (args[1] if len(args) > 1 else ())
    is_list = type(parts) in (list, tuple)
    return [part for part in parts if is_a(part, BaseException)] if is_list else []


def _before(error: BaseException) -> list[BaseException]:
    cause = _GET["__cause__"].__get__(error)
    hidden = _GET["__suppress_context__"].__get__(error)
    context = None if hidden else _GET["__context__"].__get__(error)
    return [one for one in (cause, context) if one is not None]


def _said(error: BaseException) -> OutOfMemory | DeviceFault | None:
    words = text(error)
    found = error_texts.read(words, _accelerator())
    if found is not None and (is_a(error, OSError) or is_a(error, RuntimeError) or _is_telling(error, found)):
        return found
    if is_a(error, MemoryError):
        return OutOfMemory("python", "cpu", text=words.partition("\n")[0][:300] or "MemoryError")
    if is_a(error, OSError) and 12 in _GET["args"].__get__(error)[:1]:  # ENOMEM: a fork, a mapping
        return OutOfMemory("python", "cpu", text="Cannot allocate memory")
    if type_name(error) == "OutOfMemoryError" and module_of(type(error)).partition(".")[0] == "torch":
        return OutOfMemory("torch", _accelerator(), text=words.partition("\n")[0][:300])
    return None


def _is_telling(error: BaseException, found: OutOfMemory | DeviceFault) -> bool:
    """Whether an error of another type speaks of itself: of a library that runs on devices, or about memory."""
    module = module_of(type(error)).partition(".")[0]
    foreign = ("torch", "jax", "jaxlib", "tensorflow", "cupy", "cupy_backends", "numba", "pycuda", "triton", "rmm")
    is_remote = type_name(error) == "_RemoteTraceback"
    return is_remote or module in foreign or is_a(error, MemoryError) or is_a(error, AssertionError)


def text(error: BaseException) -> str:
    """The words of an error, from its arguments alone."""
    if module_of(type(error)).partition(".")[0] == "numpy" and is_a(error, MemoryError):
        return str(error)  # numpy puts its text together from a shape and a type, in code of its own
    return "\n".join(str.__str__(part) for part in _GET["args"].__get__(error) if is_a(part, str))


def _accelerator() -> str | None:
    """The type of device that an allocator means which does not say it."""
    return next((kind for framework in frameworks.loaded() if (kind := framework.may_use()) is not None), None)


# ---------------------------------------------------------------- where
def tracebacks(error: BaseException) -> Iterator[types.TracebackType]:
    """The traceback entries of an error, outermost first."""
    entry = _GET["__traceback__"].__get__(error)
    while entry is not None:
        yield entry
        entry = entry.tb_next


def origin(shell: session.Shell | None, error: BaseException) -> Origin:
    """The innermost line of the user's from which an error came, its code, and the tensors named in it."""
    entry = _innermost(shell, error)
    if entry is None:
        return _remote_origin(shell, error)
    source = _source(entry.tb_frame.f_code.co_filename, entry.tb_lineno)
    return Origin(_place(shell, _frame(entry)), source, _tensors(source, entry.tb_frame))


def where(shell: session.Shell | None, error: BaseException) -> str:
    """Only the place of that line; cheap, and empty where no line of the user's is known."""
    entry = _innermost(shell, error)
    return _place(shell, _frame(entry)) if entry is not None else ""


def _innermost(shell: session.Shell | None, error: BaseException) -> types.TracebackType | None:
    found = None
    for entry in tracebacks(error):
        if _is_users(shell, entry.tb_frame.f_code.co_filename):
            found = entry
    return found


def _frame(entry: types.TracebackType) -> Frame:
    code = entry.tb_frame.f_code
    return Frame(code.co_filename, entry.tb_lineno, code.co_name)


def _remote_origin(shell: session.Shell | None, error: BaseException) -> Origin:
    """From the text of a traceback that a worker has sent."""
    words = "\n".join(text(one) for one in linked(error))
    lines = [Frame(*found) for found in error_texts.frames(words) if _is_users(shell, found[0])]
    if not lines:
        return Origin("")
    return Origin(_place(shell, lines[-1]), _source(lines[-1].filename, lines[-1].line))


def _place(shell: session.Shell | None, frame: Frame) -> str:
    words = place(shell, frame)
    in_cell = words.startswith("cell [") and not frame.function.startswith("<")
    return f"{words} in {frame.function}()" if in_cell else words


def _is_users(shell: session.Shell | None, filename: str) -> bool:
    if session.cell_of_file(shell, filename) is not None:
        return True
    is_library = filename.startswith(_LIBRARIES) or any(name in filename for name in _PACKAGES)
    return not filename.startswith("<") and not is_library


def _source(filename: str, line: int) -> str:
    code = " ".join(linecache.getline(filename, line).split())
    return code if len(code) <= _CODE else f"{code[: _CODE - 1]}…"


def _tensors(source: str, frame: types.FrameType) -> tuple[tuple[str, Tensor], ...]:
    """The tensors that a line names: variables, and attributes of ``self`` and of other objects."""
    values = frame_locals(frame)
    found: dict[str, Tensor] = {}
    for name in dict.fromkeys(re.findall(r"[^\W\d]\w*(?:\.[^\W\d]\w*)?", source)):
        first, _, attribute = name.partition(".")
        value = values.get(first)
        tensor = _described(value) or (_described(_attribute(value, attribute)) if attribute else None)
        if tensor is not None:
            found[name if _described(value) is None else first] = tensor
    values.clear()
    return tuple(found.items())[:4]


def _attribute(obj: object, name: str) -> object:
    for framework in frameworks.loaded():
        for key, value in framework.submodules(obj) if framework.kind(type(obj)) == "module" else ():
            if key == name:
                return value
    return (instance_dict(obj) or {}).get(name)


def _described(value: object) -> Tensor | None:
    for framework in frameworks.loaded():
        if value is not None and framework.kind(type(value)) == "tensor":
            return framework.describe(value)
    return None
