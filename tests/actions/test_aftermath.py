"""What stands below the traceback of a cell that failed, and what only its error held."""
from __future__ import annotations

import gc
import re
import weakref

import pytest

from jupyter_gpumem.faces import showing
from jupyter_gpumem.model import DeviceFault, Diagnosis, Notice

WORK = """
def work(error):
    inside = torch.zeros(250_000)
    refs.append(weakref.ref(inside))
    raise error
"""


@pytest.fixture
def failing(shell, monkeypatch):
    """``failing(cell)`` → what is shown for a cell that fails, and whether its tensors are gone."""
    shown = []
    monkeypatch.setattr(showing, "show", shown.append)
    monkeypatch.setattr(shell, "showtraceback", lambda *args, **kwargs: None)
    shell.user_ns["refs"] = refs = []
    shell.run_cell(f"%load_ext jupyter_gpumem\nimport torch, weakref\n{WORK}").raise_error()

    def run(cell):
        shown.clear()
        refs.clear()
        gc.collect()
        result = shell.run_cell(cell, store_history=True)
        assert not result.success
        return list(shown), [ref() is None for ref in refs]

    return run


def test_out_of_memory_is_explained_and_its_memory_is_back(failing):
    (diagnosis, notice), gone = failing("work(MemoryError())")
    assert isinstance(diagnosis, Diagnosis)
    assert isinstance(notice, Notice)
    assert re.search(r"9\d\d\.\d KiB that only the error held given back", notice.text)  # other tests leave crumbs
    assert gone == [True]


@pytest.mark.parametrize(("setting", "shown", "gone"), [("off", 0, False), ("oom", 0, False), ("any", 1, True)])
def test_another_error_follows_the_setting(failing, shell, setting, shown, gone):
    shell.run_cell(f"%config GPUMem.after_error = {setting!r}")
    seen, dead = failing("work(ValueError())")
    assert (len(seen), dead) == (shown, [gone])


def test_a_lost_context_is_told_and_nothing_is_touched(failing):
    seen, gone = failing("work(RuntimeError('CUDA error: an illegal memory access was encountered'))")
    assert [type(record) for record in seen] == [DeviceFault]
    assert gone == [False]


def test_nothing_held_nothing_said(failing):
    failing("raise MemoryError")  # takes along what other tests have left
    seen, _ = failing("raise MemoryError")
    assert [type(record) for record in seen] == [Diagnosis]


def test_what_the_user_keeps_stays(failing, shell):
    _, gone = failing("try:\n    work(MemoryError())\nexcept MemoryError as error:\n    mine = error\n    raise")
    assert gone == [False]
    assert shell.user_ns["mine"].__traceback__ is not None


def test_a_fault_of_ours_is_one_line(failing, monkeypatch):
    from jupyter_gpumem.analysis.verdict import diagnosis

    monkeypatch.setattr(diagnosis, "judge", lambda *args: 1 / 0)
    seen, gone = failing("work(MemoryError())")
    assert [record.text for record in seen] == [
        "jupyter_gpumem: the cell is untouched, but looking at its error failed: ZeroDivisionError: division by zero"
    ]
    assert gone == [False]


def test_no_object_of_the_cell_is_kept_by_what_was_remembered(failing, shell):
    shell.run_cell("big = torch.zeros(10)")
    ref = weakref.ref(shell.user_ns["big"])
    shell.run_cell("del big")
    assert ref() is None
