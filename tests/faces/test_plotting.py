"""Figures reach the front end as data, with their words."""
from __future__ import annotations

import pytest

from jupyter_gpumem.faces import plotting

PLOTLY = "application/vnd.plotly.v1+json"


@pytest.fixture
def shown(shell, monkeypatch):
    bundles = []
    monkeypatch.setattr(plotting, "show_bundle", bundles.append)
    shell.run_cell("%load_ext jupyter_gpumem\nimport torch\nw = torch.ones(1000, requires_grad=True)\nloss = (w * w).sum()")

    def run(cell):
        bundles.clear()
        shell.run_cell(cell)
        return list(bundles)

    return run


def test_a_treemap_is_data_and_words(shown):
    (bundle,) = shown("%gpumem --plot treemap")
    assert bundle[PLOTLY]["data"][0]["type"] == "treemap"
    assert "KiB" in bundle["text/plain"] or "MiB" in bundle["text/plain"]


def test_a_timeline_has_the_cells_that_were_watched(shown, capsys):
    assert shown("%gpumem --plot timeline") == []
    assert "no cell has been watched yet" in capsys.readouterr().err
    shown("%%gpumem\nbig = torch.zeros(1000)")
    (bundle,) = shown("%gpumem --plot timeline")
    assert bundle[PLOTLY]["data"]


def test_a_graph_is_drawn_or_written(shown):
    (bundle,) = shown("%gpumem --plot graph loss")
    assert "MulBackward0" in bundle["text/plain"]


def test_segments_are_refused_where_nobody_lists_them(shown, capsys):
    assert shown("%gpumem --plot segments") == []
    assert "lists the segments" in capsys.readouterr().err


def test_without_plotly_one_line_says_what_is_missing(shown, capsys, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "plotly", None)
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    monkeypatch.delitem(sys.modules, "jupyter_gpumem.pictures.plots", raising=False)
    assert "MulBackward0" in shown("%gpumem --plot graph loss")[0]["text/plain"], "a graph needs none"
    assert shown("%gpumem --plot treemap") == []
    assert "pip install plotly" in capsys.readouterr().err
