"""All references from the roots down to some objects."""
from __future__ import annotations

import torch

from jupyter_gpumem.analysis.ancestors import Ancestors
from jupyter_gpumem.analysis.references import Root, walk
from jupyter_gpumem.model import Cause


def ancestors(targets, **names):
    roots = [Root(name, Cause.NAME, value, name) for name, value in names.items()]
    return Ancestors(walk([roots], (), (), exhaustive=True, every_edge=True), targets)


def test_every_root_has_its_shortest_way():
    target = torch.zeros(1)
    box = [target]
    found = ancestors([(target, 0)], near=box, far=[[box]], other=[1])
    assert [(way.root.label, len(way.objects)) for way in found.ways()] == [("near", 2), ("far", 4)]


def test_a_value_of_two_roots_has_both():
    target = torch.zeros(1)
    assert sorted(way.root.label for way in ancestors([(target, 0)], a=target, b=target).ways()) == ["a", "b"]


def test_a_graph_is_the_last_way_to_be_taken():
    leaf = torch.ones(3, requires_grad=True)
    middle = leaf * 2
    loss = (middle * middle).sum()
    found = ancestors([(middle, 0)], loss=loss, kept=[[[[middle]]]])
    assert [way.root.label for way in found.ways()] == ["kept", "loss"]


def test_what_was_asked_for_goes_before_what_it_consists_of():
    target = torch.zeros(1)
    box = [target]
    found = ancestors([(box, 0), (target, 1000)], deep=[[box]], direct=[target])
    assert [(way.root.label, way.objects[-1] is box) for way in found.ways()] == [("deep", True), ("direct", False)]


def test_all_references_among_them_are_kept():
    target = torch.zeros(1)
    left, right = [target], (target,)
    found = ancestors([(target, 0)], a=[left, right])
    assert {(type(holder), held is target) for holder, held in found.edges} >= {(list, True), (tuple, True), (list, False)}


def test_cleared_it_keeps_nothing():
    target = torch.zeros(1)
    found = ancestors([(target, 0)], a=[target])
    found.clear()
    assert not found.objects and not found.edges and not found.roots
