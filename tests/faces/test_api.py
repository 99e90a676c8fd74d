"""The functions, in plain Python without IPython."""
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import jupyter_gpumem

ROOT = Path(__file__).parents[2]
PLAIN = """
import sys, torch, jupyter_gpumem as g
weights = torch.zeros(1000)
class Ring: pass
def ring():
    r = Ring(); r.me = r; r.big = torch.zeros(2000)
import gc; gc.disable(); ring()
assert [h.holder.path for h in g.holdings() if h.nbytes == 4000] == ["weights"]
assert [h.nbytes for h in g.dangling()] == [8000]
assert g.plan().promised == 8000
assert g.free().freed == 8000
assert g.dangling() == ()
assert str(g.why(weights)) == "weights"
assert g.free("weights").freed == 4000 and "weights" not in globals()
with g.watch("b", show=None) as seen:
    kept = torch.zeros(10)
print(g.snapshot().watched, "IPython" in sys.modules)
"""


def test_plain_python():
    done = subprocess.run([sys.executable, "-c", PLAIN], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "('cpu',) False"


def test_public_names_are_there_and_others_are_not():
    assert set(jupyter_gpumem.__all__) == {
        "account", "assert_no_leak", "dangling", "describe", "diff", "find_leak", "free", "graph", "holdings", "mark",
        "plan", "report", "snapshot", "watch", "why",
    }
    for name in jupyter_gpumem.__all__:
        assert getattr(jupyter_gpumem, name).__doc__
    assert set(jupyter_gpumem.__all__) <= set(dir(jupyter_gpumem))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        jupyter_gpumem.nothing


def test_a_script_that_ended_in_an_error():
    code = "import torch, jupyter_gpumem as g\ntry:\n    def f():\n        inside = torch.zeros(10)\n        1/0\n    f()\nexcept ZeroDivisionError:\n    print(len(g.holdings()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "1"
