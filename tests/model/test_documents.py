"""What is printed as JSON fits the schema that is made from the records."""
from __future__ import annotations

import dataclasses
import json
from typing import NamedTuple

import pytest

from jupyter_gpumem import model
from jupyter_gpumem.model import documents
from jupyter_gpumem.model.documents import DOCUMENTS, VERSION, Accounts, Dangling, document, schema

jsonschema = pytest.importorskip("jsonschema")

TENSOR = model.Tensor("Tensor", (2, 3), "float32", 24)
HOLDING = model.Holding("torch", "cuda:0", 1, 24, (TENSOR,), model.Holder("x", model.Cause.NAME, "x"))
POOL = model.Allocator("torch", "cuda:0", 24)
DEVICE = model.Device("GPU-1", "gpu", 0, "A100", processes=(model.Process(1, None),))
BLOCK = model.Block(0, 512, "allocated", 24, HOLDING.holder)
ACCOUNT = model.Account(
    "torch", "cuda:0", model.Sum(24, (model.Entry("names", 24),)), model.Sum(None, ()), model.Sum(None, ()),
    (model.Segment("cuda:0", 0, 512, "small", (BLOCK,)),),
)
ONE_OF_EACH = {
    "snapshot": model.Snapshot(1.5, ("cuda:0",), (DEVICE,), (POOL,), (HOLDING,)),
    "dangling": Dangling(1.5, ("cuda:0",), (HOLDING,)),
    "accounts": Accounts((ACCOUNT,)),
    "why": model.Why("x", 24, (HOLDING.holder,)),
    "growth": model.Growth("a", "now", ((), (POOL,)), (model.Change("x", model.Cause.NAME, "new", 24, 1),)),
    "checkup": model.Checkup(("cuda:0",), (model.Advice("a rule", "A title", ("seen",), "1 + 1", 2, "do()", ("x",), "cuda:0"),), ("no model",)),
    "forecast": model.Forecast(
        "f(x)",
        (model.DevicePeak("cuda:0", 1, 2, 1, 2, 3, True, (model.Entry("inputs", 2),), model.PeakOperation("aten.add", "float32 2", None)),),
        8, (model.BatchPeak(8, (("cuda:0", 2),), True),), 16, True, ("a note",),
    ),
    "object": model.ObjectUse("x", "dict", 24, (model.NameUse("a", "Tensor", 24, 1, parts=(model.NameUse("b", "Tensor", 24, 1),)),)),
}


def strict(found):
    """The schema with no room for a field that it does not name."""
    found = json.loads(json.dumps(found))
    for record in found["$defs"].values():
        if "properties" in record:
            record["unevaluatedProperties"] = False
            record["properties"] |= {"schema": True, "record": True}
    return found


def valid(plain, against=None):
    jsonschema.Draft202012Validator(against or strict(schema())).validate(plain)


def test_it_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(schema())


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_a_document_of_each_kind_fits_and_names_its_version(name):
    plain = json.loads(json.dumps(document(ONE_OF_EACH[name])))
    assert plain["schema"] == VERSION
    assert plain["record"] == type(ONE_OF_EACH[name]).__name__
    valid(plain)


def test_every_kind_is_tried():
    assert {type(record) for record in ONE_OF_EACH.values()} == set(DOCUMENTS)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda plain: plain.pop("holdings"),
        lambda plain: plain.update(schema="jupyter_gpumem/2"),
        lambda plain: plain.update(record="Growth"),
        lambda plain: plain["holdings"][0].update(nbytes="24 B"),
        lambda plain: plain["holdings"][0].update(nbytes=None),
        lambda plain: plain["holdings"][0]["holder"].update(cause="magic"),
        lambda plain: plain["devices"][0]["processes"][0].update(pid=1.5),
    ],
)
def test_what_does_not_fit_is_refused(spoil):
    plain = document(ONE_OF_EACH["snapshot"])
    spoil(plain)
    with pytest.raises(jsonschema.ValidationError):
        valid(plain, schema())


def test_a_field_that_a_later_release_adds_is_no_fault():
    plain = {**document(ONE_OF_EACH["snapshot"]), "humidity": 40}
    valid(plain, schema())
    with pytest.raises(jsonschema.ValidationError):
        valid(plain)


def test_one_kind_alone_has_a_schema_of_its_own():
    alone = schema(model.Why)
    assert set(alone["$defs"]) == {"Why", "Holder"}
    valid(document(ONE_OF_EACH["why"]), alone)
    with pytest.raises(jsonschema.ValidationError):
        valid(document(ONE_OF_EACH["snapshot"]), alone)


def test_fields_are_described_by_the_words_in_the_source():
    found = schema()["$defs"]
    assert found["Holding"]["properties"]["unseen"]["description"].startswith("References to the storage")
    assert found["Process"]["properties"]["used"]["description"].startswith("Bytes on this device")
    assert found["Snapshot"]["description"] == "Devices, allocators and holdings at one moment."


def test_without_the_source_there_are_no_words_and_the_schema_is_the_same(monkeypatch):
    def gone(module):
        raise OSError("source code not available")

    documents._notes.cache_clear()
    monkeypatch.setattr(documents.inspect, "getsource", gone)
    bare = schema()
    documents._notes.cache_clear()
    assert "description" not in bare["$defs"]["Holding"]["properties"]["unseen"]
    valid(document(ONE_OF_EACH["snapshot"]), bare)


def test_no_other_record_is_a_document():
    with pytest.raises(TypeError, match="a Tensor is no document"):
        document(TENSOR)


def test_a_type_without_a_form_is_found_when_the_schema_is_made():
    @dataclasses.dataclass(frozen=True)
    class Odd:
        value: object

    class Pair(NamedTuple):
        left: int

    with pytest.raises(TypeError, match="no JSON for"):
        documents._type(Odd, {})
    assert documents._type(Pair, {}) == {"$ref": "#/$defs/Pair"}
