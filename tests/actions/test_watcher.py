"""Cells and blocks, before and after."""
from __future__ import annotations

import pytest
import torch

import jupyter_gpumem
from jupyter_gpumem.model import CellUse, Freed, Notice, Step


@pytest.fixture
def watched(shell):
    """``watched(cell)`` → what is shown for a cell."""
    shown = []
    shell.run_cell("%load_ext jupyter_gpumem\nimport torch")
    from jupyter_gpumem.faces import showing

    original = showing.show
    showing.show = shown.append

    def run(cell):
        shown.clear()
        shell.run_cell(cell, store_history=True)
        return list(shown)

    yield run
    showing.show = original


def test_a_measured_cell(watched, shell):
    (use,) = watched("%%gpumem\nnew = torch.zeros(1000)")
    assert isinstance(use, CellUse)
    assert use.after[0].allocated - use.before[0].allocated == 4000
    assert [(made.name, made.nbytes) for made in use.made] == [("new", 4000)]
    assert "new" in shell.user_ns


def test_a_cleaned_cell_deletes_what_it_made_and_keeps_what_was_asked(watched, shell):
    shell.run_cell("old = torch.zeros(10)")
    (use,) = watched(
        "%%gpufree --keep kept\nkept = torch.zeros(100)\ngone = torch.zeros(1000)\nold = torch.zeros(50)\nn = 3\ngone * 2"
    )
    assert {"kept", "old", "n"} <= set(shell.user_ns)
    assert "gone" not in shell.user_ns
    assert isinstance(shell.user_ns["_"], Freed)
    assert use.report.freed >= 8000
    assert {action.target for action in use.report.done if action.step is Step.NAME} == {"gone"}
    assert {holding.holder.name for holding in use.report.left} <= {"kept", "old"}


def test_a_number_stays_in_out(watched, shell):
    watched("%%gpufree\nx = torch.ones(10)\nfloat(x.sum())")
    assert shell.user_ns["_"] == 10.0


def test_what_dangled_before_is_not_this_cells_business(watched, shell):
    shell.run_cell("torch.zeros(1000)", store_history=True)
    watched("%%gpufree\ny = torch.ones(5)")
    number = max(n for n, v in shell.user_ns["Out"].items() if torch.is_tensor(v))
    assert torch.is_tensor(shell.user_ns["Out"][number])


def test_a_dry_run_frees_nothing(watched, shell):
    (use,) = watched("%%gpufree --dry-run\nz = torch.zeros(1000)")
    assert use.report is None
    assert (use.plan.actions[0].step, use.plan.actions[0].target) == (Step.NAME, "z")
    assert "z" in shell.user_ns


def test_a_failing_cell_is_cleaned_too(watched, shell, capsys):
    (use,) = watched("%%gpufree\ndef f():\n    inside = torch.zeros(1000)\n    1 / 0\nw = torch.zeros(10)\nf()")
    assert use.failed
    assert use.report.freed >= 4040
    assert "ZeroDivisionError" in capsys.readouterr().out


def test_a_cell_that_failed_before_it_made_what_is_to_be_kept_is_cleaned(watched, shell, capsys):
    (use,) = watched("%%gpufree --keep late\nearly = torch.zeros(1000)\n1 / 0\nlate = torch.zeros(3)")
    assert "early" not in shell.user_ns
    assert use.failed
    capsys.readouterr()


def test_a_name_for_the_shell_itself_holds_nothing(watched, shell):
    shell.run_cell("mine = torch.zeros(1000)")
    watched("%%gpufree\nip = get_ipython()\nspace = globals()")
    assert {"ip", "space", "mine"} <= set(shell.user_ns)


def test_frames_stay_for_the_debugger_when_asked(watched, shell, capsys):
    import sys

    watched("%%gpufree --keep-traceback\ndef f():\n    inside = torch.zeros(1000)\n    1 / 0\nf()")
    trace = sys.last_value.__traceback__
    while trace.tb_next:
        trace = trace.tb_next
    assert "inside" in trace.tb_frame.f_locals
    capsys.readouterr()


def test_cells_that_a_magic_runs_nest(watched, shell):
    shown = watched("%%capture held\n%%gpufree\nv = torch.zeros(1000)")
    assert len(shown) == 1
    assert shown[0].report.freed >= 4000


@pytest.mark.parametrize("cell", ["%%time\n%%gpufree\nv = torch.zeros(1000)", "%%gpufree\n%%time\nv = torch.zeros(1000)"])
def test_above_and_below_another_magic(watched, shell, cell, capsys):
    (use,) = watched(cell)
    assert use.report.freed >= 4000
    assert "Wall time" in capsys.readouterr().out


def test_every_cell_in_one_line_and_off_again(watched, shell):
    shell.run_cell("%gpumem on")
    (use,) = watched("1 + 1")
    assert use.brief
    shell.run_cell("%gpumem off")
    assert watched("1 + 1") == []


def test_a_large_value_that_only_out_keeps_is_said_once(watched, shell):
    shell.run_cell("%config GPUMem.output_share = 1e-7\n%gpumem on")
    shown = watched("torch.zeros(100_000)")
    assert [s.text for s in shown if isinstance(s, Notice)] == [
        f"gpumem: Out[{max(shell.user_ns['Out'])}] alone keeps 390.6 KiB; %gpufree gives it back"
    ]
    assert not [s for s in watched("_") if isinstance(s, Notice)]
    assert not [s for s in watched("named = torch.zeros(100_000)\nnamed") if isinstance(s, Notice)]


def test_names_that_are_always_kept(watched, shell):
    shell.run_cell("%config GPUMem.keep = ['best']")
    watched("%%gpufree\nbest = torch.zeros(10)\nother = torch.zeros(10)")
    assert "best" in shell.user_ns
    assert "other" not in shell.user_ns


def test_our_own_fault_is_one_line_and_the_cell_is_untouched(watched, shell, monkeypatch):
    from jupyter_gpumem.actions import watcher

    def fail(*_, **__):
        raise RuntimeError("out of order")

    monkeypatch.setattr(watcher, "watched_devices", fail)
    (notice,) = watched("%%gpumem\nhappened = 1")
    assert "out of order" in notice.text
    assert shell.user_ns["happened"] == 1


def test_watch_is_a_context_manager_and_a_decorator(capsys):
    with jupyter_gpumem.watch("block", show=lambda use: None) as seen:
        kept = torch.zeros(1000)
    assert seen.use.after[0].allocated - seen.use.before[0].allocated == kept.nbytes

    @jupyter_gpumem.watch("make")
    def make(n):
        """Make."""
        return torch.zeros(n)

    assert make(5).numel() == 5
    assert make.__doc__ == "Make."
    assert capsys.readouterr().out.startswith("gpumem make: cpu ")


def test_watch_lets_errors_pass():
    with pytest.raises(ZeroDivisionError), jupyter_gpumem.watch(show=lambda use: None) as seen:
        1 / 0
    assert seen.use.failed


FIRST = """
import os, tempfile
os.environ["IPYTHONDIR"] = tempfile.mkdtemp()
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_cell("%load_ext jupyter_gpumem")
from jupyter_gpumem.faces import showing
shown = []
showing.show = shown.append
shell.user_ns["DEVICE"] = DEVICE
shell.run_cell("%%gpumem\\nimport torch\\nx = torch.zeros(1 << 20, device=DEVICE)")
(use,) = shown
import json
print(json.dumps([[(a.device, a.allocated) for a in use.before], [(a.device, a.allocated, a.peak) for a in use.after], [m.name for m in use.made]]))
"""


@pytest.mark.parametrize("device", ["cuda", "simgpu"])
def test_the_cell_that_begins_to_use_a_device_is_measured_on_it(run_on, device):
    before, after, made = run_on(device, FIRST).json
    assert (f"{device}:0", 0) in map(tuple, before)
    assert [f"{device}:0", 4 << 20, 4 << 20] in after
    assert made == ["x"]
