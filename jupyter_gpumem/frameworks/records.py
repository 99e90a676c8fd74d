"""What a framework answers with: plain values, without a tensor."""
from __future__ import annotations

from typing import NamedTuple


class Part(NamedTuple):
    """A storage under a tensor, at the moment of looking."""

    device: str
    address: int
    nbytes: int


class Frame(NamedTuple):
    """A line of code in a recorded stack."""

    filename: str
    line: int
    function: str


class Traits(NamedTuple):
    """What a tensor is to autograd."""

    parameter: bool
    trains: bool
    """It requires a gradient, or was made of what does."""
    leaf: bool
    floating: bool


class Zeros(NamedTuple):
    """Whether all elements that were read are 0."""

    zero: bool | None
    """None: it could not be read."""
    read: int
    """Bytes."""
    whole: int
    """Bytes of all elements."""


class Loader(NamedTuple):
    """What loads batches in processes of its own."""

    workers: int
    """Processes that it starts."""
    prefetch: int | None
    """Batches that each of them keeps ready."""
    pids: tuple[int, ...]
    """The processes that live now."""


class RehearsalError(Exception):
    """A call cannot be made without data: why, in one sentence, and on which line of the user's."""

    def __init__(self, problem: str, frame: Frame | None = None) -> None:
        super().__init__(problem)
        self.frame = frame


class Input(NamedTuple):
    """A tensor that a call works with, and that neither a module nor an optimizer owns."""

    identity: int
    """Its ``id``."""
    shape: tuple[int, ...]
    dtype: str
    nbytes: int


class Allocation(NamedTuple):
    """A storage that a rehearsed call found or made."""

    device: str
    nbytes: int
    kind: str
    """``parameters``, ``gradients``, ``optimizer``, ``buffers``, ``inputs``; of what the call made besides these
    ``temporaries`` where the backward pass made it, else ``activations``."""
    existing: bool
    """Whether it is there before the call."""
    address: int | None
    """Of the first byte, where it is there."""
    operation: str
    """``aten.convolution``; empty where none made it."""
    made: str
    """``float32 8×64×32×32``."""
    frame: Frame | None
    """The line of the user's that made it."""


class Rehearsal(NamedTuple):
    """What a call would do to memory, in order."""

    allocations: tuple[Allocation, ...]
    events: tuple[tuple[int, int], ...]
    """``(place in allocations, bytes that it has from now on)``; 0 is its end."""
    inputs: tuple[Input, ...]
    notes: tuple[tuple[str, Frame | None], ...]
    """What the rehearsal could not know, and where."""


class Relocated(NamedTuple):
    """A storage that has been moved."""

    checksum: int
    """Of its bytes."""
    versions: dict[int, int]
    """``id`` of each tensor → the framework's count of the changes made to it."""
