"""What an autograd graph keeps alive. No hook is run, nothing is unpacked, nothing raises on freed buffers.

``node._saved_x`` would raise for freed buffers and *run* unpack hooks (``save_on_cpu`` would copy to the device,
checkpointing would compute again). ``node._raw_saved_x`` gives a ``SavedTensor``, whose ``.data`` is what was packed.
Older versions of torch lack ``.data``; there a graph shows only what ``gc`` sees of it.
"""
from __future__ import annotations

import gc
import types
from typing import Any

import torch

from jupyter_gpumem.introspect import class_dict, mro

_TensorBase: Any = torch._C.TensorBase
_SavedTensor: Any = torch._C._autograd.SavedTensor
_PythonNode: Any = torch._C._FunctionBase
_node_types: dict[type, tuple[str, ...]] = {}
"""Native type of node → the names of its raw saved fields."""
_ATOMS = (int, float, complex, str, bytes, bool, type(None), torch.device, torch.dtype, torch.Size)
_NOT_ENTERED = (type, types.ModuleType, types.BuiltinFunctionType, types.CodeType)


def saved_fields(cls: type) -> tuple[str, ...] | None:
    """Names of the raw saved fields of a type of node; None for what is no node."""
    known = _node_types.get(cls)
    if known is not None:
        return known
    bases = mro(cls)
    native = type(class_dict(cls).get("next_functions")) is types.GetSetDescriptorType
    if not native and _PythonNode not in bases:
        return None
    found = tuple(key for base in bases for key in class_dict(base) if key.startswith("_raw_saved_"))
    if native:  # a class of the user's, made anew in each cell, must not stay alive for us
        _node_types[cls] = found
    return found


def is_node_type(cls: type) -> bool:
    """Whether objects of a type are nodes of an autograd graph, native or of a Python ``Function``."""
    return saved_fields(cls) is not None


def step(node: Any) -> list[object]:
    """What a node holds: the next nodes, saved tensors, the leaf that it accumulates into, ``ctx`` attributes."""
    found: list[object] = []
    try:
        found += [following for following, _ in node.next_functions if following is not None]
    except RuntimeError:  # before torch 2.5 the node of a Function outlives its graph
        pass
    for field in saved_fields(type(node)) or ():
        try:
            value = getattr(node, field)
        except (RuntimeError, AttributeError):  # freed after backward
            continue
        for saved in value if type(value) in (tuple, list) else (value,):
            if type(saved) is _SavedTensor:
                found += _packed(saved)
    variable = getattr(node, "variable", None) if type(node).__name__ == "AccumulateGrad" else None
    if variable is not None:
        found.append(variable)
    if issubclass(type(node), _PythonNode):
        # the attributes that the user's forward put on ctx
        for value in list(getattr(node, "__dict__", {}).values()):
            found += _plain(value)
    return found


def _packed(saved: Any) -> list[object]:
    """What a saved tensor holds: the tensor, or what a pack hook made of it, and the closure of its unpack hook."""
    found = []
    data = getattr(saved, "data", None)
    if data is not None:
        found += _plain(data)
    hook = getattr(saved, "unpack_hook", None)
    if hook is not None:
        found += _closure(hook)
    return found


def _plain(value: object, depth: int = 3) -> list[object]:
    """Tensors in plain containers; any other object is handed on, for ``gc`` knows what it refers to."""
    if issubclass(type(value), _ATOMS):
        return []
    if type(value) in (tuple, list) and depth:
        return [x for item in list(value) for x in _plain(item, depth - 1)]  # type: ignore[call-overload]
    if type(value) is dict and depth:
        return [x for item in list(value.values()) for x in _plain(item, depth - 1)]
    return [value]


def _closure(hook: object, limit: int = 2000) -> list[object]:
    """Tensors and nodes in what a hook closes over: cells, partials, frames of checkpointing; never globals."""
    todo, seen, found = [hook], {0}, []
    while todo and len(seen) < limit:
        obj = todo.pop()
        if id(obj) in seen or isinstance(obj, _NOT_ENTERED):
            continue
        seen.add(id(obj))
        if issubclass(type(obj), _TensorBase) or is_node_type(type(obj)):
            found.append(obj)
        elif type(obj) is _SavedTensor:
            todo.append(getattr(obj, "data", None))
        elif type(obj) is types.FunctionType:
            todo += [obj.__closure__, obj.__defaults__, obj.__kwdefaults__]
        elif not issubclass(type(obj), torch.nn.Module):
            todo += gc.get_referents(obj)
    return found
