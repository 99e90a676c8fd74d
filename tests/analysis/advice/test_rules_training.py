"""Rules about training on evidence made by hand: where each begins to speak. Sessions are in test_advice.py."""
from __future__ import annotations

import dataclasses

import pytest

from jupyter_gpumem.analysis.advice import rules_training as rules
from jupyter_gpumem.analysis.advice.evidence import (
    Evidence,
    Forward,
    Gradients,
    Kept,
    Model,
    Optimizer,
    Place,
    Row,
    State,
    Weight,
)

MIB = 1 << 20
ON = "cuda:0"


def key(number):
    return (ON, number)


def kept(nbytes, dtype="float32", saved=True):
    return Kept(nbytes, "x", "x", "x", saved, "", (4,), dtype, True, False, "")


def forward(path, number, leaves=(1,), scalar=True, terms=1, saved=None, checkpointed=False):
    pattern = path.replace(path[path.index("["):], "[·]") if "[" in path else path
    keys = frozenset(map(key, saved if saved is not None else [number]))
    return Forward(path, pattern, path.partition("[")[0], scalar, terms, frozenset(leaves), frozenset({number}), keys, checkpointed)


def weight(tensor, **more):
    return Weight("w", tensor, key(1000 + tensor), (8, 8), "float32", True, False, False)._replace(**more)


def model(training=True, rows=(), tensors=(1,)):
    return Model("model", "model", "Net", training, tuple(map(weight, tensors)), tuple(rows))


def evidence(storages=20, allocated=100, **more):
    table = {key(n): kept(4 * MIB) for n in range(storages)} | {key(1000 + n): kept(MIB, saved=False) for n in range(3)}
    place = Place(ON, allocated * MIB, None, None, (), 0, (), None, None, (), True)
    return dataclasses.replace(Evidence((ON,), table, places=(place,)), **more)


# ---------------------------------------------------------------- gradients and states
@pytest.mark.parametrize(("zero", "speaks"), [(True, True), (False, False), (None, False)])
def test_gradients_that_are_not_known_to_be_zero_say_nothing(zero, speaks):
    one = Gradients("model", "model", "opt", frozenset({key(1)}), 2, zero, 5, 10)
    found = rules.zero_gradients(evidence(gradients=(one,)))
    assert (found is not None) is speaks
    if found:
        assert found.code == "opt.zero_grad(set_to_none=True)" and "5 B of 10 B were read" in found.evidence[0]


@pytest.mark.parametrize(("trains", "graded", "step", "speaks"), [
    (False, False, None, True), (True, False, 90.0, True), (True, False, 91.0, False), (True, True, 5.0, False), (True, False, None, False),
])
def test_states_of_parameters_that_are_not_updated(trains, graded, step, speaks):
    states = (State(1, trains, graded, frozenset({key(1)}), step), State(2, True, True, frozenset({key(2)}), 100.0))
    found = rules.frozen_states(evidence(optimizers=(Optimizer("opt", "opt", frozenset({1, 2}), states),)))
    assert (found is not None) is speaks
    if found:
        assert found.expected == 4 * MIB


# ---------------------------------------------------------------- graphs
@pytest.mark.parametrize(("number", "speaks"), [(2, False), (3, True)])
def test_a_pair_of_losses_is_no_habit(number, speaks):
    graphs = tuple(forward(f"losses[{n}]", n) for n in range(number))
    found = rules.accumulated_loss(evidence(forwards=graphs, models=(model(),)))
    assert (found is not None) is speaks
    if found:
        assert found.expected == number * 4 * MIB and found.names == ("losses",)


def test_losses_over_different_parameters_are_no_pile():
    graphs = tuple(forward(f"losses[{n}]", n, leaves=(n,)) for n in range(6))
    assert rules.accumulated_loss(evidence(forwards=graphs)) is None


def test_what_another_graph_holds_too_is_not_promised():
    graphs = (forward("total", 1, terms=5, saved=(1, 2, 3)), forward("last", 9, saved=(3,)))
    assert rules.accumulated_loss(evidence(forwards=graphs)).expected == 8 * MIB


def test_a_loss_whose_graph_was_used_keeps_nothing():
    assert rules.accumulated_loss(evidence(forwards=(forward("total", 1, terms=9, saved=()),))) is None


@pytest.mark.parametrize(("training", "scalar", "known", "speaks"), [
    (False, False, True, True), (False, True, False, True), (False, True, True, False), (True, False, True, False), (True, True, False, False),
])
def test_a_graph_of_an_evaluation(training, scalar, known, speaks):
    optimizers = (Optimizer("opt", "opt", frozenset({1}), ()),) if known else ()
    found = rules.unused_graphs(evidence(forwards=(forward("out", 1, scalar=scalar),), models=(model(training),), optimizers=optimizers))
    assert (found is not None) is speaks


def test_somebody_wants_the_gradient_of_an_input():
    assert rules.unused_graphs(evidence(forwards=(forward("out", 1, leaves=(1, 7), scalar=False),), models=(model(False),))) is None


def test_an_output_and_the_loss_made_of_it_are_one_graph():
    out = forward("out", 1, scalar=False)
    loss = forward("loss", 2)._replace(nodes=frozenset({1, 2}), saved=frozenset({key(1), key(2)}))
    assert rules.unused_graphs(evidence(forwards=(out, loss), models=(model(False),))).expected == 8 * MIB


# ---------------------------------------------------------------- activations
def test_float32_activations_are_most_of_it():
    graph = forward("loss", 1, saved=range(15))
    found = rules.single_precision(evidence(forwards=(graph,), models=(model(),)))
    assert found.expected == 30 * MIB - MIB // 2
    batch = evidence(storages=30, forwards=(graph._replace(inputs=frozenset({key(29), key(1001)})),), models=(model(),))
    assert rules.single_precision(batch).expected == 28 * MIB - MIB // 2, "a batch is saved once more, in half its size"
    assert rules.single_precision(evidence(forwards=(graph,), models=(model(),), allocated=121)) is None


@pytest.mark.parametrize("change", [
    lambda e: dataclasses.replace(e, places=(e.places[0]._replace(bfloat16=False),)),
    lambda e: dataclasses.replace(e, places=(e.places[0]._replace(bfloat16=None),)),
    lambda e: dataclasses.replace(e, kept={**e.kept, key(0): kept(4 * MIB, "bfloat16")}),
    lambda e: dataclasses.replace(e, models=(model()._replace(weights=(weight(1, dtype="float16"),)),)),
    lambda e: dataclasses.replace(e, models=()),
    lambda e: dataclasses.replace(e, models=(model(training=False),)),
], ids=["no bfloat16", "unknown", "autocast", "half", "no parameters", "evaluation"])
def test_float32_activations_that_are_right(change):
    before = evidence(forwards=(forward("loss", 1, saved=range(15)),), models=(model(),))
    assert rules.single_precision(before) is not None
    assert rules.single_precision(change(before)) is None


@pytest.mark.parametrize(("kind", "code"), [("Sequential", "checkpoint_sequential(model, 4"), ("ModuleList", "checkpoint(block")])
def test_checkpointing_equal_blocks(kind, code):
    row = Row("model", kind, 16, frozenset({1}))
    found = rules.checkpointing(evidence(forwards=(forward("loss", 1, saved=range(18)),), models=(model(rows=(row,)),)))
    assert found.expected == 64 * MIB - 16 * MIB - 3 * 4 * MIB, "16 of the 18 are equal parts"
    assert code in found.code


@pytest.mark.parametrize("change", [{"checkpointed": True}, {"leaves": (2,)}, {"saved": range(12)}], ids=["already", "another model's", "fewer than blocks"])
def test_no_checkpointing(change):
    row = Row("model", "Sequential", 16, frozenset({1}))
    graph = forward("loss", 1, **{"saved": range(18), **change})
    assert rules.checkpointing(evidence(forwards=(graph,), models=(model(rows=(row,)),))) is None
