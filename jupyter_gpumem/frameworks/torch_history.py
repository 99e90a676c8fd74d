"""torch's recording of its CUDA allocations: on, off, to a file, and which allocation made the peak.

The recording is torch's own, with all of its cost: about 2 µs and several KB of host memory an allocation. It is
bounded here, where torch's default is not. Starting it would initialise CUDA, so that must have happened.
"""
from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from jupyter_gpumem.errors import InputError
from jupyter_gpumem.frameworks.records import Frame
from jupyter_gpumem.frameworks.torch_allocator import frames_of, requested, user_frame

_AUTOGRAD = os.path.dirname(torch.autograd.__file__)
_cuda: Any = torch.cuda
_memory: Any = torch.cuda.memory


class Peak(NamedTuple):
    """The moment of a recording at which most memory was allocated."""

    nbytes: int
    """Bytes asked for by all allocations then, without rounding. Where the present figure is not known: beyond those
    of allocations that are older than the recording."""
    frames: tuple[Frame, ...]
    """The stack of the allocation that reached it, innermost first; empty if it was not recorded. For what a thread of
    autograd's allocated, which has no stack: that of the call of ``backward()``."""
    event: int
    """Its place in the trace."""
    before: int = 0
    """Bytes in use when one began to look."""

    @property
    def site(self) -> Frame | None:
        """The line of the user's."""
        return user_frame(self.frames)


def start(max_entries: int = 100_000) -> None:
    """Begin to record; the oldest of more than ``max_entries`` events are forgotten. A recording that runs goes on.

    Raises InputError if CUDA is not initialised or this torch cannot record.
    """
    if max_entries < 1:
        raise InputError(f"{max_entries} events cannot be recorded: give a number from 1 on")
    _require()
    if not is_recording():
        _memory._record_memory_history("all", context="all", stacks="python", max_entries=max_entries)


def stop() -> None:
    """End the recording and forget it; nothing happens if there is none."""
    if is_recording():
        _memory._record_memory_history(None)


def is_recording() -> bool:
    """Whether allocations are recorded now, by whomever it was begun."""
    asked = getattr(torch._C, "_cuda_isHistoryEnabled", None)
    return asked is not None and _cuda.is_initialized() and bool(asked())


def dump(path: str | os.PathLike[str]) -> None:
    """Write the allocator's state and the recording to a file that pytorch.org/memory_viz opens.

    Raises InputError if there is nothing to write or the file cannot be written.
    """
    _require()
    try:
        _memory._dump_snapshot(os.fspath(path))
    except OSError as error:
        raise InputError(f"cannot write {os.fspath(path)}: {error.strerror or error}") from error


def peak_site(device: str, since: float) -> Frame | None:
    """The line of the user's that made the peak of a device since a moment, in seconds since the epoch.

    None if nothing is recorded, if memory was never fuller than at that moment, or if no line of the user's did it.
    """
    if not device.startswith("cuda") or not is_recording():
        return None
    try:
        peak = peak_frames(device, since)
    except RuntimeError:  # an allocator of the user's that tells nothing
        return None
    return peak.site if peak is not None and peak.nbytes > peak.before else None


def peak_frames(device: str, since: float = 0.0) -> Peak | None:
    """The peak of a device within the recording, from a moment on, in seconds since the epoch; None if nothing was
    allocated.

    Raises InputError if nothing is recorded.
    """
    _require()
    if not is_recording():
        raise InputError("allocations are not recorded: start the recording before the cell to be examined")
    traces = _memory._snapshot()["device_traces"]
    index = int(device.partition(":")[2] or 0)
    if index >= len(traces):
        return None
    trace = traces[index]
    first = bisect_left(trace, since * 1e6, key=lambda event: event.get("time_us", 0))
    return peak_of(trace, first, requested(device))


def peak_of(trace: Sequence[Mapping[str, Any]], since: int = 0, at_end: int | None = None) -> Peak | None:
    """The peak within a trace, from its event number ``since`` on. ``at_end`` are the bytes allocated after its last
    event.

    A block is in use until its freeing is completed; events of segments, snapshots and errors change nothing. The
    trace has every event since its first one, so that the bytes at each follow from those at its end.
    """
    # torch can be told to leave out either of the two events of a free
    freed = "free_completed" if any(event["action"] == "free_completed" for event in trace) else "free_requested"
    changes = [_change(event, freed) for event in trace]
    level = at_end - sum(changes) if at_end is not None else _older(trace, freed)
    highest: tuple[int, int] | None = None
    before = level
    for index, change in enumerate(changes):
        before = level if index == since else before
        level += change
        if change > 0 and index >= since and (highest is None or level > highest[0]):
            highest = level, index
    if highest is None:
        return None
    return Peak(highest[0], _frames(trace, since, highest[1]), highest[1], before)


def _frames(trace: Sequence[Mapping[str, Any]], since: int, index: int) -> tuple[Frame, ...]:
    """The stack of an allocation. Autograd's threads have none of Python's: the thread that waits for them called
    ``backward()``, which has allocated the first gradient.
    """
    found = frames_of(trace[index].get("frames") or ())
    if not any(_is_python(frame) for frame in found):
        for at in range(index - 1, since - 1, -1):
            frames = frames_of(trace[at].get("frames") or ()) if trace[at]["action"] == "alloc" else ()
            if any(_is_python(frame) for frame in frames):
                return frames if any(frame.filename.startswith(_AUTOGRAD) for frame in frames) else found
    return found


def _is_python(frame: Frame) -> bool:
    return frame.filename.startswith("<") or frame.filename.endswith(".py")


def _change(event: Mapping[str, Any], freed: str) -> int:
    if event["action"] == "alloc":
        return int(event["size"])
    return -int(event["size"]) if event["action"] == freed else 0


def _older(trace: Iterable[Mapping[str, Any]], freed: str) -> int:
    """Bytes of the blocks that the trace frees without having seen them allocated."""
    seen: set[int] = set()
    nbytes = 0
    for event in trace:
        if event["action"] == "alloc":
            seen.add(event["addr"])
        elif event["action"] == freed:
            nbytes += 0 if event["addr"] in seen else int(event["size"])
            seen.discard(event["addr"])
    return nbytes


def _require() -> None:
    recorder = getattr(torch._C, "_cuda_record_memory_history", None)
    if recorder is None or not hasattr(_memory, "_record_memory_history"):
        raise InputError("this build of torch cannot record allocations: it takes one with CUDA or ROCm")
    if not _cuda.is_initialized():
        raise InputError("CUDA has not been used in this kernel yet: use it first, recording would initialise it")
