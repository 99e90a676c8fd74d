"""What goes, what really came back, who holds the rest."""
from __future__ import annotations

import gc
import re
import sys
import weakref

import pytest
import torch

import jupyter_gpumem
from jupyter_gpumem.actions import cleaning
from jupyter_gpumem.errors import InputError
from jupyter_gpumem.model import Freed, Step


def test_the_last_error_with_its_chain(shell, capsys):
    shell.run_cell(
        "import torch\ndef f(n):\n    inside = torch.zeros(1000)\n    raise ValueError(n)\n"
        "try:\n    f(1)\nexcept ValueError as e:\n    raise RuntimeError('x') from e"
    )
    report = jupyter_gpumem.free()
    assert report.freed >= 4000
    assert not hasattr(sys, "last_value")
    capsys.readouterr()


def test_an_error_that_a_name_keeps_keeps_its_frames(shell, capsys):
    shell.run_cell("import torch\ndef f():\n    inside = torch.zeros(1000)\n    raise ValueError\nf()")
    shell.run_cell("import sys; problem = sys.last_value")
    jupyter_gpumem.free()
    trace, found = shell.user_ns["problem"].__traceback__, False
    while trace is not None:
        found = found or "inside" in trace.tb_frame.f_locals
        trace = trace.tb_next
    assert found
    capsys.readouterr()


@pytest.mark.parametrize("hide", ["", "import gc; gc.freeze(); "], ids=["seen", "hidden by gc.freeze"])
def test_a_generator_through_which_an_error_passed_goes_on(shell, capsys, hide):
    shell.run_cell(
        "import torch\n"
        "def source():\n    kept = torch.zeros(1000)\n    while True:\n        try:\n            yield 1\n"
        "        except ValueError as e:\n            raised.append(e)\n            yield 2\n"
        "raised = []\ngen = source(); next(gen); gen.throw(ValueError('passed'))\n"
        f"{hide}raise raised.pop()"
    )
    try:
        jupyter_gpumem.free()
    finally:
        gc.unfreeze()
    assert next(shell.user_ns["gen"]) == 1, "the generator is alive"
    capsys.readouterr()


def test_outputs_become_records_and_numbers_stay(shell):
    shell.run_cell("import torch\ntorch.zeros(1000)", store_history=True)
    shell.run_cell("41 + 1", store_history=True)
    report = jupyter_gpumem.free()
    assert isinstance(shell.user_ns["Out"][1], Freed)
    assert shell.user_ns["Out"][2] == shell.user_ns["_"] == 42
    assert isinstance(shell.user_ns["__"], Freed)
    assert report.freed >= 4000


def test_deleting_a_name_deletes_it_everywhere(shell):
    shell.run_cell("import torch\na = torch.zeros(1000)\na", store_history=True)
    reference = torch.multiprocessing.reductions.StorageWeakRef(shell.user_ns["a"].untyped_storage())
    report = jupyter_gpumem.free("a")
    assert "a" not in shell.user_ns
    assert isinstance(shell.user_ns["Out"][1], Freed)
    assert reference.expired()
    assert report.freed >= 4000
    assert report.left == ()


def test_memory_that_stays_names_its_holder(shell):
    shell.run_cell("import torch\na = torch.zeros(1000)\nb = {'view': a[10:]}")
    report = jupyter_gpumem.free("a")
    assert "a" not in shell.user_ns
    assert [holding.holder.path for holding in report.left] == ["b['view']"]
    assert report.freed == 0


def test_bad_input_changes_nothing(shell):
    shell.run_cell("import torch\na = torch.zeros(1000)")
    for wrong in (("a", "nope"), ("a", "print")):
        with pytest.raises(InputError):
            jupyter_gpumem.free(*wrong)
    with pytest.raises(InputError):
        jupyter_gpumem.free("a", device="cuda:3")
    assert "a" in shell.user_ns


def test_a_step_that_fails_is_one_line_and_the_others_are_done(shell, monkeypatch):
    def fail(*_):
        raise RuntimeError("no such luck")

    shell.run_cell("import torch\ntorch.zeros(1000)", store_history=True)
    monkeypatch.setitem(cleaning._STEPS, Step.COLLECT, fail)
    report = jupyter_gpumem.free()
    assert [fault for fault in report.faults if "no such luck" in fault]
    assert isinstance(shell.user_ns["Out"][1], Freed)


@pytest.fixture
def frozen(shell):
    """A session with a cycle that gc.freeze() hides."""
    shell.run_cell(
        "import torch\nclass Pair: pass\npair = Pair(); pair.me, pair.value = pair, torch.zeros(1000)\ntorch.zeros(50)",
        store_history=True,
    )
    gc.collect()
    gc.freeze()
    yield weakref.ref(shell.user_ns["pair"])
    gc.unfreeze()


def test_a_clean_up_lifts_a_freeze_and_says_so(frozen, shell):
    del shell.user_ns["pair"]
    gc.collect()
    assert frozen() is not None
    notes = [action.note for action in jupyter_gpumem.plan().actions if action.step is Step.COLLECT]
    assert re.search(r"gc.freeze\(\) is lifted: the \d+ objects", notes[0])
    assert gc.get_freeze_count()
    jupyter_gpumem.free()
    assert (frozen(), gc.get_freeze_count()) == (None, 0)


def test_what_was_frozen_and_lives_on_is_collected_when_it_dies(frozen, shell):
    jupyter_gpumem.free()
    del shell.user_ns["pair"]
    gc.collect()
    assert frozen() is None


def test_a_look_sees_what_roots_reach_through_a_freeze_and_leaves_it(frozen, shell):
    before = gc.get_freeze_count()
    seen, why, advice = jupyter_gpumem.snapshot(), jupyter_gpumem.why(shell.user_ns["pair"]), jupyter_gpumem.advise()
    assert [h.holder.path for h in seen.holdings if h.nbytes == 4000] == ["pair.value"]
    assert [(holder.path, holder.frees) for holder in why.holders] == [("pair", True)]
    assert all("gc.freeze() hides" in str(notes) for notes in (seen.notes, why.notes, advice.notes))
    assert 0 < gc.get_freeze_count() <= before  # fewer where some of them have died


def test_random_state_history_and_names_are_untouched(shell):
    import random

    shell.run_cell("import torch\nx = 1\ntorch.zeros(10)", store_history=True)
    states = random.getstate(), torch.get_rng_state().tolist()
    names, history = set(shell.user_ns), list(shell.user_ns["In"])
    jupyter_gpumem.snapshot(), jupyter_gpumem.plan(), jupyter_gpumem.free()
    assert (random.getstate(), torch.get_rng_state().tolist()) == states
    assert set(shell.user_ns) == names
    assert shell.user_ns["In"] == history


def test_namespace_of_a_script_goes_unless_a_function_of_it_is_used(shell, tmp_path):
    (tmp_path / "left.py").write_text("import torch\nbig = torch.zeros(1000)\n")
    (tmp_path / "used.py").write_text("import torch\ntable = torch.zeros(2000)\ndef look(i):\n    return float(table[i])\n")
    shell.run_cell(f"%run {tmp_path / 'left.py'}\ndel big")
    shell.run_cell(f"%run {tmp_path / 'used.py'}\ndel table")
    report = jupyter_gpumem.free()
    assert [a.target for a in report.done if a.step is Step.HIDDEN] == ["namespace of %run left.py"]
    assert shell.user_ns["look"](3) == 0.0
