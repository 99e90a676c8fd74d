"""Samples of a live display, and the line of the past."""
from __future__ import annotations

import re

import pytest

from jupyter_gpumem import model
from jupyter_gpumem.pictures import html, text
from jupyter_gpumem.pictures.moments import SECONDS, Moment, moments, picture

GIB = 1 << 30
GPU = model.Device("GPU-1", "gpu", 0, "A100", 80 * GIB, 9 * GIB, 71 * GIB, alias="cuda:0")
HOST = model.Device("cpu", "host", None, "Host memory", 64 * GIB, 8 * GIB, 56 * GIB, alias="cpu")
SHARES = model.Shares(6 * GIB, None, GIB, 0, 71 * GIB)
POOL = model.Allocator("torch", "cuda:0", 4 * GIB, 5 * GIB, 6 * GIB)


def sample(*devices, at=1000.0, allocators=(POOL,), running=None, problem=None):
    return model.Sample(at, devices, (SHARES,) * len(devices), (), allocators, running, problem)


def points(source, shape="polygon"):
    return [tuple(map(int, pair.split(","))) for pair in re.search(rf'<{shape} points="([^"]*)"', source)[1].split()]


@pytest.mark.parametrize("render", [text.render, html.render], ids=["text", "html"])
def test_a_sample_has_words(render):
    said = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", render(sample(HOST, GPU, problem="No second GPU."))))
    for fact in ("A100", "9.0 GiB of 80.0 GiB used", "this notebook 6.0 GiB", "free 71.0 GiB", "No second GPU.",
                 "torch: allocated 4.0 GiB, reserved 5.0 GiB, peak 6.0 GiB", "no cell is running"):
        assert fact in said
    assert said.index("A100") < said.index("Host memory"), "the host comes last"


def test_a_device_that_only_a_framework_knows():
    strange = model.Allocator("torch", "xpu:0", GIB)
    seen = sample(HOST, allocators=(strange,))
    assert "memory of the device N/A" in text.render(seen)
    assert moments(seen)["xpu:0"] == Moment(1000.0, None, GIB)
    past = {"xpu:0": [Moment(990.0, None, 0), Moment(1000.0, None, GIB)]}
    assert "allocated 0 B to 1.0 GiB in the 10 s" in picture(seen, past)


@pytest.mark.parametrize(
    ("seconds", "words"), [(0, "for 0 s"), (59, "for 59 s"), (185, "for 3 min 5 s"), (7800, "for 2 h 10 min")]
)
def test_how_long_a_cell_has_been_running(seconds, words):
    run = model.CellRun(None, "c", 1000.0 - seconds)
    assert f"a cell has been running {words}" in text.render(sample(GPU, running=run))


def test_the_line_ends_now_and_is_as_high_as_the_most():
    past = {"GPU-1": [Moment(1000.0 - 60 + n, n * GIB, 0) for n in range(61)]}
    drawn = points(picture(sample(GPU), past))
    assert drawn[0][0] < drawn[-1][0] == 600
    assert min(y for _, y in drawn) == 1
    assert "used 0 B to 60.0 GiB in the 60 s up to" in picture(sample(GPU), past)


def test_what_is_long_ago_is_not_drawn_and_many_points_are_few():
    past = {"GPU-1": [Moment(1000.0 - n / 10, GIB, GIB) for n in range(20 * SECONDS, -1, -1)]}
    source = picture(sample(GPU), past)
    assert len(points(source, "polyline")) <= 76
    assert "in the 5 min" in source


def test_a_short_peak_is_seen():
    past = {"GPU-1": [Moment(1000.0 - n / 10, (50 if n == 1234 else 1) * GIB, 0) for n in range(3000, -1, -1)]}
    assert min(y for _, y in points(picture(sample(GPU), past))) == 1


def test_the_first_sample_has_no_line():
    assert "<svg" not in picture(sample(GPU), {"GPU-1": [Moment(1000.0, GIB, 0)]})
    assert "<svg" not in picture(sample(GPU), {})
