"""The functions that the magics call, for any Python: a notebook, a script, a plain prompt.

Each looks at the watched devices: the accelerators of the imported frameworks, or ``cpu`` (tensors in host memory)
where there is none; ``device`` names another, as ``"cuda:1"``. Sizes are ``int`` bytes. All of them raise
``jupyter_gpumem.errors.InputError``, a ``ValueError``, for a device or a name that does not exist; nothing has changed.
"""
from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar, overload

from jupyter_gpumem import session
from jupyter_gpumem.actions import batches, budget, cleaning, leaks, parking, retry
from jupyter_gpumem.actions.batches import micro_batches as micro_batches
from jupyter_gpumem.actions.batches import resizable as resizable
from jupyter_gpumem.actions.planning import Request
from jupyter_gpumem.actions.watcher import Watch
from jupyter_gpumem.analysis import account as _account
from jupyter_gpumem.analysis import depth, graphs, growth, holders
from jupyter_gpumem.analysis import forecast as _forecast
from jupyter_gpumem.analysis import snapshot as _snapshot
from jupyter_gpumem.analysis import why as _why
from jupyter_gpumem.analysis.advice import checkup as _checkup
from jupyter_gpumem.analysis.growth import Mark
from jupyter_gpumem.analysis.verdict import diagnosis as _diagnosis
from jupyter_gpumem.faces import reporting
from jupyter_gpumem.model import (
    Account,
    CellUse,
    Checkup,
    DeviceFault,
    Diagnosis,
    Forecast,
    Graph,
    Growth,
    Holding,
    Leaks,
    Notice,
    ObjectUse,
    Parking,
    Plan,
    Report,
    Snapshot,
    Why,
)
from jupyter_gpumem.model.documents import Accounts, Dangling, document, schema
from jupyter_gpumem.pictures import text


def snapshot(device: str | None = None) -> Snapshot:
    """Devices, allocators and holdings at this moment. Nothing is collected, freed or initialised for it."""
    return _snapshot.take(session.current(), device)


def holdings(device: str | None = None) -> tuple[Holding, ...]:
    """The live storages, each counted once, largest first, with what holds them."""
    return holders.holdings(session.current(), _snapshot.watched_devices(device))[0]


def dangling(device: str | None = None) -> tuple[Holding, ...]:
    """The storages that no name of yours keeps: the last error, outputs, cycles, hidden graphs, frames."""
    return tuple([holding for holding in holdings(device) if holding.holder.cause.dangling])


def account(device: str | None = None) -> tuple[Account, ...]:
    """For each watched device the sums that close: allocated, reserved, and the whole device as the driver sees it."""
    return _account.take(session.current(), device)


def advise(device: str | None = None) -> Checkup:
    """What could take less memory, with the evidence of this moment, the bytes to expect and the line that does it.

    Nothing is changed, and nothing is allocated on a device. Of the tensors' values only those of gradients are read,
    256 MiB of them at most. Where the evidence is short no rule speaks; that is an answer too.
    """
    return _checkup.take(session.current(), device)


def mark(name: str = "mark", device: str | None = None) -> Mark:
    """Remember what each holder keeps at this moment. The record keeps no tensor alive."""
    return growth.mark(session.current(), name, _snapshot.watched_devices(device))


def diff(before: Mark, after: Mark | None = None) -> Growth:
    """What is new, gone, larger and smaller since a mark, by holder; up to now, or to a later mark.

    Raises InputError for marks of different kinds of devices.
    """
    if after is None:
        after = growth.mark(session.current(), "now", before.watched)
    return growth.diff(before, after)


def find_leak(function: Callable[..., object], *args: Any, rounds: int = 5, **kwargs: Any) -> Leaks:
    """Call a function once to warm up and ``rounds`` times more, and judge what grows each time.

    Raises what the function raises, and InputError for fewer than three rounds.
    """
    return leaks.find_leak(session.current(), function, args, kwargs, rounds)


def assert_no_leak(rounds: int | None = None, device: str | None = None) -> leaks.LeakCheck:
    """A check for tests, as context manager or decorator, that raises LeakError, an AssertionError::

        with assert_no_leak() as check:      # nothing may be left that no name keeps
            step()

        with assert_no_leak() as check:      # judged by what grows each round, from four rounds on
            for batch in batches:
                step(batch)
                check.round()

        @assert_no_leak(rounds=5)            # called once to warm up, then five times
        def test_step(): ...

    It collects garbage before it judges. In pytest the fixture ``no_gpu_leak`` does the same.
    """
    return leaks.assert_no_leak(session.current(), rounds, device)


def graph(tensor: object, name: str = "tensor") -> Graph:
    """The autograd graph behind a tensor, with the bytes that each operation keeps.

    Raises InputError for what has none.
    """
    return graphs.graph(session.current(), name, tensor)


def diagnose(error: BaseException | None = None) -> Diagnosis | DeviceFault:
    """Why there was no memory: what was asked where, the one main cause by evidence, and what helps.

    ``error`` is by default the last one that tells of memory or of a device; errors of a device that are not out of
    memory are told apart. Raises InputError if there is none.
    """
    return _diagnosis.diagnose(session.current(), error)


def forecast(function: Callable[..., object], /, *args: Any, **kwargs: Any) -> Forecast:
    """The peak of ``function(*args, **kwargs)`` before it is made, what makes it, and the largest batch that fits::

        forecast(step, model, opt, x, y)

    The call is rehearsed, once for each batch: with copies of all that it reaches through its arguments, its closure
    and the globals that it uses, and on tensors without memory. No device memory is allocated; modules, optimizers,
    gradients, buffers and random states stay as they are; what it prints is dropped. What it does outside its
    objects really happens: files, the network, attributes of classes and of modules.

    Raises InputError for a call that needs values (``x[mask]``, ``tolist()``), uses up what it is given (a generator,
    an iterator), or fails. ``loss.item()`` gives a stand-in, and a note says so.
    """
    words = f"{getattr(function, '__name__', type(function).__name__)}(…)"
    return _forecast.take(session.current(), words, function, args, kwargs)


def describe(name: str, obj: object, device: str | None = None) -> ObjectUse:
    """One object in depth: a tree of its parts, in which each storage is counted once; they sum to its bytes."""
    return depth.describe(name, obj, _snapshot.watched_devices(device), session.current())


def accounts(device: str | None = None) -> Accounts:
    """:func:`account` as one record, for JSON."""
    return Accounts(account(device))


def only_dangling(device: str | None = None) -> Dangling:
    """:func:`dangling` as a record, for JSON."""
    seen = snapshot(device)
    return Dangling(seen.time, seen.watched, seen.dangling, seen.partial)


def as_json(record: object) -> str:
    """A record as JSON, with the names of its fields; sizes in bytes, null for what is not available.

    Raises TypeError for a record that :func:`json_schema` does not describe.
    """
    return json.dumps(document(record), indent=1)


def json_schema() -> str:
    """The JSON Schema (2020-12) of what :func:`as_json` gives, as JSON."""
    return json.dumps(schema(), indent=1)


def report(path: str | os.PathLike[str], device: str | None = None) -> Notice:
    """Write what is known now to one page of HTML, which needs no script and no network; an older report is replaced.

    Raises InputError where it cannot be written, or where the file is there and is no report.
    """
    shell = session.current()
    extension = getattr(shell, "meta", {}).get("jupyter_gpumem")
    cells: Sequence[CellUse] = tuple(getattr(extension, "cells", ()))
    return reporting.write_report(path, device, cells)


def why(obj: object, name: str = "", most: int = 12) -> Why:
    """The holders of an object's memory, at most ``most``, shortest path first; ``str()`` has a line for each.

    Raises InputError if the object holds no tensor.
    """
    return _why.why(session.current(), obj, name, most)


def plan(
    *names: str, device: str | None = None, keep_output: bool = False, keep_traceback: bool = False
) -> Plan:
    """What :func:`free` would do with the same arguments. Changes nothing."""
    return cleaning.plan(session.current(), _request(names, device, keep_output, keep_traceback))


def free(
    *names: str, device: str | None = None, keep_output: bool = False, keep_traceback: bool = False
) -> Report:
    """Without names: free what dangles, and touch no name. With names: delete these, also from ``Out`` and ``_``.

    Frees nothing that something else still holds; the report says who does.
    """
    return cleaning.free(session.current(), _request(names, device, keep_output, keep_traceback))


def _request(names: tuple[str, ...], device: str | None, keep_output: bool, keep_traceback: bool) -> Request:
    return Request(
        watched=_snapshot.watched_devices(device),
        names=names,
        dangling=not names,
        output=not keep_output,
        error=not keep_traceback,
    )


def park(*objects: object, device: str | None = None) -> Parking:
    """Move what some objects (models, optimizers, tensors, containers of them) have on the device to host memory.

    In place: every reference, view, tied weight, gradient and optimizer state stays valid, and the device's memory
    goes back to the driver. All of it moves or nothing: raises InputError with the reasons, such as an autograd graph
    that can still run backward, references that cannot be seen, too little host memory. Only weak references are kept.
    """
    shell = session.current()
    return parking.park(shell, parking.labelled(shell, objects), device)


def restore(*objects: object) -> Parking:
    """Bring parked objects back to the devices that they came from; without arguments everything that is parked.

    All of it moves or nothing: raises InputError if a device has no room, with who holds it. What was changed in host
    memory comes back as changed.
    """
    shell = session.current()
    return parking.restore(shell, parking.labelled(shell, objects) if objects else None)


def parked(*objects: object, device: str | None = None) -> parking.Parked:
    """Keep objects in host memory inside a block, so that others have the device meanwhile::

        with parked(teacher, teacher_optimizer):
            train(student)

    They come back at the end, after an error too. What is deleted inside the block is not brought back. Raises
    InputError as :func:`park` and :func:`restore` do.
    """
    shell = session.current()
    return parking.Parked(shell, parking.labelled(shell, objects), device)


def watch(name: str = "block", device: str | None = None, show: Callable[[object], None] | None = None) -> Watch:
    """Measure a block of code, or every call of a function::

        with watch("step") as seen:
            step()
        seen.use.after[0].peak        # bytes, the highest inside the block

        @watch("train")
        def train(): ...

    Blocks nest, each with its own peak, and ``torch.cuda.max_memory_allocated()`` still answers what it would have
    answered. ``show`` gets the record at the end of each block; by default one line is printed.
    """
    return Watch(name, device, show or _print)


_P = ParamSpec("_P")
_R = TypeVar("_R")


@overload
def retry_on_oom(function: Callable[_P, _R], /) -> Callable[_P, _R]: ...
@overload
def retry_on_oom(
    *,
    halve: str | Sequence[str] = (),
    tries: int = 3,
    floor: int = 1,
    device: str | None = None,
    show: Callable[[object], object] | None = None,
) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]: ...
def retry_on_oom(
    function: Callable[..., Any] | None = None,
    /,
    *,
    halve: str | Sequence[str] = (),
    tries: int = 3,
    floor: int = 1,
    device: str | None = None,
    show: Callable[[object], object] | None = None,
) -> Any:
    """Call a function again after it ran out of memory, each time with half of the arguments named by ``halve``::

        @retry_on_oom(halve="batch_size")
        def evaluate(model, data, batch_size=256): ...

    At most ``tries`` further calls, with no argument below ``floor``. Before each the error is let go of, cycles are
    collected, the cache goes back to the driver, and the random states of Python, numpy and torch, gradients that are
    new and the buffers of modules are put back. Where another call could not be right, because a parameter or another
    tensor from before was written to, the error is raised as it is; any other error is raised at once. ``show`` gets a
    record for each line that is told; by default it is printed.

    Raises InputError for arguments that the function does not have, and for numbers below 1.
    """
    names = (halve,) if isinstance(halve, str) else tuple(halve)

    def decorate(inner: Callable[..., Any]) -> Callable[..., Any]:
        decorated: Callable[..., Any] = retry.retrying(inner, names, tries, floor, device, show or _print)
        return decorated

    return decorate if function is None else decorate(function)


def find_batch_size(
    step: Callable[[int], object],
    start: int = 1,
    most: int | None = None,
    *,
    device: str | None = None,
    rehearse: bool = True,
    show: Callable[[object], object] | None = None,
) -> int:
    """The largest ``n`` up to ``most`` for which ``step(n)`` runs without an out-of-memory error; 0 if none does.

    The step is rehearsed without memory first, to know where to begin (``rehearse=False``: it doubles from ``start``);
    true tries decide. After each the memory goes back, and random states, new gradients and the buffers of modules are
    put back, as they are after the whole search. Weights that the step updates stay updated, and that is said: give it
    a step without ``optimizer.step()``, or a copy. ``show`` gets a line for each try; by default it is printed.

    Raises InputError where only host memory is used and ``most`` is missing, and what the step raises.
    """
    foreseen = batches.by_forecast(step, device) if rehearse else None
    return batches.find_batch_size(step, start, most, device, show or _print, foreseen)


def limit(size: str | float, device: str | None = None) -> Notice:
    """Let this process reserve at most ``size`` of a device: ``"8GiB"``, bytes, ``"50%"``, ``0.5``; ``"off"`` ends it.

    It is torch's own limit, and counts what its allocator reserves: beyond it a tensor gets an out-of-memory error
    though the device has room. Context and libraries do not count. By default it is set on torch's current device.
    Unloading the extension sets the earlier limit back.

    Raises InputError for a device that is not in use yet, and for more than the device has.
    """
    return budget.limit(size, device)


def preallocated(size: str | float, device: str | None = None) -> budget.Preallocated:
    """Take memory from the driver before others can, as context manager or decorator::

        with preallocated("8GiB"):
            train()

    All of it or, with the reason, nothing. It lies in the allocator's cache for the current stream, in one piece, so a
    large tensor finds room; tensors of 1 MiB and less lie elsewhere. At the end the cache is emptied: a tensor that
    lives on keeps its whole piece, unless segments are expandable. ``torch.cuda.max_memory_allocated()`` does not
    count it.

    Raises InputError, when the block begins, where there is no room, for a device that is not in use yet, and for host
    memory.
    """
    return budget.Preallocated(size, device)


def _print(use: object) -> None:
    print(text.render(use))  # noqa: T201 - printing is what was asked for
