"""Storages that are to move in place: found under the objects asked for, checked, and moved all or not at all."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from jupyter_gpumem import frameworks, session
from jupyter_gpumem.analysis.holders import tensors_in
from jupyter_gpumem.analysis.inventory import Inventory, Stored, take_inventory
from jupyter_gpumem.analysis.snapshot import HOST
from jupyter_gpumem.errors import InputError
from jupyter_gpumem.frameworks import Framework
from jupyter_gpumem.frameworks.records import Relocated
from jupyter_gpumem.introspect import type_name

Progress = Callable[[int, int], None]
"""Gets the bytes done and the bytes in all."""
Key = tuple[str, int]
"""Framework, address of a storage."""
_Place = tuple[str, int]
"""Device, address of a storage."""
_MOST_OBSTACLES = 4


class Way(NamedTuple):
    """Where a storage is to go."""

    device: str
    """The accelerator, whichever way it goes."""
    target: str
    label: str = ""
    """What it is called if no object that was asked for holds it."""


@dataclass
class Move:
    """A storage to be moved. Live."""

    label: str
    framework: Framework
    way: Way
    nbytes: int
    key: Key
    tensors: list[object]
    strangers: int
    """Tensors on it that the objects asked for do not hold."""


def key_of(stored: Stored) -> Key:
    """What a storage is remembered by."""
    return stored.framework.name, stored.part.address


def moves_of(
    shell: session.Shell | None,
    objects: Mapping[str, object] | None,
    going: Callable[[Stored], Way | None],
) -> tuple[list[Move], tuple[str, ...]]:
    """The storages of the objects (None: of everything) that ``going`` gives a way, and what is in their way.

    With a leaf goes its gradient, wherever it lies: the two must be on one device.
    """
    with take_inventory() as inventory:
        labels, inside = _asked(shell, inventory, objects)
        found = _on_their_way(inventory, labels if objects is not None else None, going)
        moves = [
            Move(
                way.label,
                inventory.storages[place].framework,
                way,
                inventory.storages[place].part.nbytes,
                key_of(inventory.storages[place]),
                list(inventory.storages[place].tensors),
                sum(id(tensor) not in inside for tensor in inventory.storages[place].tensors) if inside else 0,
            )
            for place, way in found.items()
        ]
        hollow = _hollow(inside)
        everything = [tensor for tensor in inventory.tensors.values() if not _is_bare(tensor)]
        inside.clear()
    obstacles = _obstacles(moves, hollow, everything)
    everything.clear()
    hollow.clear()
    return moves, obstacles


def _on_their_way(
    inventory: Inventory, asked: Mapping[_Place, str] | None, going: Callable[[Stored], Way | None]
) -> dict[_Place, Way]:
    found = {
        place: way
        for place, stored in list(inventory.storages.items())
        if (asked is None or place in asked) and (way := going(stored)) is not None
    }
    found |= {place: way._replace(label=asked[place]) for place, way in found.items() if asked is not None}
    todo = list(found)
    while todo:  # the gradients of all tensors that move, also of those that nobody asked for
        place = todo.pop()
        framework = inventory.storages[place].framework
        for tensor in list(inventory.storages[place].tensors):
            for grad in framework.referents(tensor):
                inventory.add(framework, grad)
                for part in framework.parts(grad):
                    beside = (part.device, part.address)
                    if beside not in found and part.device != found[place].target:
                        found[beside] = found[place]
                        todo.append(beside)
    return found


def _is_bare(tensor: object) -> bool:
    """A storage's own object: to keep it in a list would make it look held."""
    return any(f.kind(type(tensor)) == "tensor" and f.is_bare(tensor) for f in frameworks.loaded())


def _asked(
    shell: session.Shell | None, inventory: Inventory, objects: Mapping[str, object] | None
) -> tuple[dict[_Place, str], dict[int, object]]:
    """Which storages the objects hold, under whose label, and the tensors by which they do."""
    labels: dict[_Place, str] = {}
    inside: dict[int, object] = {}
    for label, value in (objects or {}).items():
        for tensor in tensors_in(value, session.internals(shell)).values():
            inside.setdefault(id(tensor), tensor)
            for framework in frameworks.loaded():
                if framework.kind(type(tensor)) == "tensor":
                    inventory.add(framework, tensor)
                    for part in framework.parts(tensor):
                        labels.setdefault((part.device, part.address), label)
    return labels, inside


def _hollow(inside: Mapping[int, object]) -> list[tuple[Framework, object]]:
    """Tensors of the objects without memory of their own: wrappers, which would still claim their device."""
    return [
        (framework, tensor)
        for tensor in inside.values()
        for framework in frameworks.loaded()
        if framework.kind(type(tensor)) == "tensor" and not framework.parts(tensor)
    ]


def _obstacles(
    moves: Sequence[Move], hollow: Sequence[tuple[Framework, object]], everything: Sequence[object]
) -> tuple[str, ...]:
    found: list[str] = []
    for framework in frameworks.loaded():
        mine = [move for move in moves if move.framework is framework]
        empty = [tensor for owner, tensor in hollow if owner is framework]
        groups = [*(move.tensors for move in mine), *([tensor] for tensor in empty)]
        targets = [*(move.way.target for move in mine), *(HOST for _ in empty)]
        tensors = [tensor for tensor in everything if framework.kind(type(tensor)) == "tensor"]
        reasons = framework.immovable(groups, targets, tensors)
        for index, why in reasons.items():
            what = framework.describe(groups[index][0])
            name = f"{mine[index].label}: " if index < len(mine) else ""
            found.append(f"{name}{what.kind} {list(what.shape)} {what.dtype}: {why}")
    return tuple(found)


def joined(obstacles: Sequence[str]) -> str:
    """Obstacles in one line; of many the first."""
    more = f"; and {len(obstacles) - _MOST_OBSTACLES} more" if len(obstacles) > _MOST_OBSTACLES else ""
    return "; ".join(obstacles[:_MOST_OBSTACLES]) + more


def relocated(moves: Sequence[Move], progress: Progress | None) -> list[Relocated]:
    """Move, all or none. Raises InputError if it fails: then everything is where it was."""
    tell = progress if progress is not None else _quiet
    fault = ""
    found: dict[int, Relocated] = {}
    for framework in frameworks.loaded():
        mine = [move for move in moves if move.framework is framework]
        try:
            done = framework.relocate([move.tensors for move in mine], [move.way.target for move in mine], tell)
        except Exception as error:  # its traceback would keep the tensors: only its words are kept
            fault = f"{type_name(error)}: {str(error).partition('. ')[0]}"
            break
        found |= {id(move): moved for move, moved in zip(mine, done, strict=True)}
    if fault:
        raise InputError(f"nothing was moved, everything is where it was: {fault}")
    return [found[id(move)] for move in moves]


def _quiet(done: int, total: int) -> None:
    """Nobody wants to know."""
