"""Lines of code as a person finds them: by cell and line, or by file and line."""
from __future__ import annotations

import linecache
from collections.abc import Iterable
from pathlib import PurePath

from jupyter_gpumem import frameworks, session
from jupyter_gpumem.frameworks.records import Frame
from jupyter_gpumem.model import Allocator

_MOST = 60
"""Letters of a line of code."""


def place(shell: session.Shell | None, frame: Frame) -> str:
    """``cell [12], line 3`` or ``train.py:10 in step()``."""
    cell = session.cell_of_file(shell, frame.filename)
    if cell is not None:
        return f"cell [{cell}], line {frame.line}"
    name = PurePath(frame.filename).name
    where = "" if frame.function in ("", "<module>") else f" in {frame.function}()"
    return f"{name}:{frame.line}{where}"


def with_code(shell: session.Shell | None, frame: Frame) -> str:
    """``cell [12], line 3: y = model(x)``; without the code where nobody has it."""
    code = " ".join(linecache.getline(frame.filename, frame.line).split())
    code = code if len(code) <= _MOST else f"{code[: _MOST - 1]}…"
    return place(shell, frame) + (f": {code}" if code else "")


def peak_line(shell: session.Shell | None, allocators: Iterable[Allocator], since: float) -> str | None:
    """The line that made the highest of some allocators' peaks since a moment (seconds since the epoch); None where
    that is not recorded, or no line of the user's did it.
    """
    highest = max(allocators, key=lambda one: one.peak or 0, default=None)
    if highest is None:
        return None
    for framework in frameworks.loaded():
        frame = framework.peak_site(highest.device, since) if framework.name == highest.framework else None
        if frame is not None:
            return with_code(shell, frame)
    return None
