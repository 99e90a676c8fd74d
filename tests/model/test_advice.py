"""Advice as a record."""
from __future__ import annotations

import json

from jupyter_gpumem.model import Advice, Checkup, to_json


def test_unknown_bytes_are_not_zero_bytes():
    told = to_json(Checkup(("cuda:0",), (Advice("a", "A", ("seen",), "", None, "do()"),), ("2 models",)))
    assert json.loads(json.dumps(told))["found"][0]["expected"] is None


def test_without_advice_it_still_says_what_was_looked_at():
    assert Checkup(("cpu",), (), ("no models",)).looked_at == ("no models",)
