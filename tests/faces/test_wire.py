"""What comes over the wire is untrusted; what goes out is what the page's guards let in."""
from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpumem.analysis import sample
from jupyter_gpumem.faces import wire
from jupyter_gpumem.model import Allocator, CellRun, Device, Owner, Process, Sample, Shares

PROTOCOL = Path(__file__).resolve().parents[1] / "protocol"
REQUESTS = json.loads((PROTOCOL / "requests.json").read_text())["messages"]
RECORDS = json.loads((PROTOCOL / "records.json").read_text())["messages"]


@pytest.mark.parametrize("case", REQUESTS, ids=lambda case: case["what"])
def test_requests_of_the_protocol_folder(case):
    if case["valid"]:
        message = wire.read(case["message"])
        assert message.verb == case["message"]["verb"]
        assert all(value is None or message.args[name] is not None for name, value in case["message"]["args"].items())
    else:
        with pytest.raises(wire.WireError):
            wire.read(case["message"])


def test_every_verb_has_an_example():
    examples = [case["message"]["verb"] for case in REQUESTS if case["valid"]]
    assert set(examples) == set(wire.VERBS)
    assert {case["message"]["verb"] for case in RECORDS if case["valid"] and case["message"]["kind"] == "reply"} >= set(wire.VERBS)


def test_a_refusal_knows_the_request_if_it_has_an_id():
    with pytest.raises(wire.WireError) as refused:
        wire.read({"v": 1, "id": "r9", "page": "p", "verb": "nothing", "args": {}})
    assert refused.value.id == "r9"
    assert "watch" in str(refused.value), "says what there is"
    with pytest.raises(wire.WireError) as refused:
        wire.read({"v": 1, "id": 9})
    assert refused.value.id is None


def test_a_subclass_is_not_what_it_pretends_to_be():
    class Text(str):
        def __len__(self):
            raise AssertionError("code of the message was run")

    with pytest.raises(wire.WireError):
        wire.read({"v": 1, "id": Text("r1"), "page": "p", "verb": "sample", "args": {}})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=600) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=20), inner, max_size=5),
    max_leaves=30,
)
FIELDS = st.sampled_from(["v", "id", "page", "verb", "args", "name", "names", "interval", "lease", "token", "__class__"])
NEARLY = st.fixed_dictionaries(
    {"v": st.just(1) | JSON, "id": st.just("r1") | JSON, "page": st.just("p") | JSON},
    optional={"verb": st.sampled_from(wire.VERBS) | JSON, "args": st.dictionaries(FIELDS, JSON, max_size=4) | JSON},
)


@given(JSON | NEARLY)
def test_whatever_comes_is_a_message_or_refused(data):
    message, refused = None, None
    try:
        message = wire.read(data)
    except wire.WireError as error:
        refused = str(error)
    assert (message is None) != (refused is None)
    assert refused is None or len(refused) < 300, "what came is not sent back"
    if message is not None:
        assert message.verb in wire.VERBS
        json.dumps(message.args, allow_nan=False)


def test_deep_nesting_is_refused():
    deep = None
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(wire.WireError):
        wire.read({"v": 1, "id": "r1", "page": "p", "verb": "plan", "args": {"names": deep, "dangling": False, "empty": False}})
    while deep:  # freed step by step: freeing it at once recurses in C
        deep = deep[0]


# ---------------------------------------------------------------- out
def shapes(value, at=""):
    """Every field with its type, so that a record and its example can be compared."""
    if isinstance(value, dict):
        found = {at: "object"}
        for name, item in value.items():
            found |= shapes(item, f"{at}.{name}")
        return found
    if isinstance(value, list):
        found = {at: "list"}
        for item in value:
            found |= shapes(item, f"{at}[]")
        return found
    return {at: type(value).__name__}


def example(what):
    return next(case["message"] for case in RECORDS if case["what"] == what)


GPU = Device("GPU-a", "gpu", 0, "GPU A", 2**34, 2**33, 2**33, 0, 50, 40, 300_000, (Process(1, 2**30), Process(2, None)), alias="cuda:0")
TAKEN = Sample(
    1764600001.25,
    (GPU,),
    (Shares(2**30, 0, 0, 2**33 - 2**30, 2**33),),
    (Owner(1, "python", "me", "kernel", "k1", "a.ipynb"),),
    (Allocator("torch", "cuda:0", 1, 2, 3),),
    CellRun(3, "c", 1.5),
)


def test_a_sample_has_the_fields_of_its_example():
    sent = {"v": 1, "boot": "b", "n": 1, **wire.sample(TAKEN, 1000)}
    known = example("a sample of a GPU, a MIG instance and the host")
    assert set(sent) == set(known)
    for name in ("devices", "owners", "allocators"):
        assert set(sent[name][0]) == set(known[name][0])
    assert sent["devices"][0]["processes"] == [[1, 2**30], [2, None]]
    assert set(sent["running"]) == set(known["running"])
    json.dumps(sent, allow_nan=False)


def test_a_real_sample_goes_out():
    sent = wire.sample(sample.take(), 50)
    assert sent["devices"][-1]["kind"] == "host"
    assert sent["devices"][-1]["shares"]["free"] == sent["devices"][-1]["free"]
    json.dumps(sent, allow_nan=False)


def test_what_json_cannot_say_is_not_available():
    sent = wire.reply("r1", "names", {"a": math.nan, "b": [math.inf, 1.5], "c": {"d": -math.inf}})
    assert sent["result"] == {"a": None, "b": [None, 1.5], "c": {"d": None}}


def test_cells_faults_and_goodbyes_have_the_fields_of_their_examples():
    own = {"v", "boot", "n"}
    assert set(wire.cell(TAKEN.running)) | own == set(example("the end of a cell"))
    assert set(wire.fault("x")) | own == set(example("a fault"))
    assert set(wire.verdict(None)) | own == set(example("a verdict that does not stand any more"))
    assert set(wire.bye()) | own == set(example("a good-bye"))
    assert set(wire.refusal("r", None, "input", "no")) | own == set(example("a refusal"))
    assert set(wire.reply("r", "cancel", {})) | own == set(example("cancelled in time"))
