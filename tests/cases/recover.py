"""How many bytes of the leak cases each way of cleaning up gives back, without a restart.

    python tests/cases/recover.py WAY [FIRST/STEP]      prints a JSON line for each case

Each case runs in a process of its own, on the simulated CUDA, with the way as its last cell. What is alive before and
after is said by weak references to the storages, so that nobody's opinion is asked; who holds the rest, by us.
"""
from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import re
import sys
import tempfile
import types
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "cases"), str(TESTS.parent)]

from driver import Blocks, in_a_fork, make_shell  # noqa: E402

EMPTY = "import gc, torch\ngc.collect()\ntorch.cuda.empty_cache()"
EXPERIMENT = "from ipyexperiments import IPyExperimentsPytorch\nexperiment = IPyExperimentsPytorch(cl_enable=False)"
WAYS = {
    "torch.cuda.empty_cache()": "import torch\ntorch.cuda.empty_cache()",
    "gc.collect(), empty_cache()": EMPTY,
    "%reset -f out, collect, empty": f"%reset -f out\n{EMPTY}",
    "%gpufree": "%load_ext jupyter_gpumem\n%gpufree",
    "del all names, collect, empty": f"del {{names}}\n{EMPTY}",
    "%xdel of each, collect, empty": f"for name in '{{names}}'.split(', '):\n    get_ipython().run_line_magic('xdel', name)\n{EMPTY}",
    "%reset -f, collect, empty": f"%reset -f\n{EMPTY}",
    "ipyexperiments": "experiment.finish()",
    "%gpufree names, %gpufree": "%load_ext jupyter_gpumem\n%gpufree {spaced}\n%gpufree",
}
"""The last cell of each way. The first four leave the user's names alone, the others delete them."""
DELETING = frozenset(list(WAYS)[4:])
NAMING = frozenset(way for way, cell in WAYS.items() if "{" in cell)
"""The ways that are told the names. Where a case has made none, they only collect."""


def storages(blocks):
    """Tag, address and bytes of each storage that is alive."""
    for tag, references in blocks.references.items():
        for reference in references:
            storage = blocks.torch.UntypedStorage._new_with_weak_ptr(reference.cdata)
            if storage is not None and storage.nbytes():
                yield tag, storage._cdata, storage.nbytes()


def alive(blocks):
    """Tag → bytes of its storages that are alive."""
    found = {}
    for tag, _, nbytes in storages(blocks):
        found[tag] = found.get(tag, 0) + nbytes
    return found


def named(blocks, shell):
    """Bytes of the storages that are alive and whose holder the package can name."""
    from jupyter_gpumem.analysis import holders
    from jupyter_gpumem.model import Cause

    found, _ = holders.holdings(shell, ["cuda"])
    known = {holding.storage for holding in found if holding.holder.cause is not Cause.UNKNOWN}
    return sum(nbytes for _, address, nbytes in storages(blocks) if address in known)


def try_way(way):
    """A function for ``in_a_fork`` that runs a case and cleans up in this way."""

    def run_case(case, device):
        gc.set_threshold(10**7, 1000, 1000)
        blocks = Blocks(device)
        folder = tempfile.mkdtemp()
        shell = make_shell(folder)
        os.chdir(folder)
        helpers = {"DEVICE": blocks.device, "block": blocks.block, "tag_tensor": blocks.tag_tensor}
        shell.user_ns.update(helpers)
        shell.user_ns_hidden.update(helpers)  # they are the driver's, not the user's

        def run(cell):
            said = io.StringIO()
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                error = shell.run_cell(cell, store_history=True).error_in_exec
                return f"{type(error).__name__}: {said.getvalue()[-700:]}" if error is not None else None

        notes = []
        if way == "ipyexperiments":
            shell.kernel = types.SimpleNamespace(shell=shell)  # it looks for its shell there
            notes.append(run(EXPERIMENT))
        given = set(shell.user_ns)
        for cell in case.cells:
            run(cell)
        before = alive(blocks)
        names = [
            name
            for name, value in shell.user_ns.items()
            if name not in given and not re.fullmatch(r"_+|_i*\d*|__\w+__", name) and not isinstance(value, types.ModuleType)
        ]
        cleaning = WAYS[way] if names or way not in NAMING else EMPTY
        notes.append(run(cleaning.format(names=", ".join(names), spaced=" ".join(names))))
        return {"before": before, "after": alive(blocks), "named": named(blocks, shell), "notes": [n for n in notes if n]}

    return run_case


def main():
    way, *part = sys.argv[1:]
    import simgpu

    simgpu.install(cuda=True)
    import IPython.core.interactiveshell  # noqa: F401
    import torch

    torch.set_num_threads(1)
    from collected import CASES

    first, step = map(int, part[0].split("/")) if part else (0, 1)
    for case in CASES[first::step]:
        if case.fits("cuda"):
            print(json.dumps(in_a_fork(case, "cuda", try_way(way))), flush=True)


if __name__ == "__main__":
    main()
