"""The frameworks' own recording of their allocations: on, off, to a file."""
from __future__ import annotations

from pathlib import Path

from jupyter_gpumem import frameworks
from jupyter_gpumem.errors import InputError
from jupyter_gpumem.frameworks import Framework
from jupyter_gpumem.model import Notice

_VIEWER = "https://pytorch.org/memory_viz"


def record(what: str) -> Notice:
    """``on``, ``off``, or the name of a file to which the recording so far is written.

    Raises InputError if no framework that records is imported or its device is not in use yet, and for a file that
    cannot be written. Nothing is initialised for it.
    """
    framework = _recording_framework()
    if what == "on":
        framework.record()
        return Notice("gpumem: allocations are recorded; %gpumem --record FILE.pickle writes them")
    if what == "off":
        framework.end_record()
        return Notice("gpumem: the recording has ended and is forgotten")
    folder = Path(what).expanduser().parent
    if not folder.is_dir():
        raise InputError(f"there is no folder {str(folder)!r} to write {what!r} to")
    path = str(Path(what).expanduser())
    framework.write_record(path)
    return Notice(f"gpumem: written to {path}; open it at {_VIEWER}")


def _recording_framework() -> Framework:
    loaded = frameworks.loaded()
    if not loaded:
        raise InputError("no framework is imported that could record its allocations")
    return loaded[0]
