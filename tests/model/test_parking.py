"""The records of a move."""
from __future__ import annotations

import json

from jupyter_gpumem.model import Direction, Moved, Parking, to_json


def test_bytes_are_summed_over_names_and_devices():
    moved = (Moved("model", "cuda:0", 100, 2, 3), Moved("model", "cuda:1", 28, 1, 1))
    assert Parking(Direction.PARK, moved, done=False).nbytes == 128


def test_plain_as_json():
    record = Parking(Direction.RESTORE, (Moved("a", "cuda:0", 4, 1, 1),), done=True, notes=("n",))
    plain = json.loads(json.dumps(to_json(record)))
    assert plain["direction"] == "restore"
    assert plain["moved"] == [{"name": "a", "device": "cuda:0", "nbytes": 4, "storages": 1, "tensors": 1}]
    assert plain["notes"] == ["n"]
