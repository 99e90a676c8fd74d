"""The quickstart runs on each machine that it promises, and shows what it tells."""
from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.kernel


@pytest.mark.parametrize("machine", ["simulated", "host"])
def test_quickstart(machine, compiler):
    command = [sys.executable, str(ROOT / "notebooks" / "demo.py"), "--quiet", "--machine", machine]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    cells = [c for c in nbformat.read(ROOT / "build" / "demo" / "quickstart.ipynb", 4).cells if c.cell_type == "code"]

    def said(start):
        cell = next(c for c in cells if c.source.startswith(start))
        return "\n".join(o.get("text") or o.get("data", {}).get("text/plain", "") or o.get("ename", "") for o in cell.outputs)

    device = "cuda:0" if machine == "simulated" else "cpu"
    assert f"{device}  " in said("%gpumem")
    assert re.search(r"history\[\d]\['loss'] → graph", said("%gpumem --why history"))
    assert "delete name candidates" in said("%%gpufree --keep best")
    assert "best.weight" in said("%%gpufree --keep best")
    assert ("OutOfMemoryError" if machine == "simulated" else "RuntimeError") in said("def explore()")
    assert "frame of explore(), line 6" in said("%gpumem --dangling") or "frame of explore(), line 5" in said("%gpumem --dangling")
    assert "forget last error" in said("%gpufree")
    last = cells[-1]
    assert last.source == "%gpumem"
    assert "Dangling: nothing" in last.outputs[0].data["text/plain"]
