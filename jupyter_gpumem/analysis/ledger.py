"""What is allocated now, cheaply enough to ask before and after every cell.

Accelerators count for themselves. Torch keeps no count of host memory, and a look at a million live objects takes a
tenth of a second; so the host's storages are remembered weakly, and new ones are looked for among the objects that
have been made since the last look: ``gc`` keeps those in its young generations until they survive a collection.
"""
from __future__ import annotations

import gc
import sys
from collections.abc import Sequence

from jupyter_gpumem import frameworks
from jupyter_gpumem.analysis.inventory import Inventory, is_watched, take_inventory
from jupyter_gpumem.analysis.snapshot import HOST, allocators
from jupyter_gpumem.model import Allocator

_GENERATIONS_TELL = sys.version_info < (3, 14)
"""From 3.14 on the collector works in increments, and an object may be old without a full collection."""


class Ledger:
    """The storages in host memory, followed from look to look. Owned by the thread that runs the cells."""

    def __init__(self) -> None:
        self._known: dict[str, frameworks.Remembered] = {}
        self._collections: tuple[int, ...] = ()

    def allocators(self, watched: Sequence[str]) -> tuple[Allocator, ...]:
        """Figures of the watched devices now."""
        return allocators(watched, self._host_bytes() if HOST in watched and frameworks.loaded() else None)

    def _host_bytes(self) -> int:
        collections = tuple(stats["collections"] for stats in gc.get_stats()[1:])
        young_only = _GENERATIONS_TELL and collections == self._collections
        if young_only:
            self._add_young()
        else:
            with take_inventory() as inventory:
                self._known = {f.name: f.remember(_on_host(inventory)) for f in frameworks.loaded()}
        # read before the look: what is collected during it may have aged unseen
        self._collections = collections
        return sum(known.alive() for known in self._known.values())

    def _add_young(self) -> None:
        # two steps: a list that is being built would be one of the objects, and so contain itself
        newest = gc.get_objects(generation=0)
        young = gc.get_objects(generation=1) + newest
        for framework in frameworks.loaded():
            found = framework.find(young)
            if framework.name not in self._known:
                self._known[framework.name] = framework.remember(())
            if found:
                with Inventory() as inventory:
                    inventory.add_all(framework, found)
                    self._known[framework.name].add(_on_host(inventory))

    def clear(self) -> None:
        """Forget everything."""
        self._known.clear()
        self._collections = ()


def _on_host(inventory: Inventory) -> list[object]:
    stored = [one for one in inventory.storages.values() if is_watched(one.part.device, (HOST,))]
    return [one.tensors[0] for one in stored]
