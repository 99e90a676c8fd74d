"""Samples for the pages that watch, taken and pushed beside a running cell.

A page holds a lease, which it renews while its panel is visible. Without a lease there is no thread, no message, and
NVML is closed: a server keeps messages that no page fetches, and takes a kernel that talks for one in use.
"""
from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from jupyter_gpumem.faces import wire

if TYPE_CHECKING:
    from jupyter_gpumem.model import CellRun

_MOST_PAGES = 32
_PATIENCE, _SLOW = 600.0, 30.0
"""Seconds. A page that can only be heard between cells is waited for this long, and then served at this interval."""
_log = logging.getLogger(__name__)


class _Lease(NamedTuple):
    interval: float
    """Seconds."""
    until: float
    renewable: bool
    """Whether the page can renew it while a cell runs."""


class _Run:
    """A cell between its two events. Written by the thread that runs cells."""

    def __init__(self, info: Any, count: int | None) -> None:
        self.info = info
        self.count = count
        self.begun = time.time()
        self.windows: list[Any] = []
        self.before: dict[str, int] = {}

    def record(self, count: int | None, **more: Any) -> CellRun:
        made: CellRun = import_module("jupyter_gpumem.model").CellRun(
            count, getattr(self.info, "cell_id", None), self.begun, **more
        )
        return made


class Live:
    """Leases, running cells, and the thread that takes samples.

    ``_lock`` guards the leases and the thread's coming and going: they are used by the control thread, by the thread
    that runs cells and by the sampling thread. The stack of cells belongs to the thread that runs them; the sampling
    thread only reads its first entry.
    """

    def __init__(self, send: Callable[[Mapping[str, Any]], None]) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._leases: dict[str, _Lease] = {}
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()
        self._runs: list[_Run] = []
        self._pid = os.getpid()
        self._fault: str | None = None

    # -------------------------------------------------------- pages
    def watch(self, page: str, interval: int, lease: int, renewable: bool) -> dict[str, int]:
        """Grant or renew a page's lease: milliseconds, seconds."""
        if os.getpid() != self._pid:
            return {"interval": interval, "lease": 0}  # a fork of the kernel serves no page
        with self._lock:
            self._leases.pop(page, None)
            while len(self._leases) >= _MOST_PAGES:
                del self._leases[next(iter(self._leases))]
            is_due = all(interval / 1000 < other.interval for other in self._leases.values())
            self._leases[page] = _Lease(interval / 1000, time.monotonic() + lease, renewable)
            if self._thread is None:
                self._thread = threading.Thread(target=self._push_all, name="jupyter_gpumem-live", daemon=True)
                self._thread.start()
            elif is_due:
                self._wake.set()
        return {"interval": interval, "lease": lease}

    def unwatch(self, page: str) -> dict[str, int]:
        """Give a lease back; the last one ends the thread at once."""
        with self._lock:
            self._leases.pop(page, None)
            left = len(self._leases)
            if not left:
                self._wake.set()
        return {"watching": left}

    def sample(self) -> Mapping[str, Any]:
        """One sample for somebody who holds no lease."""
        return self._taken(0)

    def nudge(self) -> None:
        """Something has changed: the next sample is due now."""
        self._wake.set()

    def stop(self) -> None:
        """End all leases and wait for the thread."""
        with self._lock:
            self._leases.clear()
            self._wake.set()
            thread = self._thread
        if thread is not None:
            thread.join(5)

    @property
    def watched(self) -> bool:
        """Whether any page holds a lease."""
        return bool(self._leases)

    # -------------------------------------------------------- cells
    @property
    def running(self) -> bool:
        """Whether a cell runs, as far as its events tell."""
        return bool(self._runs)

    def begin(self, info: Any, count: int | None) -> None:
        """``pre_run_cell``. ``count`` is the cell's, if it is counted."""
        run = _Run(info, count)
        self._runs.append(run)
        if self._leases:
            try:
                frameworks = import_module("jupyter_gpumem.frameworks").loaded()
                run.before = _allocated(frameworks)
                run.windows = [framework.open_window() for framework in frameworks]
            except Exception as error:  # the cell is not ours to disturb
                self._tell(f"{type(error).__name__}: {error}")

    def end(self, info: Any, count: int | None, failed: bool) -> None:
        """``post_run_cell``. ``count`` is the cell's."""
        if not any(run.info is info for run in self._runs):
            return
        run = self._runs.pop()
        while run.info is not info:  # it never got its second event
            _peaks(run)
            run = self._runs.pop()
        try:
            peaks = _peaks(run)
            if self._leases and not self._runs:
                now = _allocated(import_module("jupyter_gpumem.frameworks").loaded())
                stayed = {device: nbytes - run.before.get(device, 0) for device, nbytes in now.items()}
                self._send(wire.cell(run.record(count, ended=time.time(), failed=failed, peaks=peaks, stayed=stayed)))
                self.nudge()
        except Exception as error:
            self._tell(f"{type(error).__name__}: {error}")

    # -------------------------------------------------------- the thread
    def _push_all(self) -> None:
        devices = import_module("jupyter_gpumem.devices")
        devices.keep_open(True)
        due = time.monotonic()
        while True:
            self._wake.clear()
            with self._lock:
                interval = self._interval(time.monotonic())
                if interval is None:
                    self._thread = None
                    devices.keep_open(False)
                    return
            self._push(interval)
            due = max(due + interval, time.monotonic())
            if self._wake.wait(max(0.0, due - time.monotonic())):
                due = time.monotonic()

    def _interval(self, now: float) -> float | None:
        """The shortest interval of the leases that hold, seconds; None without a lease."""
        wanted = []
        for page, lease in list(self._leases.items()):
            late = now - lease.until
            if late <= 0:
                wanted.append(lease.interval)
            elif self._runs and not lease.renewable:
                wanted.append(lease.interval if late < _PATIENCE else _SLOW)
            else:
                del self._leases[page]
        return min(wanted, default=None)

    def _push(self, interval: float) -> None:
        try:
            self._send(self._taken(round(interval * 1000)))
            self._fault = None
        except Exception as error:  # the thread goes on: the next sample may be good
            self._tell(f"{type(error).__name__}: {error}")

    def _taken(self, interval: int) -> Mapping[str, Any]:
        first = self._runs[:1]
        running = first[0].record(first[0].count) if first else None
        return wire.sample(import_module("jupyter_gpumem.analysis.sample").take(running), interval)

    def _tell(self, text: str) -> None:
        """Each fault once: to the page, or if it cannot be reached to the log."""
        if text == self._fault:
            return
        self._fault = text
        try:
            self._send(wire.fault(text))
        except Exception:
            _log.warning("jupyter_gpumem: no sample can be sent: %s", text)


def _allocated(frameworks: list[Any]) -> dict[str, int]:
    return {a.device: a.allocated for framework in frameworks for a in framework.allocators()}


def _peaks(run: _Run) -> dict[str, int]:
    peaks: dict[str, int] = {}
    for window in run.windows:
        peaks |= window.close()
    return peaks
