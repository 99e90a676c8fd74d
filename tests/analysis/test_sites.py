"""Lines of code are told by cell, or by file, with what stands there."""
from __future__ import annotations

from jupyter_gpumem.analysis import sites
from jupyter_gpumem.frameworks.records import Frame


def file_of(shell, source):
    shell.run_cell(source, store_history=True)
    return shell.user_ns["f"].__code__.co_filename


def test_a_line_of_a_cell_and_of_a_file(shell):
    name = file_of(shell, "def f():\n    return 1")
    assert sites.place(shell, Frame(name, 2, "f")) == "cell [1], line 2"
    assert sites.place(shell, Frame("/home/me/train.py", 10, "step")) == "train.py:10 in step()"
    assert sites.place(None, Frame("/home/me/train.py", 10, "<module>")) == "train.py:10"


def test_with_the_code_that_stands_there(shell, tmp_path):
    name = file_of(shell, "def f():\n    return   1")
    assert sites.with_code(shell, Frame(name, 2, "f")) == "cell [1], line 2: return 1"
    path = tmp_path / "train.py"
    path.write_text("\n" + "    total = " + "1 + " * 40 + "1\n")
    told = sites.with_code(shell, Frame(str(path), 2, "step"))
    assert told.startswith("train.py:2 in step(): total = 1 + 1") and told.endswith("…") and len(told) < 90
    assert sites.with_code(shell, Frame(str(path), 99, "step")) == "train.py:99 in step()"


def test_without_a_recording_there_is_no_line():
    assert sites.peak_line(None, [], 0.0) is None
    assert sites.peak_line(None, [sites.Allocator("torch", "cpu", 5, None, 5)], 0.0) is None


CELLS = """
import json, os, tempfile
os.environ["IPYTHONDIR"] = tempfile.mkdtemp()
import jupyter_gpumem, torch
from IPython.core.interactiveshell import InteractiveShell
from jupyter_gpumem.faces import showing
shell = InteractiveShell.instance()
shell.run_cell("%load_ext jupyter_gpumem")
shown = []
showing.show = shown.append
def run(cell):
    shell.run_cell(cell, store_history=True)
shell.user_ns["seen"] = seen = []
cell = "%%gpumem\\nx = torch.ones(1 << 20, device='cuda')\\ny = x.exp() * x\\nz = x[:10] + 1"
run("import torch, jupyter_gpumem\\nt = torch.ones(1, device='cuda')")
run(cell)
run("%gpumem --record on")
shown.clear()
run(cell)
run("%%gpufree\\nbig = torch.ones(1 << 22, device='cuda')\\ndel big")
run("%%gpumem\\n1 + 1")
run("with jupyter_gpumem.watch('block', show=seen.append):\\n    big = torch.ones(1 << 22, device='cuda:1')")
run("%gpumem --record off")
run(cell)
print(json.dumps([use.peak_line for use in [*shown, *seen] if type(use).__name__ == "CellUse"]))
"""


def test_cells_and_blocks_tell_the_line_of_their_peak(run_on):
    measured, cleaned, idle, unrecorded, block = run_on("cuda", CELLS).json
    assert measured == "cell [4], line 3: y = x.exp() * x"
    assert cleaned == "cell [5], line 2: big = torch.ones(1 << 22, device='cuda')"
    assert idle is unrecorded is None
    assert block == "cell [7], line 2: big = torch.ones(1 << 22, device='cuda:1')"
