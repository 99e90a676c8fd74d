"""Records on the screen: the renderers, registered with a shell's formatters and taken back."""
from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

from jupyter_gpumem import session
from jupyter_gpumem.units import shown

_RECORDS = tuple(
    (f"jupyter_gpumem.model.{module}", record)
    for module, records in {
        "account": ("Account",),
        "advice": ("Advice", "Checkup"),
        "forecast": ("Forecast",),
        "cleaning": ("CellUse", "Notice", "Plan", "Report"),
        "growth": ("Graph", "Growth", "Leaks", "Timeline"),
        "holdings": ("ObjectUse", "Snapshot", "Why"),
        "oom": ("DeviceFault", "Diagnosis"),
        "parking": ("Parking",),
    }.items()
    for record in records
)
"""Module and class of each record that has a picture."""
_SILENT = 1.0
_EVERY = 0.25
"""Seconds before a progress line appears, and between two states of it."""
_BAR = 30


def show(record: object) -> None:
    """Display a record below the cell; it becomes no output of the cell's."""
    from IPython.display import display

    if getattr(record, "brief", False):
        # one line after every cell: asking each of the shell's formatters would cost more than measuring the cell
        display({"text/plain": _picture("text").render(record)}, raw=True)
    else:
        display(record)


def show_dangling(snapshot: object) -> None:
    """Display only what dangles in a snapshot."""
    bundle = {
        "text/plain": _picture("text").render_dangling(snapshot),
        "text/html": _picture("html").render_dangling(snapshot),
    }
    show_bundle(bundle)


def show_bundle(bundle: dict[str, Any]) -> None:
    """Display what has been rendered, by MIME type."""
    from IPython.display import display

    display(bundle, raw=True)


def progress(verb: str, clock: Callable[[], float] = time.monotonic) -> Callable[[int, int], None]:
    """What shows the bytes done of the bytes in all, in one line: after a second, at most four times a second."""
    begun = told = clock()
    handle: Any = None

    def tell(done: int, total: int) -> None:
        nonlocal handle, told
        now = clock()
        if now - begun < _SILENT or (now - told < _EVERY and done < total) or (done >= total and handle is None):
            return
        told = now
        bar = "█" * round(_BAR * done / total)
        line = {"text/plain": f"{verb} [{bar:{_BAR}}] {shown(done)} of {shown(total)}"}
        if handle is None:
            from IPython.display import display

            handle = display(line, raw=True, display_id=True)
        else:
            handle.update(line, raw=True)

    return tell


def register(shell: session.Shell) -> None:
    """Let the shell show our records as text and as HTML. By name: no record's class is made before it is needed."""
    formatters = shell.display_formatter.formatters
    for module, record in _RECORDS:
        formatters["text/plain"].for_type_by_name(module, record, _plain)
        formatters["text/html"].for_type_by_name(module, record, _html)


def unregister(shell: session.Shell) -> None:
    """Take that back, whether the formatter has met the class by now or not."""
    for mime in ("text/plain", "text/html"):
        formatter = shell.display_formatter.formatters[mime]
        for module, record in _RECORDS:
            formatter.pop(f"{module}.{record}", None)


def _plain(record: object, printer: Any, cycle: bool) -> None:
    printer.text(_picture("text").render(record))


def _html(record: object) -> str:
    found: str = _picture("html").render(record)
    return found


def _picture(kind: str) -> Any:
    return import_module(f"jupyter_gpumem.pictures.{kind}")
