"""What the rules of advice may know: plain values of one look, without any live object.

A storage is known by its ``Key``; a tensor, where it matters which, by its ``id`` at the moment of looking.
"""
from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

Key = tuple[str, int]
"""``(device, address)`` of a storage."""


class Kept(NamedTuple):
    """A storage that something reaches."""

    nbytes: int
    path: str
    """For what only graphs hold, where the path begins."""
    pattern: str
    """The path with ``[·]`` for indices and keys."""
    name: str | None
    """The user's name that keeps it; None for a library, running code, outputs."""
    saved: bool
    """Only autograd graphs hold it."""
    role: str
    """``parameter``, ``buffer``, ``gradient``, ``state`` or nothing of these."""
    shape: tuple[int, ...]
    dtype: str
    floating: bool
    trains: bool
    """It requires a gradient, or was made of what does."""
    container: str
    """Type of a built-in container in which it lies: ``list``, ``dict``, ``deque`` without bound; else empty."""


class Weight(NamedTuple):
    """A parameter or buffer of a model."""

    path: str
    """Below the model: ``layers.0.weight``."""
    tensor: int
    key: Key | None
    shape: tuple[int, ...]
    dtype: str
    trains: bool
    buffer: bool
    graded: bool
    """It has a gradient now."""


class Row(NamedTuple):
    """Submodules of one type, and with parameters of the same shapes, below one module."""

    path: str
    """Of the module that has them."""
    kind: str
    """Its type."""
    number: int
    tensors: frozenset[int]
    """Their parameters."""


class Model(NamedTuple):
    """A module that a name reaches and that is part of no other one."""

    path: str
    name: str
    kind: str
    training: bool
    weights: tuple[Weight, ...]
    rows: tuple[Row, ...]

    @property
    def parameters(self) -> frozenset[int]:
        """The tensors that are trained, or could be."""
        return frozenset(weight.tensor for weight in self.weights if not weight.buffer)

    def keys(self, on: str = "") -> frozenset[Key]:
        """Its storages on one device, or on all."""
        return frozenset(w.key for w in self.weights if w.key is not None and on in ("", w.key[0]))


class State(NamedTuple):
    """What an optimizer keeps for one parameter."""

    tensor: int
    trains: bool
    graded: bool
    keys: frozenset[Key]
    step: float | None
    """How often the parameter was updated; None if the optimizer does not count."""


class Optimizer(NamedTuple):
    """An optimizer that a name reaches."""

    path: str
    name: str
    tensors: frozenset[int]
    states: tuple[State, ...]


class Gradients(NamedTuple):
    """The gradients of one model, or of an optimizer's parameters that are no model's."""

    owner: str
    name: str
    optimizer: str | None
    """Path of an optimizer over these parameters."""
    keys: frozenset[Key]
    """The storages that nothing but these gradients uses."""
    number: int
    zero: bool | None
    """Every element that was read is 0; None if one could not be read."""
    read: int
    whole: int
    """Bytes that were read, and that there are."""


class Forward(NamedTuple):
    """The graph behind a tensor that a name holds."""

    path: str
    pattern: str
    name: str
    scalar: bool
    terms: int
    """Graphs over the same parameters, with no operation in common, that were added up in it; 1 if there is no sum."""
    leaves: frozenset[int]
    nodes: frozenset[int]
    """Its operations, without the leaves."""
    saved: frozenset[Key]
    """What it saved and nothing but graphs holds."""
    checkpointed: bool
    inputs: frozenset[Key] = frozenset()
    """What it saved and others hold too: weights, batches."""


class Copy(NamedTuple):
    """A dictionary of tensors under a name."""

    path: str
    name: str
    entries: Mapping[str, tuple[tuple[int, ...], Key]]
    """Key → shape and storage."""
    keys: frozenset[Key]
    """All storages that the name's own containers hold."""


class Workers(NamedTuple):
    """A loader with processes of its own."""

    path: str
    name: str
    wanted: int
    prefetch: int | None
    sizes: tuple[int, ...]
    """Host memory of each process that lives and shares it with no other, bytes."""


class Place(NamedTuple):
    """A device on which a framework has an allocator."""

    device: str
    allocated: int
    reserved: int | None
    cached: int | None
    """Bytes that emptying the cache gives back."""
    fragments: tuple[int, ...]
    """Free bytes of each segment that cannot go back."""
    largest: int
    """Bytes of the largest free block among those."""
    pins: tuple[str, ...]
    """Who keeps these segments, most bytes first."""
    total: int | None
    used: int | None
    others: tuple[tuple[int, int | None], ...]
    """``(pid, bytes)`` of each other process on it."""
    bfloat16: bool | None


@dataclass(frozen=True)
class Evidence:
    """One look at the session."""

    watched: tuple[str, ...]
    kept: Mapping[Key, Kept] = field(default_factory=dict)
    models: tuple[Model, ...] = ()
    optimizers: tuple[Optimizer, ...] = ()
    gradients: tuple[Gradients, ...] = ()
    forwards: tuple[Forward, ...] = ()
    copies: tuple[Copy, ...] = ()
    workers: tuple[Workers, ...] = ()
    places: tuple[Place, ...] = ()
    pinned: int | None = None
    """Page-locked host memory of the frameworks, bytes."""
    pinned_names: tuple[str, ...] = ()
    host_total: int | None = None
    cpus: int = 1
    default_float: str = "float32"
    expands: bool = False
    collective: str | None = None
    notes: tuple[str, ...] = ()
    partial: bool = False

    def nbytes(self, keys: Iterable[Key]) -> int:
        """Bytes of some storages."""
        return sum(self.kept[key].nbytes for key in keys if key in self.kept)

    def by_device(self, keys: Iterable[Key]) -> dict[str, int]:
        """Device → bytes of those storages on it."""
        found: dict[str, int] = {}
        for key in keys:
            if key in self.kept:
                found[key[0]] = found.get(key[0], 0) + self.kept[key].nbytes
        return found

    def least(self, device: str) -> int:
        """Bytes below which nothing is advised: 1 MiB, or a hundredth of what is allocated on a device."""
        allocated = [place.allocated for place in self.places if place.device == device]
        return max(1 << 20, sum(allocated) // 100)

    def alone(self, forwards: Sequence[Forward]) -> frozenset[Key]:
        """The storages that some graphs hold and no other one does."""
        chosen = set(map(id, forwards))
        others = [one.saved for one in self.forwards if id(one) not in chosen]
        return frozenset().union(*(one.saved for one in forwards)).difference(*others)

    def roots(self) -> tuple[Forward, ...]:
        """The graphs that are no part of another one: a loss, but not the output that it was made of."""
        ordered = sorted(self.forwards, key=lambda one: -len(one.nodes))
        found: list[Forward] = []
        covered: set[int] = set()
        for one in ordered:
            if not one.nodes <= covered:
                found.append(one)
            covered |= one.nodes
        return tuple(found)


def independent(forwards: Iterable[Forward]) -> list[Forward]:
    """Of some graphs as many as have no operation in common."""
    found: list[Forward] = []
    seen: set[int] = set()
    for one in forwards:
        if not one.nodes & seen:
            found.append(one)
            seen |= one.nodes
    return found


def main_device(sizes: Mapping[str, int]) -> str:
    """The device with most of the bytes; empty for none."""
    return max(sizes, key=lambda device: sizes[device], default="")


def listed(names: Collection[str], most: int = 4) -> str:
    """``a, b, c, d and 3 more``."""
    unique = list(dict.fromkeys(names))
    rest = f" and {len(unique) - most} more" if len(unique) > most else ""
    return ", ".join(unique[:most]) + rest
