"""The notebook of out of memory runs on the simulated GPU: foretold, explained, given back, and made to fit."""
from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.kernel


def shown(cell):
    return "\n".join(
        output.get("text") or output.get("data", {}).get("text/plain", "") or output.get("evalue", "") for output in cell.outputs
    )


def test_out_of_memory(compiler):
    command = [sys.executable, str(ROOT / "notebooks" / "demo.py"), "--quiet", "--machine", "simulated", "--notebook", "out_of_memory"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    path = ROOT / "build" / "out_of_memory" / "out_of_memory.ipynb"
    assert path.stat().st_size < 1_000_000
    cells = {cell.source: shown(cell) for cell in nbformat.read(path, 4).cells if cell.cell_type == "code"}

    def said(words):
        (found,) = [text for source, text in cells.items() if words in source]
        return found

    assert re.search(r"131072 \(now\) .* does not fit", said("--forecast"))
    failed = cells["step(model, opt, x)"]
    assert "out of memory" in failed
    assert "cause: " in failed
    assert "cure: " in failed
    assert "that only the error held given back" in failed
    assert "Dangling: nothing" in cells["%gpumem"]
    assert "try 2 with batch=65536 went through" in said("--halve batch")
    assert said("== losses").strip() == "True"
    assert "every reference stays valid" in cells["%gpufree --to-host teacher"]
    assert "Back on the device: 1.0 GiB" in cells["%gpurestore teacher"]
    assert said("teacher.weight is weight") == "(True, device(type='cuda', index=0), True)"
    assert "reserves at most 1.5 GiB" in cells["%gpumem --limit 1536MiB"]
