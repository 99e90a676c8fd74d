"""What has changed between two moments, and what grows round by round."""
from __future__ import annotations

import enum
from dataclasses import dataclass

from jupyter_gpumem.model.cleaning import CellUse
from jupyter_gpumem.model.holdings import Cause
from jupyter_gpumem.model.machine import Allocator


@dataclass(frozen=True)
class Change:
    """What one holder keeps more or less than before."""

    path: str
    """The holder's path; ``losses[·]`` stands for every index or key of ``losses``."""
    cause: Cause
    kind: str
    """``new``, ``gone``, ``larger`` or ``smaller``."""
    nbytes: int
    """Bytes after less bytes before."""
    storages: int
    """Storages after less storages before."""


@dataclass(frozen=True)
class Growth:
    """What is new, gone, larger and smaller between two moments, by holder, largest change first."""

    before: str
    """Name of the earlier mark."""
    after: str
    """Name of the later one, or ``now``."""
    allocators: tuple[tuple[Allocator, ...], tuple[Allocator, ...]]
    """Earlier and later figures."""
    changes: tuple[Change, ...]
    partial: bool = False
    """A search for holders ran out of time: some changes may be only for that reason."""


class Verdict(enum.Enum):
    """What rounds of the same work prove."""

    LEAK = "leak"
    """A path grew in each of the last rounds, three or more."""
    UNSURE = "not sure"
    """Something grew, but the evidence is short."""
    STEADY = "steady"
    """Nothing grew in the last rounds."""


@dataclass(frozen=True)
class Trend:
    """What one path keeps after each round."""

    path: str
    cause: Cause
    sizes: tuple[int, ...]
    """Bytes, after the first round and each further one."""
    storages: tuple[int, ...]
    verdict: Verdict


@dataclass(frozen=True)
class Leaks:
    """The verdict on some rounds of the same work."""

    title: str
    rounds: int
    verdict: Verdict
    trends: tuple[Trend, ...]
    """What grew, the proven leaks first, then the largest growth. What was steady is left out."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Timeline:
    """The cells that were watched, in order."""

    cells: tuple[CellUse, ...]
    totals: tuple[tuple[str, int], ...] = ()
    """``(device, bytes of the whole device)`` where that is known."""


@dataclass(frozen=True)
class GraphNode:
    """An operation of an autograd graph, or a leaf that it ends in."""

    number: int
    label: str
    """``MulBackward0``; for a leaf its name or ``leaf``."""
    nbytes: int
    """Bytes of the storages that it saved and no earlier node of the list did."""
    saved: tuple[str, ...] = ()
    """``self float32 1024×1024`` for each tensor that it saved."""
    is_leaf: bool = False


@dataclass(frozen=True)
class Graph:
    """The autograd graph behind one tensor, from the tensor downwards."""

    name: str
    nbytes: int
    """All that it keeps alive beside the tensor itself."""
    nodes: tuple[GraphNode, ...]
    edges: tuple[tuple[int, int], ...]
    """``(number, number of a node that it needs)``."""
    left_out: int = 0
    """Nodes beyond those that are listed."""
