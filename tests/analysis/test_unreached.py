"""What no root reaches, told apart without collecting."""
from __future__ import annotations

import gc

import pytest
import torch

from jupyter_gpumem.analysis import holders, unreached
from jupyter_gpumem.model import Cause


class Node:
    pass


def ring():
    first, second = Node(), Node()
    first.next, second.back, first.big = second, first, torch.zeros(1234)


def frame_in_a_ring():
    acts = torch.zeros(1234)
    try:
        raise ValueError(acts is None)
    except ValueError as error:
        kept = error
    return kept is None


def through_cpp():
    seed = torch.ones((), requires_grad=True)
    matrix = torch.zeros(1234) * seed
    row = matrix[:10]
    changed = row * row
    matrix[:10] = changed


@pytest.mark.parametrize(
    ("leave", "cause", "words"),
    [
        (ring, Cause.CYCLE, ["cycle of Node.next → Node.back", "holding Node.big"]),
        (frame_in_a_ring, Cause.FRAME, ["dead", "frame_in_a_ring()", "local 'acts'"]),
        (through_cpp, Cause.GRAPH, ["cycle through C++"]),
    ],
)
def test_causes(leave, cause, words):
    gc.disable()
    try:
        leave()
        found, _ = holders.holdings(None, ["cpu"])
        holding = next(h for h in found if h.nbytes == 1234 * 4 and h.holder.cause is not Cause.UNKNOWN)
    finally:
        gc.enable()
    assert holding.holder.cause is cause, holding.holder
    assert not [word for word in words if word not in holding.holder.path], holding.holder.path
    gc.collect()


def test_looking_collects_nothing():
    gc.collect()
    gc.disable()
    try:
        ring()
        before = [stats["collections"] for stats in gc.get_stats()]
        holders.holdings(None, ["cpu"])
        assert [stats["collections"] for stats in gc.get_stats()] == before
        assert [h for h in holders.holdings(None, ["cpu"])[0] if h.nbytes == 1234 * 4]
    finally:
        gc.enable()
    gc.collect()


def test_where_not_all_is_looked_at_nobody_is_accused(monkeypatch):
    owner = Node()
    owner.me, owner.big = owner, torch.zeros(4321)
    gc.disable()
    try:
        del owner
        assert of_size(4 * 4321).cause is Cause.CYCLE
        monkeypatch.setattr(unreached, "_LIMIT", 5)
        found = of_size(4 * 4321)
    finally:
        gc.enable()
    gc.collect()
    assert (found.path, found.cause) == ("no name found among the 5 youngest objects that nothing reaches", Cause.UNKNOWN)


def of_size(nbytes):
    (found,) = [holding.holder for holding in holders.holdings(None, ["cpu"])[0] if holding.nbytes == nbytes]
    return found
