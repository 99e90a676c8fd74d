"""The state of every global random generator: taken, and put back.

What is done behind the user's back, or done again, must not change the numbers that the session would have drawn.
Generators that the user made are the user's: ``random.Random()``, ``torch.Generator()`` and their like.
"""
from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jupyter_gpumem import frameworks


@dataclass(frozen=True, eq=False)  # arrays of numpy have no single answer to ==
class State:
    """The global generators at one moment."""

    python: tuple[Any, ...] = field(repr=False)
    """``random.getstate()``."""
    numpy: Mapping[str, Any] | None = field(repr=False)
    """``numpy.random.get_state()``; None where it was not imported."""
    frameworks: Mapping[str, Mapping[str, bytes]] = field(repr=False)
    """Framework → device → the state of its default generator."""

    def restore(self) -> None:
        """Put them back. What was first imported or first used since then begins anew from its seed; numpy's global
        generator has none then, it was seeded by the system.
        """
        random.setstate(self.python)
        numpy = _numpy_random()
        if numpy is not None and self.numpy is not None:
            numpy.set_state(self.numpy)
        for framework in frameworks.loaded():
            framework.restore_random(self.frameworks.get(framework.name, {}))


def take() -> State:
    """The states now. Nothing is drawn, imported or initialised for it."""
    numpy = _numpy_random()
    return State(
        python=random.getstate(),
        numpy=numpy.get_state(legacy=False) if numpy is not None else None,
        frameworks={framework.name: framework.random_states() for framework in frameworks.loaded()},
    )


def _numpy_random() -> Any:
    """``numpy.random``, which newer versions import only when it is first asked for; None without numpy."""
    return getattr(sys.modules.get("numpy"), "random", None)
