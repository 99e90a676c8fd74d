"""Records are frozen, plain and go into JSON."""
from __future__ import annotations

import dataclasses
import json

import pytest

from jupyter_gpumem import model


def holding(cause, nbytes=8, path="x", name=None):
    tensor = model.Tensor("Tensor", (2,), "float32", 8)
    return model.Holding("torch", "cpu", 1, nbytes, (tensor,), model.Holder(path, cause, name))


def test_a_record_cannot_be_changed():
    record = model.Allocator("torch", "cuda:0", 5)
    with pytest.raises(dataclasses.FrozenInstanceError):
        record.allocated = 6


def test_cached_is_unknown_without_a_pool_and_never_negative():
    assert model.Allocator("torch", "cpu", 5).cached is None
    assert model.Allocator("torch", "cuda:0", 5, 9).cached == 4
    assert model.Allocator("torch", "cuda:0", 9, 5).cached == 0


@pytest.mark.parametrize("cause", model.Cause)
def test_what_a_name_keeps_never_dangles(cause):
    assert cause.dangling is (cause not in (model.Cause.NAME, model.Cause.MODULE, model.Cause.REGISTRY))
    assert not cause.freeable or cause.dangling


def test_snapshot_goes_into_json_and_keeps_unknown_apart_from_zero():
    device = model.Device("GPU-1", "gpu", 0, "A100", total=80, used=0)
    record = model.Snapshot(1.0, ("cuda",), (device,), (), (holding(model.Cause.OUTPUT),))
    plain = json.loads(json.dumps(model.to_json(record)))
    assert plain["devices"][0]["used"] == 0
    assert plain["devices"][0]["free"] is None
    assert plain["holdings"][0]["holder"] == {"path": "x", "cause": "output", "name": None}


def test_promise_leaves_the_cache_out():
    actions = (
        model.Action(model.Step.NAME, "a", 5),
        model.Action(model.Step.CACHE, "autocast cache", None),
        model.Action(model.Step.EMPTY, "cuda:0", 100),
    )
    assert model.Plan(actions, ("cuda",)).promised == 5


def test_freed_explains_itself_in_one_line():
    text = repr(model.Freed("Tensor", 4096, "14:03:22", (32, 32), "float32"))
    assert text == "<Tensor (32, 32) float32, 4.0 KiB, freed at 14:03:22 by gpufree>"
