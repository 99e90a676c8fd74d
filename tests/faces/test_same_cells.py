"""A watched cell is what it would be without us: status, result, Out, history, line numbers, stdout, warnings."""
from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CELLS = {
    "assignment": "x = 1",
    "expression": "1 + 1",
    "quiet expression": "1 + 1;",
    "none": "None",
    "print": "print('out')",
    "stderr": "import sys; print('err', file=sys.stderr)",
    "display": "from IPython.display import display; display('shown')",
    "syntax error": "x = = 1",
    "indentation error": "if True:\nx = 1",
    "name error": "a = 1\nb = 2\nundefined_name",
    "error in a function": "def f():\n    y = 1\n    raise ValueError('in f')\n\nf()",
    "error from": "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise RuntimeError('x') from e",
    "keyboard interrupt": "raise KeyboardInterrupt",
    "system exit": "raise SystemExit(3)",
    "await": "import asyncio\nawait asyncio.sleep(0)\n'awaited'",
    "async error": "import asyncio\nawait asyncio.sleep(0)\n1 / 0",
    "async for": "async def g():\n    yield 4\n[i async for i in g()]",
    "task that outlives": "import asyncio\ntask = asyncio.ensure_future(asyncio.sleep(0.001))\n5",
    "warning": "import warnings\nwarnings.warn('careful')",
    "line magic": "%who_ls str",
    "assigned magic": "found = %who_ls float",
    "shell": "!echo hello",
    "assigned shell": "lines = !echo hello",
    "time": "%%time\nz = 3\nz",
    "timeit": "%timeit -n1 -r1 1+1",
    "capture": "%%capture held\nprint('hidden')\n7",
    "bash": "%%bash\necho in bash",
    "writefile": "%%writefile made.txt\ntext",
    "help": "len?",
    "underscore": "_ = 3\n4",
    "output kept": "[1, 2]\n",
    "comment": "# nothing\n",
    "blank lines first": "\n\nx = 1\nx",
    "indented": "    x = 2\n    x",
    "class": "class C:\n    pass\nC.__name__",
    "random": "import random\nrandom.seed(1)\nrandom.random()",
    "numpy random": "import numpy\nnumpy.random.seed(1)\nfloat(numpy.random.rand())",
    "torch random": "import torch\ntorch.manual_seed(1)\ntorch.rand(2)",
    "run cell": "get_ipython().run_cell('inner = 6\\ninner')\nNone",
    "line number": "import sys\n\nsys._getframe().f_lineno",
    "globals": "sorted(n for n in globals() if not n.startswith('_'))",
    "unicode": "'käse ✓'",
    "semicolon lines": "a = 1; b = 2\na + b",
    "del": "x = 1\ndel x\n'x' in globals()",
    "trailing magic": "x = 3\n%who_ls int",
}
FIRST_LINE = {"plain": "# plain\n", "on": "# plain\n", "gpumem": "%%gpumem\n", "gpufree": "%%gpufree --dry-run\n"}
CELL_MAGICS = {name for name, cell in CELLS.items() if cell.startswith("%%")}

RUNNER = r"""
import contextlib, io, json, os, re, sys, tempfile, warnings
mode, cells, first = json.load(sys.stdin)
os.chdir(tempfile.mkdtemp())
os.environ["IPYTHONDIR"] = tempfile.mkdtemp()
from traitlets.config import Config
from IPython.core.interactiveshell import InteractiveShell
config = Config(); config.HistoryManager.hist_file = ":memory:"; config.InteractiveShell.colors = "NoColor"
shell = InteractiveShell.instance(config=config)
published = []
shell.display_pub.publish = lambda data=None, metadata=None, **kw: published.append(data)
if mode != "plain":
    shell.run_cell("%load_ext jupyter_gpumem", store_history=True)
else:
    shell.run_cell("pass # load_ext", store_history=True)
if mode == "on":
    shell.run_cell("%gpumem on", store_history=True)
else:
    shell.run_cell("pass # on", store_history=True)
STEADY = r"ipython-input-\S+-[0-9a-f]+|\d+(\.\d+)?(e[+-]?\d+)? ?(ns|.s|ms|s)\b|0x[0-9a-f]+|/tmp/\S+|# plain|# %%gpu\S*( --dry-run)?"
rows = {}
for name, cell in cells.items():
    head = "" if cell.startswith("%%") and mode in ("plain", "on") else first
    if mode in ("plain", "on"):
        head = re.match(r"[ \t]*", cell)[0] + head if head else ""
    published.clear()
    out, err = io.StringIO(), io.StringIO()
    before = shell.execution_count
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            result = shell.run_cell(head + cell, store_history=True)
            left = None
        except BaseException as error:
            left = type(error).__name__
    error = result.error_in_exec or result.error_before_exec
    steady = lambda text: re.sub(STEADY, "~", text)
    trace, lines = getattr(error, "__traceback__", None), []
    while trace is not None:
        if "ipython-input" in trace.tb_frame.f_code.co_filename or "ipykernel" in trace.tb_frame.f_code.co_filename:
            lines.append(trace.tb_lineno)
        trace = trace.tb_next
    rows[name] = {
        "success": result.success,
        "raised": left,
        "error": type(error).__name__,
        "message": steady(str(error)),
        "lines": lines,
        "lineno": getattr(error, "lineno", None),
        "result": repr(result.result),
        "count": shell.execution_count - before,
        "stdout": steady(out.getvalue()),
        "stderr": steady(err.getvalue()),
        "Out": sorted(shell.user_ns["Out"]),
        "_": repr(shell.user_ns.get("_")),
        "In": re.sub(r"\A *# (plain|%%gpu.*)\n", "", shell.user_ns["In"][-1]),
        "names": sorted(n for n in shell.user_ns if not n.startswith("_")),
        "published": [d for d in map(str, published) if "gpumem" not in d and "Plan (nothing" not in d and "cell [" not in d],
    }
print("\n" + json.dumps(rows))
"""


def run(mode: str, cells: dict[str, str]) -> dict[str, dict]:
    done = subprocess.run(
        [sys.executable, "-W", "default", "-c", RUNNER],
        input=json.dumps([mode, cells, FIRST_LINE[mode]]),
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


@pytest.fixture(scope="module")
def plain():
    return run("plain", CELLS)


@pytest.fixture(scope="module", params=["on", "gpumem", "gpufree"])
def watched(request):
    return request.param, run(request.param, CELLS)


@pytest.mark.parametrize("name", CELLS)
def test_cell_is_untouched(name, plain, watched):
    mode, rows = watched
    expected, got = dict(plain[name]), dict(rows[name])
    # below another cell magic the directive's line is not there at all, where the comment of the plain cell would be
    if mode == "on" or name not in CELL_MAGICS:
        assert got == expected
    else:
        for key in ("lines", "In"):
            expected.pop(key), got.pop(key)
        assert got == expected


def test_the_comparison_can_fail(plain):
    with contextlib.redirect_stdout(io.StringIO()):
        changed = run("plain", {**CELLS, "expression": "1 + 2"})
    assert changed["expression"] != plain["expression"]
    assert len(CELLS) >= 25
