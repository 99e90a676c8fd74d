"""Graphs as drawings: labels stay text, several fit in a page, and without graphviz there is the text."""
from __future__ import annotations

from xml.etree import ElementTree

import pytest

from jupyter_gpumem import model
from jupyter_gpumem.model import GraphNode
from jupyter_gpumem.pictures import text
from jupyter_gpumem.pictures.graph_svg import graph_svg

MIB = 1 << 20
EVIL = "<b>x</b> %{x} $a$ <script>alert(1)</script> <a href='javascript:alert(1)'>&lt;"
GRAPH = model.Graph(
    "loss", 5 * MIB,
    (GraphNode(0, "MulBackward0", 4 * MIB, ("self float32 1024×1024",)), GraphNode(1, EVIL + '\\N "q" \n', MIB), GraphNode(2, "w", 0, (), True)),
    ((0, 1), (0, 2), (1, 2), (2, 77)), left_out=4,
)


@pytest.fixture(scope="module")
def svg():
    found = graph_svg(GRAPH)
    if found is None:
        pytest.skip("graphviz is not installed")
    return found


def test_a_graph_is_drawn_with_labels_and_bytes(svg):
    tree = ElementTree.fromstring(svg)
    words = [element.text for element in tree.iter("{http://www.w3.org/2000/svg}text")]
    for fact in ("MulBackward0", "4.0 MiB", "w", "… and 4 more operations"):
        assert fact in words
    assert "self float32 1024×1024" in svg
    assert tree.get("aria-label") == "Graph of loss: 3 operations, 5.0 MiB"


def test_a_wide_graph_is_fitted_and_a_narrow_one_is_not_blown_up(svg):
    narrow = model.Graph("loss", 0, (GraphNode(0, "MulBackward0", 0),), ())
    assert ElementTree.fromstring(graph_svg(narrow)).get("width", "").endswith("pt")
    leaves = tuple(GraphNode(n, f"parameter_{n}", 0, (), True) for n in range(1, 12))
    wide = model.Graph("loss", 0, (GraphNode(0, "CatBackward0", 0), *leaves), tuple((0, leaf.number) for leaf in leaves))
    tree = ElementTree.fromstring(graph_svg(wide))
    assert (tree.get("width"), tree.get("height")) == (None, None)
    assert float(tree.get("viewBox").split()[2]) > 480


def test_labels_of_a_graph_are_text(svg):
    tree = ElementTree.fromstring(svg)
    words = " ".join(element.text or "" for element in tree.iter("{http://www.w3.org/2000/svg}text"))
    assert EVIL[:60] in words.replace("\xa0", " ")
    tags = {element.tag.rpartition("}")[2] for element in tree.iter()}
    assert tags <= {"svg", "g", "title", "path", "polygon", "ellipse", "text"}


def test_several_graphs_fit_in_one_page(svg):
    assert " id=" not in svg
    assert not svg.startswith("<?xml")


def test_without_dot_there_is_the_text(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert graph_svg(GRAPH) is None
    assert "MulBackward0" in text.render(GRAPH)


@pytest.mark.parametrize("program", ["exit 1", "echo nothing", "echo '<svg' >&2; kill -9 $$"])
def test_a_dot_that_fails_is_no_dot(monkeypatch, tmp_path, program):
    fake = tmp_path / "dot"
    fake.write_text(f"#!/bin/sh\n{program}\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert graph_svg(GRAPH) is None
