"""Sizes as text."""
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpumem.units import amount, parse, series, shown, signed


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (1024**2 - 1, "1.0 MiB"),
        (2**30, "1.0 GiB"),
        (80 * 2**30, "80.0 GiB"),
        (-2048, "-2.0 KiB"),
        (None, "N/A"),
    ],
)
def test_shown(nbytes, text):
    assert shown(nbytes) == text


def test_signed_marks_growth_only():
    assert signed(1024) == "+1.0 KiB"
    assert signed(-1024) == "-1.0 KiB"
    assert signed(0) == "0 B"


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [("8GiB", 8 * 2**30), ("512 MB", 512 * 2**20), ("1.5k", 1536), ("17", 17), ("3 B", 3), (" 2TiB ", 2 * 2**40)],
)
def test_parse(text, nbytes):
    assert parse(text) == nbytes


@pytest.mark.parametrize("text", ["", "GiB", "-1GiB", "1 parsec", "1.2.3MiB", "nan"])
def test_parse_says_what_is_accepted(text):
    with pytest.raises(ValueError, match="8GiB"):
        parse(text)


@pytest.mark.parametrize(
    ("size", "nbytes"),
    [("50%", 500), ("12.5 %", 125), ("0.5", 500), (".25", 250), (0.5, 500), (1, 1000), ("100%", 1000), ("2KiB", 2048), (64, 64), ("700", 700), (2048.0, 2048)],
)
def test_an_amount_is_a_size_or_a_share(size, nbytes):
    assert amount(size, 1000) == nbytes


@pytest.mark.parametrize("size", ["", "much", "0", "0%", 0, -5, "-1GiB", "nan", None, True, float("inf")])
def test_an_amount_says_what_is_accepted(size):
    with pytest.raises(ValueError, match="8GiB"):
        amount(size, 1000)


@given(st.integers(min_value=0, max_value=2**60))
def test_shown_is_right_within_its_last_digit(nbytes):
    assert abs(parse(shown(nbytes)) - nbytes) <= max(1, nbytes * 0.051)


def test_a_long_series_keeps_its_beginning_and_its_end():
    assert series([0, 1024, 2048, 3072, 4096]) == "0 → 1.0 KiB → 2.0 KiB → 3.0 KiB → 4.0 KiB"
    assert series([0, 1024, 2048, 3072, 4096, 5120]) == "0 → … → 3.0 KiB → 4.0 KiB → 5.0 KiB"
    assert series(range(1, 9), last=4) == "1 B → … → 5 B → 6 B → 7 B → 8 B"
