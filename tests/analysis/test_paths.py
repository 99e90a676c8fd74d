"""Paths in a person's words."""
from __future__ import annotations

import collections

import torch
from torch import nn

from jupyter_gpumem.analysis import paths, words
from jupyter_gpumem.analysis.references import Root, walk
from jupyter_gpumem.model import Cause


def path(value, target, name="x"):
    found = walk([[Root(name, Cause.NAME, value, name)]], [[target]], ())
    return paths.holder(found, target).path


T = torch.zeros(3)
Pair = collections.namedtuple("Pair", "left right")


class Thing:
    def __init__(self, kept):
        self.kept = kept

    def method(self):
        return self.kept


class Slotted:
    __slots__ = ("kept",)


def error():
    def step():
        acts = T
        raise ValueError(acts is None)

    try:
        step()
    except ValueError as caught:
        return caught


def test_an_error_is_told_by_the_frame_and_its_local():
    assert path(error(), T) == f"x: frame of step(), line {error.__code__.co_firstlineno + 3}, local 'acts'"


def test_weights_are_named_by_the_model_and_states_by_their_weight():
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2)))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    roots = [Root("optimizer", Cause.NAME, optimizer, "optimizer"), Root("model", Cause.NAME, model, "model")]
    weight = model[1][0].weight
    state = optimizer.state[weight]["exp_avg"]
    found = walk([roots], [[weight], [state]], ())
    assert paths.holder(found, weight).path == "model.1.0.weight"
    assert paths.holder(found, state).path == "optimizer.state[model.1.0.weight]['exp_avg']"


def test_a_graph_is_one_word_with_the_number_of_what_it_saved():
    weight = torch.ones(3, requires_grad=True)
    inner = weight * 2
    history = [{"loss": inner.exp().sum()}]
    found = walk([[Root("history", Cause.NAME, history, "history")]], [[inner]], ())
    del inner
    saved = [t for t in found.tensors if t is not weight and t is not history[0]["loss"]]
    assert paths.holder(found, saved[0]).path.startswith("history[0]['loss'] → graph (")


def test_keys_that_run_code_are_named_by_their_type():
    class Key:
        def __repr__(self):
            raise RuntimeError

        __eq__ = object.__eq__
        __hash__ = object.__hash__

    assert path({Key(): T}, T) == "x[Key]"


def test_an_output_says_what_it_is():
    found = walk([[Root("Out[3]", Cause.OUTPUT, Thing(T))]], [[T]], ())
    assert paths.holder(found, T).path == "Out[3] (Thing).kept"


def test_a_graph_is_gone_through_once_for_all_tensors_in_it(monkeypatch):
    x = torch.ones(10, requires_grad=True)
    y, saved = x, []
    for _ in range(100):
        saved.append(torch.exp(y))
        y = saved[-1] * x
    value = {"losses": [0.5, y]}
    alone = {path(value, tensor) for tensor in saved}
    counted = []
    true = words.saved_tensors
    monkeypatch.setattr(words, "saved_tensors", lambda start: (counted.append(start), true(start))[1])
    found = walk([[Root("x", Cause.NAME, value, "x")]], [[tensor] for tensor in saved], ())
    together = {paths.holder(found, tensor).path for tensor in saved}
    assert together == alone == {"x['losses'][1] → graph (201 saved tensors)"}
    assert len(counted) == 1
    places = [(found.place(tensor), found.path(tensor)) for tensor in saved]
    assert all(place == (path[0], len(path[1])) for place, path in places)
    known = {}
    for tensor, (_, way) in zip(saved, places, strict=True):
        assert found.passes(tensor, lambda obj: obj is saved[50], known) == any(obj is saved[50] for obj in way[1])
    assert not found.passes(object(), lambda obj: True, {})
