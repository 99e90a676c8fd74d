"""A move to host memory and back, in words."""
from __future__ import annotations

from jupyter_gpumem.model import Allocator, Direction, Moved, Parking
from jupyter_gpumem.pictures import html, text

MOVED = (Moved("model", "cuda:0", 3 << 20, 2, 5), Moved("<b>", "cuda:0", 1 << 20, 1, 1))
BEFORE = (Allocator("torch", "cuda:0", 4 << 20, 20 << 20, 4 << 20),)
AFTER = (Allocator("torch", "cuda:0", 0, 2 << 20, 4 << 20),)


def test_parked_says_what_moved_and_how_it_comes_back():
    said = text.render(Parking(Direction.PARK, MOVED, True, BEFORE, AFTER, notes=("one more moves along",)))
    assert said.splitlines()[0] == "To host memory: 4.0 MiB"
    assert "model" in said and "2 storages, 5 tensors" in said and "3.0 MiB" in said
    assert "cuda:0: allocated 4.0 MiB → 0 B, reserved 20.0 MiB → 2.0 MiB" in said
    assert "one more moves along" in said
    assert "%gpurestore model <b>" in said


def test_a_plan_says_that_nothing_has_moved_and_what_is_in_the_way():
    said = text.render(Parking(Direction.PARK, MOVED, False, obstacles=("model: a graph uses it",)))
    assert "nothing has moved" in said
    assert "in the way: model: a graph uses it" in said
    assert "%gpurestore" not in said


def test_restored():
    said = text.render(Parking(Direction.RESTORE, MOVED, True, AFTER, BEFORE))
    assert said.splitlines()[0] == "Back on the device: 4.0 MiB"
    assert "%gpurestore" not in said


def test_names_are_text_in_html():
    page = html.render(Parking(Direction.PARK, MOVED, True, BEFORE, AFTER))
    assert "<b>" not in page
    assert "&lt;b&gt;" in page
