"""Records of the frameworks are plain: what they say can be kept, compared and sent, and keeps nothing alive."""
from __future__ import annotations

import pickle

import pytest

from jupyter_gpumem.frameworks import records

FRAME = records.Frame("/home/me/train.py", 3, "step")
EXAMPLES = [
    FRAME,
    records.Part("cpu", 1000, 64),
    records.Input(1, (2, 3), "float32", 24),
    records.Allocation("cuda:0", 64, "activations", False, None, "aten.mul", "float32 4×4", FRAME),
    records.Rehearsal((), ((0, 0),), (), (("a number was asked for", FRAME),)),
]


@pytest.mark.parametrize("record", EXAMPLES, ids=lambda record: type(record).__name__)
def test_a_record_is_a_value(record):
    assert pickle.loads(pickle.dumps(record)) == record
    assert hash(record) == hash(type(record)(*record))


def test_a_call_that_cannot_be_made_says_why_and_where():
    error = records.RehearsalError("it asks for a number", FRAME)
    assert (str(error), error.frame) == ("it asks for a number", FRAME)
    assert records.RehearsalError("it cannot be copied").frame is None
