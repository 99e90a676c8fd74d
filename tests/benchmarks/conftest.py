"""One table for all measurements. Nothing here asserts on time: machines differ, ratios in one run are printed."""
from __future__ import annotations

import pytest

_rows: list[tuple[str, str, str]] = []


@pytest.fixture
def row():
    """``row(what, measured, target)`` adds a line to the table."""

    def add(what, measured, target):
        _rows.append((what, measured, target))

    return add


def pytest_terminal_summary(terminalreporter):
    if _rows:
        width = max(len(what) for what, _, _ in _rows)
        terminalreporter.write_line("")
        for what, measured, target in _rows:
            terminalreporter.write_line(f"{what:{width}}  {measured:>24}   target {target}")
