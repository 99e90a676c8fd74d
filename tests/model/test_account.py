"""Segments know what pins them, and a sum tells unknown from nothing."""
from __future__ import annotations

from jupyter_gpumem.model import Block, Entry, Segment, Sum


def test_a_sum_tells_unknown_from_nothing():
    found = Sum(10, (Entry("names", 7), Entry("rounding", None)))
    assert (found.of("names"), found.of("rounding"), found.of("graphs")) == (7, None, 0)


def test_what_pins_a_segment_is_in_use_and_largest_first():
    blocks = (Block(0, 4, "allocated"), Block(4, 6, "free"), Block(10, 5, "awaiting"))
    segment = Segment("cuda:0", 0, 15, "large", blocks)
    assert segment.free == 6
    assert not segment.returnable
    assert [block.nbytes for block in segment.pins] == [5, 4]


def test_a_full_segment_pins_nothing_and_an_empty_one_goes_back():
    assert Segment("cuda:0", 0, 4, "small", (Block(0, 4, "allocated"),)).pins == ()
    empty = Segment("cuda:0", 0, 4, "small", (Block(0, 4, "free"),))
    assert empty.returnable and empty.pins == ()
