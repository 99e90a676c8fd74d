"""A second set of the objects that a call works with, so that the call can be rehearsed without changing the first.

Unlike ``copy.deepcopy`` it runs no code of the objects' classes, follows functions into their closures and into the
globals that they use, and has somebody else make the tensors. What belongs to the process rather than to the call
(modules, classes, locks, files, threads, loggers) is shared; what gives its items only once is refused.
"""
from __future__ import annotations

import copy
import dis
import enum
import functools
import random
import sys
import types
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Any

from jupyter_gpumem.errors import InputError
from jupyter_gpumem.introspect import class_dict, instance_dict, is_a, module_of, mro, slots, type_name

_ATOMS: frozenset[type] = frozenset(
    {type(None), bool, int, float, complex, str, bytes, range, slice, types.EllipsisType, types.CodeType}
)
_ONCE = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)
_DATA = {"argparse", "collections", "dataclasses", "functools", "types"}
"""Modules of the standard library whose objects are data; the objects of the others are the process's."""
_BUFFER = 1 << 20
"""Bytes up to which numpy's arrays are copied; larger ones are seen through a view that cannot be written to."""
_HEAP_TYPE = 1 << 9


class Copier:
    """One set of copies: the same object gives the same copy, so that what was shared is shared again."""

    def __init__(self, tensor: Callable[[object], object | None], is_users: Callable[[str], bool]) -> None:
        """``tensor`` gives the copy of a tensor, and None for anything else; ``is_users`` tells the user's files."""
        self._tensor = tensor
        self._is_users = is_users
        self._memo: dict[int, tuple[object, Any]] = {}
        self._globals: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {}

    def pairs(self) -> Iterator[tuple[object, Any]]:
        """The originals and their copies, so far."""
        yield from list(self._memo.values())

    def release(self) -> None:
        """Forget all: from now on the copies live as long as they hold one another."""
        self._memo.clear()
        self._globals.clear()

    def copy(self, obj: Any) -> Any:
        """The copy of an object. Raises InputError for what can be neither copied nor shared."""
        cls = type(obj)
        if cls in _ATOMS:
            return obj
        known = self._memo.get(id(obj))
        if known is not None:
            return known[1]
        if is_a(obj, type) or is_a(obj, types.ModuleType):
            return obj
        made: Any = self._tensor(obj)
        if made is None:
            made = self._copied(obj, cls)
        return self.keep(obj, made)

    def keep(self, obj: object, made: Any) -> Any:
        """Let an object have this copy from now on. Returns the copy."""
        self._memo[id(obj)] = (obj, made)
        return made

    # ---------------------------------------------------------------- by kind
    def _copied(self, obj: Any, cls: type) -> Any:
        bases = mro(cls)
        for base, make in _MAKERS:
            if base in bases:
                return make(self, obj)
        if any(once in bases for once in _ONCE):
            raise InputError(f"the call uses a {type_name(obj)}, whose items a rehearsal would use up")
        top = module_of(cls).partition(".")[0]
        if top == "numpy" or cls in (bytearray, random.Random):
            return _buffer(obj)
        if enum.Enum in bases or (top in sys.stdlib_module_names and top not in _DATA):
            return obj
        return self._instance(obj, cls)

    def _instance(self, obj: Any, cls: type) -> Any:
        names = {name for one in mro(cls) if one is not object for name in class_dict(one)}
        if not cls.__flags__ & _HEAP_TYPE:
            if "__next__" in names:
                raise InputError(f"the call uses a {type_name(obj)}, whose items a rehearsal would use up")
            return obj
        if "__del__" in names:  # the end of a copy would be the end of what it stands for
            return obj
        try:
            made: Any = object.__new__(cls)
        except TypeError:  # its state lies in C
            return obj
        return self._fill(obj, made)

    def _fill(self, obj: Any, made: Any) -> Any:
        """The attributes of an object, put into its copy without its class's ``__setattr__``."""
        self.keep(obj, made)
        inner = instance_dict(made)
        if inner is not None:
            for name, value in list((instance_dict(obj) or {}).items()):
                inner[name] = self.copy(value)
        for name, value in slots(obj):
            try:
                object.__setattr__(made, name, self.copy(value))
            except AttributeError:  # a member of a built-in type that cannot be written
                continue
        return made

    def _key(self, key: Any) -> Any:
        """Keys are copied where their hash is their identity; others are found again only as they are."""
        hashed = next(class_dict(cls)["__hash__"] for cls in mro(type(key)) if "__hash__" in class_dict(cls))
        made = self._tensor(key) if id(key) not in self._memo else self.copy(key)
        if made is not None:
            return self.keep(key, made)
        return self.copy(key) if hashed is object.__hash__ else key

    # ---------------------------------------------------------------- containers
    def _dict(self, obj: Any) -> Any:
        base: Any = next(base for base in (OrderedDict, defaultdict, dict) if base in mro(type(obj)))
        made: Any = base.__new__(type(obj))
        if base is defaultdict:
            defaultdict.__init__(made, self.copy(obj.default_factory))
        self.keep(obj, made)
        for key, value in list(dict.items(obj)):
            base.__setitem__(made, self._key(key), self.copy(value))
        return self._fill(obj, made) if type(obj) is not dict else made

    def _list(self, obj: Any) -> Any:
        made = list.__new__(type(obj))
        self.keep(obj, made)
        list.extend(made, [self.copy(item) for item in list.__iter__(obj)])
        return self._fill(obj, made) if type(obj) is not list else made

    def _deque(self, obj: Any) -> Any:
        made: Any = deque.__new__(type(obj))
        deque.__init__(made, (), deque.maxlen.__get__(obj))
        self.keep(obj, made)
        deque.extend(made, [self.copy(item) for item in deque.__iter__(obj)])
        return made

    def _set(self, obj: Any) -> Any:
        base: Any = set if is_a(obj, set) else frozenset
        items = [self._key(item) for item in base.__iter__(obj)]
        return base.__new__(type(obj), items) if base is frozenset else _filled(base.__new__(type(obj)), items)

    def _tuple(self, obj: Any) -> Any:
        items = [self.copy(item) for item in tuple.__iter__(obj)]
        if all(new is old for new, old in zip(items, tuple.__iter__(obj), strict=True)):
            return obj
        try:
            return tuple.__new__(type(obj), items)
        except TypeError:  # a structure of C, such as torch.return_types
            return type(obj)(items)

    # ---------------------------------------------------------------- functions
    def _function(self, obj: types.FunctionType) -> Any:
        """A function over copies of what its closure holds and, if the user wrote it, of the globals that it uses."""
        users = self._is_users(obj.__code__.co_filename)
        if not users and not obj.__closure__:
            return obj
        closure = tuple(types.CellType() for _ in obj.__closure__ or ())
        space = self._namespace(obj.__globals__) if users else obj.__globals__
        made = types.FunctionType(obj.__code__, space, obj.__name__, None, closure)
        self.keep(obj, made)
        made.__qualname__, made.__module__, made.__doc__ = obj.__qualname__, obj.__module__, obj.__doc__
        made.__defaults__ = self.copy(obj.__defaults__)
        made.__kwdefaults__ = self.copy(obj.__kwdefaults__)
        for old, new in zip(obj.__closure__ or (), closure, strict=True):
            self.keep(old, new)
            try:
                new.cell_contents = self.copy(old.cell_contents)
            except ValueError:  # an empty cell
                continue
        made.__dict__.update({name: self.copy(value) for name, value in list(obj.__dict__.items())})
        if users:
            for name in _globals_of(obj.__code__):
                if name in obj.__globals__:
                    space[name] = self.copy(obj.__globals__[name])
        return made

    def _namespace(self, original: dict[str, Any]) -> dict[str, Any]:
        """One copy of a module's globals for all of its functions: what one of them binds, the others see."""
        known = self._globals.get(id(original))
        if known is None:
            known = self._globals[id(original)] = (original, dict(original))
        return known[1]

    def _cell(self, obj: types.CellType) -> Any:
        made = self.keep(obj, types.CellType())
        try:
            made.cell_contents = self.copy(obj.cell_contents)
        except ValueError:  # an empty cell
            return made
        return made

    def _method(self, obj: types.MethodType) -> Any:
        return types.MethodType(self.copy(obj.__func__), self.copy(obj.__self__))

    def _builtin_method(self, obj: Any) -> Any:
        owner = self.copy(obj.__self__)
        return obj if owner is obj.__self__ else getattr(owner, obj.__name__)

    def _partial(self, obj: Any) -> Any:
        if type(obj) is not functools.partial:
            return self._instance(obj, type(obj))
        return functools.partial(self.copy(obj.func), *self.copy(obj.args), **self.copy(obj.keywords))

    def _weak(self, obj: Any) -> Any:
        target = weakref.ref.__call__(obj)
        made = self.copy(target) if target is not None and type(obj) is weakref.ref else target
        return obj if made is target else weakref.ref(made)


_MAKERS: tuple[tuple[type, Callable[[Copier, Any], Any]], ...] = (
    (dict, Copier._dict),
    (list, Copier._list),
    (tuple, Copier._tuple),
    (set, Copier._set),
    (frozenset, Copier._set),
    (deque, Copier._deque),
    (types.FunctionType, Copier._function),
    (types.MethodType, Copier._method),
    (types.BuiltinFunctionType, Copier._builtin_method),
    (types.CellType, Copier._cell),
    (functools.partial, Copier._partial),
    (weakref.ref, Copier._weak),
)


def _filled(made: Any, items: list[Any]) -> Any:
    set.update(made, items)
    return made


def _buffer(obj: Any) -> Any:
    """A copy of an array or a generator of numbers; of a large array a view that cannot be written to."""
    if type_name(obj) == "ndarray" and (obj.dtype.hasobject or obj.nbytes > _BUFFER):
        view = obj.view()
        view.flags.writeable = False
        return view
    return copy.deepcopy(obj)


def _globals_of(code: types.CodeType) -> set[str]:
    """The globals that a function reads, binds or deletes, in the functions inside it too."""
    found = {step.argval for step in dis.get_instructions(code) if step.opname.endswith(("_GLOBAL", "_NAME"))}
    for constant in code.co_consts:
        if type(constant) is types.CodeType:
            found |= _globals_of(constant)
    return found
