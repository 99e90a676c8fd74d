"""Sums over evidence: what only some graphs hold, which graphs are parts of others."""
from __future__ import annotations

import pytest

from jupyter_gpumem.analysis.advice.evidence import Evidence, Forward, Kept, Place, independent, listed, main_device

MIB = 1 << 20


def forward(path, nodes, saved, leaves=(1,)):
    return Forward(path, path, path, False, 1, frozenset(leaves), frozenset(nodes), frozenset(("cuda:0", n) for n in saved), False)


def kept(nbytes):
    return Kept(nbytes, "x", "x", "x", True, "", (), "float32", True, False, "")


def test_what_a_graph_alone_holds():
    out, loss, other = forward("out", {1, 2}, {1, 2}), forward("loss", {1, 2, 3}, {1, 2, 3}), forward("other", {9}, {3, 4})
    evidence = Evidence(("cuda:0",), {("cuda:0", n): kept(n * MIB) for n in range(1, 5)}, forwards=(out, loss, other))
    assert evidence.nbytes(evidence.alone([loss])) == 0
    assert evidence.nbytes(evidence.alone([out, loss])) == 3 * MIB
    assert evidence.nbytes(evidence.alone([out, loss, other])) == 10 * MIB
    assert evidence.roots() == (loss, other)
    assert evidence.by_device([("cuda:0", 1), ("cuda:0", 2), ("cuda:0", 77)]) == {"cuda:0": 3 * MIB}


def test_independent_graphs_share_no_operation():
    a, b, c = forward("a", {1}, ()), forward("b", {1, 2}, ()), forward("c", {3}, ())
    assert independent([a, b, c]) == [a, c]


@pytest.mark.parametrize(("allocated", "least"), [(0, MIB), (50 * MIB, MIB), (500 * MIB, 5 * MIB)])
def test_nothing_is_advised_for_crumbs(allocated, least):
    place = Place("cuda:0", allocated, None, None, (), 0, (), None, None, (), None)
    assert Evidence((), places=(place,)).least("cuda:0") == least


def test_words():
    assert listed(["a", "b", "a"]) == "a, b"
    assert listed("abcdef") == "a, b, c, d and 2 more"
    assert main_device({}) == "" and main_device({"a": 1, "b": 2}) == "b"
