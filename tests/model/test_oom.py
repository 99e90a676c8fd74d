"""Records of a verdict are plain."""
from __future__ import annotations

import json

from jupyter_gpumem.model import Baseline, Diagnosis, Fact, Origin, OutOfMemory, Reason, Tensor, to_json


def test_a_diagnosis_is_plain():
    error = OutOfMemory("torch", "cuda:0", 1 << 20)
    origin = Origin("cell [3], line 2", "y = x @ x", (("x", Tensor("Tensor", (2, 3), "float32", 24)),))
    found = Diagnosis(error, origin, Reason.STEP, "cause", "cure", facts=(Fact("free", None),), most=(3, 8))
    said = json.loads(json.dumps(to_json(found)))
    assert said["reason"] == "step"
    assert said["facts"] == [{"text": "free", "nbytes": None}]
    assert said["origin"]["tensors"][0][1]["shape"] == [2, 3]
    assert said["most"] == [3, 8]


def test_nobody_looked_is_not_that_there_was_nothing():
    assert Baseline().names is None
    assert Baseline(names={}).names == {}
