"""Records of growth go into JSON with their verdict in words."""
from __future__ import annotations

import json

from jupyter_gpumem.model import Cause, Leaks, Trend, Verdict, to_json


def test_a_verdict_is_said_in_words():
    trend = Trend("losses[·]", Cause.NAME, (0, 4, 8, 12), (0, 1, 2, 3), Verdict.LEAK)
    plain = json.loads(json.dumps(to_json(Leaks("cell [3]", 4, Verdict.LEAK, (trend,)))))
    assert plain["verdict"] == "leak"
    assert plain["trends"][0]["cause"] == "name"
