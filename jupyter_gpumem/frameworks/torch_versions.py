"""What was written to in place since a moment: torch counts the writes to every tensor.

Of what a try that failed has changed, gradients that are new and buffers of modules can be put back: the ones are
taken away, of the others small ones were copied to the host. Parameters and states of optimizers cannot, but the
change is seen.
"""
from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch

from jupyter_gpumem.introspect import instance_dict, mro

_TensorBase: Any = torch._C.TensorBase
_no_function = torch._C.DisableTorchFunction
_MOST_COPIED = 64 << 20
"""Bytes of buffers that are copied. The running statistics of large networks take some MiB."""


class Versions:
    """Tensors and their versions, remembered weakly."""

    def __init__(self) -> None:
        self._versions: list[tuple[weakref.ref[Any], int]] = []
        self._without_gradient: list[weakref.ref[Any]] = []
        self._gradients: list[tuple[weakref.ref[Any], weakref.ref[Any]]] = []
        """Leaf and its gradient."""
        self._buffers: list[tuple[weakref.ref[Any], Any]] = []
        """Buffer, and a copy in host memory."""

    def written(self) -> list[object]:
        """The tensors that were written to in place, as far as :meth:`put_back` cannot undo it."""
        pairs = [(ref(), version) for ref, version in self._versions]
        return [tensor for tensor, version in pairs if tensor is not None and _version(tensor) != version]

    def put_back(self) -> None:
        """Take away gradients that were not there, and write back the buffers that have changed.

        A gradient that was there and has been dropped or replaced is dropped: whoever runs the same code again drops
        it in the same place.
        """
        with _no_function(), torch.no_grad():
            for leaf in _alive(self._without_gradient):
                _TensorBase.grad.__set__(leaf, None)
            for leaf_ref, gradient_ref in self._gradients:
                leaf = leaf_ref()
                if leaf is not None and _TensorBase.grad.__get__(leaf) is not gradient_ref():
                    _TensorBase.grad.__set__(leaf, gradient_ref())
            for ref, copy in self._buffers:
                buffer = ref()
                # batch norm changes its statistics without counting that as a write
                if buffer is not None and not torch.equal(_bytes(_to_host(buffer)), _bytes(copy)):
                    _TensorBase.copy_(buffer, copy)


def mark_versions(objects: Iterable[object]) -> Versions:
    """Remember the versions of the tensors among ``objects``, of their gradients, and of the modules' buffers."""
    marked = Versions()
    tensors: dict[int, Any] = {}
    buffers: dict[int, Any] = {}
    for obj in objects:
        bases = mro(type(obj))
        if _TensorBase in bases:
            tensors[id(obj)] = obj
        elif torch.nn.Module in bases:
            table = (instance_dict(obj) or {}).get("_buffers") or {}
            buffers |= {id(b): b for b in list(table.values()) if b is not None and _TensorBase in mro(type(b))}
    _copy_buffers(marked, buffers)
    copied = {id(buffer) for buffer in _alive([ref for ref, _ in marked._buffers])}
    gradients = _mark_gradients(marked, tensors.values())
    for tensor in (tensors | gradients).values():
        version = _version(tensor)
        if version is not None and id(tensor) not in copied:
            marked._versions.append((weakref.ref(tensor), version))
    return marked


def _mark_gradients(marked: Versions, tensors: Iterable[Any]) -> dict[int, Any]:
    """Remember which leaves have a gradient, and return those, by id."""
    found: dict[int, Any] = {}
    with _no_function():
        for tensor in tensors:
            if not _TensorBase.is_leaf.__get__(tensor) or not _TensorBase.requires_grad.__get__(tensor):
                continue
            gradient = _TensorBase.grad.__get__(tensor)
            if gradient is None:
                marked._without_gradient.append(weakref.ref(tensor))
            else:
                marked._gradients.append((weakref.ref(tensor), weakref.ref(gradient)))
                found[id(gradient)] = gradient
    return found


def _copy_buffers(marked: Versions, buffers: dict[int, Any]) -> None:
    """Copy buffers, the smallest first, as many as fit."""
    left = _MOST_COPIED
    with _no_function(), torch.no_grad():
        sizes = {key: _TensorBase.numel(b) * _TensorBase.element_size(b) for key, b in buffers.items()}
        for key in sorted(buffers, key=lambda key: sizes[key]):
            buffer = buffers[key]
            if sizes[key] > left or _version(buffer) is None or _TensorBase.layout.__get__(buffer) is not torch.strided:
                continue
            if _TensorBase.device.__get__(buffer).type == "meta":
                continue
            left -= sizes[key]
            marked._buffers.append((weakref.ref(buffer), _to_host(buffer)))


def _to_host(tensor: Any) -> Any:
    """A copy in host memory."""
    return _TensorBase.to(_TensorBase.detach(tensor), "cpu", copy=True)


def _bytes(tensor: Any) -> Any:
    """The bytes of a tensor: NaN differs from itself, its bytes do not."""
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def _version(tensor: Any) -> int | None:
    """How often a tensor was written to; None for one made in inference mode, which does not count."""
    try:
        with _no_function():
            return int(_TensorBase._version.__get__(tensor))
    except RuntimeError:
        return None


def _alive(refs: Iterable[weakref.ref[Any]]) -> list[Any]:
    return [obj for obj in (ref() for ref in refs) if obj is not None]
