"""What can be let go of, and the smallest set of it."""
from __future__ import annotations

import functools

import torch

from jupyter_gpumem.analysis import cuts
from jupyter_gpumem.analysis.ancestors import Ancestors
from jupyter_gpumem.analysis.references import Root, walk
from jupyter_gpumem.model import Cause


def smallest(target, causes=(), **names):
    roots = [Root(name, Cause.NAME, value, name) for name, value in names.items()]
    roots += [Root(cause.value, cause, value) for cause, value in causes]
    found = walk([roots], (), (), exhaustive=True, every_edge=True)
    return cuts.smallest(Ancestors(found, [(target, 0)]), {id(target)})


def test_what_no_root_reaches_needs_no_cut():
    assert smallest(torch.zeros(1), a=[1]) == []


def test_a_name_is_cut_before_what_lies_inside():
    target = torch.zeros(1)
    (cut,) = smallest(target, a=[[target]])
    assert cut.root.label == "a"


def test_where_ways_meet_one_cut_is_enough():
    target = torch.zeros(1)
    box = [target]
    (cut,) = smallest(target, a=[box], b=(box,))
    assert cut.holder is box and cut.held is target


def test_a_tuple_cannot_let_go():
    target = torch.zeros(1)
    box = (target,)
    assert {cut.root.label for cut in smallest(target, a=[box], b={"k": box})} == {"a", "b"}


def test_the_keywords_of_a_partial_are_its_own_affair():
    target = torch.zeros(1)
    call = functools.partial(print, end=target)
    assert {cut.root.label for cut in smallest(target, a=call, b=call)} == {"a", "b"}


def test_running_code_cannot_be_cut():
    target = torch.zeros(1)
    assert smallest(target, [(Cause.RUNNING, target)]) is None
    (cut,) = smallest(target, [(Cause.OUTPUT, target)])
    assert cut.root.cause is Cause.OUTPUT


def test_more_cuts_than_a_person_would_do_are_not_told():
    target = torch.zeros(1)
    assert smallest(target, **{f"n{index}": target for index in range(40)}) is None


def test_a_gradient_can_be_let_go():
    leaf = torch.zeros(1, requires_grad=True)
    leaf.grad = torch.ones(1)
    (cut,) = smallest(leaf.grad, a=(leaf,), b=(leaf,))
    assert cut.holder is leaf
