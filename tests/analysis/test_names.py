"""Names and what each keeps; each storage once."""
from __future__ import annotations

import gc

import pytest

from jupyter_gpumem.analysis import names
from jupyter_gpumem.model import Cause


def take(shell):
    return names.take(shell, ("cpu",))[0]


def by_name(seen):
    return {use.name: use for use in seen.names}


def test_tensors_modules_and_containers(shell):
    shell.run_cell(
        "import torch\nx = torch.zeros(10, 20)\nmodel = torch.nn.Linear(8, 4)\nkept = [torch.zeros(3) for _ in range(5)]"
    )
    found = by_name(take(shell))
    assert (found["x"].nbytes, found["x"].shape, found["x"].dtype) == (800, (10, 20), "float32")
    assert (found["model"].storages, found["model"].nbytes, found["model"].shape) == (2, 4 * 36, None)
    assert found["model"].kind == "Linear"
    assert (found["kept"].storages, found["kept"].nbytes, found["kept"].kind) == (5, 60, "list")
    assert all(use.devices == ("cpu",) for use in found.values())


def test_largest_first_and_each_storage_once(shell):
    shell.run_cell("import torch\nsmall = torch.zeros(10)\nlarge = torch.zeros(1000)\nview = large[:10]\nboth = [large, small]")
    seen = take(shell)
    assert [use.name for use in seen.names][:1] == ["large"]
    assert sum(use.nbytes for use in seen.names) == 4040
    assert sum(use.nbytes for use in seen.names) + sum(h.nbytes for h in seen.others) == seen.allocators[0].allocated


@pytest.fixture
def no_collection():
    """Python collects no cycles meanwhile."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_what_no_name_keeps(shell, no_collection):
    shell.run_cell("import torch\nclass Node: pass\na = Node(); a.me = a; a.t = torch.zeros(100); del a")
    shell.run_cell("torch.zeros(50)", store_history=True)
    found = [(holding.holder.cause, holding.nbytes) for holding in take(shell).others]
    assert (Cause.CYCLE, 400) in found
    assert (Cause.OUTPUT, 200) in found
    assert [nbytes for _, nbytes in found] == sorted((nbytes for _, nbytes in found), reverse=True)


def test_storages_are_remembered_weakly(shell):
    shell.run_cell("import torch\nx = torch.zeros(10)")
    _, shown = names.take(shell, ("cpu",))
    address = shell.user_ns["x"].untyped_storage()._cdata
    assert shown["torch"].knows(address)
    shell.run_cell("del x")
    gc.collect()
    assert not shown["torch"].knows(address)


def test_nothing_of_it_stays(shell):
    shell.run_cell("import torch\nx = torch.zeros(10)")
    tensor = shell.user_ns["x"]
    take(shell)
    gc.collect()
    before = len(gc.get_referrers(tensor))
    take(shell)
    gc.collect()
    assert len(gc.get_referrers(tensor)) == before


def test_without_a_framework_there_is_nothing(shell):
    assert names.take(shell, ())[0].names == ()
