"""Loading into a shell, and leaving it as it was found.

What a session may never need is imported when it is first needed: a shell that has only loaded the extension pays for
the parsers and these few lines.
"""
from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from jupyter_gpumem import session
from jupyter_gpumem.faces import completion, showing
from jupyter_gpumem.faces.magics import GPUMemMagics
from jupyter_gpumem.faces.settings import GPUMem

if TYPE_CHECKING:
    from jupyter_gpumem.actions.watcher import Watcher
    from jupyter_gpumem.faces.comm import Link
    from jupyter_gpumem.model import CellUse

_NAME = "jupyter_gpumem"
"""Where the extension lies in ``shell.meta``, the place that IPython has for that; so it lives as long as the shell."""
_WORD = "%%gpu"
_FRAMEWORKS = {"torch"}
_MOST_NESTED = 16
_MOST_CELLS = 1000
"""Records of watched cells that are kept for the timeline, a few hundred bytes each."""


class _Extension:
    """What is registered with one shell. Owned by the thread that runs the shell's cells."""

    def __init__(self, shell: session.Shell) -> None:
        self._shell = weakref.ref(shell)
        self._watcher: Watcher | None = None
        self._link: Link | None = None
        self._baselines: dict[int, Any] = {}
        """id of a running cell's info → what was known before it."""
        self.settings = GPUMem(parent=shell)
        self.cells: deque[CellUse] = deque(maxlen=_MOST_CELLS)
        self.magics = GPUMemMagics(shell, self.settings, self.cells)

    # -------------------------------------------------------- called by the shell
    def transform(self, lines: list[str]) -> list[str]:
        """Input transformer: takes a right directive away, and has no other effect."""
        if not any(line.startswith(_WORD) for line in lines):
            return lines
        changed: list[str] = import_module("jupyter_gpumem.faces.directives").without_directive(self._shell(), lines)
        return changed

    def before(self, info: Any) -> None:
        """``pre_run_cell``."""
        if self._link is not None:
            shell = self._shell()
            self._link.live.begin(info, session.count_at_start(shell) if info.store_history else None)
        if self.settings.after_error != "off" and not _FRAMEWORKS.isdisjoint(sys.modules):
            self._remember(info)
        if self._watcher is not None or self.settings.every_cell or _WORD in (info.raw_cell or ""):
            self._made_watcher().before(info)

    def after(self, result: Any) -> None:
        """``post_run_cell``."""
        baseline = self._baselines.pop(id(result.info), None)
        found: list[Any] = []
        failed = self._failed(result, baseline, found) if result.error_in_exec is not None else False
        directive = self._watcher.after(result) if self._watcher is not None else None
        back = None
        if failed and not (directive is not None and (directive.clean or directive.keep_traceback)):
            back = self._guarded(
                lambda aftermath: aftermath.give_back(self._shell(), self._watched(), result, showing.show)
            )
        if self._link is not None:
            info = getattr(result, "info", None)
            count = result.execution_count if getattr(info, "store_history", False) else None
            self._link.verdicts.after(result, found[-1] if found else None, back or 0)
            self._link.live.end(info, count, failed=not result.success)

    # -------------------------------------------------------- after a cell has failed
    def _remember(self, info: Any) -> None:
        """What a verdict will want to know of the moment before the cell."""
        if len(self._baselines) >= _MOST_NESTED:  # cells that never got their second event
            self._baselines.clear()
        devices = self._link.live.devices if self._link is not None else ()
        self._baselines[id(info)] = self._guarded(
            lambda aftermath: aftermath.remember(self._shell(), self._watched(), self.cells, devices)
        )

    def _failed(self, result: Any, baseline: Any, found: list[Any]) -> bool:
        """Say why, if it is about memory, also to ``found``; and whether what the error holds is to be freed."""
        when = self.settings.after_error
        if when == "off":
            return False

        def show(verdict: object) -> None:
            found.append(verdict)
            showing.show(verdict)

        said = self._guarded(lambda aftermath: aftermath.tell_why(self._shell(), result.error_in_exec, baseline, show))
        kind = type(said).__name__
        return kind == "OutOfMemory" or (when == "any" and kind != "DeviceFault")

    def _watched(self) -> Any:
        snapshot: Any = import_module("jupyter_gpumem.analysis.snapshot")
        return snapshot.watched_devices(self.settings.device or None)

    def _guarded(self, act: Callable[[Any], Any]) -> Any:
        """What ``act`` answers. A fault of ours is one line below the cell."""
        try:
            return act(import_module("jupyter_gpumem.actions.aftermath"))
        except (Exception, KeyboardInterrupt) as fault:
            notice: Any = import_module("jupyter_gpumem.model").Notice
            what = f"the cell is untouched, but looking at its error failed: {type(fault).__name__}: {fault}"
            showing.show(notice(f"jupyter_gpumem: {what}", fault=True))
            return None

    def _made_watcher(self) -> Watcher:
        if self._watcher is None:
            watcher = import_module("jupyter_gpumem.actions.watcher")
            directives = import_module("jupyter_gpumem.faces.directives")
            shell = self._shell()

            def read(raw: str) -> Any:
                return directives.read(self._shell(), raw, self.settings.keep)

            def arm(directive: Any, watched: Any, above: int) -> Any:
                armed: Any = import_module("jupyter_gpumem.faces.retrying").Armed
                return armed(self._shell(), directive, watched, showing.show, above)

            self._watcher = watcher.Watcher(shell, read, showing.show, self.settings, self.cells, arm)
        assert self._watcher is not None
        return self._watcher

    # -------------------------------------------------------- registering
    def register(self, shell: session.Shell) -> None:
        shell.register_magics(self.magics)
        shell.input_transformers_cleanup.insert(0, self.transform)
        shell.events.register("pre_run_cell", self.before)
        shell.events.register("post_run_cell", self.after)
        shell.configurables.append(self.settings)
        showing.register(shell)
        completion.register(shell)
        if getattr(shell, "kernel", None) is not None:
            self._link = import_module("jupyter_gpumem.faces.comm").open_link(shell, self.settings)
            self.magics.live = self._link.live if self._link is not None else None

    def unregister(self, shell: session.Shell) -> None:
        self.magics.close()
        if self._link is not None:
            self._link.close()
            self._link = None
        if self._watcher is not None:
            self._watcher.stop()
            self._watcher = None
        frameworks = sys.modules.get("jupyter_gpumem.frameworks")
        for framework in frameworks.loaded() if frameworks is not None else ():
            framework.restore()
        completion.unregister(shell)
        showing.unregister(shell)
        ours = (self.settings, self.magics)  # IPython's own base class has put the magics there
        shell.configurables[:] = [known for known in shell.configurables if known not in ours]
        for event, callback in (("pre_run_cell", self.before), ("post_run_cell", self.after)):
            if callback in shell.events.callbacks[event]:
                shell.events.unregister(event, callback)
        transformers = shell.input_transformers_cleanup
        transformers[:] = [transformer for transformer in transformers if transformer != self.transform]
        for kind in ("line", "cell"):
            for word, magic in self.magics.magics[kind].items():
                if shell.magics_manager.magics[kind].get(word) is magic:
                    del shell.magics_manager.magics[kind][word]
        shell.magics_manager.registry.pop(type(self.magics).__name__, None)


def load(shell: session.Shell) -> None:
    """``%load_ext jupyter_gpumem``; loading twice is loading once."""
    if _NAME not in shell.meta:
        shell.meta[_NAME] = _Extension(shell)
        shell.meta[_NAME].register(shell)


def unload(shell: session.Shell) -> None:
    """``%unload_ext jupyter_gpumem``: nothing of ours stays in the shell or in a framework."""
    extension = shell.meta.pop(_NAME, None)
    if extension is not None:
        extension.unregister(shell)
