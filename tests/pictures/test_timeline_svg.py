"""The watched cells as bars."""
from __future__ import annotations

import re
import sys
from pathlib import Path

from jupyter_gpumem import model
from jupyter_gpumem.pictures.timeline_svg import timeline_svg

sys.path.insert(0, str(Path(__file__).parent))
import records
from records import GIB


def cell(number, stayed, peak, device="cuda:0"):
    return model.CellUse(f"cell [{number}]", (), (model.Allocator("torch", device, stayed, None, peak),))


def heights(source):
    return [float(h) for h in re.findall(r'<rect [^>]*height="([\d.]+)"', source)]


def test_a_bar_is_as_high_as_the_peak_and_filled_as_far_as_it_stayed():
    source = timeline_svg(model.Timeline((cell(1, GIB, 4 * GIB), cell(2, 2 * GIB, 2 * GIB))))
    top, filled, second, second_filled = heights(source)
    assert (top / filled, second, second_filled) == (4, top / 2, top / 2)
    assert "cell [1]: 1.0 GiB, peak 4.0 GiB" in source
    assert 'aria-label="2 cells: cuda:0 up to 4.0 GiB' in source


def test_each_device_has_its_row_and_its_scale():
    source = timeline_svg(model.Timeline((cell(1, GIB, GIB), cell(2, 1024, 1024, "cuda:1"))))
    assert source.count("peak of each cell") == 2
    assert sorted(set(heights(source))) == [0.0, 110.0]


def test_only_the_newest_of_very_many():
    source = timeline_svg(model.Timeline(tuple(cell(n, n, n) for n in range(1000))))
    assert "cell [999]:" in source and "cell [10]:" not in source
    assert len(source) < 60_000


def test_without_a_device_in_use_there_is_nothing_to_draw():
    assert timeline_svg(model.Timeline(())) is None
    assert timeline_svg(model.Timeline((cell(1, 0, 0),))) is None


def test_titles_are_text():
    assert "<b>" not in timeline_svg(model.Timeline((model.CellUse("<b>", (), records.AFTER),)))
