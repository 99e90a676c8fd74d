"""Rules about what is kept on evidence made by hand: where each begins to speak. Sessions are in test_advice.py."""
from __future__ import annotations

import dataclasses

import pytest

from jupyter_gpumem.analysis.advice import rules_keeping as rules
from jupyter_gpumem.analysis.advice.evidence import Copy, Evidence, Kept, Model, Optimizer, Place, Weight, Workers

MIB, GIB = 1 << 20, 1 << 30
ON = "cuda:0"
PLACE = Place(ON, 100 * MIB, 200 * MIB, 0, (), 0, (), GIB, None, (), None)


def kept(path="x", nbytes=4 * MIB, dtype="float32", role="", shape=(3, 10), container="", saved=False, trains=False):
    name = path.partition("[")[0]
    return Kept(nbytes, path, f"{name}[·]" if "[" in path else path, name, saved, role, shape, dtype, True, trains, container)


def model(name, first, tensors=2, kind="Net", **more):
    weights = tuple(Weight(f"w{n}", first + n, (ON, first + n), (10, 8 + n), "float32", True, False, False) for n in range(tensors))
    return Model(name, name, kind, True, weights, ())._replace(**more)


def place(**more):
    return Evidence((ON,), places=(PLACE._replace(**more),))


# ---------------------------------------------------------------- tensors
DOUBLE = {(ON, 1): kept("x", dtype="float64"), (ON, 2): kept("model.w", role="parameter")}


def test_float64_beside_a_float32_model():
    found = rules.double_precision(Evidence((ON,), DOUBLE))
    assert found.expected == 2 * MIB and found.code == "x = x.float()"


@pytest.mark.parametrize("evidence", [
    Evidence((ON,), DOUBLE, default_float="float64"),
    Evidence((ON,), {(ON, 1): kept(dtype="float64")}),
    Evidence((ON,), {**DOUBLE, (ON, 2): kept("m", dtype="float64", role="parameter")}),
    Evidence((ON,), {**DOUBLE, (ON, 1): kept(dtype="float64", nbytes=MIB // 2)}),
    Evidence((ON,), {**DOUBLE, (ON, 3): kept(nbytes=200 * MIB)}),
    Evidence(("cpu",), {("cpu", number): one for (_, number), one in DOUBLE.items()}),
], ids=["asked for", "no model", "a float64 model", "small", "a small share", "host"])
def test_float64_that_is_no_accident(evidence):
    assert rules.double_precision(evidence) is None


def outputs(number, **more):
    return {(ON, n): kept(f"preds[{n}]", **{"container": "list", **more}) for n in range(number)}


def test_outputs_in_a_list():
    found = rules.collected_outputs(Evidence((ON,), outputs(8), models=(model("model", 100),)))
    assert found.expected == 32 * MIB and found.names == ("preds",)


@pytest.mark.parametrize(("number", "more"), [
    (7, {}), (8, {"container": ""}), (8, {"trains": True}), (8, {"shape": (3, 9)}), (8, {"shape": (10,)}), (8, {"role": "state"}),
    (8, {"nbytes": 100 << 10}), (8, {"shape": (10, 8)}),
], ids=["few", "no container", "with graphs", "other width", "a vector", "states", "small", "a weight's shape"])
def test_other_tensors_in_a_list(number, more):
    assert rules.collected_outputs(Evidence((ON,), outputs(number, **more), models=(model("model", 100),))) is None


# ---------------------------------------------------------------- copies
TABLE = {(ON, n): kept("x") for n in range(300)}


def copy(first=200, prefix="", shapes=((10, 8), (10, 9)), device=ON):
    entries = {f"{prefix}w{n}": (shape, (device, first + n)) for n, shape in enumerate(shapes)}
    return Copy("ckpt['model']", "ckpt", entries, frozenset(key for _, key in entries.values()))


@pytest.mark.parametrize(("one", "speaks"), [
    (copy(), True), (copy(prefix="module."), True), (copy(first=100), False), (copy(shapes=((10, 8),)), False),
    (copy(shapes=((10, 8), (9, 10))), False), (copy(device="cpu"), False),
], ids=["a copy", "of a parallel model", "the model's own storages", "a part", "other shapes", "elsewhere"])
def test_a_checkpoint_beside_its_model(one, speaks):
    found = rules.checkpoint_left(Evidence((ON,), TABLE, models=(model("model", 100),), copies=(one,)))
    assert (found is not None) is speaks
    if found:
        assert found.expected == 8 * MIB and found.code.startswith("del ckpt")


def test_two_names_of_one_checkpoint_go_together():
    copies = (copy(), copy()._replace(path="state", name="state"))
    assert rules.checkpoint_left(Evidence((ON,), TABLE, models=(model("model", 100),), copies=copies)).code.startswith("del ckpt, state")


def test_a_copied_model():
    active = (Optimizer("opt", "opt", frozenset({100, 101}), ()),)
    both = Evidence((ON,), TABLE, models=(model("model", 100), model("ema", 200)), optimizers=active)
    found = rules.copied_model(both)
    assert (found.expected, found.names, found.code) == (8 * MIB, ("ema",), 'ema.to("cpu")')
    for models in (
        (model("model", 100), model("ema", 200, kind="Other")),
        (model("model", 100), model("ema", 200, tensors=3)),
        (model("model", 100), model("tied", 100)),
    ):
        assert rules.copied_model(dataclasses.replace(both, models=models)) is None
    assert rules.copied_model(dataclasses.replace(both, optimizers=())) is None, "nothing tells which one is the copy"
    trained = (Optimizer("opt", "opt", frozenset({100, 200}), ()),)
    assert rules.copied_model(dataclasses.replace(both, optimizers=trained)) is None


# ---------------------------------------------------------------- devices
@pytest.mark.parametrize(("cached", "others", "speaks"), [(205, ((5, MIB),), True), (204, ((5, MIB),), False), (205, (), False)])
def test_cached_memory(cached, others, speaks):
    found = rules.cached_memory(place(cached=cached * MIB, others=others))
    assert (found is not None) is speaks
    if found:
        assert found.expected == cached * MIB and "pid 5 (1.0 MiB)" in found.evidence[1]


PIECES = {"fragments": (30 * MIB, 30 * MIB), "largest": 8 * MIB, "pins": ("a", "b")}


def test_fragments():
    found = rules.fragments(place(**PIECES))
    assert found.expected == 60 * MIB and "pinned by a, b" in found.evidence[1]
    for more in ({"largest": 16 * MIB}, {"fragments": (39 * MIB,)}, {"total": 2 * GIB}, {"total": None}, {"reserved": None}):
        assert rules.fragments(place(**{**PIECES, **more})) is None
    assert rules.fragments(dataclasses.replace(place(**PIECES), expands=True)) is None


FULL = PLACE._replace(allocated=GIB * 3 // 4, used=GIB * 9 // 10)
EMPTY = Place("cuda:1", 0, 0, 0, (), 0, (), GIB, 10 * MIB, (), None)


@pytest.mark.parametrize(("places", "more", "speaks"), [
    ((FULL, EMPTY), {}, True), ((FULL,), {}, False), ((FULL, EMPTY._replace(others=((7, MIB),))), {}, False),
    ((FULL._replace(used=GIB // 2), EMPTY), {}, False), ((FULL, EMPTY._replace(used=100 * MIB)), {}, False),
    ((FULL._replace(allocated=MIB), EMPTY), {}, False), ((FULL, EMPTY._replace(used=None)), {}, False), ((FULL, EMPTY), {"collective": "nccl"}, False),
], ids=["yes", "one device", "in use", "not full", "not empty", "full of others", "unknown", "one process for each"])
def test_unused_devices(places, more, speaks):
    found = rules.unused_devices(Evidence((ON,), {(ON, 1): kept("big")}, places=places, **more))
    assert (found is not None) is speaks
    if found:
        assert found.code.startswith('big.to("cuda:1")') and found.expected is None


# ---------------------------------------------------------------- host memory
def test_page_locked_memory():
    found = rules.pinned_memory(Evidence((), pinned=GIB, pinned_names=("data['x']", "buffer"), host_total=8 * GIB))
    assert found.expected == GIB and found.names == ("data", "buffer") and "12%" in found.evidence[0]
    assert rules.pinned_memory(Evidence((), pinned=GIB, host_total=11 * GIB)) is None
    assert rules.pinned_memory(Evidence((), pinned=None, host_total=8 * GIB)) is None
    assert "No large tensor" in rules.pinned_memory(Evidence((), pinned=GIB, host_total=8 * GIB)).evidence[1]


def test_workers():
    found = rules.loader_workers(Evidence((), workers=(Workers("loader", "loader", 6, 2, (40 * MIB, 60 * MIB)),), cpus=4))
    assert found.expected == 2 * 50 * MIB and "6 × 2 = 12 batches" in found.evidence[2]
    assert rules.loader_workers(Evidence((), workers=(Workers("loader", "loader", 4, 2, ()),), cpus=4)) is None
    assert rules.loader_workers(Evidence((), workers=(Workers("loader", "loader", 5, None, ()),), cpus=4)).expected is None
