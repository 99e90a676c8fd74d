"""Plays generated sessions, each in a process of its own that is forked from one with everything imported.

    python tests/sessions/played.py MODE FIRST STOP [STEP]       prints a JSON line for each session

After the cells of a session its first one, the work, is run again. What the user does before that is the mode:

    bare        nothing
    folklore    deletes all names that he made, collects, empties the cache
    ours        has had the extension loaded all the time, says %gpufree with the same names, then %gpufree

The cells run in a real IPython shell. The device is the simulated CUDA.
"""
from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import re
import signal
import sys
import tempfile
import traceback
import types
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "sessions"), str(TESTS.parent)]
SECONDS = 120
MODES = ("bare", "folklore", "ours")


def make_shell(folder):
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    os.environ["IPYTHONDIR"] = folder
    config = Config()
    config.HistoryManager.hist_file = ":memory:"
    config.InteractiveShell.colors = "NoColor"
    return InteractiveShell.instance(config=config)


def run(shell, cell):
    """Run a cell as a user does → the name of its error, or None; and what it said."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        result = shell.run_cell(cell, store_history=True)
        error = result.error_before_exec or result.error_in_exec
        name = type(error).__name__ if error is not None else None
        del result, error
    return name, said.getvalue()


def available():
    """Bytes that the next run can get: what the driver has, and segments of the cache in which nothing is used."""
    import simgpu
    import torch

    unused = sum(segment["total_size"] for segment in simgpu.snapshot()["segments"] if not segment["allocated_size"])
    return torch.cuda.mem_get_info()[0] + unused


def made_names(shell, given):
    """The names that the user has bound: not the shell's outputs, and no modules. His own ``_`` is one."""
    own = [name for name in shell.user_ns if name not in given and not re.fullmatch(r"_+|_i*\d*|__\w+__", name)]
    if shell.user_ns.get("_") is not shell.displayhook._:
        own.append("_")
    return [name for name in own if not isinstance(shell.user_ns[name], types.ModuleType)]


def play(session, mode):
    """Run a session, get the memory back, and run its work again."""
    folder = tempfile.mkdtemp()
    os.chdir(folder)
    shell = make_shell(folder)
    given = set(shell.user_ns)
    if mode == "ours":
        run(shell, "%load_ext jupyter_gpumem")
    first, said = run(shell, session.work)
    if first is not None:
        return {"fault": f"the work does not run on the fresh device: {said[-500:]}"}
    errors = [run(shell, cell)[0] for cell in session.cells]
    names = made_names(shell, given)
    cleaning = ""
    if mode == "folklore":
        failed, cleaning = run(shell, f"import gc, torch\ndel {', '.join(names)}\ngc.collect()\ntorch.cuda.empty_cache()")
    elif mode == "ours":
        failed, cleaning = run(shell, f"%gpufree {' '.join(names)}\n%gpufree")
    else:
        failed = None
    if failed is not None or "jupyter_gpumem: " in cleaning:
        return {"fault": f"the cleaning failed: {cleaning[-1500:]}"}
    free = available()
    again, _ = run(shell, session.work)
    return {"errors": errors, "free": free, "again": again, "cleaning": cleaning if again and mode == "ours" else ""}


def in_a_fork(session, mode):
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        signal.alarm(SECONDS)
        try:
            got = play(session, mode)
        except BaseException:
            got = {"fault": traceback.format_exc()}
        with os.fdopen(write, "w") as pipe:
            json.dump(got, pipe)
        os._exit(0)  # threads of a session that wait must not delay the end
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    _, status = os.waitpid(pid, 0)
    return json.loads(text) if text else {"fault": f"the process died: {status}"}


def main():
    mode, (first, stop, *step) = sys.argv[1], map(int, sys.argv[2:])
    os.environ.setdefault("SIMGPU_DEVICES", "1")
    from made import CAPACITY, make

    os.environ["SIMGPU_MEM_MB"] = str(CAPACITY)
    import simgpu

    simgpu.install(cuda=True)
    import IPython.core.interactiveshell  # noqa: F401
    import torch
    import torch._dynamo  # torch.optim would import it in each process

    for module in ("faces.extension", "faces.api", "actions.aftermath"):
        importlib.import_module(f"jupyter_gpumem.{module}")
    torch.set_num_threads(1)
    for seed in range(first, stop, *step):
        for one in MODES if mode == "all" else (mode,):
            print(json.dumps({"seed": seed, "mode": one, **in_a_fork(make(seed), one)}), flush=True)


if __name__ == "__main__":
    main()
