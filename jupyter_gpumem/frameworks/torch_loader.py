"""A DataLoader whose batches change their size in the middle of an epoch.

torch fixes the size when a loader is made. So each size has a shallow copy of the loader, which carries over whatever
the loader was made with, over one stream of indices that outlives the copies. The stream asks the loader's sampler only
when torch asks for a batch: random numbers are drawn in the order in which the loader itself would draw them.
"""
from __future__ import annotations

import copy
import operator
import weakref
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from jupyter_gpumem.errors import InputError

_DataLoader: Any = DataLoader


class _Indices:
    """The batch sampler of the copies: what is left of an epoch, in batches of the present size."""

    def __init__(self, sampler: Any, size: int, drop_last: bool) -> None:
        self._sampler = sampler
        self._drop_last = drop_last
        self.begin(size)

    def begin(self, size: int) -> None:
        """A new epoch."""
        self.size = size
        self.given: list[Any] = []
        """The indices of the last batch that the user got."""
        self.again = False
        """Those are to come once more."""
        self.loading: dict[int, list[Any]] = {}
        """Number of a batch → its indices, as torch has got them and the user has not."""
        self._numbers = 0
        self._waiting: deque[Any] = deque()
        """To be loaded before the rest."""
        self._rest: Iterator[Any] | None = None
        self._drawn = 0

    def __iter__(self) -> Iterator[list[Any]]:
        while True:
            batch = [*islice(self._next_ones(), self.size)]
            if not batch or (self._drop_last and len(batch) < self.size):
                self._waiting.extendleft(reversed(batch))  # a smaller size may take them
                return
            self.loading[self._numbers] = batch
            self._numbers += 1
            yield batch

    def _next_ones(self) -> Iterator[Any]:
        while self._waiting:
            yield self._waiting.popleft()
        if self._rest is None:
            self._rest = iter(self._sampler)
        for index in self._rest:
            self._drawn += 1
            yield index

    def arrived(self, number: int) -> None:
        """The user has got a batch."""
        self.given, self.again = self.loading.pop(number), False

    def resume(self, size: int, again: bool) -> None:
        """Go on with what is left, from a new copy."""
        left = [index for number in sorted(self.loading) for index in self.loading[number]]
        self._waiting.extendleft(reversed([*(self.given if again else ()), *left]))
        self.loading.clear()
        self._numbers = 0
        if again:
            self.given, self.again = [], True
        self.size = size

    def __len__(self) -> int:
        """Batches to come. Raises TypeError where the sampler has no length."""
        loading = sum(map(len, self.loading.values()))
        samples = len(self._sampler) - self._drawn + len(self._waiting) + loading
        return samples // self.size if self._drop_last else -(-samples // self.size)


class _Epoch:
    """One pass over the loader. It keeps no batch."""

    def __init__(self, owner: Resizable) -> None:
        self.given = 0
        """Batches so far."""
        self._owner = owner
        self._loader: Any = owner.loader
        self._iterator: Any = None
        self._copy: Any = owner.kept
        if self._copy is None:
            self.indices = _Indices(self._loader.sampler, owner.batch_size, self._loader.drop_last)
        else:
            self.indices = self._copy.batch_sampler
            self.indices.begin(owner.batch_size)

    def __iter__(self) -> _Epoch:
        return self

    def __next__(self) -> Any:
        if self._copy is None:
            self._copy = self._copied()
            if self._loader.persistent_workers:
                self._owner.kept = self._copy
        if self._iterator is None:
            self._iterator = iter(self._copy)
        try:
            batch = next(self._iterator)
        except StopIteration:
            raise
        except Exception:  # the loader goes on behind a batch that could not be loaded
            self._note_arrival()
            raise
        self._note_arrival()
        self.given += 1
        return batch

    def _note_arrival(self) -> None:
        loading = self.indices.loading
        if self._loader.num_workers and not getattr(self._loader, "in_order", True):
            arrived = [number for number in loading if number not in self._iterator._task_info]
        else:
            arrived = [min(loading)] if self._loader.num_workers and loading else sorted(loading)
        for number in arrived:  # more than one without workers only: loading the earlier ones was interrupted
            self.indices.arrived(number)

    def _copied(self) -> Any:
        """The loader over our indices. After a resize its workers get a seed that no generator has lost."""
        made = copy.copy(self._loader)
        changed: dict[str, Any] = {
            "batch_size": self.indices.size,
            "batch_sampler": self.indices,
            "_iterator": None,  # the workers that a loader with persistent ones keeps are its own
        }
        if self._owner.replaced:
            changed["generator"] = _foreseen(self._loader.generator, self._owner.replaced)
        vars(made).update(changed)  # DataLoader lets nobody set these
        return made

    def resize(self, size: int, again: bool) -> None:
        if again or size != self.indices.size:
            self._owner.end_copy(self._iterator)
            self._iterator = self._copy = None
            self.indices.resume(size, again)


class Resizable:
    """A loader whose batches change their size in the middle of an epoch."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self.loader = loader
        self.batch_size: int = loader.batch_size or 1
        """Samples in the next batch."""
        self.kept: Any = None
        """The copy with persistent workers."""
        self.replaced = 0
        """Copies that a resize has ended: in this epoch, or for persistent workers in all."""
        self._running: weakref.ref[_Epoch] | None = None

    @property
    def dataset(self) -> Any:
        """The loader's dataset."""
        return self.loader.dataset

    @property
    def sampler(self) -> Any:
        """The loader's sampler, for ``set_epoch``."""
        return self.loader.sampler

    def __iter__(self) -> Iterator[Any]:
        if not self.loader.persistent_workers:
            self.replaced = 0
        epoch = _Epoch(self)
        self._running = weakref.ref(epoch)
        return epoch

    def __len__(self) -> int:
        """Batches of the epoch that runs, at its present size, or of a whole one."""
        epoch = self._running() if self._running is not None else None
        if epoch is None:
            return len(_Indices(self.loader.sampler, self.batch_size, self.loader.drop_last))
        return epoch.given + len(epoch.indices)

    def resize(self, size: int, again: bool = False) -> None:
        """From the next batch on, ``size`` samples; ``again`` gives those of the last batch once more, first.

        The rest of the epoch is what it would have been, in the same order. No random number is drawn for it.
        Raises InputError for a size below 1, and for ``again`` where no batch has been given.
        """
        try:
            wanted = operator.index(size)
        except TypeError:
            wanted = 0
        if wanted < 1 or size is True:
            raise InputError(f"the size of a batch is a whole number from 1 on; not {size!r}")
        epoch = self._running() if self._running is not None else None
        if again and (epoch is None or not (epoch.indices.given or epoch.indices.again)):
            raise InputError("there is no batch to give again: resize inside the loop over the batches")
        if epoch is not None:
            epoch.resize(wanted, again)
        elif self.kept is not None and wanted != self.batch_size:
            self.end_copy(self.kept._iterator)
        self.batch_size = wanted

    def end_copy(self, iterator: Any) -> None:
        """End the workers of a copy, now rather than when the garbage collector finds them."""
        self.kept = None
        self.replaced += 1
        shut_down = getattr(iterator, "_shutdown_workers", None)
        if shut_down is not None:
            shut_down()


def resizable(loader: Any) -> Resizable:
    """The batches of a loader in sizes that may change. Raises InputError for a loader that makes its own batches."""
    if not isinstance(loader, DataLoader):
        raise InputError("give the DataLoader itself, not an iterator over it")
    if isinstance(loader.dataset, IterableDataset):
        raise InputError("an IterableDataset has no indices, so what was loaded cannot be loaded again")
    own = loader.batch_sampler is not None and type(loader.batch_sampler) is not BatchSampler
    if own or (loader.batch_size is None and loader.batch_sampler is not None):
        raise InputError("a batch_sampler of its own decides how large the batches are: resize them there")
    if loader.batch_size is None:
        raise InputError("the loader makes no batches (batch_size=None): give it a batch_size")
    if type(loader).__iter__ is not _DataLoader.__iter__:
        raise InputError(f"{type(loader).__name__} has an __iter__ of its own, which resizable would pass by")
    return Resizable(loader)


def _foreseen(generator: torch.Generator | None, number: int) -> torch.Generator:
    """A generator seeded with what another one would draw next, and a number; nothing is drawn from the other."""
    made = torch.Generator()
    made.set_state((generator or torch.default_generator).get_state())
    seed = int(torch.empty((), dtype=torch.int64, device="cpu").random_(generator=made).item())
    return made.manual_seed(seed + number)
