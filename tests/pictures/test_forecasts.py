"""A forecast as one reads it."""
from __future__ import annotations

from jupyter_gpumem.model import BatchPeak, DevicePeak, Entry, Forecast, PeakOperation
from jupyter_gpumem.pictures import html, text

MIB = 1 << 20


def forecast(fits=True, **more):
    peak = DevicePeak(
        device="cuda:0",
        baseline=10 * MIB,
        peak=100 * MIB,
        after=12 * MIB,
        reserved=120 * MIB,
        limit=200 * MIB,
        fits=fits,
        parts=(Entry("parameters", 10 * MIB), Entry("activations", 90 * MIB)),
        operation=PeakOperation("aten.mm", "float32 8×8", "cell [3], line 2: y = x @ w"),
    )
    return Forecast("step(x)", (peak,), **more)


def test_the_peak_its_parts_and_its_line():
    words = text.render(forecast())
    assert "Forecast of step(x) on cuda:0: peak 100.0 MiB, fits" in words
    assert "parameters 10.0 MiB" in words
    assert "activations 90.0 MiB" in words
    assert "at the peak +90.0 MiB, afterwards +2.0 MiB" in words
    assert "aten.mm: float32 8×8, cell [3], line 2: y = x @ w" in words


def test_batches_and_the_largest():
    rows = (BatchPeak(8, (("cuda:0", 100 * MIB),), True), BatchPeak(16, (), None, "a mask needs values"))
    words = text.render(forecast(batch=8, batches=rows, largest=9, notes=("workspaces are not counted",)))
    assert "the largest that fits is 9" in words
    assert "8 (now)" in words
    assert "cannot be made" in words
    assert "batch 16: a mask needs values" in words
    assert "workspaces are not counted" in words
    assert "at least 9 fits" in text.render(forecast(batch=8, batches=rows, largest=9, exact=False))
    assert "none fits" in text.render(forecast(False, batch=8, batches=rows, largest=0))


def test_what_does_not_fit_says_so():
    assert "does not fit" in text.render(forecast(fits=False))
    assert "does not fit" in html.render(forecast(fits=False))


def test_a_call_without_memory():
    assert "no memory" in text.render(Forecast("step(x)", (), notes=("it allocates nothing",)))


def test_names_are_text_to_a_page():
    assert "<b>" not in html.render(Forecast("f('<b>')", ()))
