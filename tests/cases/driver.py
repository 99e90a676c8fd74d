"""Runs leak cases, each in a process of its own that is forked from one with everything imported.

    python tests/cases/driver.py cpu|cuda|simgpu [name ...]     prints a JSON line for each case
    python tests/cases/driver.py cpu 0/2                        every second case, from the first

The cells run in a real IPython shell. Blocks are followed by weak C++ references to their storages, so that the
driver holds no tensor; automatic collections are put off, so that what a case leaves is the same in every run.
"""
from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import signal
import sys
import tempfile
import traceback
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "cases"), str(TESTS.parent)]
SECONDS = 60


class Blocks:
    """The tagged tensors of a case, by weak references."""

    def __init__(self, device):
        import torch

        self.torch, self.device, self.references = torch, torch.device(device), {}

    def block(self, tag, mib=1):
        return self.tag_tensor(tag, self.torch.zeros(int(mib * 2**18), dtype=self.torch.float32, device=self.device))

    def tag_tensor(self, tag, tensor):
        from torch.multiprocessing.reductions import StorageWeakRef

        self.references.setdefault(tag, []).append(StorageWeakRef(tensor.untyped_storage()))
        return tensor

    def storage(self, tag):
        for reference in self.references[tag]:
            storage = self.torch.UntypedStorage._new_with_weak_ptr(reference.cdata)
            if storage is not None and storage.nbytes():
                return storage
        return None

    def alive(self):
        return [tag for tag in self.references if self.storage(tag) is not None]

    def tensor(self, tag):
        storage = self.storage(tag)
        return self.torch.empty(0, dtype=self.torch.float32, device=storage.device).set_(storage)


def make_shell(folder):
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    os.environ["IPYTHONDIR"] = folder
    config = Config()
    config.HistoryManager.hist_file = ":memory:"
    config.InteractiveShell.colors = "NoColor"
    return InteractiveShell.instance(config=config)


def run_case(case, device):
    """Run the cells, ask why each live block is alive, clean up, and say what is left."""
    gc.set_threshold(10**7, 1000, 1000)
    blocks, notes = Blocks(device), []
    folder = tempfile.mkdtemp()
    shell = make_shell(folder)
    os.chdir(folder)
    helpers = {"DEVICE": blocks.device, "block": blocks.block, "tag_tensor": blocks.tag_tensor}
    shell.user_ns.update(helpers)
    shell.user_ns_hidden.update(helpers)  # they are the driver's, not the user's

    def run(cell, wanted=None):
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            result = shell.run_cell(cell, store_history=True)
            error = result.error_before_exec or result.error_in_exec
            got = type(error).__name__ if error is not None else None
            del result, error
        if got != wanted:
            notes.append(f"a cell raised {got}, expected {wanted}: {said.getvalue()[-700:]}")
        return said.getvalue()

    for number, cell in enumerate(case.cells):
        run(cell, case.raises.get(number))
    before = blocks.alive()
    names = {name: id(value) for name, value in shell.user_ns.items() if not name.startswith("_")}
    import jupyter_gpumem

    why = {}
    for tag in before:
        lines = [line.strip() for line in str(jupyter_gpumem.why(blocks.tensor(tag), most=1)).splitlines() if line.strip()]
        why[tag] = lines[0] if lines else ""
    run("%load_ext jupyter_gpumem")
    shown = run("%gpufree")
    changed = [name for name, value in names.items() if id(shell.user_ns.get(name)) != value]
    return {"before": before, "after": blocks.alive(), "why": why, "changed": changed, "notes": notes, "shown": shown}


def in_a_fork(case, device, run=run_case):
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        signal.alarm(SECONDS)
        try:
            got = run(case, device)
        except BaseException:
            got = {"notes": [traceback.format_exc()], "before": [], "after": [], "why": {}, "changed": [], "shown": ""}
        with os.fdopen(write, "w") as pipe:
            json.dump({"name": case.name, **got}, pipe)
        os._exit(0)  # threads and suspended loops of a case must not delay the end
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    if not text:
        return {"name": case.name, "notes": ["the process died"], "before": [], "after": [], "why": {}, "changed": []}
    return json.loads(text)


def main():
    device, names = sys.argv[1], sys.argv[2:]
    if device in ("cuda", "simgpu"):
        import simgpu

        simgpu.install(cuda=device == "cuda")
    import IPython.core.interactiveshell  # noqa: F401
    import torch

    torch.set_num_threads(1)
    from collected import CASES

    first, step = map(int, names.pop().split("/")) if names and "/" in names[0] else (0, 1)
    for case in CASES[first::step]:
        if case.fits(device) and (not names or case.name in names):
            print(json.dumps(in_a_fork(case, device)), flush=True)


if __name__ == "__main__":
    main()
