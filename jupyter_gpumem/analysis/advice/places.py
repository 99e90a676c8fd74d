"""The devices on which a framework has an allocator: what is used, cached, in fragments, and by whom."""
from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from jupyter_gpumem import devices, frameworks
from jupyter_gpumem.analysis.advice.evidence import Place
from jupyter_gpumem.analysis.holders import Look
from jupyter_gpumem.analysis.inventory import is_watched
from jupyter_gpumem.analysis.snapshot import named
from jupyter_gpumem.frameworks import Framework
from jupyter_gpumem.model import Allocator, Device, Segment

_MOST_PINS = 4


def places(seen: Look, watched: Sequence[str]) -> tuple[Place, ...]:
    """The devices of all frameworks, also those that are not watched; who keeps fragments only of the watched ones."""
    allocators = [(framework, allocator) for framework in frameworks.loaded() for allocator in framework.allocators()]
    if not allocators:
        return ()
    by_alias = {device.alias: device for device in named(devices.read()) if device.alias is not None}
    return tuple(
        _place(framework, allocator, by_alias.get(allocator.device), seen, watched)
        for framework, allocator in allocators
    )


def _place(
    framework: Framework, allocator: Allocator, device: Device | None, seen: Look, watched: Sequence[str]
) -> Place:
    name = allocator.device
    segments = framework.segments(name)
    held = [segment for segment in segments or () if segment.free and not segment.returnable]
    blocks = [block.nbytes for segment in held for block in segment.blocks if block.state == "free"]
    others = [process for process in (device.processes if device else None) or () if not process.own]
    wasted = sum(segment.free for segment in held)
    whole = sum(segment.free for segment in segments or () if segment.returnable)
    return Place(
        device=name,
        allocated=allocator.allocated,
        reserved=allocator.reserved,
        cached=whole if segments is not None else allocator.cached,
        fragments=tuple(sorted((segment.free for segment in held), reverse=True)),
        largest=max(blocks, default=0),
        pins=_pins(seen, held) if is_watched(name, watched) and wasted * 5 >= (allocator.reserved or 0) else (),
        total=device.total if device is not None and device.total else framework.hints.device_total(name),
        used=device.used if device is not None else None,
        others=tuple((process.pid, process.used) for process in others),
        bfloat16=framework.hints.bfloat16(name),
    )


def _pins(seen: Look, segments: Sequence[Segment]) -> tuple[str, ...]:
    """Paths of what lies in some segments, that with most free bytes around it first."""
    free = {block.address: segment.free for segment in segments for block in segment.blocks if block.state != "free"}
    starts = sorted(free)
    ends = {block.address: block.address + block.nbytes for segment in segments for block in segment.blocks}
    found = []
    for stored in seen.stored if starts else ():
        pointer = stored.pointer
        at = bisect_right(starts, pointer) - 1 if pointer is not None else -1
        if at >= 0 and pointer is not None and pointer < ends[starts[at]] and seen.best(stored) is not None:
            found.append((free[starts[at]], seen.holder(stored).path))
    return tuple(path for _, path in sorted(found, reverse=True)[:_MOST_PINS])
