"""Which names keep a storage alive, by the shortest path; what dangles, and why."""
from __future__ import annotations

import gc
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from jupyter_gpumem import frameworks, session
from jupyter_gpumem.analysis import paths, roots
from jupyter_gpumem.analysis.inventory import Inventory, Stored, take_inventory
from jupyter_gpumem.analysis.references import Root, Walk, walk
from jupyter_gpumem.analysis.unreached import Unreached, explain
from jupyter_gpumem.model import Cause, Holder, Holding

_NO_HOLDER = Holder("no name found in the time allowed", Cause.UNKNOWN)


@dataclass
class Look:
    """The storages and what holds them, live: for use in a ``with`` block."""

    shell: session.Shell | None
    watched: Sequence[str] | None
    inventory: Inventory
    walk: Walk
    stored: list[Stored]
    """On the watched devices, largest first."""
    ours: set[int]
    """ids of the look's own containers."""
    references: int = 2
    """Of the look to each tensor: the inventory's table and its storage's list. Who keeps more adds them."""
    unreached: Unreached | None = None
    _holders: dict[int, Holder] = field(default_factory=dict)

    def holder(self, stored: Stored) -> Holder:
        """The best holder of a storage: of the tensors on it, the one that a root reaches first."""
        known = self._holders.get(id(stored))
        if known is None:
            known = self._holders[id(stored)] = self._find_holder(stored)
        return known

    def root(self, stored: Stored) -> Root | None:
        """The root that reaches the storage first."""
        best = self.best(stored)
        place = self.walk.place(best) if best is not None else None
        return place[0] if place is not None else None

    def best(self, stored: Stored) -> object | None:
        """Of the tensors on a storage the one that a root reaches first, of several the largest; None if none does."""
        reached = [(found, tensor) for tensor in stored.tensors if (found := self.walk.place(tensor)) is not None]
        if not reached:
            return None
        if len(reached) == 1:
            return reached[0][1]
        order = list(Cause)
        span = {id(tensor): stored.framework.describe(tensor).nbytes for _, tensor in reached}
        return min(reached, key=lambda pair: (order.index(pair[0][0].cause), pair[0][1], -span[id(pair[1])]))[1]

    def _find_holder(self, stored: Stored) -> Holder:
        best = self.best(stored)
        if best is not None:
            return paths.holder(self.walk, best) or _NO_HOLDER
        if self.walk.partial:
            return _NO_HOLDER
        order = list(Cause)
        holders = [holder for _, holder in self.unreached_holders(stored)]
        return min(holders, key=lambda holder: order.index(holder.cause))

    def unreached_holders(self, stored: Stored, but: object = None) -> list[tuple[int, Holder]]:
        """Who holds those tensors of a storage that no root reaches, ``but`` one, with their places on it."""
        if self.unreached is None:
            ours = self.inventory.own_ids() | self.walk.own_ids() | self.ours | {id(self), id(vars(self))}
            self.unreached = Unreached(self.walk, ours, list(self.inventory.tensors.values()))
        unreached, reaches = self.unreached, self.walk.reaches
        # no list and no variable may hold a tensor here that ``references`` does not count
        return [
            (place, explain(unreached, id(stored.tensors[place]), self.references))
            for place in range(len(stored.tensors))
            if stored.tensors[place] is not but and not reaches(stored.tensors[place])
        ]

    def holding(self, stored: Stored) -> Holding:
        """The record of a storage."""
        framework = stored.framework
        tensors = sorted((framework.describe(t) for t in stored.tensors), key=lambda t: -t.nbytes)
        return Holding(
            framework=framework.name,
            device=stored.part.device,
            storage=stored.part.address,
            nbytes=stored.part.nbytes,
            tensors=tuple(tensors),
            holder=self.holder(stored),
            unseen=framework.unseen(stored.tensors),
        )

    def __enter__(self) -> Look:
        return self

    def __exit__(self, *_: object) -> None:
        self.stored.clear()
        self.walk.clear()
        if self.unreached is not None:
            self.unreached.clear()
        self.inventory.__exit__()


def look(
    shell: session.Shell | None,
    watched: Sequence[str] | None,
    groups: Sequence[Sequence[Root]] | None = None,
    *,
    of: object = None,
    at: tuple[str, int] | None = None,
    also: Collection[object] = (),
    exhaustive: bool = False,
    every_edge: bool = False,
    seconds: float = 10.0,
) -> Look:
    """Look at the storages on the watched devices (None: on all) and search for their holders, in a ``with`` block.

    ``groups`` are other roots than the usual ones; ``of`` narrows the look to the storages of the tensors in one
    object, ``at`` to the storage of a ``(device, address)``; ``also`` are further objects to search for.
    """
    groups = usual_groups(shell) if groups is None else groups
    inventory = _inventory(shell, [*groups, [Root("", Cause.NAME, of)]], seconds)
    if at is not None:
        stored = [inventory.storages[at]] if at in inventory.storages else []
    else:
        stored = inventory.on(watched) if of is None else _storages_of(inventory, of)
    targets = [*(one.tensors for one in stored), *([obj] for obj in also)]
    ours = [inventory, inventory.storages, inventory.tensors, stored, targets, *targets, also]
    walls = [*roots.barriers(shell), *ours]
    found = walk(groups, targets, walls, seconds=seconds, exhaustive=exhaustive, every_edge=every_edge)
    return Look(shell, watched, inventory, found, stored, {id(obj) for obj in ours})


def _inventory(shell: session.Shell | None, groups: Sequence[Sequence[Root]], seconds: float) -> Inventory:
    """The inventory, with what the roots reach where ``gc.freeze()`` hides objects from the collector's lists."""
    if not gc.get_freeze_count():
        return take_inventory()
    reached = walk(groups, (), roots.barriers(shell), seconds=seconds, exhaustive=True)
    try:
        return take_inventory(reached.tensors)
    finally:
        reached.clear()


def usual_groups(shell: session.Shell | None) -> list[list[Root]]:
    """Names, then what is in use, then what only the shell keeps."""
    return [roots.names(shell), roots.live(shell), roots.leaving(shell)]


def _storages_of(inventory: Inventory, obj: object) -> list[Stored]:
    """The storages of the tensors that an object holds. A tensor that was only made to ask is not its own holder."""
    is_tensor = any(framework.kind(type(obj)) == "tensor" for framework in frameworks.loaded())
    inside = {id(obj): obj} if is_tensor else tensors_in(obj)
    found = [s for s in inventory.storages.values() if any(id(tensor) in inside for tensor in s.tensors)]
    for stored in found:
        others = [tensor for tensor in stored.tensors if tensor is not obj]
        if others and inside.keys() == {id(obj)}:
            stored.tensors[:] = [*others, obj]
    return sorted(found, key=lambda stored: -stored.part.nbytes)


def tensors_in(obj: object, barriers: Sequence[object] = ()) -> dict[int, object]:
    """The tensors that an object holds, by id, graphs and gradients included, but not through ``barriers``."""
    walls = [barrier for barrier in barriers if barrier is not obj]
    reached = walk([[Root("", Cause.NAME, obj)]], (), walls, seconds=2.0, exhaustive=True)
    tensors = {id(tensor): tensor for tensor in reached.tensors}
    reached.clear()
    return tensors


def names_of(shell: session.Shell | None, tensors: Sequence[object], but: object = None) -> dict[int, str]:
    """id → path, for those tensors that a name of the user's reaches without a graph, and not only through ``but``."""
    groups = [[root for root in roots.names(shell) if root.value is not but]]
    walls = [*roots.barriers(shell), tensors, *([but] if but is not None else [])]
    found = walk(groups, [[tensor] for tensor in tensors], walls, seconds=1.0)
    names = {id(tensor): holder.path for tensor in tensors if (holder := paths.holder(found, tensor)) is not None}
    found.clear()
    return names


def holdings(
    shell: session.Shell | None, watched: Sequence[str], seconds: float = 10.0
) -> tuple[tuple[Holding, ...], bool]:
    """All storages on the watched devices, largest first, each with its holder; and whether time ran out."""
    with look(shell, watched, seconds=seconds) as seen:
        # a tuple that is still growing must not be met by the look: CPython refuses to resize it then
        found = [seen.holding(stored) for stored in seen.stored]
        return tuple(found), seen.walk.partial
