"""Before, after and peak of cells and of blocks of code; what a wrapped cell left, cleaned up.

A cell is never run by us. ``pre_run_cell`` opens a window and ``post_run_cell`` closes it: the cell's own run, between
them, is what it would be without us. Windows nest, as cells do that a magic runs (``%%capture`` over ``%%gpufree``:
outer pre, inner pre, inner post, outer post), so they are kept on a stack.

A watcher is owned by the thread in which its shell runs cells.
"""
from __future__ import annotations

import functools
import time
from collections.abc import Callable, MutableSequence, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ParamSpec, Protocol, TypeVar

from jupyter_gpumem import frameworks, session
from jupyter_gpumem.actions import cleaning, parking
from jupyter_gpumem.actions.leaks import LeakWatch
from jupyter_gpumem.actions.planning import Request, prepare
from jupyter_gpumem.analysis import holders, sites
from jupyter_gpumem.analysis.inventory import Stored, take_inventory
from jupyter_gpumem.analysis.ledger import Ledger
from jupyter_gpumem.analysis.objects import names_in_use, use_of
from jupyter_gpumem.analysis.snapshot import total_bytes, watched_devices
from jupyter_gpumem.errors import InputError
from jupyter_gpumem.model import Allocator, Cause, CellUse, NameUse, Notice, Plan, Report
from jupyter_gpumem.units import shown

_P = ParamSpec("_P")
_R = TypeVar("_R")
_MOST_LEAK_CELLS = 8
"""Cells whose rounds are remembered."""


@dataclass(frozen=True)
class Directive:
    """What the first line of a cell asks for."""

    clean: bool = False
    """Clean up afterwards (``%%gpufree``), else only measure (``%%gpumem``)."""
    keep: tuple[str, ...] = ()
    """Names that the cell makes and the user wants; one that it does not make is a slip."""
    always_keep: tuple[str, ...] = ()
    """Names from the settings: kept where a cell makes them."""
    to_host: tuple[str, ...] = ()
    """Names that stay too, their device memory moved to the host."""
    device: str | None = None
    dry_run: bool = False
    keep_traceback: bool = False
    brief: bool = False
    """One line: every cell is watched."""
    leak: bool = False
    """Judge what grows each time that this cell is run."""
    retry: int = 0
    """Run again after it ran out of memory, at most so many times."""
    halve: tuple[str, ...] = ()
    """Names of sizes that each further try halves."""
    floor: int = 1
    """No size goes below this."""


class Armed(Protocol):
    """What makes the cell that is about to run one that can be tried again."""

    def close(self) -> None:
        """The cell has ended."""


class Window:
    """Figures of the watched devices from its opening to its closing."""

    def __init__(self, watched: Sequence[str], ledger: Ledger) -> None:
        self.watched = tuple(watched)
        self._ledger = ledger
        self.opened = time.time()
        self.activity = [framework.activity() for framework in frameworks.loaded()]
        self.before = ledger.allocators(watched)
        self._peaks = [framework.open_window() for framework in frameworks.loaded()]
        self.after: tuple[Allocator, ...] = ()

    def close(self, watched: Sequence[str] | None = None) -> None:
        """Take the figures. ``after`` has the peaks inside the window.

        ``watched`` are the devices to watch now, where that may have changed: the first cell on a device begins
        before there is one. On what is new to it there was nothing.
        """
        if watched is not None and tuple(watched) != self.watched:
            self.watched = tuple(watched)
            known = {allocator.device: allocator for allocator in self.before}
            now = self._ledger.allocators(watched)
            self.before = tuple(known.get(a.device) or replace(a, allocated=0, reserved=0, peak=None) for a in now)
        peaks: dict[str, int] = {}
        for window in self._peaks:
            peaks |= window.close()
        self.after = tuple(
            Allocator(a.framework, a.device, a.allocated, a.reserved, peaks.get(a.device))
            for a in self._ledger.allocators(self.watched)
        )

    @property
    def changed(self) -> bool:
        """Whether anything was allocated or freed meanwhile, as far as the figures tell."""
        now = [framework.activity() for framework in frameworks.loaded()]
        sizes = {a.device: a.allocated for a in self.before} != {a.device: a.allocated for a in self.after}
        return now != self.activity or sizes

    def peak_line(self, shell: session.Shell | None) -> str | None:
        """The line that made the highest peak, where allocations are recorded. To be asked right after its closing."""
        return sites.peak_line(shell, self.after, self.opened) if self.changed else None


@dataclass
class _Cell:
    """A cell that is being watched."""

    info: Any
    directive: Directive | None
    window: Window | None = None
    from_below: bool = False
    """The directive stands below another cell magic, which may run the rest as a cell of its own."""
    armed: Armed | None = None
    names: dict[str, int] = field(default_factory=dict)
    """Name → id of its value, before the cell."""
    outputs: frozenset[int] = frozenset()
    storages: list[frameworks.Remembered] = field(default_factory=list)
    fault: str | None = None

    def close(self) -> None:
        """Without a word: the cell never got its second event, or another has taken over."""
        if self.window is not None:
            self.window.close()
            self.window = None
        self.disarm()

    def disarm(self) -> None:
        """Take away what let the cell be tried again."""
        if self.armed is not None:
            self.armed.close()
            self.armed = None


class Watcher:
    """Watches the cells of one shell.

    ``read`` finds the directive of a raw cell, and how many other cell magics stand above it; ``show`` displays a
    record or a line; ``arm`` lets a cell be tried again; none is known here. ``cells`` gets the record of each cell.
    """

    def __init__(
        self,
        shell: session.Shell,
        read: Callable[[str], tuple[Directive | None, int]],
        show: Callable[[object], None],
        settings: Any,
        cells: MutableSequence[CellUse] | None = None,
        arm: Callable[[Directive, Sequence[str], int], Armed] | None = None,
    ) -> None:
        self._watched = cells
        self._leaks: dict[str, LeakWatch] = {}
        """Text of a cell → the looks after its runs."""
        self._shell = shell
        self._read = read
        self._arm = arm
        self._show = show
        self._settings = settings
        self._cells: list[_Cell] = []
        self._ledger = Ledger()
        self._told: set[int] = set()
        """ids of output values that have been pointed out."""

    # -------------------------------------------------------- the two events
    def before(self, info: Any) -> None:
        """``pre_run_cell``."""
        cell = _Cell(info, None)
        self._cells.append(cell)
        try:
            self._open(cell)
        except InputError as refusal:
            self._refuse(cell, str(refusal))
        except (Exception, KeyboardInterrupt) as fault:
            self._refuse(cell, _fault(fault))

    def after(self, result: Any) -> Directive | None:
        """``post_run_cell``. The traceback has been shown: the moment to release frames.

        Returns the directive that has been followed.
        """
        cell = self._pop(getattr(result, "info", None))
        if cell is not None:
            cell.disarm()
        if cell is None or cell.window is None or cell.directive is None:
            return None
        try:
            use = self._close(cell, cell.window, cell.directive, result)
            if self._watched is not None:
                self._watched.append(use)
            self._show(use)
            if cell.directive.to_host:
                self._park(cell.directive)
            if cell.directive.brief:
                self._point_out(result)
            if cell.directive.leak and result.success:
                self._judge(cell.info.raw_cell, use.title, cell.directive)
        except InputError as refusal:
            self._show(Notice(f"jupyter_gpumem: {refusal}", fault=True))
        except (Exception, KeyboardInterrupt) as fault:
            self._show(Notice(_fault(fault), fault=True))
        return cell.directive

    def stop(self) -> None:
        """Close the windows that are open, without a word."""
        for cell in self._cells:
            cell.close()
        self._cells.clear()
        self._ledger.clear()
        self._leaks.clear()

    # -------------------------------------------------------- opening
    def _open(self, cell: _Cell) -> None:
        directive, above = self._read(cell.info.raw_cell or "")
        if directive is None and self._settings.every_cell:
            directive = Directive(brief=True)
        if directive is None:
            return
        if not directive.brief and not above and len(self._cells) > 1:
            self._take_over()
        watched = watched_devices(directive.device or self._settings.device or None)
        cell.directive, cell.from_below = directive, above > 0
        cell.names = {name: id(value) for name, value in session.user_names(self._shell).items()}
        if directive.clean:
            cell.outputs = frozenset(id(value) for _, value in session.outputs(self._shell))
            with take_inventory() as inventory:
                tensors = [stored.tensors[0] for stored in inventory.on(watched)]
                cell.storages = [framework.remember(tensors) for framework in frameworks.loaded()]
                tensors.clear()
        cell.window = Window(watched, self._ledger)
        if directive.retry and self._arm is not None:
            cell.armed = self._arm(directive, watched, above)

    def _take_over(self) -> None:
        """The cell above has opened a window for this very directive, which now turns out to be run as a cell."""
        above = self._cells[-2]
        if above.from_below and above.window is not None:
            above.close()

    def _refuse(self, cell: _Cell, why: str) -> None:
        cell.window = None
        self._show(Notice(why if why.startswith("jupyter_gpumem") else f"jupyter_gpumem: {why}", fault=True))

    # -------------------------------------------------------- closing
    def _pop(self, info: Any) -> _Cell | None:
        """The cell that has ended. Cells above it on the stack never got their second event."""
        if not any(cell.info is info for cell in self._cells):
            return None
        while True:
            cell = self._cells.pop()
            if cell.info is info:
                return cell
            cell.close()

    def _close(self, cell: _Cell, window: Window, directive: Directive, result: Any) -> CellUse:
        window.close(watched_devices(directive.device or self._settings.device or None))
        peak_line = window.peak_line(self._shell)
        made = self._made(cell, window) if directive.clean or window.changed else ()
        plan: Plan | None = None
        report: Report | None = None
        if directive.clean:
            request = self._request(cell, directive, window, failed=not result.success)
            if directive.dry_run:
                plan = prepare(self._shell, request).plan
            else:
                report = cleaning.free(self._shell, request, running=result)
        count = getattr(result, "execution_count", None)
        return CellUse(
            title=f"cell [{count}]" if count is not None else "cell",
            before=window.before,
            after=window.after,
            made=made,
            plan=plan,
            report=report,
            failed=not result.success,
            brief=directive.brief,
            ended=time.time(),
            peak_line=peak_line,
        )

    def _park(self, directive: Directive) -> None:
        there = session.user_names(self._shell)
        objects = {name: there[name] for name in directive.to_host if name in there}
        if objects:  # a cell that failed may not have come so far
            act = parking.plan_park if directive.dry_run else parking.park
            self._show(act(self._shell, objects, directive.device or self._settings.device or None))

    def _judge(self, text: str, title: str, directive: Directive) -> None:
        """One more round of the same cell. A cell that was edited begins anew."""
        while len(self._leaks) >= _MOST_LEAK_CELLS and text not in self._leaks:
            del self._leaks[next(iter(self._leaks))]
        watch = self._leaks.setdefault(text, LeakWatch(self._shell, directive.device))
        watch.title = title
        watch.round()
        self._show(watch.judge())

    def _made(self, cell: _Cell, window: Window) -> tuple[NameUse, ...]:
        """Names that are new or bound anew, with what they hold."""
        values = session.user_names(self._shell)
        fresh = [name for name, value in values.items() if cell.names.get(name) != id(value)]
        new = {name: values[name] for name in fresh}
        return names_in_use(new, window.watched, session.internals(self._shell))

    def _request(self, cell: _Cell, directive: Directive, window: Window, failed: bool) -> Request:
        values = session.user_names(self._shell)
        missing = [name for name in (*directive.keep, *directive.to_host) if name not in values]
        if missing and not failed:  # a cell that failed may not have come so far
            raise InputError(
                f"nothing is freed: the cell made no {missing[0]!r} to keep; it made: "
                + (", ".join(name for name in values if name not in cell.names) or "no name")
            )
        stay = {*cell.names, *directive.keep, *directive.to_host, *directive.always_keep}
        fresh = {name: value for name, value in values.items() if name not in stay}

        def is_new(stored: Stored) -> bool:
            return not any(remembered.knows(stored.part.address) for remembered in cell.storages)

        return Request(
            watched=window.watched,
            names=tuple(use.name for use in names_in_use(fresh, window.watched, session.internals(self._shell))),
            error=not directive.keep_traceback,
            kept_outputs=cell.outputs,
            is_new=is_new,
            movable=True,
        )

    # -------------------------------------------------------- outputs that only Out keeps
    def _point_out(self, result: Any) -> None:
        """Say once that a large value is kept by ``Out`` alone."""
        value = result.result
        if value is None or id(value) in self._told:
            return
        watched = watched_devices(self._settings.device or None)
        held = use_of("Out", value, watched, session.internals(self._shell))
        total = total_bytes(watched) if held.nbytes else None
        if total is None or held.nbytes < total * self._settings.output_share:
            return
        with holders.look(self._shell, watched, of=value) as seen:
            nbytes = sum(s.part.nbytes for s in seen.stored if seen.holder(s).cause is Cause.OUTPUT)
        if nbytes >= total * self._settings.output_share:
            self._told.add(id(value))
            label = f"Out[{result.execution_count}]"
            self._show(Notice(f"gpumem: {label} alone keeps {shown(nbytes)}; %gpufree gives it back"))


def _fault(fault: BaseException) -> str:
    return f"jupyter_gpumem: the cell is untouched, but measuring it failed: {type(fault).__name__}: {fault}"



class Watch:
    """A window around a block of code. As a context manager it has ``use`` afterwards; see ``jupyter_gpumem.watch``."""

    def __init__(self, name: str, device: str | None, show: Callable[[object], None] | None) -> None:
        self.name = name
        self.use: CellUse | None = None
        """What the last run of the block did; None before its end."""
        self._device = device
        self._show = show
        self._ledger = Ledger()
        self._windows: list[Window] = []

    def __enter__(self) -> Watch:
        self._windows.append(Window(watched_devices(self._device), self._ledger))
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        window = self._windows.pop()
        window.close()
        line = window.peak_line(session.current())
        self.use = CellUse(
            self.name, window.before, window.after, failed=kind is not None, brief=True, peak_line=line
        )
        if self._show is not None:
            self._show(self.use)

    def __call__(self, function: Callable[_P, _R]) -> Callable[_P, _R]:
        """Watch every call of a function."""

        @functools.wraps(function)
        def watched(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            with self:
                return function(*args, **kwargs)

        return watched
