"""What a clean-up would do, and what was done."""
from __future__ import annotations

import enum
from dataclasses import dataclass, field

from jupyter_gpumem.model.holdings import Holding, NameUse
from jupyter_gpumem.model.machine import Allocator


class Step(enum.Enum):
    """The kinds of clean-up action."""

    NAME = "delete name"
    MOVE = "move to host"
    LAST_ERROR = "forget last error"
    OUTPUT = "forget output"
    HIDDEN = "forget namespace"
    COLLECT = "collect cycles"
    CACHE = "clear cache"
    EMPTY = "empty cache"


@dataclass(frozen=True)
class Action:
    """One step of a clean-up, as it can be shown before it is done."""

    step: Step
    target: str
    """What it is done to: a name, ``Out[3]``, ``ValueError in train()``."""
    nbytes: int | None
    """Bytes that it should give back; None if that cannot be known beforehand."""
    note: str = ""


@dataclass(frozen=True)
class Plan:
    """What a clean-up would do, in order. Nothing has been done."""

    actions: tuple[Action, ...]
    watched: tuple[str, ...]
    held: tuple[Holding, ...] = ()
    """What was asked for and would stay, with who holds it."""
    notes: tuple[str, ...] = ()

    @property
    def promised(self) -> int:
        """Bytes that the actions should give back to the frameworks' allocators."""
        return sum(a.nbytes or 0 for a in self.actions if a.step is not Step.EMPTY)


@dataclass(frozen=True)
class Report:
    """What a clean-up did."""

    plan: Plan
    done: tuple[Action, ...]
    freed: int
    """Bytes of storages that are really gone."""
    before: tuple[Allocator, ...]
    after: tuple[Allocator, ...]
    left: tuple[Holding, ...] = ()
    """Storages that were to go and are still there, with who holds them; then what still dangles."""
    faults: tuple[str, ...] = ()
    """What went wrong in our own code, a line each."""


@dataclass(frozen=True)
class CellUse:
    """What one cell, or one ``watch()`` block, did to the watched devices."""

    title: str
    """``cell [7]`` or the name given to ``watch()``."""
    before: tuple[Allocator, ...]
    after: tuple[Allocator, ...]
    """``peak`` is the highest use inside the window."""
    made: tuple[NameUse, ...] = ()
    """Names that hold more than before, largest first."""
    plan: Plan | None = None
    """For a dry run: what a clean-up would have done."""
    report: Report | None = None
    """For ``%%gpufree``."""
    failed: bool = False
    """The cell raised."""
    notes: tuple[str, ...] = ()
    brief: bool = field(default=False, compare=False)
    """Shown as one line: ``%gpumem on``."""
    ended: float = field(default=0.0, compare=False)
    """Seconds since the epoch."""
    peak_line: str | None = None
    """The line that made the peak, where the allocator's history is recorded."""


@dataclass(frozen=True)
class Notice:
    """A line for the user below a cell."""

    text: str
    fault: bool = False
    """Something of ours went wrong."""


@dataclass(frozen=True)
class Freed:
    """Stands in ``Out`` for a value that a clean-up has freed, so that ``Out[n]`` explains itself."""

    kind: str
    nbytes: int
    when: str
    """Local time, ``14:03:22``."""
    shape: tuple[int, ...] | None = None
    dtype: str | None = None

    def __repr__(self) -> str:
        from jupyter_gpumem.units import shown

        shape = str(self.shape) if self.shape is not None else ""
        what = " ".join(word for word in (self.kind, shape, self.dtype or "") if word)
        return f"<{what}, {shown(self.nbytes)}, freed at {self.when} by gpufree>"
