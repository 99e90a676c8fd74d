"""What goes, what really came back, who holds the rest."""
from __future__ import annotations

import gc
import sys

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


def test_a_generator_through_which_an_error_passed_goes_on(shell, capsys):
    shell.run_cell(
        "import torch\n"
        "def source():\n    kept = torch.zeros(1000)\n    while True:\n        try:\n            yield 1\n"
        "        except ValueError as e:\n            raised.append(e)\n            yield 2\n"
        "raised = []\ngen = source(); next(gen); gen.throw(ValueError('passed'))\nraise raised.pop()"
    )
    jupyter_gpumem.free()
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


def test_what_the_user_froze_is_frozen_again(shell):
    gc.collect()
    gc.freeze()
    try:
        jupyter_gpumem.free()
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()


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
