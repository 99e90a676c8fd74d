"""The account of a device's memory: sums that close, and the allocator's segments behind them."""
from __future__ import annotations

from dataclasses import dataclass

from jupyter_gpumem.model.holdings import Holder


@dataclass(frozen=True)
class Entry:
    """One part of a sum."""

    kind: str
    """``names``, ``graphs``, ``dangling``, ``libraries``, ``running``, ``rounding``, ``unexplained``, ``outside``;
    ``allocated``, ``awaiting``, ``cached``, ``fragments``, ``private``; ``reserved``, ``context``, ``others``,
    ``unattributed``; of the host ``tensors``, ``rest``; ``resident``, ``system``."""
    nbytes: int | None
    """None: this part is unknown. ``outside`` alone is negative: tensors whose memory is not this allocator's."""
    note: str = ""


@dataclass(frozen=True)
class Sum:
    """A total and its parts. If no part is unknown, they add up to it exactly."""

    total: int | None
    entries: tuple[Entry, ...]

    def of(self, kind: str) -> int | None:
        """The bytes of one part; None if it is unknown, 0 if the sum has no such part."""
        found = [entry.nbytes for entry in self.entries if entry.kind == kind]
        return found[0] if found else 0


@dataclass(frozen=True)
class Block:
    """A piece of a segment."""

    address: int
    nbytes: int
    state: str
    """``allocated``, ``awaiting`` (freed, but another stream may still use it) or ``free``."""
    requested: int | None = None
    """What was asked for; the rest of the block is rounding. None for a free block, or where torch does not say."""
    holder: Holder | None = None
    """Of the storage that lies in it; None where no storage was found, which is then *unexplained*."""
    site: str | None = None
    """Where it was allocated, ``cell [12], line 3``, if the allocator's history is recorded."""


@dataclass(frozen=True)
class Segment:
    """One piece of memory that the allocator got from the driver."""

    device: str
    address: int
    nbytes: int
    pool: str
    """``small`` or ``large``."""
    blocks: tuple[Block, ...]
    """In the order of their addresses."""
    private: bool = False
    """It belongs to a CUDA graph's pool, or to a memory pool of the user's: no other allocation may use it."""

    @property
    def free(self) -> int:
        """Bytes that no tensor uses."""
        return sum(block.nbytes for block in self.blocks if block.state == "free")

    @property
    def returnable(self) -> bool:
        """Whether emptying the cache gives it back to the driver: nothing in it is in use, and no pool keeps it."""
        return not self.private and all(block.state == "free" for block in self.blocks)

    @property
    def pins(self) -> tuple[Block, ...]:
        """The blocks that keep its free bytes from going back, largest first."""
        held = [block for block in self.blocks if block.state != "free"]
        return tuple(sorted(held, key=lambda block: -block.nbytes)) if self.free else ()


@dataclass(frozen=True)
class Account:
    """Where the bytes of one device are, as one framework and the driver count them."""

    framework: str
    device: str
    allocated: Sum
    """names + graphs + dangling + libraries + running + rounding + unexplained + outside."""
    reserved: Sum
    """allocated + awaiting + cached (goes back by emptying the cache) + fragments + private (do not). On the host,
    where nobody reserves: the resident memory of this process, tensors + rest."""
    used: Sum
    """The whole device: reserved + context and libraries + others + unattributed. The host: resident (this process) +
    system (all other processes, and the system)."""
    segments: tuple[Segment, ...] = ()
    """Empty where the framework does not list them."""
    notes: tuple[str, ...] = ()
    partial: bool = False
    """The search for holders ran out of time."""
