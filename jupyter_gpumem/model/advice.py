"""What could take less memory, as the session shows it now."""
from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Advice:
    """One thing that could be done, why, and what it would give."""

    rule: str
    """A word for the rule that fired: ``zero gradients``."""
    title: str
    evidence: tuple[str, ...]
    """What was seen, a sentence each, with its figures."""
    arithmetic: str
    """How the expected bytes follow from that; empty where none are promised."""
    expected: int | None
    """Bytes; None where they cannot be told beforehand."""
    code: str
    """The line that does it."""
    names: tuple[str, ...] = ()
    """The names of the user's that it is about."""
    device: str = ""
    """Where the bytes would come back: ``cuda:0``, ``cpu``."""


@dataclass(frozen=True)
class Checkup:
    """What the rules found, largest expected gain first; empty if there is nothing to advise."""

    watched: tuple[str, ...]
    found: tuple[Advice, ...]
    looked_at: tuple[str, ...]
    """What was looked at, a phrase each: ``2 models``, ``no optimizer``."""
    notes: tuple[str, ...] = ()
    partial: bool = False
    """A search ran out of time, or a graph was too large: some evidence is missing."""
