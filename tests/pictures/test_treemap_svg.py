"""Areas as SVG: exact, inside each other, and escaped."""
from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from jupyter_gpumem import model
from jupyter_gpumem.pictures.treemap_svg import squarified, treemap_svg

sys.path.insert(0, str(Path(__file__).parent))
import records


@settings(phases=[Phase.generate], max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=60), st.floats(10, 1000), st.floats(10, 1000))
def test_areas_are_as_the_sizes_and_lie_in_the_box(sizes, width, height):
    sizes.sort(reverse=True)
    boxes = list(squarified(sizes, (5.0, 7.0, width, height)))
    assert len(boxes) == len(sizes)
    scale = width * height / sum(sizes)
    for size, box in zip(sizes, boxes, strict=True):
        assert box.width * box.height == pytest.approx(size * scale, rel=1e-6, abs=1e-6)
        assert box.x >= 5 - 1e-6 and box.x + box.width <= 5 + width + 1e-6
        assert box.y >= 7 - 1e-6 and box.y + box.height <= 7 + height + 1e-6


def test_equal_sizes_in_a_square_are_squares():
    assert {(round(box.width), round(box.height)) for box in squarified([1] * 9, (0, 0, 30, 30))} == {(10, 10)}


def test_what_is_held_is_drawn_and_said():
    source = treemap_svg(records.SNAPSHOT)
    assert source.startswith("<svg") and source.endswith("</svg>")
    assert "name19" in source and "Out[3]" in source
    assert re.search(r'aria-label="[^"]*held in 23 storages', source)
    assert "cached by torch" in source
    assert len(source) < 30_000


def test_no_text_is_wider_than_its_tile():
    rects = re.findall(r'<g><title>.*?</title><rect x="(.*?)" y=".*?" width="(.*?)".*?/>(.*?)</g>', treemap_svg(records.SNAPSHOT))
    assert rects
    for _, width, texts in rects:
        for text in re.findall(r">([^<]+)</text>", texts):
            assert len(text) * 6 < float(width)


def test_thousands_of_storages_stay_small():
    many = tuple(records.holding(f"model.layers[{i}].weight", 1 << 20, name="model") for i in range(10_000))
    assert len(treemap_svg(model.Snapshot(1.0, ("cuda:0",), (), (), many))) < 150_000


def test_names_are_text():
    evil = "<script>alert(1)</script>\"'&"
    source = treemap_svg(model.Snapshot(1.0, ("cuda:0",), (), (), (records.holding(evil, name=evil),)))
    assert "<script" not in source
    assert "&lt;script" in source


def test_where_nothing_is_held_there_is_nothing_to_draw():
    assert treemap_svg(records.EMPTY) is None
