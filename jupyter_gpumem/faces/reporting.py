"""A report as a file: what is known now, on one page that can be sent to others."""
from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from pathlib import Path

from jupyter_gpumem import session
from jupyter_gpumem.analysis import account, snapshot
from jupyter_gpumem.errors import InputError
from jupyter_gpumem.faces.plotting import timeline
from jupyter_gpumem.model import CellUse, Notice
from jupyter_gpumem.pictures.report import MARK, report


def write_report(path: str | os.PathLike[str], device: str | None, cells: Sequence[CellUse]) -> Notice:
    """Write the report to a file, wholly or not at all; an older report there is replaced, any other file is not.

    Raises InputError where the file cannot be written.
    """
    file = _target(path)
    shell = session.current()
    page = report(snapshot.take(shell, device), account.take(shell, device), timeline(cells))
    content = page.encode(errors="backslashreplace")  # a name may hold half a surrogate pair
    part = file.with_name(f".{file.name[:100]}.{uuid.uuid4().hex}")
    try:
        with part.open("xb") as written:
            written.write(content)
        os.replace(part, file)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise InputError(f"the report cannot be written to {str(file)!r}: {error.strerror or error}") from None
    return Notice(f"gpumem: the report is in {file} ({len(content) // 1024 + 1} KiB)")


def _target(path: str | os.PathLike[str]) -> Path:
    """Where to write, links followed. Raises InputError for what is there and is no report, before anything is read."""
    try:
        file = Path(os.path.realpath(Path(path).expanduser()))
        has_folder, is_there, is_file = file.parent.is_dir(), file.exists(), file.is_file()
        size = file.stat().st_size if is_file else 0
        head = _head(file) if is_file else b""
    except (OSError, RuntimeError, ValueError) as error:
        raise InputError(f"the report cannot be written to {str(path)!r}: {error}") from None
    if not has_folder:
        raise InputError(f"there is no folder {str(file.parent)!r} to write {str(path)!r} to")
    if is_there and not is_file:
        raise InputError(f"{str(path)!r} is no file; give the name of a file, as report.html")
    if size and MARK.encode() not in head:
        raise InputError(f"{str(path)!r} is there and is no report of ours: it stays; give another name, or delete it")
    return file


def _head(file: Path) -> bytes:
    with file.open("rb") as there:
        return there.read(1024)
