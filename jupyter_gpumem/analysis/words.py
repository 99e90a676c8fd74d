"""How each kind of object holds the next one, in a person's words: ``.weight``, ``[3]``, `` → closure 'maps'``."""
from __future__ import annotations

import collections
import functools
import itertools
import sys
import threading
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from jupyter_gpumem import frameworks
from jupyter_gpumem.analysis.references import class_name
from jupyter_gpumem.introspect import class_dict, frame_locals, instance_dict, is_a, mro, slots, type_name

_SAFE_KEYS = (str, int, float, bool, bytes, type(None))
GENERATORS = {
    types.GeneratorType: ("generator", "gi_frame"),
    types.CoroutineType: ("coroutine", "cr_frame"),
    types.AsyncGeneratorType: ("async generator", "ag_frame"),
}
KEY = " → a key"
Namer = Callable[[object], str | None]
"""How to name a key that is itself an object with a name."""


def step(objects: list[object], index: int, name: Namer, graph_sizes: dict[int, int]) -> tuple[str, int]:
    """How the object at ``index`` holds the next one, and how many objects that says."""
    holder, held = objects[index], objects[index + 1]
    if is_tensor(holder) or is_node(holder):
        return _tensor_step(objects, index, graph_sizes)
    bases = mro(type(holder))
    for cls, words in _words():
        if cls in bases:
            return words(holder, held, name), 1
    return _plain_step(holder, held, name), 1


def _plain_step(holder: object, held: object, name: Namer) -> str:
    """An instance: an attribute if it has one of this value, else the kind of thing that it is."""
    if held is type(holder):
        return ""
    for framework in frameworks.loaded():
        for key, value in framework.submodules(holder):
            if value is held:
                return f".{key}"
    inner = instance_dict(holder)
    if inner is not None:
        for key, value in list(inner.items()):
            if value is held:
                return f".{key}"
    for key, value in slots(holder):
        if value is held:
            return f".{key}"
    return f" → {type_name(holder)}"


def attribute(inner: Mapping[Any, object], held: object, name: Namer) -> str:
    for key, value in list(inner.items()):
        if value is held:
            return f".{key}" if type(key) is str else _item(key, name)
    return " → attribute"


def _item(key: object, name: Namer) -> str:
    if type(key) in _SAFE_KEYS:
        text = repr(key)
        return f"[{text if len(text) <= 48 else text[:45] + '…'}]"
    if type(key) is tuple and all(type(part) in _SAFE_KEYS for part in key):
        return f"[{key!r}]"
    return f"[{name(key) or type_name(key)}]"


def _dict_step(holder: Any, held: object, name: Namer) -> str:
    for key, value in list(dict.items(holder)):
        if value is held:
            return _item(key, name)
    if any(key is held for key in list(dict.keys(holder))):
        return KEY
    inner = instance_dict(holder)
    return attribute(inner, held, name) if inner else " → item"


def _sequence_step(holder: Any, held: object, name: Namer) -> str:
    fields = class_dict(type(holder)).get("_fields")
    base = next(kind for kind in (list, tuple, collections.deque) if kind in mro(type(holder)))
    for index, item in enumerate(base.__iter__(holder)):
        if item is held:
            return f".{fields[index]}" if type(fields) is tuple and index < len(fields) else f"[{index}]"
    return _plain_step(holder, held, name)


def _set_step(holder: Any, held: object, name: Namer) -> str:
    return " → an item"


def _function_step(holder: types.FunctionType, held: object, name: Namer) -> str:
    code = holder.__code__
    for variable, cell in zip(code.co_freevars, holder.__closure__ or (), strict=False):
        if cell is held:
            return f" → closure '{variable}'"
    arguments = code.co_varnames[: code.co_argcount]
    defaults = holder.__defaults__ or ()
    for variable, value in zip(arguments[len(arguments) - len(defaults) :], defaults, strict=False):
        if value is held:
            return f" → default of '{variable}'"
    for variable, value in (holder.__kwdefaults__ or {}).items():
        if value is held:
            return f" → default of '{variable}'"
    if holder.__globals__ is held:
        return " → its globals "
    for key, value in (instance_dict(holder) or {}).items():
        if value is held:
            return f".{key}"
    return " → function"


def _method_step(holder: types.MethodType, held: object, name: Namer) -> str:
    function = getattr(holder.__func__, "__name__", "?")
    return f" → method {function} of {type_name(holder.__self__)}" if held is holder.__self__ else ""


def _class_step(holder: type, held: object, name: Namer) -> str:
    for key, value in list(class_dict(holder).items()):
        if value is held:
            return f".{key}"
    return f" → class {class_name(holder)}"


def _generator_step(holder: Any, held: object, name: Namer) -> str:
    kind, attribute = next(pair for cls, pair in GENERATORS.items() if cls in mro(type(holder)))
    frame = getattr(holder, attribute)
    function = type(holder).__dict__["__name__"].__get__(holder)
    return f" → {kind} {function}(){_local(frame, held)}"


def _frame_step(holder: types.FrameType, held: object, name: Namer) -> str:
    return f": frame of {holder.f_code.co_name}(), line {holder.f_lineno}{_local(holder, held)}"


def _local(frame: types.FrameType | None, held: object) -> str:
    if frame is not None:
        for variable, value in frame_locals(frame).items():
            if value is held or (type(value) is types.CellType and value.cell_contents is held):
                return f", local '{variable}'"
    return ""


def _error_step(holder: BaseException, held: object, name: Namer) -> str:
    get = BaseException.__dict__
    if held is get["__traceback__"].__get__(holder):
        return ""
    if held is get["__cause__"].__get__(holder):
        return ", its cause"
    if held is get["__context__"].__get__(holder):
        return ", its context"
    group = getattr(sys.modules["builtins"], "BaseExceptionGroup", None)
    if group is not None and group in mro(type(holder)) and held is not get["args"].__get__(holder):
        return ", member of the group"
    if held is get["args"].__get__(holder):
        return ".args"
    return _plain_step(holder, held, name)


def _cache_step(holder: object, held: object, name: Namer) -> str:
    return " → its cache"


def _pair_step(holder: object, held: object, name: Namer) -> str:
    return f" → last pair of {type_name(holder)}" if type(held) is tuple else f" → {type_name(holder)}"


def _thread_local_step(holder: Any, held: object, name: Namer) -> str:
    get: Any = type(holder).__getattribute__
    return attribute(get(holder, "__dict__"), held, name)


def _tee_step(holder: object, held: object, name: Namer) -> str:
    return " → buffer of tee"


def _partial_step(holder: Any, held: object, name: Namer) -> str:
    get = class_dict(functools.partial)
    for part in ("func", "args", "keywords"):
        if held is get[part].__get__(holder):
            return " → partial" if part == "func" else f" → partial.{part}"
    return " → partial"


def _future_step(holder: Any, held: object, name: Namer) -> str:
    """Tasks and futures of asyncio and of concurrent.futures."""
    kind = "task" if type_name(holder) == "Task" else "future"
    if is_a(held, BaseException) or is_a(held, types.TracebackType):
        return f" → {kind}'s error"
    if type(held) in GENERATORS:
        return f" → {kind}"
    inner = instance_dict(holder) or {}
    is_result = is_tensor(held) or held is inner.get("_result")
    return f" → {kind}'s result" if is_result else _plain_step(holder, held, name)


def _array_step(holder: Any, held: object, name: Namer) -> str:
    base = sys.modules["numpy"].ndarray
    for index, item in enumerate(base.view(holder, base).ravel().tolist()):
        if item is held:
            return f"[{index}]"
    return _plain_step(holder, held, name)


def _tensor_step(objects: list[object], index: int, graph_sizes: dict[int, int]) -> tuple[str, int]:
    """From a tensor into its gradient, its hooks, or through its graph to the next tensor in one word."""
    holder, held = objects[index], objects[index + 1]
    if any(held is grad for framework in frameworks.loaded() for grad in framework.referents(holder)):
        return ".grad", 1
    if is_node(holder) or is_node(held):
        end = index + 1
        while end + 1 < len(objects) and (is_node(objects[end]) or is_tensor(objects[end])):
            end += 1
        if is_node(objects[end]):
            end = min(end + 1, len(objects) - 1)
        if id(holder) not in graph_sizes:
            graph_sizes[id(holder)] = saved_tensors(holder)
        return f" → graph ({graph_sizes[id(holder)]} saved tensors)", end - index
    if type(held).__name__ == "OrderedDict":
        return " → backward hook", 1
    return _plain_step(holder, held, lambda key: None), 1


def saved_tensors(start: object, limit: int = 20_000) -> int:
    """How many tensors the graph behind a tensor or node holds."""
    todo: list[object] = [start]
    seen: dict[int, object] = {}
    count = 0
    loaded = frameworks.loaded()
    while todo and len(seen) < limit:
        obj = todo.pop()
        if id(obj) in seen:
            continue
        seen[id(obj)] = obj
        count += obj is not start and is_tensor(obj)
        for framework in loaded:
            todo += framework.graph(obj)
    return count


def kind_of(obj: object) -> str | None:
    return next((kind for framework in frameworks.loaded() if (kind := framework.kind(type(obj)))), None)


def is_tensor(obj: object) -> bool:
    return kind_of(obj) == "tensor"


def is_node(obj: object) -> bool:
    return kind_of(obj) == "node"


def _nothing(holder: object, held: object, name: Namer) -> str:
    return ""


Words = Callable[[Any, object, Namer], str]
_WORDS: tuple[tuple[type, Words], ...] = (
    (dict, _dict_step),
    (list, _sequence_step),
    (tuple, _sequence_step),
    (collections.deque, _sequence_step),
    (set, _set_step),
    (frozenset, _set_step),
    (types.CellType, _nothing),
    (types.TracebackType, _nothing),
    (staticmethod, _nothing),
    (classmethod, _nothing),
    (property, _nothing),
    (types.FunctionType, _function_step),
    (types.MethodType, _method_step),
    (types.FrameType, _frame_step),
    (type, _class_step),
    (BaseException, _error_step),
    (functools.partial, _partial_step),
    (type(functools.lru_cache(len)), _cache_step),
    (threading.local, _thread_local_step),
    (enumerate, _pair_step),
    (zip, _pair_step),
    (type(itertools.tee(())[0]), _tee_step),
    (itertools._tee_dataobject, _nothing),  # type: ignore[attr-defined]
    *((cls, _generator_step) for cls in GENERATORS),
)
_LATE_WORDS: tuple[tuple[str, str, Words], ...] = (
    ("asyncio", "Future", _future_step),
    ("concurrent.futures", "Future", _future_step),
    ("numpy", "ndarray", _array_step),
)
"""Types of modules that we do not import."""


def _words() -> Iterator[tuple[type, Words]]:
    yield from _WORDS
    for module, cls, words in _LATE_WORDS:
        known = getattr(sys.modules.get(module), cls, None)
        if isinstance(known, type):
            yield known, words
