"""What an object is to a framework, and what a name holds."""
from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence

from jupyter_gpumem import frameworks
from jupyter_gpumem.analysis.holders import tensors_in
from jupyter_gpumem.analysis.inventory import is_watched
from jupyter_gpumem.frameworks import Framework
from jupyter_gpumem.frameworks.records import Part
from jupyter_gpumem.introspect import mro, type_name
from jupyter_gpumem.model import NameUse

ATOMS = (int, float, complex, str, bytes, type(None), type)
SEQUENCES = (list, tuple, set, frozenset, collections.deque)


def kind_of(value: object) -> tuple[Framework, frameworks.Kind] | None:
    """The framework that knows an object's type, and what the object is to it."""
    for framework in frameworks.loaded():
        kind = framework.kind(type(value))
        if kind is not None:
            return framework, kind
    return None


def parts_of(tensors: Iterable[object], watched: Sequence[str] | None) -> set[Part]:
    """The storages with bytes under some tensors, each once, on the watched devices."""
    return {
        part
        for tensor in tensors
        for framework in frameworks.loaded()
        if framework.kind(type(tensor)) == "tensor"
        for part in framework.parts(tensor)
        if part.nbytes and is_watched(part.device, watched)
    }


def use_of(name: str, value: object, watched: Sequence[str] | None, barriers: Sequence[object] = ()) -> NameUse:
    """What one value holds on the watched devices, but not through ``barriers``: the shell's own tables, say."""
    is_atom = any(cls in ATOMS for cls in mro(type(value))) or type_name(value) == "module"
    parts = set() if is_atom else parts_of(tensors_in(value, barriers).values(), watched)
    nbytes = sum(part.nbytes for part in parts)
    known = kind_of(value)
    if known is not None and known[1] == "tensor":
        tensor = known[0].describe(value)
        return NameUse(name, tensor.kind, nbytes, len(parts), tensor.shape, tensor.dtype)
    return NameUse(name, type_name(value), nbytes, len(parts))


def names_in_use(
    values: dict[str, object], watched: Sequence[str] | None, barriers: Sequence[object] = ()
) -> tuple[NameUse, ...]:
    """The names among ``values`` that hold memory of the watched devices, largest first."""
    uses = [use_of(name, value, watched, barriers) for name, value in values.items()]
    return tuple(sorted((use for use in uses if use.storages), key=lambda use: -use.nbytes))
