"""Records on the screen: the renderers, registered with a shell's formatters and taken back."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from IPython.display import display

from jupyter_gpumem import session
from jupyter_gpumem.model import CellUse, Notice, ObjectUse, Plan, Report, Snapshot, Why
from jupyter_gpumem.pictures import html, text


@dataclass(frozen=True)
class Dangling:
    """A snapshot of which only the dangling part is shown."""

    snapshot: Snapshot


_RECORDS = (Snapshot, CellUse, Plan, Report, ObjectUse, Why, Notice)


def show(record: object) -> None:
    """Display a record below the cell; it becomes no output of the cell's."""
    if isinstance(record, Dangling):
        bundle = {
            "text/plain": text.render_dangling(record.snapshot),
            "text/html": html.render_dangling(record.snapshot),
        }
        display(bundle, raw=True)
    else:
        display(record)


def register(shell: session.Shell) -> None:
    """Let the shell show our records as text and as HTML."""
    formatters = shell.display_formatter.formatters
    for record in _RECORDS:
        formatters["text/plain"].for_type(record, _as_plain(text.render))
        formatters["text/html"].for_type(record, html.render)


def unregister(shell: session.Shell) -> None:
    """Take that back."""
    formatters = shell.display_formatter.formatters
    for record in _RECORDS:
        formatters["text/plain"].pop(record, None)
        formatters["text/html"].pop(record, None)


def _as_plain(render: Callable[[Any], str]) -> Callable[[Any, Any, bool], None]:
    def plain(record: Any, printer: Any, cycle: bool) -> None:
        printer.text(render(record))

    return plain
