"""Loading into a shell and leaving it as it was found."""
from __future__ import annotations

import weakref
from typing import Any

from jupyter_gpumem import frameworks, session
from jupyter_gpumem.actions.watcher import Watcher
from jupyter_gpumem.faces import completion, directives, showing
from jupyter_gpumem.faces.magics import GPUMemMagics
from jupyter_gpumem.faces.settings import GPUMem

_loaded: weakref.WeakKeyDictionary[Any, _Extension] = weakref.WeakKeyDictionary()


class _Extension:
    """What is registered with one shell."""

    def __init__(self, shell: session.Shell) -> None:
        self.settings = GPUMem(parent=shell)
        self.magics = GPUMemMagics(shell, self.settings)
        self.transformer = directives.Transformer(shell)
        reference = weakref.ref(shell)

        def read(raw: str) -> Any:
            return directives.read(reference(), raw, self.settings.keep)

        self.watcher = Watcher(shell, read, showing.show, self.settings)

    def register(self, shell: session.Shell) -> None:
        shell.register_magics(self.magics)
        shell.input_transformers_cleanup.insert(0, self.transformer)
        shell.events.register("pre_run_cell", self.watcher.before)
        shell.events.register("post_run_cell", self.watcher.after)
        shell.configurables.append(self.settings)
        showing.register(shell)
        completion.register(shell)

    def unregister(self, shell: session.Shell) -> None:
        self.watcher.stop()
        completion.unregister(shell)
        showing.unregister(shell)
        if self.settings in shell.configurables:
            shell.configurables.remove(self.settings)
        for event, callback in (("pre_run_cell", self.watcher.before), ("post_run_cell", self.watcher.after)):
            if callback in shell.events.callbacks[event]:
                shell.events.unregister(event, callback)
        transformers = shell.input_transformers_cleanup
        transformers[:] = [transformer for transformer in transformers if transformer is not self.transformer]
        for kind in ("line", "cell"):
            for word, magic in self.magics.magics[kind].items():
                if shell.magics_manager.magics[kind].get(word) is magic:
                    del shell.magics_manager.magics[kind][word]
        shell.magics_manager.registry.pop(type(self.magics).__name__, None)
        for framework in frameworks.loaded():
            framework.restore()


def load(shell: session.Shell) -> None:
    """``%load_ext jupyter_gpumem``; loading twice is loading once."""
    if shell in _loaded:
        return
    extension = _Extension(shell)
    extension.register(shell)
    _loaded[shell] = extension


def unload(shell: session.Shell) -> None:
    """``%unload_ext jupyter_gpumem``: nothing of ours stays in the shell or in a framework."""
    extension = _loaded.pop(shell, None)
    if extension is not None:
        extension.unregister(shell)
