"""Completion of names and flags."""
from __future__ import annotations

from types import SimpleNamespace

import pytest

from jupyter_gpumem.faces.completion import complete


def offered(shell, line):
    symbol = "" if line.endswith((" ", ",")) else line.split()[-1].split(",")[-1]
    return complete(shell, SimpleNamespace(line=line, symbol=symbol, command=line.split()[0]))


@pytest.mark.parametrize(
    ("line", "wanted", "unwanted"),
    [
        ("%gpufree ", ["model", "--dry-run"], []),
        ("%gpufree mo", ["model"], []),
        ("%gpumem --w", ["--why"], ["model"]),
        ("%%gpufree --", ["--keep", "--dry-run"], ["model"]),
        ("%%gpufree --keep ", ["model"], []),
        ("%%gpumem ", ["--device"], ["--keep"]),
    ],
)
def test_offers(shell, line, wanted, unwanted):
    shell.run_cell("model = 1")
    found = offered(shell, line)
    assert set(wanted) <= set(found)
    assert not set(unwanted) & set(found)
