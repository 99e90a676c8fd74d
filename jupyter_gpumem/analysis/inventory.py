"""The live storages of this process, each once. Live objects stay inside the ``with`` block that looks at them."""
from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from jupyter_gpumem import frameworks
from jupyter_gpumem.frameworks import Framework
from jupyter_gpumem.frameworks.records import Part


class Stored:
    """A storage and the tensors found on it. Live: it must not outlive the look."""

    __slots__ = ("framework", "part", "tensors")

    def __init__(self, framework: Framework, part: Part) -> None:
        self.framework = framework
        self.part = part
        self.tensors: list[object] = []

    @property
    def pointer(self) -> int | None:
        """Address of its first byte; None where it has no memory of its own."""
        return self.framework.data_pointers(self.tensors[0]).get(self.part.address)


class Inventory:
    """All storages found, by ``(device, address)``, and the tensors that point into them.

    A context manager, for it is live. (One made by ``contextlib`` would be a suspended generator, and so a holder.)
    """

    def __init__(self) -> None:
        self.storages: dict[tuple[str, int], Stored] = {}
        self.tensors: dict[int, object] = {}
        """By ``id``: the search for holders looks for these."""

    def add(self, framework: Framework, tensor: object) -> None:
        """Count one tensor; a tensor that has been counted is not counted again."""
        if id(tensor) in self.tensors:
            return
        self.tensors[id(tensor)] = tensor
        for part in framework.parts(tensor):
            key = (part.device, part.address)
            stored = self.storages.get(key)
            if stored is not None and framework.is_bare(tensor):
                continue
            if stored is None:
                stored = self.storages[key] = Stored(framework, part)
            stored.tensors.append(tensor)

    def add_all(self, framework: Framework, tensors: Iterable[object]) -> None:
        """Count tensors, their gradients, and what hangs on their autograd graphs."""
        seen = _Seen()
        # bare storages last: a storage's own Python object only counts where no tensor points into it
        todo = sorted(tensors, key=lambda obj: framework.is_bare(obj), reverse=True)
        while todo:
            obj = todo.pop()
            if seen.before(obj):
                continue
            kind = framework.kind(type(obj))
            if kind == "tensor":
                self.add(framework, obj)
                todo += framework.referents(obj)
            if kind in ("tensor", "node"):
                todo += framework.graph(obj)

    def on(self, watched: Sequence[str] | None) -> list[Stored]:
        """The storages on the watched devices that have bytes, largest first."""
        found = [s for s in self.storages.values() if s.part.nbytes and is_watched(s.part.device, watched)]
        return sorted(found, key=lambda stored: -stored.part.nbytes)

    def bytes_on(self, watched: Sequence[str]) -> dict[str, int]:
        """Device → bytes of its storages."""
        total: dict[str, int] = {}
        for stored in self.storages.values():
            if is_watched(stored.part.device, watched):
                total[stored.part.device] = total.get(stored.part.device, 0) + stored.part.nbytes
        return total

    def own_ids(self) -> set[int]:
        """Our own containers, which a search for referrers must pass over."""
        mine: set[int] = {id(self), id(vars(self)), id(self.storages), id(self.tensors)}
        for stored in self.storages.values():
            mine |= {id(stored), id(stored.tensors)}
        return mine

    def __enter__(self) -> Inventory:
        return self

    def __exit__(self, *_: object) -> None:
        self.storages.clear()
        self.tensors.clear()


def is_watched(device: str, watched: Sequence[str] | None) -> bool:
    """Whether ``device`` is one of ``watched``; ``cuda`` stands for all of its devices, None for every device."""
    return watched is None or device in watched or device.partition(":")[0] in watched


def take_inventory(hidden: Sequence[object] = ()) -> Inventory:
    """The inventory of this moment, to be used in a ``with`` block, which clears it.

    ``hidden`` are tensors that the collector may not list.

    Three sources together see all of a training state: the objects that ``gc`` knows (two thirds of the bytes), the
    gradients, and what autograd graphs hold. Automatic collections wait, as one in the middle costs more than the look.
    """
    inventory = Inventory()
    with collections_waiting():
        objects = gc.get_objects()
        objects += hidden
        for framework in frameworks.loaded():
            inventory.add_all(framework, framework.find(objects))
    return inventory


def frozen_notes() -> tuple[str, ...]:
    """What a look says where ``gc.freeze()`` hides objects from it; nothing where nothing is hidden.

    It sees those that a root reaches. Only lifting the freeze would show the others, and it cannot be put back for the
    same objects: a look leaves it.
    """
    frozen = gc.get_freeze_count()
    what = f"gc.freeze() hides {frozen} objects: those of them that nothing reaches are not seen"
    return (f"{what}; %gpufree or gc.unfreeze() lifts it",) if frozen else ()


class _Seen:
    """Objects met so far. They are kept alive: wrappers of graph nodes are made anew, with ids used again."""

    def __init__(self) -> None:
        self._objects: dict[int, object] = {}

    def before(self, obj: object) -> bool:
        if id(obj) in self._objects:
            return True
        self._objects[id(obj)] = obj
        return False


@contextmanager
def collections_waiting() -> Iterator[None]:
    """No automatic garbage collection inside the block; the user's setting is put back."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
