"""The names of the notebook with what each keeps, and what no name keeps: one look for all of it."""
from __future__ import annotations

from collections.abc import Sequence

from jupyter_gpumem import frameworks, session
from jupyter_gpumem.analysis import holders
from jupyter_gpumem.analysis.holders import Look
from jupyter_gpumem.analysis.inventory import Stored
from jupyter_gpumem.analysis.objects import kind_of
from jupyter_gpumem.analysis.snapshot import HOST, allocators
from jupyter_gpumem.introspect import type_name
from jupyter_gpumem.model import Cause, Holding, Names, NameUse


def take(
    shell: session.Shell | None, watched: Sequence[str], seconds: float = 10.0
) -> tuple[Names, dict[str, frameworks.Remembered]]:
    """Each storage once, under the name that keeps it by the shortest path; and framework → these storages, weakly.

    To be called in the thread that runs the cells, between them.
    """
    with holders.look(shell, watched, seconds=seconds) as seen:
        by_name: dict[str, list[Stored]] = {}
        others: list[Holding] = []
        for stored in seen.stored:
            holder = seen.holder(stored)
            if holder.cause is Cause.NAME and holder.name is not None:
                by_name.setdefault(holder.name, []).append(stored)
            else:
                others.append(seen.holding(stored))
        names = [_use(seen, name, stored) for name, stored in by_name.items()]
        host_bytes = sum(stored.part.nbytes for stored in seen.stored if stored.part.device == HOST)
        partial = seen.walk.partial
        by_name.clear()
        tensors = [stored.tensors[0] for stored in seen.stored]
        shown = {framework.name: framework.remember(tensors) for framework in frameworks.loaded()}
        tensors.clear()
    seen_names = Names(
        watched=tuple(watched),
        allocators=allocators(watched, host_bytes),
        names=tuple(sorted(names, key=lambda use: -use.nbytes)),
        others=tuple(sorted(others, key=lambda holding: -holding.nbytes)),
        partial=partial,
    )
    return seen_names, shown


def _use(seen: Look, name: str, stored: list[Stored]) -> NameUse:
    value = session.namespace(seen.shell).get(name)
    known = kind_of(value)
    shape, dtype = None, None
    if known is not None and known[1] == "tensor":
        tensor = known[0].describe(value)
        shape, dtype = tensor.shape, tensor.dtype
    return NameUse(
        name,
        type_name(value),
        sum(one.part.nbytes for one in stored),
        len(stored),
        shape,
        dtype,
        tuple(sorted({one.part.device for one in stored})),
    )
