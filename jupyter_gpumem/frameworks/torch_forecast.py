"""A call of torch code, rehearsed: every tensor that it can reach is replaced by one without memory, and what the call
allocates and lets go of is written down.

The tensors are torch's own *fake* ones: they have shapes, types, devices, storages and autograd graphs, but no bytes.
A storage's Python object lives as long as the storage itself, so a weak reference to it tells when the memory would
be freed. They are not made with ``FakeTensorMode.from_tensor``, which imports ``torch._dynamo`` (seconds).
"""
from __future__ import annotations

import contextlib
import io
import sys
import threading
import types
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses import fake_tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from jupyter_gpumem.errors import InputError
from jupyter_gpumem.frameworks import Allocation, CannotRehearse, Frame, Input, Rehearsal
from jupyter_gpumem.frameworks import torch as readers
from jupyter_gpumem.frameworks.copying import Copier
from jupyter_gpumem.frameworks.torch_allocator import user_frame
from jupyter_gpumem.introspect import instance_dict, is_a

_TensorBase: Any = torch._C.TensorBase
_FakeTensor: Any = fake_tensor.FakeTensor
_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter, getattr(torch.nn, "Buffer", torch.Tensor)})
_no_function = torch._C.DisableTorchFunctionSubclass
_scalar = torch.ops.aten._local_scalar_dense.default
_HELD_BACK = ("empty_cache", "reset_peak_memory_stats", "reset_accumulated_memory_stats", "reset_max_memory_allocated")
"""What would change the session's allocator, though its tensors are fake."""
_UNKNOWN = "a value is not known in a forecast: it was taken for {value}, and a branch on it may go another way"
_NO_VALUE = (fake_tensor.DataDependentOutputException, fake_tensor.DynamicOutputShapeException)


def rehearse(
    function: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object], sizes: Mapping[int, int]
) -> Rehearsal:
    """Call ``function`` with copies of all that it reaches; ``sizes`` gives tensors, by ``id``, another first dimension.

    What the call prints is dropped. The random generators move on: whoever asks puts them back.
    Raises CannotRehearse if the call cannot be made so.
    """
    return _Rehearsal(sizes).run(function, args, kwargs)


def free_bytes(device: str) -> int | None:
    """What the driver has free on a device; only of one where this process has memory, and so a context, already."""
    device_type, _, index = device.partition(":")
    own = [one for one in readers.allocators() if one.device == device and one.reserved]
    backend = getattr(torch, device_type, None)
    ask = getattr(backend, "mem_get_info", None) or getattr(torch.accelerator, "get_memory_info", None)
    return int(ask(int(index))[0]) if own and index and ask is not None else None


class _Rehearsal:
    def __init__(self, sizes: Mapping[int, int]) -> None:
        self._mode: Any = fake_tensor.FakeTensorMode(allow_non_fake_inputs=True)
        self._mode.cache_enabled = False  # torch's cache of operations would keep the storages that ``set_`` was given
        self._copier = Copier(self._twin, _is_users_file)
        self._sizes = sizes
        self._storages: dict[int, Any] = {}
        """Address of a real storage's record → the fake storage in its place."""
        self._real: dict[int, list[Any]] = {}
        """The same → the real tensors on it that were met."""
        self._log = _Log()
        self._notes: dict[str, Frame | None] = {}
        self._hooks: list[tuple[Any, Any, str]] = []

    def run(
        self, function: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]
    ) -> Rehearsal:
        try:
            call = self._copier.copy((function, list(args), dict(kwargs)))
            self._copy_hooks()
        except InputError as refusal:
            raise CannotRehearse(str(refusal)) from None
        except RecursionError:
            raise CannotRehearse("what the call works with is nested too deeply to be copied") from None
        optimizers = self._name_kinds()
        inputs = self._inputs()
        self._resize()
        self._copier.release()
        self._real.clear()
        self._play(*call)
        optimizer_state = self._log.numbers(_tensors_of([found.state for one in optimizers if (found := one()) is not None]))
        return self._log.rehearsal(optimizer_state, inputs, tuple(self._notes.items()))

    # ---------------------------------------------------------------- the copies
    def _twin(self, real: object) -> Any:
        """The fake tensor in the place of a real one; None for what is no tensor."""
        found = readers.kind(type(real))
        if found != "tensor":
            return None
        if type(real) not in _PLAIN:
            raise InputError(f"the call reaches a {type(real).__name__}: only plain tensors can be rehearsed")
        with _no_function():
            return self._fake(real)

    def _fake(self, real: Any) -> Any:
        if real.layout is not torch.strided or real.is_quantized:
            raise InputError(f"the call reaches a {real.layout} tensor: only dense ones can be rehearsed")
        size, stride = tuple(real.shape), tuple(real.stride())
        one = real.numel() == 1 and real.device.type == "cpu" and not real.requires_grad and id(real) not in self._sizes
        with torch.no_grad(), self._mode:
            if one:  # a step's number, a learning rate: it is read as a value
                made = torch.tensor(_host_value(real), dtype=real.dtype).reshape(size)
                self._log.see(made, "inputs")
            elif id(real) in self._sizes:
                made = torch.empty((self._sizes[id(real)], *size[1:]), dtype=real.dtype, device=real.device)
            else:
                storage = self._storage(real)
                made = torch.empty(0, dtype=real.dtype, device=real.device)
                made.set_(storage, real.storage_offset(), size, stride)
        return self._as_leaf(real, made)

    def _storage(self, real: Any) -> Any:
        storage = real.untyped_storage()
        key = storage._cdata
        if key not in self._storages:
            base = torch.empty(storage.nbytes(), dtype=torch.uint8, device=real.device)
            self._storages[key] = base.untyped_storage()
            address = readers.data_pointers(real).get(key)
            self._log.see(base, "inputs", address=address)
        self._real.setdefault(key, []).append(real)
        return self._storages[key]

    def _as_leaf(self, real: Any, made: Any) -> Any:
        """With what autograd knows of the tensor: parameter or not, its gradient, its hooks."""
        if type(real) is torch.nn.Parameter:
            with self._mode:
                made = torch.nn.Parameter(made, real.requires_grad)
        elif real.requires_grad and made.is_floating_point():
            made.requires_grad_()
        self._copier.keep(real, made)
        if real.requires_grad and real.is_leaf:
            grad = _TensorBase.grad.__get__(real)
            if grad is not None:
                made.grad = self._copier.copy(grad)
            made.register_post_accumulate_grad_hook(self._log.gradient)
            for name in ("_backward_hooks", "_post_accumulate_grad_hooks"):
                for hook in list((getattr(_TensorBase, name).__get__(real) or {}).values()):
                    self._hooks.append((made, hook, name))
        elif real.requires_grad:
            self._note("an input has a graph from before the call: its part of the backward pass is left out", None)
            with self._mode, torch.enable_grad():
                made = made.view_as(made)
        for name, value in list((instance_dict(real) or {}).items()):
            made.__dict__.setdefault(name, self._copier.copy(value))
        return made

    def _copy_hooks(self) -> None:
        """Hooks of tensors, last of all: they may refer to anything."""
        while self._hooks:
            made, hook, table = self._hooks.pop(0)
            register = made.register_hook if table == "_backward_hooks" else made.register_post_accumulate_grad_hook
            register(self._copier.copy(hook))

    def _name_kinds(self) -> list[Any]:
        """What each tensor is to the modules and optimizers that were met. Returns the optimizers' copies, weakly."""
        optimizers: list[Any] = []
        for real, made in self._copier.pairs():
            what = readers.kind(type(real))
            if what == "module":
                inner = instance_dict(made) or {}
                self._log.name(_tensors_of(list(inner.get("_parameters", {}).values())), "parameters")
                self._log.name(_tensors_of(list(inner.get("_buffers", {}).values())), "buffers")
            elif what == "optimizer":
                optimizers.append(made)
                self._log.name(_tensors_of([made.state]), "optimizer")
            elif what == "tensor":
                if is_a(real, torch.nn.Parameter):
                    self._log.name([made], "parameters")
                if made.is_leaf and made.grad is not None:
                    self._log.name([made.grad], "gradients")
        return [weakref.ref(one) for one in optimizers]

    def _inputs(self) -> tuple[Input, ...]:
        """The tensors that are neither a module's, nor an optimizer's, nor a gradient."""
        found = []
        for real, made in self._copier.pairs():
            if readers.kind(type(real)) == "tensor" and made.dim() and self._log.kind_of(made) in ("inputs", None):
                nbytes = made.numel() * made.element_size()
                found.append(Input(id(real), tuple(made.shape), str(made.dtype).removeprefix("torch."), nbytes))
        return tuple(found)

    def _resize(self) -> None:
        """Inputs of another size stand in the place of the real ones. What others hold outlives the call's copies."""
        gone: set[int] = set()
        for real, made in self._copier.pairs():
            if readers.kind(type(real)) == "tensor" and id(real) in self._sizes:
                storage = real.untyped_storage()  # type: ignore[attr-defined]
                if readers.unseen([real]) == 0 and storage._cdata not in self._storages and storage._cdata not in gone:
                    gone.add(storage._cdata)
                    self._log.replace(real, readers.data_pointers(real).get(storage._cdata))
                self._log.see(made, "inputs", new=True)
        for key, tensors in self._real.items():
            if readers.unseen(tensors) != 0:
                self._log.pin(self._storages[key])
        self._storages.clear()

    # ---------------------------------------------------------------- the call
    def _play(self, function: Callable[..., object], args: list[object], kwargs: dict[str, object]) -> None:
        watch = _Watch(self._log, self._twin_met, self._note)
        quiet = io.StringIO()
        try:
            with (
                _session_kept(),
                contextlib.redirect_stdout(quiet),
                contextlib.redirect_stderr(quiet),
                warnings.catch_warnings(),
                torch.set_grad_enabled(torch.is_grad_enabled()),
                self._mode,
                _CopyFakes(),
                watch,
            ):
                warnings.simplefilter("ignore")
                result = function(*args, **kwargs)
                self._log.ended()
            del result
        except Exception as error:
            raise CannotRehearse(_problem(error), _line_of(error)) from None

    def _twin_met(self, real: Any) -> Any:
        """A real tensor that the call came by in a way that could not be followed. Raises InputError if it trains."""
        if real.requires_grad and torch.is_grad_enabled():
            raise InputError(
                "the call reaches a tensor that trains through a class or a module, not through its arguments, closures "
                "or globals; pass it as an argument"
            )
        return self._copier.copy(real)

    def _note(self, text: str, frame: Frame | None) -> None:
        self._notes.setdefault(text, frame)


class _Watch(TorchDispatchMode):
    """Sees each operation: the storages that it makes, the values that it asks for."""

    def __init__(self, log: _Log, twin: Callable[[Any], Any], note: Callable[[str, Frame | None], None]) -> None:
        super().__init__()
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
        for tensor in _tensors_of(result):
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
            return _host_value(constant)
        kind = tensor.dtype
        value: Any = False if kind is torch.bool else 1.0 if kind.is_floating_point else 1
        asker = _asker()
        if asker == "torch.amp.grad_scaler":
            return 0.0
        if not asker.startswith("torch.optim."):
            self._note(_UNKNOWN.format(value=value), user_line())
        return complex(value) if kind.is_complex else value


class _CopyFakes(TorchFunctionMode):
    """``copy.deepcopy`` of a fake tensor would copy its mode too."""

    def __torch_function__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is not torch.Tensor.__deepcopy__:
            return func(*args, **(kwargs or {}))
        tensor, memo = args
        if id(tensor) not in memo:
            copy = tensor.detach().clone()
            is_parameter = isinstance(tensor, torch.nn.Parameter)
            memo[id(tensor)] = (
                torch.nn.Parameter(copy, tensor.requires_grad)
                if is_parameter
                else copy.requires_grad_(tensor.requires_grad)
            )
        return memo[id(tensor)]


class _Log:
    """The storages by number, and what happened to them in order."""

    def __init__(self) -> None:
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
        self._kinds |= {number: "optimizer" for number in optimizer_state}
        made = tuple(one._replace(kind=self._kinds.get(n, one.kind)) for n, one in enumerate(self._made))
        return Rehearsal(made, tuple(self._events), inputs, notes)


# ---------------------------------------------------------------- small questions
def _tensors_of(value: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors_of(item)
    elif isinstance(value, dict):
        for item in list(value.values()):
            yield from _tensors_of(item)


def _in_backward() -> bool:
    return bool(torch._C._current_graph_task_id() >= 0)


def _host_value(tensor: Any) -> Any:
    """The number in a real tensor of one element in host memory."""
    with torch._C._DisableTorchDispatch(), _no_function():
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


def _is_users_file(filename: str) -> bool:
    """Whether the user wrote a function's code: in a cell, in a file, at a prompt."""
    typed = filename.startswith("<") and not filename.startswith("<frozen")
    return typed or user_frame([Frame(filename, 0, "")]) is not None


def user_line(thread: int | None = None) -> Frame | None:
    """The user's line that is running; of the calling thread if this one is autograd's own."""
    found = _user_line(sys._getframe(1))
    if found is None and thread not in (None, threading.get_ident()):
        found = _user_line(sys._current_frames().get(thread or 0))
    return found


def _user_line(frame: types.FrameType | None) -> Frame | None:
    while frame is not None:
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


def _problem(error: Exception) -> str:
    if isinstance(error, InputError):
        return str(error)
    if isinstance(error, _NO_VALUE):
        what = "value" if isinstance(error, _NO_VALUE[0]) else "shape that depends on values"
        return f"the call needs a {what}, which a forecast does not have: {_first_line(error)}"
    if isinstance(error, fake_tensor.UnsupportedOperatorException):
        return f"an operation has no rule for the shapes that it gives: {_first_line(error)}"
    return f"the call failed in the rehearsal with {type(error).__name__}: {_first_line(error)}"


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), "")[:200] or type(error).__name__


def _line_of(error: BaseException) -> Frame | None:
    """The innermost line of the user's in an error's traceback."""
    found, step = None, error.__traceback__
    while step is not None:
        here = Frame(step.tb_frame.f_code.co_filename, step.tb_lineno, step.tb_frame.f_code.co_name)
        found = here if user_frame([here]) is not None else found
        step = step.tb_next
    return found


@contextlib.contextmanager
def _session_kept() -> Iterator[None]:
    """Functions that would change the session's allocator do nothing meanwhile, compiled functions run as they were
    written, and optimizers take fake tensors for tensors: they choose their implementation by the exact type.
    """
    kept: list[tuple[Any, str, Any]] = []
    plain = getattr(sys.modules["torch.optim.optimizer"], "_foreach_supported_types", None)
    for backend in _backends():
        for owner in filter(None, (backend, getattr(backend, "memory", None))):
            for name in _HELD_BACK:
                if name in vars(owner):
                    kept.append((owner, name, vars(owner)[name]))
    stance = getattr(torch.compiler, "set_stance", None) if "torch._dynamo" in sys.modules else None
    try:
        for owner, name, _ in kept:
            setattr(owner, name, _nothing)
        if isinstance(plain, list):
            plain.append(_FakeTensor)
        with stance("force_eager") if stance is not None else contextlib.nullcontext():
            yield
    finally:
        if isinstance(plain, list):
            plain.remove(_FakeTensor)
        for owner, name, value in kept:
            setattr(owner, name, value)


def _backends() -> list[Any]:
    names = {device.partition(":")[0] for device in readers.devices()}
    found = [getattr(torch, name, None) for name in sorted(names)] + [getattr(torch, "accelerator", None)]
    return [backend for backend in found if backend is not None]


def _nothing(*args: object, **kwargs: object) -> None:
    """In the place of what is held back."""
