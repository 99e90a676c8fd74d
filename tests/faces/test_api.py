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
        "account", "advise", "assert_no_leak", "dangling", "describe", "diagnose", "diff", "find_batch_size", "find_leak", "forecast", "free", "graph", "holdings", "limit", "mark", "micro_batches",
        "park", "parked", "plan", "preallocated", "report", "resizable", "restore", "retry_on_oom", "snapshot", "watch", "why",
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


DOCUMENTS = """
import json, torch, jupyter_gpumem as g
from jupyter_gpumem.faces import api
first = torch.zeros(1, device=DEVICE)
before = g.mark("before", DEVICE)
model = torch.nn.Linear(64, 64).to(DEVICE)
loss = model(torch.ones(64, 64, device=DEVICE)).sum()
class Ring: pass
def ring():
    r = Ring(); r.me = r; r.big = torch.zeros(2000, device=DEVICE)
import gc; gc.disable(); ring()
seen = [g.snapshot(DEVICE), api.only_dangling(DEVICE), api.accounts(DEVICE), g.why(model, "model"), g.diff(before),
        g.describe("model", model, DEVICE)]
print(json.dumps([json.loads(api.as_json(one)) for one in seen]))
"""


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_what_is_printed_as_json_fits_the_schema(run_on, device):
    jsonschema = pytest.importorskip("jsonschema")
    import json

    from jupyter_gpumem.faces import api

    check = jsonschema.Draft202012Validator(json.loads(api.json_schema()))
    documents = run_on(device, DOCUMENTS).json
    for document in documents:
        check.validate(document)
    assert [one["record"] for one in documents] == ["Snapshot", "Dangling", "Accounts", "Why", "Growth", "ObjectUse"]
    assert documents[0]["holdings"] and documents[1]["holdings"] and documents[4]["changes"]
    assert documents[2]["accounts"][0]["device"].startswith(device)
    assert bool(documents[2]["accounts"][0]["segments"]) == (device == "cuda")
