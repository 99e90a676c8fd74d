"""What a leak case is: a small notebook that leaves device memory held, with the truth about each block."""
from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

import IPython


@dataclass(frozen=True)
class Case:
    """A notebook re-told from a public report.

    Its cells use ``block(tag, mib=1)`` (a new float32 tensor on ``DEVICE``) and ``tag_tensor(tag, tensor)``.
    """

    name: str
    source: str
    """The report: ``owner/repository#number``, an address, or that it is a common pattern."""
    story: str
    """What the user saw, and why it is so."""
    cells: tuple[str, ...]
    raises: Mapping[int, str] = field(default_factory=dict)
    """Number of a cell, from 0 → the error that it must end with."""
    freed: frozenset[str] = frozenset()
    """Blocks that ``%gpufree`` must give back."""
    kept: frozenset[str] = frozenset()
    """Blocks that a name, a registry or running code holds: they must survive."""
    optional: frozenset[str] = frozenset()
    """Blocks in a cycle through C++ that no collector can free: to be named; freeing them is a bonus."""
    holders: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Block → words of its true holder, which the first line of ``why`` must contain."""
    needs: str = ""
    """``cpu``: not on an accelerator. ``python3.11``, ``ipython9``: not before, whose ``%%time`` swallowed errors."""

    def fits(self, device: str) -> bool:
        """Whether it can be told on a device with this Python and IPython."""
        return {
            "cpu": device == "cpu",
            "python3.11": sys.version_info >= (3, 11),
            "ipython9": IPython.version_info >= (9,),
        }.get(self.needs, True)
