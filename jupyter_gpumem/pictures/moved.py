"""Blocks of a move to host memory and back. To be imported wherever blocks are made: importing it registers them."""
from __future__ import annotations

from jupyter_gpumem.model import Direction, Moved, Parking
from jupyter_gpumem.pictures.blocks import Block, Heading, Line, blocks, count, pairs, table
from jupyter_gpumem.units import shown

_TITLES = {
    (Direction.PARK, True): "To host memory",
    (Direction.RESTORE, True): "Back on the device",
    (Direction.PARK, False): "Plan (nothing has moved): to host memory",
    (Direction.RESTORE, False): "Plan (nothing has moved): back to the device",
}


@blocks.register
def _parking(parking: Parking) -> list[Block]:
    found: list[Block] = [Heading(_TITLES[parking.direction, parking.done], shown(parking.nbytes))]
    if parking.moved:
        rows = [(moved.name, moved.device, _what(moved), shown(moved.nbytes)) for moved in parking.moved]
        sizes = [moved.nbytes for moved in parking.moved]
        found.append(table(("name", "device", "what", "size"), rows, {3}, sizes))
    found += [Line(change) for change in _figures(parking)]
    found += [Line(f"in the way: {obstacle}", warn=True) for obstacle in parking.obstacles]
    found += [Line(note) for note in parking.notes]
    if parking.done and parking.direction is Direction.PARK:
        names = " ".join(dict.fromkeys(moved.name for moved in parking.moved))
        found.append(Line("every reference stays valid; to bring it back:", f"%gpurestore {names}"))
    return found


def _what(moved: Moved) -> str:
    return f"{count(moved.storages, 'storage')}, {count(moved.tensors, 'tensor')}"


def _figures(parking: Parking) -> list[str]:
    """``cuda:0: allocated 1.2 GiB → 3.0 MiB, reserved 1.3 GiB → 20.0 MiB``."""
    return [
        f"{new.device}: allocated {shown(old.allocated)} → {shown(new.allocated)}, "
        f"reserved {shown(old.reserved)} → {shown(new.reserved)}"
        for old, new in pairs(parking.before, parking.after)
        if old is not None and new is not None
    ]
