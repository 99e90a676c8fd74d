"""Records as text."""
from __future__ import annotations

import sys
from pathlib import Path

import pytest

from jupyter_gpumem import model
from jupyter_gpumem.pictures import text

sys.path.insert(0, str(Path(__file__).parent))
import records


@pytest.mark.parametrize("name", records.ALL)
def test_says_the_facts(name):
    said = text.render(records.ALL[name])
    missing = [fact for fact in records.FACTS[name] if fact not in said]
    assert not missing, f"{missing}\n{said}"


def test_a_watched_cell_is_one_line():
    assert "\n" not in text.render(records.BRIEF)


def test_unknown_is_never_zero():
    assert "0 B of" not in text.render(model.Snapshot(1.0, ("cuda",), (records.MUTE,), (), ()))


def test_the_bar_is_as_wide_as_the_device_is_large():
    bar = next(line for line in text.render(records.SNAPSHOT).splitlines() if line.startswith("  ["))
    assert len(bar) == 64
    assert bar.count("█") == 3


def test_names_cannot_move_the_cursor():
    evil = records.holding("a\n\x1b[2Jb\u202e", name="a\n\x1b[2Jb\u202e")
    said = text.render(model.Snapshot(1.0, ("cpu",), (), (), (evil,)))
    assert "\x1b" not in said
    assert "\u202e" not in said
    assert "\\n\\x1b[2Jb" in said


def test_long_paths_keep_their_ends():
    path = "trainer." + "x" * 200 + ".weight"
    said = text.render(model.Snapshot(1.0, ("cpu",), (), (), (records.holding(path, cause=model.Cause.OUTPUT),)))
    assert "trainer.xxx" in said
    assert ".weight" in said
    assert max(map(len, said.splitlines())) <= 120


def test_what_is_no_record_is_refused():
    with pytest.raises(TypeError, match="no picture of a int"):
        text.render(3)
