"""What has grown until memory ran out: over rounds, over the cells that were watched, or entry by entry."""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from jupyter_gpumem.analysis import growth
from jupyter_gpumem.analysis.growth import PROOF, Mark
from jupyter_gpumem.analysis.verdict.shortage import Held, Shortage
from jupyter_gpumem.model import Baseline, Cause, Verdict
from jupyter_gpumem.units import shown


class Accrued(NamedTuple):
    """What has grown."""

    path: str
    nbytes: int
    saved: bool
    words: str


def accrued(found: Shortage, before: Baseline | None, marks: Sequence[Mark]) -> Accrued | None:
    """What grew: by looks after rounds, by the cells that were watched, by entries that keep their graphs."""
    if len(marks) > PROOF:
        for trend in growth.trends(marks):
            if trend.verdict is Verdict.LEAK and not trend.cause.dangling:
                grown = trend.sizes[-1] - trend.sizes[0]
                saved = "→ graph" in trend.path
                words = f"{trend.path} grew in each of {len(marks) - 1} rounds, by {shown(grown)}"
                return Accrued(trend.path, grown, saved, words)
    containers = _containers(found.held)
    grown, rounds, names = _cells(found.device, before)
    for path, held in sorted(containers.items(), key=lambda item: -sum(one.nbytes for one in item[1])):
        nbytes = sum(one.nbytes for one in held)
        saved = any(one.saved for one in held)
        name = held[0].name
        if grown and name not in names:
            nbytes = min(nbytes, grown)
            words = f"{path} grew over the last {rounds} cells, and holds {shown(sum(one.nbytes for one in held))}"
            return Accrued(path, nbytes, saved, words)
        if saved and len({one.path for one in held}) >= PROOF:
            entries = len({one.path for one in held})
            return Accrued(path, nbytes, True, f"{path} keeps {entries} graphs, {shown(nbytes)}")
    if grown and names:
        name = next(iter(names))
        saved = any(one.saved for one in found.held if one.name == name)
        return Accrued(name, grown, saved, f"{name} grew over the last {rounds} cells, by {shown(grown)}")
    return None


def _containers(held: Iterable[Held]) -> dict[str, list[Held]]:
    """Pattern of entries → their storages, for what a name keeps in three entries or more."""
    found: dict[str, list[Held]] = {}
    for one in held:
        if one.cause is Cause.NAME and "[·]" in one.pattern and not one.parameter:
            found.setdefault(one.pattern, []).append(one)
    return {path: held for path, held in found.items() if len(held) >= PROOF}


def _cells(device: str | None, before: Baseline | None) -> tuple[int, int, dict[str, int]]:
    """Growth over the last cells that no new name explains, in how many cells, and names that were bound larger each
    time.
    """
    cells = before.cells if before is not None else ()
    made: dict[str, list[int]] = {}
    grown: list[int] = []
    for cell in cells:
        then = sum(a.allocated for a in cell.before if a.device == device)
        now = sum(a.allocated for a in cell.after if a.device == device)
        new = 0
        for use in cell.made:
            new += use.nbytes if use.name not in made else 0
            made.setdefault(use.name, []).append(use.nbytes)
        if now - then < 0 and grown:
            grown.clear()
        elif now - then > new:
            grown.append(now - then - new)
    larger = {
        name: sizes[-1] - sizes[0]
        for name, sizes in made.items()
        if len(sizes) > PROOF and all(b > a for a, b in pairwise(sizes))
    }
    return (sum(grown), len(grown), larger) if len(grown) >= PROOF else (0, 0, {})
