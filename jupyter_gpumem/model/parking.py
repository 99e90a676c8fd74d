"""Moving to host memory in place, and back."""
from __future__ import annotations

import enum
from dataclasses import dataclass

from jupyter_gpumem.model.machine import Allocator


class Direction(enum.Enum):
    """Which way the memory goes."""

    PARK = "park"
    RESTORE = "restore"


@dataclass(frozen=True)
class Moved:
    """What one name has on one device, moved or to be moved."""

    name: str
    device: str
    """The accelerator: where it comes from when it is parked, where it goes when it is restored."""
    nbytes: int
    """Bytes of the storages, each counted once."""
    storages: int
    tensors: int
    """Tensors that point into them: views, gradients and those of other names too."""


@dataclass(frozen=True)
class Parking:
    """What a move to host memory or back would do, or did. It is done as a whole or not at all."""

    direction: Direction
    moved: tuple[Moved, ...]
    done: bool
    """False: a plan, and nothing has moved."""
    before: tuple[Allocator, ...] = ()
    after: tuple[Allocator, ...] = ()
    """Empty for a plan."""
    obstacles: tuple[str, ...] = ()
    """Why it cannot be done, a sentence each; only in a plan."""
    notes: tuple[str, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes that move."""
        return sum(moved.nbytes for moved in self.moved)


@dataclass(frozen=True)
class ParkedName:
    """What lies in host memory under the name that it was parked by, and the device that it is to go back to."""

    name: str
    device: str
    nbytes: int
