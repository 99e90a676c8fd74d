"""The first line of a wrapped cell, ``%%gpumem`` or ``%%gpufree``: found, checked, and taken away.

IPython calls the transformer more than once a cell (``should_run_async``, completeness checks), so it has no effect
but its result. A line that cannot be right stays in place: then the real magic of that name is called, says what is
wrong, and nothing has run.
"""
from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Sequence
from importlib import import_module

from jupyter_gpumem import session
from jupyter_gpumem.actions.watcher import Directive
from jupyter_gpumem.analysis.snapshot import watched_devices
from jupyter_gpumem.errors import InputError
from jupyter_gpumem.faces import grammar

_DIRECTIVE = re.compile(r"%%(gpumem|gpufree)(?:[ \t]+(.*?))?[ \t]*\r?\n?")
_MAGIC = re.compile(r"%%\w")
_RETRIES = 3
"""For a cell that names what to halve, and no number of retries."""
_HIDDEN_NAMES = {"exec", "eval", "globals", "locals", "vars", "get_ipython", "setattr"}
"""Functions by which a cell may make names that its text does not show."""


def without_directive(shell: session.Shell, lines: list[str]) -> list[str]:
    """The lines of a cell as Python or the next magic is to see them."""
    at = _first_line(lines)
    match = _DIRECTIVE.fullmatch(lines[at]) if at is not None else None
    if at is None or match is None:
        return lines
    body = lines[at + 1 :]
    following = _first_line(body)
    if following is None:
        return lines
    try:
        check(shell, match[1], match[2] or "", "".join(body))
    except InputError:
        return lines
    if _MAGIC.match(body[following]):
        return body[following:]
    # a comment in its place keeps the line numbers; with the indent of the code, which IPython takes away
    indent = body[following][: len(body[following]) - len(body[following].lstrip(" \t"))]
    return [*lines[:at], f"{indent}# {lines[at].strip()}\n", *body]


def _first_line(lines: Sequence[str]) -> int | None:
    """The index of the first line that is not blank."""
    return next((index for index, line in enumerate(lines) if line.strip()), None)


def find(raw: str) -> tuple[str, str, int, str] | None:
    """The directive of a cell: its word, its options, how many other cell magics stand above it, the text below."""
    above = 0
    lines = raw.splitlines(keepends=True)
    for index, line in enumerate(lines):
        if not line.strip():
            continue
        match = _DIRECTIVE.fullmatch(line)
        if match is not None:
            return match[1], match[2] or "", above, "".join(lines[index + 1 :])
        if not _MAGIC.match(line):
            return None
        above += 1
    return None


def read(shell: session.Shell, raw: str, keep: Sequence[str] = ()) -> tuple[Directive | None, int]:
    """The directive of a raw cell, and how many other cell magics stand above it; None where it has none that is
    right: what is wrong with it, the real magic says.
    """
    found = find(raw)
    if found is None:
        return None, 0
    word, options, above, body = found
    try:
        directive = check(shell, word, options, body)
    except InputError:
        return None, 0
    if not body.strip():
        return None, 0
    known = tuple(name for name in keep if name not in directive.keep)
    return Directive(**{**vars(directive), "always_keep": known}), above


def check(shell: session.Shell, word: str, line: str, body: str) -> Directive:
    """The directive that a line spells. Raises InputError if it cannot be right; then nothing may run."""
    options = grammar.CELLS[word]().read(line)
    if options.device is not None:
        watched_devices(options.device)
    if word == "gpumem":
        return Directive(device=options.device, leak=options.leak, keep_traceback=options.keep_traceback)
    _check_kept(shell, "--keep", options.keep, body)
    _check_kept(shell, "--to-host", options.to_host, body)
    if options.retry or options.halve:
        _check_retry(shell, options.halve, body)
    return Directive(
        clean=True,
        keep=options.keep,
        to_host=options.to_host,
        device=options.device,
        dry_run=options.dry_run,
        keep_traceback=options.keep_traceback,
        retry=options.retry or (_RETRIES if options.halve else 0),
        halve=options.halve,
        floor=options.floor,
    )


def _check_retry(shell: session.Shell, halve: Sequence[str], body: str) -> None:
    following = _first_line(body.splitlines())
    if following is not None and _MAGIC.match(body.splitlines()[following]):
        magic = body.splitlines()[following].split()[0]
        raise InputError(f"--retry cannot look into {magic}: put {magic} above %%gpufree")
    import_module("jupyter_gpumem.faces.retrying").check_halved(halve, body, session.user_names(shell))


def _check_kept(shell: session.Shell, flag: str, keep: Sequence[str], body: str) -> None:
    made = _names_made(body)
    if made is None:
        return
    known = set(session.user_names(shell))
    for name in keep:
        if name not in made and name not in known:
            near = difflib.get_close_matches(name, made, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            names = ", ".join(sorted(made)) or "none"
            raise InputError(f"{flag} {name}: the cell makes no such name; it makes: {names}{hint}")


def _names_made(body: str) -> set[str] | None:
    """The names that a cell's text binds at its top level; None if that cannot be read from it."""
    try:
        tree = ast.parse(body, mode="exec", type_comments=False)
    except SyntaxError:
        return None  # magics, top-level await in old versions, or a real error that the cell itself will show
    made: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            made.add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            made.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            if any(alias.name == "*" for alias in node.names):
                return None
            made |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, (ast.MatchAs, ast.MatchStar)) and node.name:
            made.add(node.name)
        elif isinstance(node, ast.Name) and node.id in _HIDDEN_NAMES:
            return None
    return made
