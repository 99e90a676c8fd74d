"""What operations do to memory: each storage that they make, and the moment when it would be freed.

A storage's Python object lives as long as the storage itself, so a weak reference to it tells its end.
"""
from __future__ import annotations

import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch._subclasses import fake_tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _python_dispatch

from jupyter_gpumem.errors import InputError
from jupyter_gpumem.frameworks.records import Allocation, Frame, Input, Rehearsal
from jupyter_gpumem.frameworks.torch_allocator import user_frame
from jupyter_gpumem.introspect import is_a

_TensorBase: Any = torch._C.TensorBase
_FakeTensor: Any = fake_tensor.FakeTensor
_scalar = torch.ops.aten._local_scalar_dense.default
_CALLER = f"{__package__}.torch_forecast"
"""Where the user's lines end: what called the forecast is no part of the call."""
_UNKNOWN = "a value is not known in a forecast: it was taken for {value}, and a branch on it may go another way"


class Log:
    """The storages by number, and what happened to them in order."""

    def __init__(self, ready: Iterable[str]) -> None:
        """``ready``: the types of the devices that are in use."""
        self._ready = frozenset(ready)
        self._live: dict[int, tuple[int, int, Any]] = {}
        """Address of a storage's record → its number, bytes, and the weak reference that tells its end."""
        self._made: list[Allocation] = []
        self._events: list[tuple[int, int]] = []
        self._kinds: dict[int, str] = {}
        self._pinned: set[int] = set()
        self._end: int | None = None
        self._thread = threading.get_ident()

    def see(
        self, tensor: Any, kind: str | None = None, address: int | None = None, operation: Any = None, new: bool = False
    ) -> None:
        """Count a tensor's storage, if it is new. ``kind`` is of one that is there before the call."""
        if self._end is not None or tensor.layout is not torch.strided or tensor.device.type == "meta":
            return
        storage = tensor.untyped_storage()
        key, nbytes = storage._cdata, storage.nbytes()
        known = self._live.get(key)
        if known is not None:
            if nbytes != known[1]:
                self._live[key] = (known[0], nbytes, known[2])
                self._events.append((known[0], nbytes))
            return
        if tensor.device.type not in self._ready:
            raise InputError(
                f"the call uses {tensor.device.type}, which this session has not used yet, and a forecast starts no "
                "device; put a tensor there first"
            )
        number = len(self._made)
        self._live[key] = (number, nbytes, weakref.ref(storage, lambda _: self._gone(key)))
        begun = kind is None or new
        self._made.append(
            Allocation(
                device=str(tensor.device),
                nbytes=nbytes,
                kind=kind or ("temporaries" if _in_backward() else "activations"),
                existing=not begun,
                address=address,
                operation=str(operation.name()).partition(".")[0].replace("::", ".") if operation is not None else "",
                made=_shape(tensor),
                frame=user_line(self._thread) if kind is None else None,
            )
        )
        if kind is not None:
            self._kinds[number] = kind
        if begun:
            self._events.append((number, nbytes))

    def replace(self, tensor: Any, address: int | None) -> None:
        """The storage of a real tensor is taken for freed before the call begins."""
        number = len(self._made)
        nbytes = tensor.untyped_storage().nbytes()
        self._made.append(Allocation(str(tensor.device), nbytes, "inputs", True, address, "", _shape(tensor), None))
        self._events.append((number, 0))

    def _gone(self, key: int) -> None:
        known = self._live.pop(key, None)
        if known is not None and self._end is None and known[0] not in self._pinned:
            self._events.append((known[0], 0))

    def pin(self, storage: Any) -> None:
        """Somebody holds the real storage whom the call does not reach: it stays."""
        self._pinned.add(self._live[storage._cdata][0])

    def name(self, tensors: Iterable[Any], kind: str) -> None:
        """Say what some tensors are."""
        for number in self.numbers(tensors):
            self._kinds[number] = kind

    def kind_of(self, tensor: Any) -> str | None:
        """What a tensor was said to be."""
        return next((self._kinds.get(number) for number in self.numbers([tensor])), None)

    def numbers(self, tensors: Iterable[Any]) -> list[int]:
        """The numbers of the tensors' storages."""
        keys = [tensor.untyped_storage()._cdata for tensor in tensors if tensor.layout is torch.strided]
        return [self._live[key][0] for key in keys if key in self._live]

    def gradient(self, leaf: Any) -> None:
        """A leaf has got its gradient."""
        if leaf.grad is not None:
            self.name([leaf.grad], "gradients")

    def ended(self) -> None:
        """The call has returned; what follows is its result's end, not the call's."""
        self._end = len(self._events)

    def rehearsal(
        self, optimizer_state: Iterable[int], inputs: tuple[Input, ...], notes: tuple[tuple[str, Frame | None], ...]
    ) -> Rehearsal:
        """All that was seen."""
        self._kinds |= dict.fromkeys(optimizer_state, "optimizer")
        made = tuple(one._replace(kind=self._kinds.get(n, one.kind)) for n, one in enumerate(self._made))
        return Rehearsal(made, tuple(self._events), inputs, notes)


class Watch(_python_dispatch.TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch has no types for its modes
    """Sees each operation: the storages that it makes, the values that it asks for."""

    def __init__(self, log: Log, twin: Callable[[Any], Any], note: Callable[[str, Frame | None], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._log, self._twin, self._note = log, twin, note

    def __torch_dispatch__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is _scalar and args[0].device.type != "meta":
            return self._value(args[0])
        args, kwargs = self._faked(args), {name: self._faked(value) for name, value in kwargs.items()}
        try:
            result = func(*args, **kwargs)
        except (fake_tensor.UnsupportedOperatorException, NotImplementedError):
            if not _only_writes(func):
                raise
            result = _written(func, args)
        for tensor in tensors_of(result):
            self._log.see(tensor, operation=func)
        return result

    def _faked(self, value: Any) -> Any:
        if type(value) in (list, tuple):
            return type(value)(map(self._faked, value))
        is_real = isinstance(value, torch.Tensor) and not is_a(value, _FakeTensor)
        return self._twin(value) if is_real and (value.dim() or value.device.type != "cpu") else value

    def _value(self, tensor: Any) -> Any:
        """A value: known of a constant, else a stand-in. An overflow is not expected, nor is any other alarm."""
        constant = tensor if not is_a(tensor, _FakeTensor) else tensor.constant
        if constant is not None:
            return host_value(constant)
        kind = tensor.dtype
        value: Any = False if kind is torch.bool else 1.0 if kind.is_floating_point else 1
        asker = _asker()
        if asker == "torch.amp.grad_scaler":
            return 0.0
        if not asker.startswith("torch."):  # torch's own questions are not the user's branches
            self._note(_UNKNOWN.format(value=value), user_line())
        return complex(value) if kind.is_complex else value


class Behave(TorchFunctionMode):
    """What a fake tensor cannot do by itself and calls of a training loop need: to be copied, printed, plotted."""

    def __init__(self, note: Callable[[str, Frame | None], None]) -> None:
        super().__init__()
        self._note = note

    def __torch_function__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.Tensor.__deepcopy__:
            return _deep_copy(*args)
        if func is torch.Tensor.__format__ and not args[0].dim():
            return format(args[0].item(), args[1])
        if func is torch.Tensor.numpy and args[0].device.type == "cpu" and not args[0].requires_grad:
            self._note(_UNKNOWN.format(value="0"), user_line())
            return _zeros(args[0])
        return func(*args, **(kwargs or {}))


def _deep_copy(tensor: Any, memo: dict[int, Any]) -> Any:
    """torch's own way would copy the tensor's mode too."""
    if id(tensor) not in memo:
        copy = tensor.detach().clone()
        copy.requires_grad_(tensor.requires_grad)
        is_parameter = isinstance(tensor, torch.nn.Parameter)
        memo[id(tensor)] = torch.nn.Parameter(copy, tensor.requires_grad) if is_parameter else copy
    return memo[id(tensor)]


def _zeros(tensor: Any) -> Any:
    """numpy's view of one zero, as large as the tensor."""
    with _python_dispatch._disable_current_modes():
        return torch.zeros(1, dtype=tensor.dtype).expand(tensor.shape).numpy()


# ---------------------------------------------------------------- small questions
def tensors_of(value: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_of(item)
    elif isinstance(value, dict):
        for item in list(value.values()):
            yield from tensors_of(item)


def _in_backward() -> bool:
    return bool(torch._C._current_graph_task_id() >= 0)


def host_value(tensor: Any) -> Any:
    """The number in a real tensor of one element in host memory."""
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunctionSubclass():
        return _TensorBase.item(tensor)


def _shape(tensor: Any) -> str:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return f"{dtype} {'×'.join(map(str, tensor.shape)) or 'scalar'}"


def _only_writes(func: Any) -> bool:
    """Whether all that an operation gives back is what it wrote to: then no rule for shapes is needed."""
    return all(one.alias_info is not None and one.alias_info.is_write for one in func._schema.returns)


def _written(func: Any, args: tuple[Any, ...]) -> Any:
    written = [
        value
        for value, argument in zip(args, func._schema.arguments, strict=False)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    returns = len(func._schema.returns)
    return None if not returns else written[0] if returns == 1 else tuple(written[:returns])


def user_line(thread: int | None = None) -> Frame | None:
    """The user's line that is running; of the calling thread if this one is autograd's own."""
    found = _user_line(sys._getframe(1))
    if found is None and thread not in (None, threading.get_ident()):
        found = _user_line(sys._current_frames().get(thread or 0))
    return found


def _user_line(frame: types.FrameType | None) -> Frame | None:
    while frame is not None and frame.f_globals.get("__name__") != _CALLER:
        here = Frame(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
        if user_frame([here]) is not None:
            return here
        frame = frame.f_back
    return None


def _asker() -> str:
    """The module that asks for a value: the innermost that is neither ours nor in torch's plumbing."""
    frame: types.FrameType | None = sys._getframe(2)
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if not name.startswith(("torch._", "torch.utils._", "torch.overrides", __name__)):
            return name
        frame = frame.f_back
    return ""
