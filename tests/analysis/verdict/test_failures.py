"""The error that matters among those that hang on one, and the line that it came from."""
from __future__ import annotations

import sys

import pytest
import torch

from jupyter_gpumem.analysis.verdict import failures
from jupyter_gpumem.model import DeviceFault, Fault, OutOfMemory

OOM = (
    "CUDA out of memory. Tried to allocate 32.00 MiB. GPU 0 has a total capacity of 4.00 GiB of which 41.56 MiB is free."
)


def raised(function):
    try:
        function()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def oom():
    raise torch.OutOfMemoryError(OOM)


@pytest.mark.parametrize("error", [
    torch.OutOfMemoryError(OOM),
    torch.cuda.OutOfMemoryError(OOM),
    RuntimeError(OOM),
    RuntimeError(f"Caught RuntimeError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\nRuntimeError: {OOM}"),
], ids=["torch", "torch.cuda", "RuntimeError", "worker"])  # fmt: skip
def test_errors_of_torch(error):
    assert failures.read(error).asked == 32 << 20


def test_torchs_own_error_is_one_whatever_its_words():
    found = failures.read(torch.OutOfMemoryError("no room on this backend"))
    assert isinstance(found, OutOfMemory)
    assert (found.asked, found.text) == (None, "no room on this backend")


def test_through_causes_contexts_and_groups():
    def chained():
        try:
            oom()
        except RuntimeError as error:
            raise ValueError("training failed") from error

    def handling():
        try:
            oom()
        except RuntimeError:
            {}["no such key"]

    def hidden():
        try:
            oom()
        except RuntimeError:
            raise ValueError("something else") from None

    assert failures.read(raised(chained)).asked == 32 << 20
    assert failures.read(raised(handling)).asked == 32 << 20
    assert failures.read(raised(hidden)) is None


@pytest.mark.skipif(sys.version_info < (3, 11), reason="groups came with 3.11")
def test_members_of_groups():
    ExceptionGroup = vars(sys.modules["builtins"])["ExceptionGroup"]
    group = ExceptionGroup("tasks", [ValueError("x"), ExceptionGroup("inner", [raised(oom)])])
    error, found = failures.telling(group)
    assert found.asked == 32 << 20
    assert type(error) is torch.OutOfMemoryError
    assert failures.read(ExceptionGroup("tasks", [ValueError("x")])) is None


def test_members_of_the_backports_groups(monkeypatch):
    import types

    class BaseExceptionGroup(Exception):
        def __init__(self, message, exceptions):
            self._exceptions = tuple(exceptions)

    module = types.ModuleType("exceptiongroup")
    module.BaseExceptionGroup = BaseExceptionGroup
    monkeypatch.setitem(sys.modules, "exceptiongroup", module)
    assert failures.read(BaseExceptionGroup("tasks", [RuntimeError(OOM)])).asked == 32 << 20


def test_a_chain_that_bites_its_tail_ends():
    first, second = ValueError("a"), ValueError("b")
    first.__context__, second.__context__ = second, first
    assert failures.read(first) is None
    assert len(list(failures.linked(first))) == 2


def test_traceback_of_another_process():
    from concurrent.futures.process import _RemoteTraceback

    error = ValueError("in a worker")
    error.__cause__ = _RemoteTraceback(f'\n"""\nTraceback:\n  File "/home/me/train.py", line 7, in step\n    x @ x\nRuntimeError: {OOM}\n"""')
    assert failures.read(error).asked == 32 << 20
    assert failures.origin(None, error).place == "train.py:7 in step()"


def test_a_real_worker_of_a_loader():
    from torch._utils import ExceptionWrapper

    def inner():
        try:
            oom()
        except RuntimeError:
            ExceptionWrapper(sys.exc_info(), where="in DataLoader worker process 0").reraise()

    assert failures.read(raised(inner)).asked == 32 << 20


@pytest.mark.parametrize(("error", "source"), [
    (MemoryError(), "python"),
    (MemoryError("std::bad_alloc"), "python"),
    (OSError(12, "Cannot allocate memory"), "python"),
], ids=["bare", "C++", "fork"])  # fmt: skip
def test_memory_of_the_host(error, source):
    found = failures.read(error)
    assert (found.device, found.source, found.asked) == ("cpu", source, None)


def test_numpys_own_error():
    import numpy as np

    found = failures.read(raised(lambda: np.empty((10**7, 10**7))))
    assert (found.source, found.device, found.shape, found.dtype) == ("numpy", "cpu", (10**7, 10**7), "float64")
    assert found.asked == pytest.approx(8 * 10**14, rel=0.01)


def test_torchs_host_allocator():
    found = failures.read(raised(lambda: torch.empty(10**15)))
    assert (found.source, found.device, found.asked) == ("torch", "cpu", 4 * 10**15)


def test_faults_are_told_apart():
    found = failures.read(RuntimeError("CUDA error: device-side assert triggered"))
    assert isinstance(found, DeviceFault)
    assert found.fault is Fault.ASSERT


@pytest.mark.parametrize("error", [ValueError("out of memory"), KeyError("CUDA out of memory. Tried to allocate 2.00 MiB."), KeyboardInterrupt()])
def test_what_other_errors_say_is_the_users(error):
    assert failures.read(error) is None


def test_no_code_of_an_error_runs():
    ran = []

    class Hostile(RuntimeError):
        def __str__(self):
            ran.append("str")
            return OOM

        __repr__ = __str__

        def __getattribute__(self, name):
            ran.append(name)
            return super().__getattribute__(name)

    class Words(str):
        def __str__(self):
            ran.append("words")
            return ""

    class Anything:
        def __str__(self):
            ran.append("anything")
            return OOM

    assert failures.read(Hostile(Anything())) is None
    assert failures.read(Hostile(Words(OOM))).asked == 32 << 20
    failures.origin(None, Hostile(OOM))
    assert ran == []


# ---------------------------------------------------------------- where
def test_the_innermost_line_of_the_users_with_its_tensors(shell):
    shell.run_cell("import torch\nnet = torch.nn.Linear(4, 2)\nclass Holder: pass\nheld = Holder(); held.x = torch.zeros(3, 5)", store_history=True)
    code = "def step(batch):\n    unused = torch.zeros(1)\n    return net(batch), held.x\nstep(torch.zeros(3, 5))"
    error = shell.run_cell(code, store_history=True).error_in_exec
    found = failures.origin(shell, error)
    assert found.place == "cell [2], line 3 in step()"
    assert found.code == "return net(batch), held.x"
    assert [(name, tensor.shape) for name, tensor in found.tensors] == [("batch", (3, 5))], "held is a global there"
    error = shell.run_cell("net(held.x)", store_history=True).error_in_exec
    found = failures.origin(shell, error)
    assert found.place == "cell [3], line 1"
    assert [(name, tensor.shape) for name, tensor in found.tensors] == [("held.x", (3, 5))]


def test_parameters_of_a_module_that_a_line_names(shell):
    shell.run_cell("import torch\nclass Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.w = torch.nn.Parameter(torch.zeros(2, 3))\n    def forward(self, x):\n        return x @ self.w\n", store_history=True)
    error = shell.run_cell("Net()(torch.zeros(4, 5))", store_history=True).error_in_exec
    assert [(name, tensor.kind, tensor.shape) for name, tensor in failures.origin(shell, error).tensors] == [
        ("x", "Tensor", (4, 5)), ("self.w", "Parameter", (2, 3)),
    ]  # fmt: skip


def test_an_error_that_was_never_raised_has_no_place():
    assert failures.origin(None, RuntimeError(OOM)).place == ""


def test_looking_at_frames_keeps_nothing():
    import gc
    import weakref

    class Thing:
        pass

    seen = []

    def work():
        thing = Thing()
        seen.append(weakref.ref(thing))
        oom()

    error = raised(work)
    failures.origin(None, error)
    del error
    gc.collect()
    assert seen[0]() is None
