"""Loading, and leaving nothing behind."""
from __future__ import annotations

import threading

import pytest


def state(shell):
    """Whatever an extension can leave in a shell."""
    formatters = shell.display_formatter.formatters
    return {
        "events": {name: list(found) for name, found in shell.events.callbacks.items()},
        "cleanup": list(shell.input_transformers_cleanup),
        "post": list(shell.input_transformers_post),
        "magics": {kind: sorted(found) for kind, found in shell.magics_manager.magics.items()},
        "registry": sorted(shell.magics_manager.registry),
        "configurables": [type(c).__name__ for c in shell.configurables],
        "printers": {mime: (len(f.type_printers), len(f.deferred_printers)) for mime, f in formatters.items()},
        "completers": sorted(map(str, getattr(shell.strdispatchers.get("complete_command"), "strs", ()))),
        "threads": threading.active_count(),
        "builtins": sorted(vars(__import__("builtins"))),
        "names": sorted(n for n in shell.user_ns if not n.startswith("_")),
    }


USE = ["import torch", "%gpumem", "%gpumem on", "x = torch.zeros(3)", "%%gpufree\ny = torch.zeros(3)", "%gpumem off", "del x, torch"]


@pytest.mark.parametrize("use", [[], USE], ids=["unused", "used"])
def test_unloading_leaves_the_shell_as_it_was(shell, use):
    import torch  # noqa: F401  # as in a session that has used it

    shell.run_cell("pass")
    shell.find_line_magic("load_ext")  # IPython registers its own magic for it when it is first used
    before = state(shell)
    for _ in range(2):
        shell.run_line_magic("load_ext", "jupyter_gpumem")
        for cell in use:
            assert shell.run_cell(cell).success
        shell.run_line_magic("unload_ext", "jupyter_gpumem")
    assert state(shell) == before


def test_loading_twice_is_loading_once(shell):
    shell.run_line_magic("load_ext", "jupyter_gpumem")
    once = state(shell)
    shell.run_line_magic("load_ext", "jupyter_gpumem")
    from jupyter_gpumem.faces import extension

    extension.load(shell)
    assert state(shell) == once


def test_reloading_works(shell):
    shell.run_line_magic("load_ext", "jupyter_gpumem")
    shell.run_line_magic("reload_ext", "jupyter_gpumem")
    assert shell.run_cell("%gpumem").success


def test_two_shells_have_their_own(shell):
    from IPython.core.interactiveshell import InteractiveShell

    other = InteractiveShell(user_ns={})
    shell.run_line_magic("load_ext", "jupyter_gpumem")
    assert "gpumem" not in other.magics_manager.magics["line"]
    other.run_line_magic("load_ext", "jupyter_gpumem")
    shell.run_line_magic("unload_ext", "jupyter_gpumem")
    assert "gpumem" in other.magics_manager.magics["line"]
    other.run_line_magic("unload_ext", "jupyter_gpumem")


def test_nothing_outside_the_shell_keeps_it(shell):
    from jupyter_gpumem.faces import extension

    shell.run_line_magic("load_ext", "jupyter_gpumem")
    kept = [value for value in vars(extension).values() if isinstance(value, (dict, list, set)) and "__builtins__" not in value]
    assert not [value for value in kept if shell in value]
    assert "jupyter_gpumem" in shell.meta
    shell.run_line_magic("unload_ext", "jupyter_gpumem")
    assert "jupyter_gpumem" not in shell.meta


def test_importing_twice_in_a_forked_child(shell):
    import os

    shell.run_line_magic("load_ext", "jupyter_gpumem")
    pid = os.fork()
    if pid == 0:
        os._exit(0 if shell.run_cell("%gpumem").success else 1)
    assert os.waitpid(pid, 0)[1] == 0
