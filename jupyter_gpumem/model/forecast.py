"""What a call will need, told before it is made."""
from __future__ import annotations

from dataclasses import dataclass

from jupyter_gpumem.model.account import Entry


@dataclass(frozen=True)
class PeakOperation:
    """The operation that makes the highest number of allocated bytes."""

    name: str
    """``aten.convolution``."""
    made: str
    """What it allocates: ``float32 8×64×32×32``."""
    site: str | None
    """The line of the user's: ``cell [12], line 3: y = model(x)``; None where no line of the user's leads to it."""


@dataclass(frozen=True)
class DevicePeak:
    """What a call will need on one device."""

    device: str
    baseline: int
    """Bytes that are allocated now."""
    peak: int
    """The highest number of allocated bytes during the call: the baseline and what the call adds."""
    after: int
    """Allocated bytes once it has returned, with its result still there."""
    reserved: int | None
    """The most that the allocator will have from the driver meanwhile; None where it keeps no pool, or lists none."""
    limit: int | None
    """The most that the allocator could have now: what it has, and what is free on the device. None: not told."""
    fits: bool | None
    """Whether the call fits into that; None where the limit is not told."""
    parts: tuple[Entry, ...]
    """What is allocated at the peak: ``parameters``, ``gradients``, ``optimizer``, ``buffers``, ``inputs`` (and all
    else that the call can reach), ``activations`` (made before a backward pass and alive in it), ``temporaries``,
    ``rounding``, and ``unrelated``: what is allocated now and the call cannot reach. They add up to the peak."""
    operation: PeakOperation | None
    """None where the call allocates nothing above the baseline."""


@dataclass(frozen=True)
class BatchPeak:
    """The same call with another batch."""

    batch: int
    peaks: tuple[tuple[str, int], ...]
    """``(device, highest allocated bytes)``; empty where the call cannot be made with this batch."""
    fits: bool | None
    problem: str | None = None
    """Why it cannot be made, one sentence."""


@dataclass(frozen=True)
class Forecast:
    """The peak of a call before it is made. Nothing was allocated for it."""

    call: str
    """``step(model, opt, x, y)``."""
    devices: tuple[DevicePeak, ...]
    """The watched devices on which the call works, the one that it needs most first."""
    batch: int | None = None
    """The first dimension of its inputs; None if they have none in common."""
    batches: tuple[BatchPeak, ...] = ()
    """Ascending."""
    largest: int | None = None
    """The largest batch that fits now; None where that was not found, 0 if none does."""
    exact: bool = True
    """Whether ``largest`` is the last that fits. Else the search ended early: larger ones may fit too."""
    notes: tuple[str, ...] = ()
    """What the forecast cannot know, a sentence each."""
