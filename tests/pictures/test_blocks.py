"""Records to blocks."""
from __future__ import annotations

import sys
from pathlib import Path

import pytest

from jupyter_gpumem import model
from jupyter_gpumem.pictures import blocks

sys.path.insert(0, str(Path(__file__).parent))
import records


def test_the_parts_of_a_device_add_up():
    bar = next(b for b in blocks.blocks(records.SNAPSHOT) if isinstance(b, blocks.Bar))
    assert sum(segment.nbytes for segment in bar.segments) == records.GPU.total


def test_what_no_process_answers_for_is_shown():
    bar = next(b for b in blocks.blocks(records.SNAPSHOT) if isinstance(b, blocks.Bar))
    assert {s.kind: s.nbytes for s in bar.segments}["unattributed"] == 1 << 30


def test_names_are_ordered_by_what_they_hold_and_cut_with_a_count():
    table = next(b for b in blocks.blocks(records.SNAPSHOT) if isinstance(b, blocks.Table))
    assert [row[0] for row in table.rows][:2] == ["name19", "name18"]
    assert len(table.rows) == blocks.MOST_ROWS
    assert table.cut.startswith("… and 8 more")


def test_dangling_is_told_by_its_causes_with_the_cure():
    lines = [b for b in blocks.dangling(records.SNAPSHOT) if isinstance(b, blocks.Line)]
    assert [(line.text.partition(":")[0], line.code) for line in lines] == [
        ("the last error", "%gpufree"),
        ("the output history", "%gpufree"),
        ("held by something that Python cannot see", ""),
    ]


@pytest.mark.parametrize("cause", [cause for cause in model.Cause if cause.dangling])
def test_every_dangling_cause_has_words(cause):
    snapshot = model.Snapshot(1.0, ("cpu",), (), (), (records.holding("x", cause=cause),))
    line = next(b for b in blocks.dangling(snapshot) if isinstance(b, blocks.Line))
    assert (line.code == "%gpufree") is cause.freeable
