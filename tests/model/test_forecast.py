"""The records of a forecast are plain values."""
from __future__ import annotations

import json

from jupyter_gpumem.model import BatchPeak, DevicePeak, Entry, Forecast, PeakOperation, to_json


def test_it_goes_through_json():
    peak = DevicePeak("cuda:0", 1, 2, 1, None, None, None, (Entry("inputs", 2),), PeakOperation("aten.add", "float32 1", None))
    record = Forecast("f(x)", (peak,), batch=2, batches=(BatchPeak(2, (("cuda:0", 2),), None),))
    seen = json.loads(json.dumps(to_json(record)))
    assert seen["devices"][0]["parts"] == [to_json(Entry("inputs", 2))]
    assert seen["devices"][0]["fits"] is None
    assert seen["batches"][0]["peaks"] == [["cuda:0", 2]]
    assert (seen["largest"], seen["exact"]) == (None, True)
