"""Who holds what, in a session."""
from __future__ import annotations

import gc
import sys

import torch

from jupyter_gpumem.analysis import holders
from jupyter_gpumem.model import Cause


def paths_of(shell, nbytes):
    found, partial = holders.holdings(shell, ["cpu"])
    assert not partial
    return [(h.holder.path, h.holder.cause) for h in found if h.nbytes == nbytes]


def test_names_outputs_and_the_last_error(shell, capsys):
    shell.run_cell("import torch\nnamed = torch.zeros(1111)", store_history=True)
    shell.run_cell("torch.zeros(2222)", store_history=True)
    shell.run_cell("def f():\n    inside = torch.zeros(3333)\n    1 / 0\nf()", store_history=True)
    assert paths_of(shell, 4444) == [("named", Cause.NAME)]
    assert paths_of(shell, 8888) == [("Out[2]", Cause.OUTPUT)]
    assert paths_of(shell, 13332) == [("last error: frame of f(), line 3, local 'inside'", Cause.LAST_ERROR)]
    capsys.readouterr()


def test_what_a_name_holds_too_is_the_names(shell):
    shell.run_cell("import torch\ntorch.zeros(1111)", store_history=True)
    shell.run_cell("best = Out[1]", store_history=True)
    assert paths_of(shell, 4444) == [("best", Cause.NAME)]


def test_a_look_leaves_no_reference(shell):
    tensor = torch.zeros(1111)
    count = sys.getrefcount(tensor)
    for _ in range(5):
        holders.holdings(shell, ["cpu"])
    gc.collect()
    assert sys.getrefcount(tensor) == count


def test_repeated_looks_make_no_lasting_objects(shell):
    holders.holdings(shell, ["cpu"])
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(20):
        holders.holdings(shell, ["cpu"])
    gc.collect()
    assert len(gc.get_objects()) - before < 20


def test_hostile_objects_are_passed_untouched(shell):
    shell.run_cell(
        "import torch\nclass Bad:\n"
        "    def __getattribute__(self, n): raise SystemExit('ran')\n"
        "    __eq__ = __hash__ = __len__ = __repr__ = __bool__ = lambda s, *a: 1/0\n"
        "    __class__ = property(lambda s: 1/0)\n"
        "bad = Bad(); Bad.kept = [bad]\nkept = {'a': [bad, torch.zeros(1111)]}"
    )
    assert paths_of(shell, 4444) == [("kept['a'][1]", Cause.NAME)]


def test_tensors_in_an_object_include_its_graph():
    weight = torch.ones(1111, requires_grad=True)
    losses = [weight.exp().sum()]
    sizes = [tensor.numel() for tensor in holders.tensors_in(losses).values()]
    assert sizes.count(1111) == 2
