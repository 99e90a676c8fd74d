"""Completion of flags and names behind the magics."""
from __future__ import annotations

from typing import Any

from jupyter_gpumem import session
from jupyter_gpumem.faces import grammar

_KEYS = ("%gpumem", "%%gpumem", "%gpufree", "%%gpufree", "%gpurestore")


def complete(shell: session.Shell, event: Any) -> list[str]:
    """What may follow: flags behind a dash, else names of the notebook."""
    word = event.command.lstrip("%")
    parsers = grammar.CELLS if event.command.startswith("%%") else grammar.LINES
    flags = parsers[word]().flags()
    symbol = event.symbol or ""
    before = event.line[: len(event.line) - len(symbol)] if symbol else event.line
    if symbol.startswith("-") or before.endswith("-"):
        return flags
    names = list(session.user_names(shell))
    if event.command == "%%gpufree":
        takes_names = before.rstrip().endswith(("--keep", "--to-host")) or "," in before
        return [*flags, *names] if takes_names else flags
    return [*names, *flags]


def register(shell: session.Shell) -> None:
    """Hook into the shell's completer."""
    for key in _KEYS:
        shell.set_hook("complete_command", complete, str_key=key)


def unregister(shell: session.Shell) -> None:
    """Take the hooks out; IPython has no function for it."""
    table = shell.strdispatchers.get("complete_command")
    for key in _KEYS:
        if table is not None:
            table.strs.pop(key, None)
