"""The frameworks that the user has imported, behind one small protocol.

A framework is a module of this package. It is imported only once the framework itself is in
``sys.modules``, and never the other way round. Nothing in it may start a device context.
"""
from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, Protocol

from jupyter_gpumem.frameworks.records import (
    Frame,
    Loader,
    Part,
    Rehearsal,
    Relocated,
    Traits,
    Zeros,
)
from jupyter_gpumem.model import Allocator, Segment, Tensor

Kind = Literal["tensor", "node", "optimizer", "module"]
"""A tensor or storage, a node of an autograd graph, what updates parameters, what keeps its parts in tables."""


class Hints(Protocol):
    """What only advice asks. None of it runs code of the user's objects; unknown is None."""

    def traits(self, tensor: object) -> Traits | None:
        """What a tensor is to autograd; None for a bare storage."""

    def number(self, value: object) -> float | None:
        """A plain number, or that of a tensor with one element in host memory; None for anything else."""

    def pinned(self, tensor: object) -> bool:
        """Whether a tensor lies in page-locked host memory."""

    def pinned_bytes(self) -> int | None:
        """Page-locked host memory that the framework keeps, used or cached."""

    def zeros(self, tensor: object, most: int) -> Zeros:
        """Whether all elements are 0, from about ``most`` bytes of them; nothing is allocated on the device."""

    def node_role(self, node: object) -> str | None:
        """``leaf``, ``sum`` or ``checkpoint`` for such nodes of a graph."""

    def is_loader(self, cls: type) -> bool:
        """Whether objects of a type load batches in processes of their own."""

    def loader(self, obj: object) -> Loader:
        """What such an object wants and has."""

    def bfloat16(self, device: str) -> bool | None:
        """Whether mixed precision in bfloat16 runs fast on a device."""

    def device_total(self, device: str) -> int | None:
        """Bytes of a device that is in use."""

    def default_float(self) -> str:
        """The floating point type of new tensors."""

    def expands(self) -> bool:
        """Whether the allocator was asked for segments that grow."""

    def collective(self) -> str | None:
        """The backend of the process group that is initialised."""


class Window(Protocol):
    """Peaks since it was opened, whatever others reset meanwhile."""

    def close(self) -> dict[str, int]:
        """Device → the highest number of allocated bytes. Closing twice gives the same answer."""


class Remembered(Protocol):
    """Storages remembered weakly: they die as if nobody remembered them."""

    def gone(self) -> int:
        """Bytes of the remembered storages that no longer exist."""

    def alive(self) -> int:
        """Bytes of those that do. The others are forgotten by this."""

    def knows(self, address: int) -> bool:
        """Whether the storage at an address is a remembered one, and not a new one in its place."""

    def add(self, tensors: Iterable[object]) -> None:
        """Remember the storages of further tensors."""


class Batches(Protocol):
    """The batches of a loader, in sizes that may change in the middle of an epoch."""

    batch_size: int
    """Samples in the next batch."""

    @property
    def dataset(self) -> Any:
        """The loader's dataset."""

    @property
    def sampler(self) -> Any:
        """The loader's sampler, for ``set_epoch``."""

    def __iter__(self) -> Iterator[Any]: ...

    def __len__(self) -> int:
        """Batches of the epoch that runs, at its present size, or of a whole one."""

    def resize(self, size: int, again: bool = False) -> None:
        """From the next batch on, ``size`` samples; ``again`` gives those of the last batch once more, first.

        The rest of the epoch is what it would have been, in the same order. No random number is drawn for it.
        Raises InputError for a size below 1, and for ``again`` where no batch has been given.
        """


class Versions(Protocol):
    """Tensors as they were at a moment, remembered weakly."""

    def written(self) -> list[object]:
        """Those that were written to in place, as far as :meth:`put_back` cannot undo it."""

    def put_back(self) -> None:
        """Take away gradients that were not there, and write back the buffers of modules."""


class Framework(Protocol):
    """What a framework answers. Unknown is None; none of it runs code of the user's objects."""

    name: str
    tables: tuple[str, ...]
    """Attributes of a ``module`` that are dictionaries of what a person calls its attributes."""

    hints: Hints
    """What only advice asks."""

    def devices(self) -> tuple[str, ...]:
        """Accelerators on which this process has an allocator now, as ``cuda:0``; none are made."""

    def may_use(self) -> str | None:
        """The type of the accelerator that this build can use, initialised or not; None for host only."""

    def uuids(self) -> dict[str, str]:
        """Device → the driver's uuid, once that can be asked without starting a context."""

    def allocators(self) -> tuple[Allocator, ...]:
        """Figures of each device of :meth:`devices`."""

    def segments(self, device: str) -> tuple[Segment, ...] | None:
        """What the allocator got from the driver, in pieces, with the blocks in them; None where it does not say."""

    def requested(self, device: str) -> int | None:
        """Bytes that were asked for in all allocated blocks: less than ``allocated`` by the allocator's rounding."""

    def allocation_sites(self, device: str) -> dict[int, Frame]:
        """Address of an allocated block → the line of the user's that allocated it, as far as that was recorded."""

    def peak_site(self, device: str, since: float) -> Frame | None:
        """The line of the user's that made the peak of a device since a moment (seconds since the epoch), as far as
        that was recorded.
        """

    def record(self) -> None:
        """Begin to record allocations, bounded; a recording that runs goes on.

        Raises InputError where that is not possible now.
        """

    def end_record(self) -> None:
        """End it and forget it."""

    def write_record(self, path: str) -> None:
        """Write it to a file that the framework's own viewer opens.

        Raises InputError if there is none, or the file cannot be written.
        """

    def activity(self) -> tuple[int, ...]:
        """Counters that change whenever device memory is allocated or freed."""

    def random_states(self) -> dict[str, bytes]:
        """Device → the state of its default generator, for the host and the devices that are in use."""

    def restore_random(self, states: Mapping[str, bytes]) -> None:
        """Put such states back. A device without one was not in use then: its generator begins anew from its seed."""

    def resizable(self, loader: object) -> Batches:
        """The batches of what ``hints.is_loader`` knows, in sizes that may change.

        Raises InputError for a loader that makes its own batches.
        """

    def find(self, objects: Iterable[object]) -> list[object]:
        """The tensors and storages among ``objects``."""

    def kind(self, cls: type) -> Kind | None:
        """What the objects of a type are to this framework; asked of the type alone, None for any other type."""

    def parts(self, tensor: object) -> list[Part]:
        """The real storages under a tensor; none for fake, meta and wrapper tensors."""

    def data_pointers(self, tensor: object) -> dict[int, int]:
        """Address of each storage's record, as in :meth:`parts` → address of its first byte, where it has memory."""

    def is_bare(self, tensor: object) -> bool:
        """Whether it is a storage's own object, which exists wherever somebody has asked a tensor for it."""

    def describe(self, tensor: object) -> Tensor:
        """Type, shape and dtype."""

    def unseen(self, tensors: Sequence[object]) -> int | None:
        """References to a storage beyond those of the tensors found on it; None if that cannot be counted."""

    def is_base(self, tensor: object, others: Iterable[object]) -> bool:
        """Whether one of ``others`` is a view that was made of the tensor, and so keeps it."""

    def referents(self, obj: object) -> Sequence[object]:
        """What ``obj`` holds that the garbage collector cannot see and that is as near as an attribute."""

    def graph(self, obj: object) -> Sequence[object]:
        """What ``obj`` holds through an autograd graph: one step of it."""

    def submodules(self, obj: object) -> Iterator[tuple[str, object]]:
        """Attribute names and values that ``obj`` keeps elsewhere than in its ``__dict__``."""

    def to_host(self, tensor: object) -> object:
        """A copy in host memory, without its graph."""

    def immovable(
        self, groups: Sequence[Sequence[object]], devices: Sequence[str], everything: Iterable[object]
    ) -> dict[int, str]:
        """Index of a group (all tensors found on one storage) → why :meth:`relocate` cannot move it to its device.

        ``everything`` are all tensors of the process.
        """

    def relocate(
        self, groups: Sequence[Sequence[object]], devices: Sequence[str], progress: Callable[[int, int], None]
    ) -> list[Relocated]:
        """Move storages between device and host under their tensors; all of them, or raise and leave all as it was."""

    def remember(self, tensors: Iterable[object]) -> Remembered:
        """Remember the storages of some tensors."""

    def mark_versions(self, objects: Iterable[object]) -> Versions:
        """Remember what the tensors and modules among ``objects`` are now, to see later what was written to."""

    def rehearse(
        self,
        function: Callable[..., object],
        args: Sequence[object],
        kwargs: Mapping[str, object],
        sizes: Mapping[int, int],
    ) -> Rehearsal:
        """Make a call with copies of all that it reaches, on tensors without memory. ``sizes`` gives inputs, by ``id``,
        another first dimension. The random generators move on.

        Raises RehearsalError for what has to be known, or cannot be copied.
        """

    def current_device(self) -> str | None:
        """Where new tensors of the accelerator that is initialised are made; None where none is."""

    def in_use(self, device: str) -> bool:
        """Whether this process has a context on one of :meth:`devices`."""

    def total(self, device: str) -> int | None:
        """Bytes of a device that is in use, as a limit counts them."""

    def set_limit(self, device: str, nbytes: int) -> None:
        """Let this process reserve at most ``nbytes`` of a device that is in use.

        Raises InputError where there is no such limit, and for more than the device has.
        """

    def end_limit(self, device: str) -> bool:
        """Set back what :meth:`set_limit` has changed; False if that was nothing, or was changed since by others."""

    def reserve(self, device: str, nbytes: int) -> None:
        """Have ``nbytes`` that are free inside the allocator of a device that is in use.

        Raises InputError where that is not possible; nothing is then taken.
        """

    def free_bytes(self, device: str) -> int | None:
        """What is free on a device where this process has memory already; None for any other."""

    def open_window(self) -> Window:
        """Begin to measure peaks."""

    def restore(self) -> None:
        """Take back what :meth:`open_window` and :meth:`set_limit` may have changed in the framework."""

    def held_caches(self) -> tuple[str, ...]:
        """Caches outside the allocator that a clean-up may clear, a phrase each."""

    def clear_caches(self) -> None:
        """Clear those."""

    def empty_cache(self) -> None:
        """Give unused cached memory back to the driver, where an allocator exists."""


_SUPPORTED = ("torch",)


def loaded() -> list[Framework]:
    """The supported frameworks that this process has imported, in a fixed order.

    A framework whose import is still running in another thread is left out.
    """
    found: list[Framework] = []
    for name in _SUPPORTED:
        module = sys.modules.get(name)
        spec = getattr(module, "__spec__", None)
        if module is not None and not getattr(spec, "_initializing", False):
            found.append(import_module(f"{__name__}.{name}"))  # its fit is checked below
    return found


if TYPE_CHECKING:  # mypy checks here that every module fits the protocol
    from jupyter_gpumem.frameworks import torch

    _: tuple[Framework, ...] = (torch,)
