"""Samples for those who watch, taken and pushed beside a running cell.

A page holds a lease, which it renews while its panel is visible; a viewer in this kernel (a widget) has one that each
cell renews. Without a lease there is no thread, no message, and NVML is closed: a server keeps messages that no page
fetches, and takes a kernel that talks for one in use.
"""
from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from jupyter_gpumem.faces import wire

if TYPE_CHECKING:
    from jupyter_gpumem.model import CellRun, Device, Sample

_MOST_PAGES = 32
_PATIENCE, _SLOW = 600.0, 30.0
"""Seconds. A page that can only be heard between cells is waited for this long, and then served at this interval."""
_log = logging.getLogger(__name__)


class Viewer(Protocol):
    """What shows samples in this kernel. It is called by the sampling thread."""

    def show(self, taken: Sample) -> bool:
        """Show a sample. False: it is gone, and wants no more of them."""

    def ended(self) -> None:
        """No more samples come: no cell has run for as long as its lease."""


class _Lease(NamedTuple):
    interval: float
    """Seconds."""
    until: float
    renewable: bool
    """Whether the page can renew it while a cell runs."""
    viewer: Viewer | None = None
    """None: a page, which is told by a message."""
    seconds: float = 0.0
    """How long it holds from the end of a cell on, for a viewer."""


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
        self._ended: list[Viewer] = []
        self.devices: tuple[Device, ...] = ()
        """As they were last read."""

    # -------------------------------------------------------- pages
    def watch(self, page: str, interval: int, lease: int, renewable: bool) -> dict[str, int]:
        """Grant or renew a page's lease: milliseconds, seconds."""
        if os.getpid() != self._pid:
            return {"interval": interval, "lease": 0}  # a fork of the kernel serves no page
        self._grant(page, _Lease(interval / 1000, time.monotonic() + lease, renewable))
        return {"interval": interval, "lease": lease}

    def follow(self, name: str, viewer: Viewer, interval: float, seconds: float) -> None:
        """Show samples to a viewer, while cells run and until there was none for so many seconds.

        It cannot say whether anybody looks at it: in a cell that runs for long it is served more slowly in the end.
        """
        if os.getpid() == self._pid:
            self._grant(name, _Lease(interval, time.monotonic() + seconds, False, viewer, seconds))

    def _grant(self, name: str, lease: _Lease) -> None:
        with self._lock:
            is_new = self._leases.pop(name, None) is None
            while len(self._leases) >= _MOST_PAGES:
                del self._leases[next(iter(self._leases))]
            # who has just come waits for no interval, nor does who wants samples more often than all others
            is_due = is_new or all(lease.interval < other.interval for other in self._leases.values())
            self._leases[name] = lease
            if self._thread is None:
                self._thread = threading.Thread(target=self._push_all, name="jupyter_gpumem-live", daemon=True)
                self._thread.start()
            elif is_due:
                self._wake.set()

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
        return wire.sample(self.take(), 0)

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
        return any(lease.viewer is None for lease in list(self._leases.values()))

    # -------------------------------------------------------- cells
    @property
    def running(self) -> bool:
        """Whether a cell runs, as far as its events tell."""
        return bool(self._runs)

    def begin(self, info: Any, count: int | None) -> None:
        """``pre_run_cell``. ``count`` is the cell's, if it is counted."""
        run = _Run(info, count)
        self._runs.append(run)
        if self.watched:
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
                self._renew_viewers()
                if self.watched:
                    now = _allocated(import_module("jupyter_gpumem.frameworks").loaded())
                    stayed = {device: nbytes - run.before.get(device, 0) for device, nbytes in now.items()}
                    ended = run.record(count, ended=time.time(), failed=failed, peaks=peaks, stayed=stayed)
                    self._send(wire.cell(ended))
                self.nudge()
        except Exception as error:
            self._tell(f"{type(error).__name__}: {error}")

    def _renew_viewers(self) -> None:
        with self._lock:
            for name, lease in self._leases.items():
                if lease.viewer is not None:
                    self._leases[name] = lease._replace(until=time.monotonic() + lease.seconds)

    # -------------------------------------------------------- the thread
    def _push_all(self) -> None:
        devices = import_module("jupyter_gpumem.devices")
        devices.keep_open(True)
        due = time.monotonic()
        while True:
            self._wake.clear()
            with self._lock:
                interval = self._interval(time.monotonic())
                ended, self._ended = self._ended, []
                if interval is None:
                    self._thread = None
                    devices.keep_open(False)
            for viewer in ended:
                self._show(viewer.ended)
            if interval is None:
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
                self._ended += [lease.viewer] if lease.viewer is not None else []
        return min(wanted, default=None)

    def _push(self, interval: float) -> None:
        try:
            taken = self.take()
            if self.watched:
                self._send(wire.sample(taken, round(interval * 1000)))
            self._fault = None
        except Exception as error:  # the thread goes on: the next sample may be good
            self._tell(f"{type(error).__name__}: {error}")
            return
        for name, lease in list(self._leases.items()):
            if lease.viewer is not None and not self._show(lease.viewer.show, taken):
                with self._lock:
                    if self._leases.get(name) is lease:
                        del self._leases[name]

    def _show(self, viewer: Callable[..., bool | None], *taken: Sample) -> bool | None:
        """Call a viewer. One that fails is gone."""
        try:
            return viewer(*taken)
        except Exception as error:
            _log.warning("jupyter_gpumem: a live display has ended: %s: %s", type(error).__name__, error)
            return False

    def take(self) -> Sample:
        """A sample now, as a record."""
        first = self._runs[:1]
        running = first[0].record(first[0].count) if first else None
        taken: Sample = import_module("jupyter_gpumem.analysis.sample").take(running)
        self.devices = taken.devices
        return taken

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
