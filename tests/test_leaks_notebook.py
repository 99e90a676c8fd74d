"""The notebook of leaks runs on each machine that it promises; each leak is found by name, freed, and gone."""
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.kernel


@pytest.mark.parametrize("machine", ["simulated", "host"])
def test_leaks(machine, compiler):
    command = [sys.executable, str(ROOT / "notebooks" / "demo.py"), "--quiet", "--machine", machine, "--notebook", "leaks"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    path = ROOT / "build" / "leaks" / "leaks.ipynb"
    assert path.stat().st_size < 1_000_000
    cells = [c for c in nbformat.read(path, 4).cells if c.cell_type == "code"]

    def said(words):
        """What each cell that holds these words has shown, in order."""
        found = [c for c in cells if words in c.source]
        return ["\n".join(o.get("text") or o.get("data", {}).get("text/plain", "") or o.get("ename", "") for o in c.outputs) for c in found]

    models, models_freed, iterator_freed = said("%gpumem --diff start")
    assert "results[·][·] → method forward of Linear.weight" in models and "+3.0 MiB" in models
    assert "no holder keeps more or less" in models_freed and "no holder keeps more or less" in iterator_freed
    assert "results[0]['predict'] → method forward" in said("%gpumem --why first")[0]
    assert "iterator._dataset.tensors[0]" in said("%gpumem --why iterator")[0]
    leak, cured = said("find_leak(step)")
    assert "a leak" in leak and "total → graph" in leak
    assert "steady" in cured
    assert said("alive = ")[0].strip() == "0 workers"
    assert "frame of train(), line" in said("%gpumem --dangling")[0]
    assert "forget last error" in said("%gpufree")[0]
    hook, unhooked = said("%gpumem --diff probed")
    assert "_forward_hooks[·] → closure 'seen'[·]" in hook
    assert "no holder keeps more or less" in unhooked
    assert "Dangling: nothing" in cells[-1].outputs[0].data["text/plain"]
