"""Forecast peaks beside those of the calls themselves, each kind of model in a process of its own."""
from __future__ import annotations

import sys
from pathlib import Path

import pytest

CALLS = Path(__file__).resolve().parents[1] / "analysis"
sys.path.insert(0, str(CALLS))

from calls import KINDS  # noqa: E402


@pytest.mark.parametrize("kind", KINDS)
def test_forecast(row, run_on, kind):
    source = f"import sys, json; sys.path.insert(0, {str(CALLS)!r}); import calls; print(json.dumps(calls.measured([{kind!r}])))"
    got = run_on("cuda", source).json
    errors = [abs(peak - true) / true for _, _, _, peak, true, *_ in got]
    assert all(untouched for *_, untouched in got)
    assert max(errors) <= 0.05
    largest = max(true for _, _, _, _, true, *_ in got)
    row(f"forecast of {kind}, up to {largest / 2**20:.1f} MiB", f"{max(errors):.2%}, exact {errors.count(0)} of {len(errors)}", "5%")
