"""The last verdict of a kernel, for its pages: why a cell failed for want of memory, or of a device.

It stands until somebody dismisses it, the cell that it speaks of goes through, another verdict takes its place, or the
kernel ends. It is pushed when it changes, and a page that comes later gets it with its lease.
"""
from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from jupyter_gpumem.faces import wire
from jupyter_gpumem.faces.live import Live

if TYPE_CHECKING:
    from jupyter_gpumem.model import DeviceFault, Diagnosis

_LONGEST = 2000
"""Characters of a text that may be an error's own; a page takes none that is much longer."""
_log = logging.getLogger(__name__)


class Verdicts:
    """Written by the thread that runs the cells, read and dismissed by the control thread too; hence the lock."""

    def __init__(self, send: Callable[[Mapping[str, Any]], None], live: Live) -> None:
        self._send = send
        self._live = live
        self._lock = threading.Lock()
        self._now: dict[str, Any] | None = None
        self._cell: str | None = None
        self._count = 0

    @property
    def now(self) -> Mapping[str, Any] | None:
        """What stands, as the pages get it."""
        return self._now

    def after(self, result: Any, found: Diagnosis | DeviceFault | None, given_back: int) -> None:
        """``post_run_cell``. ``found`` is why the cell failed, if it is known; ``given_back`` are bytes."""
        cell = getattr(getattr(result, "info", None), "cell_id", None)
        if found is None and (self._now is None or not result.success or cell is None or cell != self._cell):
            return
        try:
            with self._lock:
                self._count += 1
                self._cell = cell
                self._now = None if found is None else _judged(found, self._count, given_back)
            self._tell()
        except Exception as error:  # the cell is not ours to disturb
            _log.warning("jupyter_gpumem: no verdict can be sent: %s: %s", type(error).__name__, error)

    def dismiss(self, id: int) -> bool:
        """Put a verdict away, for all pages; one that has come meanwhile stays."""
        with self._lock:
            if self._now is None or self._now["id"] != id:
                return False
            self._now = None
        self._tell()
        return True

    def _tell(self) -> None:
        if self._live.watched:
            self._send(wire.verdict(self._now))


def _judged(found: DeviceFault | Diagnosis, id: int, given_back: int) -> dict[str, Any]:
    """The lines that stand below the cell."""
    said = _of_fault(found) if found.__class__.__name__ == "DeviceFault" else _of_shortage(found)
    return {"id": id, "given_back": given_back, **{name: _short(value) for name, value in said.items()}}


def _of_fault(found: Any) -> dict[str, Any]:
    what = f"{found.fault.value}: {found.text}"
    return {"kind": "fault", "asked": what, "cause": "", "cure": found.help, "code": "", "dangling": False}


def _of_shortage(found: Any) -> dict[str, Any]:
    dangling: Any = import_module("jupyter_gpumem.model").Reason.DANGLING
    return {
        "kind": "out of memory",
        "asked": import_module("jupyter_gpumem.pictures.diagnosed").asked(found),
        "cause": found.cause,
        "cure": found.cure,
        "code": found.code,
        "dangling": dangling in {found.reason, *(reason for reason, _ in found.contributing)},
    }


def _short(value: Any) -> Any:
    return f"{value[:_LONGEST]}…" if isinstance(value, str) and len(value) > _LONGEST else value
