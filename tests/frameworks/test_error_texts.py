"""Wordings of public reports: what they say of missing memory, and what is none."""
from __future__ import annotations

import json
from pathlib import Path

import pytest

from jupyter_gpumem.frameworks import error_texts
from jupyter_gpumem.model import DeviceFault, OutOfMemory, to_json

WORDINGS = json.loads((Path(__file__).parent / "wordings.json").read_text())


@pytest.mark.parametrize("case", WORDINGS["out of memory"], ids=lambda case: case["text"][:40])
def test_figures_of_out_of_memory(case):
    found = error_texts.read(case["text"])
    assert isinstance(found, OutOfMemory)
    said = to_json(found)
    assert {name: said[name] for name in case["want"]} == case["want"]
    assert found.text.rstrip("…") in case["text"]


@pytest.mark.parametrize("case", WORDINGS["faults"], ids=lambda case: case["text"][:40])
def test_faults_are_no_shortage(case):
    found = error_texts.read(case["text"])
    assert isinstance(found, DeviceFault)
    assert (found.fault.value, found.dead) == (case["fault"], case["dead"])
    assert found.help
    assert ("restart" in found.help) == found.dead, "only a lost context needs it"


@pytest.mark.parametrize("text", WORDINGS["neither"])
def test_other_errors_say_nothing(text):
    assert error_texts.read(text) is None


def test_a_size_is_as_exact_as_it_is_printed():
    assert error_texts.read("CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0").rounding == pytest.approx((1 << 30) / 200, abs=1)
    assert error_texts.read("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1000 bytes.").rounding == 0
    assert error_texts.read("Unable to allocate 139. MiB for an array with shape (2,) and data type int8").rounding == 1 << 19


def test_an_allocator_that_names_no_device_means_the_default():
    text = next(c["text"] for c in WORDINGS["out of memory"] if c["text"].startswith("simulated"))
    assert error_texts.read(text).device is None
    assert error_texts.read(text, "npu").device == "npu:1"


def test_a_long_text_is_read_at_both_ends_and_quickly_shown():
    filler = "allocation: 1.00MiB\n" * 50_000
    assert error_texts.read("RESOURCE_EXHAUSTED: Out of memory allocating 7 bytes.\n" + filler).asked == 7
    assert error_texts.read(filler + "CUDA error: device-side assert triggered").dead
    assert len(error_texts.read("CUDA error: out of memory" + "x" * 9000).text) == 300


def test_lines_of_a_traceback_that_is_only_text():
    text = 'Caught X in worker 0.\n  File "/a/b.py", line 12, in fetch\n    y\n  File "<ipython-input-3-abc>", line 4, in __getitem__\nX'
    assert list(error_texts.frames(text)) == [("/a/b.py", 12, "fetch"), ("<ipython-input-3-abc>", 4, "__getitem__")]
