"""What emptying the cache gives back to the driver: whole segments, of which nothing is in use any more."""
from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from jupyter_gpumem import frameworks
from jupyter_gpumem.analysis.inventory import Stored
from jupyter_gpumem.analysis.snapshot import HOST, allocators
from jupyter_gpumem.model import Action, Segment, Step


def empty_actions(watched: Sequence[str], promised: Sequence[Stored]) -> list[Action]:
    """The last step of a clean-up, with its bytes once ``promised`` is freed: exact where the allocator lists its
    segments, otherwise the most that it can be. None where nothing is reserved.
    """
    pools = [one for one in allocators([device for device in watched if device != HOST]) if one.reserved]
    if not pools:
        return []
    returned = stays = 0
    for pool in pools:
        framework = next(one for one in frameworks.loaded() if one.name == pool.framework)
        mine = [stored for stored in promised if stored.part.device == pool.device and stored.framework is framework]
        segments = framework.segments(pool.device)
        if segments is None:
            returned += (pool.cached or 0) + sum(stored.part.nbytes for stored in mine)
            stays += 1
        else:
            back, rest = given_back(segments, {stored.pointer for stored in mine})
            returned += back
            stays += rest
    note = "cached memory goes back to the driver" + (", but for fragments" if stays else "")
    return [Action(Step.EMPTY, ", ".join(sorted({pool.device for pool in pools})), returned, note)]


def given_back(segments: Iterable[Segment], freed: Collection[int | None]) -> tuple[int, int]:
    """Bytes of the segments that can go once the blocks at some addresses are free, and the free bytes that cannot."""
    back = rest = 0
    for segment in segments:
        blocks = [replace(block, state="free") if block.address in freed else block for block in segment.blocks]
        then = replace(segment, blocks=tuple(blocks))
        if then.returnable:
            back += then.nbytes
        else:
            rest += then.free
    return back, rest
