"""Records go into JSON."""
from __future__ import annotations

import json

from jupyter_gpumem import model


def holding(cause, nbytes=8, path="x", name=None):
    tensor = model.Tensor("Tensor", (2,), "float32", 8)
    return model.Holding("torch", "cpu", 1, nbytes, (tensor,), model.Holder(path, cause, name))


def test_snapshot_goes_into_json_and_keeps_unknown_apart_from_zero():
    device = model.Device("GPU-1", "gpu", 0, "A100", total=80, used=0)
    record = model.Snapshot(1.0, ("cuda",), (device,), (), (holding(model.Cause.OUTPUT),))
    plain = json.loads(json.dumps(model.to_json(record)))
    assert plain["devices"][0]["used"] == 0
    assert plain["devices"][0]["free"] is None
    assert plain["holdings"][0]["holder"] == {"path": "x", "cause": "output", "name": None, "frees": None}
