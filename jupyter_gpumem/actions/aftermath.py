"""After a cell has failed: why there was no memory, and what only the error holds given back at once.

The traceback has been shown by then and stays on the screen. The verdict comes first: it looks at what the frames of
the failed cell still hold.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from jupyter_gpumem import session
from jupyter_gpumem.actions import cleaning
from jupyter_gpumem.actions.planning import Request
from jupyter_gpumem.analysis.verdict import diagnosis
from jupyter_gpumem.model import Allocator, Baseline, CellUse, Device, DeviceFault, Notice, OutOfMemory
from jupyter_gpumem.units import shown


def remember(
    shell: session.Shell | None, watched: Sequence[str], cells: Sequence[CellUse], devices: Sequence[Device]
) -> Baseline:
    """What a verdict will want to know of the moment before a cell; ``devices`` as they were last read."""
    return replace(diagnosis.baseline(shell, watched, cells), devices=tuple(devices))


def tell_why(
    shell: session.Shell | None, error: BaseException, before: Baseline | None, show: Callable[[object], object]
) -> OutOfMemory | DeviceFault | None:
    """Show why a cell failed, if it is a matter of device memory; and return what its error says."""
    said = diagnosis.read(error)
    if isinstance(said, OutOfMemory):
        show(diagnosis.judge(shell, said, error, before))
    elif said is not None:
        show(said)
    return said


def give_back(
    shell: session.Shell | None, watched: Sequence[str], running: Any, show: Callable[[object], object]
) -> int:
    """Free what only the last error holds, and say so in a line if it was anything. Returns the bytes.

    ``running`` is the ``ExecutionResult`` of the cell that has failed: its error still says that it did.
    """
    report = cleaning.free(shell, Request(tuple(watched), error_only=True), running)
    for fault in report.faults:
        show(Notice(f"jupyter_gpumem: {fault}", fault=True))
    driver = _reserved(report.before) - _reserved(report.after)
    if report.freed or driver > 0:
        to_driver = f", {shown(driver)} to the driver" if driver > 0 else ""
        how = "its frames are cleared, so %debug cannot enter them"
        show(Notice(f"gpumem: {shown(report.freed)} that only the error held given back{to_driver}; {how}"))
    return report.freed


def _reserved(allocators: Sequence[Allocator]) -> int:
    return sum(allocator.reserved or 0 for allocator in allocators)
