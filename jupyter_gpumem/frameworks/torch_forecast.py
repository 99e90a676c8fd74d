"""A call of torch code, rehearsed: every tensor that it can reach is replaced by one without memory, and what the call
allocates and lets go of is written down.

The tensors are torch's own *fake* ones: they have shapes, types, devices, storages and autograd graphs, but no bytes.
They are made by hand, so that what shares a storage shares it again, whole, whatever views of it the call can reach.
"""
from __future__ import annotations

import contextlib
import io
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses import fake_tensor

from jupyter_gpumem.errors import InputError
from jupyter_gpumem.frameworks import torch as readers
from jupyter_gpumem.frameworks.copying import Copier
from jupyter_gpumem.frameworks.records import Frame, Input, Rehearsal, RehearsalError
from jupyter_gpumem.frameworks.torch_allocator import user_frame
from jupyter_gpumem.frameworks.torch_lifetimes import Behave, Log, Watch, host_value, tensors_of
from jupyter_gpumem.introspect import instance_dict, is_a

_TensorBase: Any = torch._C.TensorBase
_FakeTensor: Any = fake_tensor.FakeTensor
_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter, getattr(torch.nn, "Buffer", torch.Tensor)})
_no_function = torch._C.DisableTorchFunctionSubclass
_HELD_BACK = ("empty_cache", "reset_peak_memory_stats", "reset_accumulated_memory_stats", "reset_max_memory_allocated")
"""What would change the session's allocator, though its tensors are fake."""
_STARTERS = ("init_gpu_context", "init_cuda_context")
_NO_VALUE = (fake_tensor.DataDependentOutputException, fake_tensor.DynamicOutputShapeException)


def rehearse(
    function: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object], sizes: Mapping[int, int]
) -> Rehearsal:
    """Call ``function`` with copies of all that it reaches; ``sizes``: ``id`` of a tensor → another first dimension.

    What the call prints is dropped. The random generators move on: whoever asks puts them back.
    Raises RehearsalError if the call cannot be made so.
    """
    with _session_kept():
        return _Rehearsal(sizes).run(function, args, kwargs)


def free_bytes(device: str) -> int | None:
    """What the driver has free on a device; only of one where this process has memory, and so a context, already."""
    device_type, _, index = device.partition(":")
    own = [one for one in readers.allocators() if one.device == device and one.reserved]
    backend = getattr(torch, device_type, None)
    ask = getattr(backend, "mem_get_info", None) or getattr(
        getattr(torch, "accelerator", None), "get_memory_info", None
    )
    return int(ask(int(index))[0]) if own and index and ask is not None else None


class _Mode(fake_tensor.FakeTensorMode):  # type: ignore[no-untyped-call]  # torch has no types for its modes
    """torch's mode asks whether there is a GPU, which starts the driver, and touches only one that is there: this one
    does not ask, and touches none.
    """

    _entering = False

    @property
    def avoid_device_init(self) -> bool:
        return not self._entering

    @avoid_device_init.setter
    def avoid_device_init(self, value: bool) -> None:
        """torch before it was a property sets it once."""

    def __enter__(self) -> Any:
        self._entering = True  # else the guard of the device would be asked how many there are
        try:
            return super().__enter__()
        finally:
            self._entering = False


class _Rehearsal:
    def __init__(self, sizes: Mapping[int, int]) -> None:
        self._mode: Any = _Mode(allow_non_fake_inputs=True)
        self._mode.cache_enabled = False  # torch's cache of operations would keep the storages that ``set_`` was given
        self._copier = Copier(self._twin, _is_users_file)
        self._sizes = sizes
        self._storages: dict[int, Any] = {}
        """Address of a real storage's record → the fake storage in its place."""
        self._real: dict[int, list[Any]] = {}
        """The same → the real tensors on it that were met."""
        self._log = Log({device.partition(":")[0] for device in readers.devices()} | {"cpu"})
        self._notes: dict[tuple[str, Frame | None], None] = {}
        self._hooks: list[tuple[Any, Any, str]] = []

    def run(
        self, function: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]
    ) -> Rehearsal:
        try:
            call = self._copier.copy((function, list(args), dict(kwargs)))
            self._copy_hooks()
        except InputError as refusal:
            raise RehearsalError(str(refusal)) from None
        except RecursionError:
            raise RehearsalError("what the call works with is nested too deeply to be copied") from None
        optimizers = self._name_kinds()
        inputs = self._inputs()
        self._resize()
        self._copier.release()
        self._real.clear()
        self._play(*call)
        states = [optimizer.state for one in optimizers if (optimizer := one()) is not None]
        return self._log.rehearsal(self._log.numbers(tensors_of(states)), inputs, tuple(self._notes))

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
                made = torch.tensor(host_value(real), dtype=real.dtype, device="cpu").reshape(size)
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
                self._log.name(tensors_of(list(inner.get("_parameters", {}).values())), "parameters")
                self._log.name(tensors_of(list(inner.get("_buffers", {}).values())), "buffers")
            elif what == "optimizer":
                optimizers.append(made)
                self._log.name(tensors_of([made.state]), "optimizer")
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
        resized: dict[int, list[Any]] = {}
        for real, made in self._copier.pairs():
            if readers.kind(type(real)) == "tensor" and id(real) in self._sizes:
                resized.setdefault(_TensorBase.untyped_storage(real)._cdata, []).append(real)
                self._log.see(made, "inputs", new=True)
        for key, tensors in resized.items():
            if key not in self._storages and readers.unseen(tensors) == 0:
                self._log.replace(tensors[0], readers.data_pointers(tensors[0]).get(key))
        for key, tensors in self._real.items():
            if readers.unseen(tensors) != 0:
                self._log.pin(self._storages[key])
        self._storages.clear()

    # ---------------------------------------------------------------- the call
    def _play(self, function: Callable[..., object], args: list[object], kwargs: dict[str, object]) -> None:
        watch = Watch(self._log, self._twin_met, self._note)
        quiet = io.StringIO()
        try:
            with (
                contextlib.redirect_stdout(quiet),
                contextlib.redirect_stderr(quiet),
                warnings.catch_warnings(),
                torch.set_grad_enabled(torch.is_grad_enabled()),
                self._mode,
                Behave(self._note),
                watch,
            ):
                warnings.simplefilter("ignore")
                result = function(*args, **kwargs)
                self._log.ended()
            del result
        except Exception as error:
            raise RehearsalError(_problem(error), _line_of(error)) from None

    def _twin_met(self, real: Any) -> Any:
        """A real tensor that the call came by in a way that could not be followed. Raises InputError if it trains."""
        if real.requires_grad and torch.is_grad_enabled():
            raise InputError(
                "the call reaches a tensor that trains, but not through its arguments, closures or globals; "
                "pass it as an argument"
            )
        return self._copier.copy(real)

    def _note(self, text: str, frame: Frame | None) -> None:
        self._notes[text, frame] = None


# ---------------------------------------------------------------- small questions
def _is_users_file(filename: str) -> bool:
    """Whether the user wrote a function's code: in a cell, in a file, at a prompt."""
    typed = filename.startswith("<") and not filename.startswith("<frozen")
    return typed or user_frame([Frame(filename, 0, "")]) is not None


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
    written, modules can be moved, and optimizers take fake tensors for tensors: they choose by the exact type.
    """
    kept: list[tuple[Any, str, Any]] = []
    plain = getattr(sys.modules["torch.optim.optimizer"], "_foreach_supported_types", None)
    for backend in _backends():
        for owner in filter(None, (backend, getattr(backend, "memory", None))):
            for name in _HELD_BACK:
                if name in vars(owner):
                    kept.append((owner, name, vars(owner)[name]))
    kept.append((torch.nn.Module, "_apply", torch.nn.Module._apply))
    # these allocate on the device for the first fake tensor there
    kept += [(fake_tensor, name, vars(fake_tensor)[name]) for name in _STARTERS if name in vars(fake_tensor)]
    lift = torch._C._only_lift_cpu_tensors()
    stance = getattr(torch.compiler, "set_stance", None) if "torch._dynamo" in sys.modules else None
    try:
        torch._C._set_only_lift_cpu_tensors(True)  # else torch.tensor(…, device=…) is real before it is fake
        for owner, name, _ in kept:
            setattr(owner, name, _apply if name == "_apply" else _nothing)
        if isinstance(plain, list):
            plain.append(_FakeTensor)
        with stance("force_eager") if stance is not None else contextlib.nullcontext():
            yield
    finally:
        torch._C._set_only_lift_cpu_tensors(lift)
        if isinstance(plain, list):
            plain.remove(_FakeTensor)
        for owner, name, value in kept:
            setattr(owner, name, value)


def _backends() -> list[Any]:
    names = {device.partition(":")[0] for device in readers.devices()}
    found = [getattr(torch, name, None) for name in sorted(names)] + [getattr(torch, "accelerator", None)]
    return [backend for backend in found if backend is not None]


def _apply(module: Any, change: Callable[[Any], Any], recurse: bool = True) -> Any:
    """In the place of ``Module._apply``, which cannot swap fake parameters: what changes becomes a new parameter."""
    for child in module.children() if recurse else ():
        child._apply(change)
    for table in (module._parameters, module._buffers):
        for name, tensor in list(table.items()):
            if tensor is None:
                continue
            with torch.no_grad():
                made = change(tensor)
            if made is tensor:
                continue
            is_parameter = table is module._parameters
            table[name] = torch.nn.Parameter(made, tensor.requires_grad) if is_parameter else made
            if tensor.grad is not None:
                table[name].grad = change(tensor.grad)
    return module


def _nothing(*args: object, **kwargs: object) -> None:
    """In the place of what is held back."""
