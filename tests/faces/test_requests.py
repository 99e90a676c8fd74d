"""What a page asks of the thread that runs the cells."""
from __future__ import annotations

import json

import pytest

from jupyter_gpumem.errors import InputError
from jupyter_gpumem.faces import wire
from jupyter_gpumem.faces.requests import Requests
from jupyter_gpumem.faces.settings import GPUMem


@pytest.fixture
def requests(shell):
    shell.run_cell("import torch\nx = torch.zeros(1000)\nkept = [torch.zeros(10)]")
    return Requests(shell, GPUMem(parent=shell))


@pytest.fixture
def ask(requests):
    def ask_(verb, **args):
        message = wire.read({"v": 1, "id": "r1", "page": "p", "verb": verb, "args": args})
        answer = wire.reply("r1", verb, requests.answer(message))
        json.dumps(answer, allow_nan=False)
        return answer["result"]

    return ask_


def test_names(ask):
    answer = ask("names")
    assert [use["name"] for use in answer["names"]["names"]] == ["x", "kept"]
    assert answer["left_out"] == 0
    assert isinstance(answer["took"], int)


def test_rows_without_end_are_left_out_and_counted(ask, monkeypatch):
    everything = ask("names")["names"]
    monkeypatch.setattr(wire, "MOST_ROWS", 1)
    answer = ask("names")
    assert [use["name"] for use in answer["names"]["names"]] == ["x"]
    assert len(answer["names"]["others"]) <= 1
    assert answer["left_out"] == 1 + max(0, len(everything["others"]) - 1)


def test_why_of_a_name(ask):
    answer = ask("why", name="x")
    assert answer["name"] == "x"
    assert answer["holders"][0]["path"] == "x"


def test_why_of_a_name_that_is_gone(shell, ask):
    shell.run_cell("del x")
    with pytest.raises(InputError, match="'x' is not there any more"):
        ask("why", name="x")


@pytest.mark.parametrize("name", ["torch.cuda", "x; import os", "__builtins__", "x[0]", "<b>x</b>"])
def test_a_name_is_looked_up_and_never_evaluated(ask, name):
    with pytest.raises(InputError, match="not there any more"):
        ask("why", name=name)


def test_why_of_a_tensor_without_a_name(shell, ask):
    shell.run_cell("torch.zeros(77)", store_history=True)
    (dangling,) = [holding for holding in ask("names")["names"]["others"] if holding["nbytes"] == 77 * 4]
    answer = ask("why", device=dangling["device"], storage=dangling["storage"])
    assert answer["holders"][0]["cause"] == "output"


def test_a_tensor_that_was_never_shown_is_not_there(ask):
    with pytest.raises(InputError, match="not there any more"):
        ask("why", device="cpu", storage=12345)


def test_why_of_nothing(ask):
    with pytest.raises(InputError, match="needs a name"):
        ask("why")


def test_plan_and_free(shell, ask):
    offer = ask("plan", names=["x"], dangling=False, empty=False)
    assert "x" in shell.user_ns
    report = ask("free", token=offer["token"])["report"]
    assert report["freed"] == 4000
    assert "x" not in shell.user_ns


def test_a_plan_that_does_not_hold_any_more_is_offered_anew(shell, ask):
    offer = ask("plan", names=["x"], dangling=False, empty=False)
    shell.run_cell("x = torch.zeros(9)")
    changed = ask("free", token=offer["token"])["changed"]
    assert changed["token"] != offer["token"]
    assert "x" in shell.user_ns


def test_a_plan_for_nothing(ask):
    with pytest.raises(InputError, match="nothing to plan"):
        ask("plan", names=[], dangling=False, empty=False)


def test_a_plan_for_a_name_that_is_not_the_users(shell, ask):
    with pytest.raises(InputError):
        ask("plan", names=["In"], dangling=False, empty=False)
    assert "In" in shell.user_ns


def test_asking_leaves_no_trace_in_the_session(shell, ask):
    before = dict(shell.user_ns), shell.execution_count, list(shell.user_ns["In"])
    ask("names")
    ask("why", name="x")
    ask("plan", names=["x"], dangling=True, empty=True)
    assert (dict(shell.user_ns), shell.execution_count, list(shell.user_ns["In"])) == before


def test_the_account_closes_and_comes_without_its_segments(shell, ask):
    (account,) = ask("account")["accounts"]
    assert account["device"] == "cpu"
    for total in (account["allocated"], account["reserved"], account["used"]):
        sizes = [entry["nbytes"] for entry in total["entries"]]
        assert None in sizes or sum(sizes) == total["total"]
    assert account["segments"] == []


def test_why_says_of_each_holder_whether_it_alone_is_enough(shell, ask):
    assert [holder["frees"] for holder in ask("why", name="x")["holders"]] == [True]
    shell.run_cell("y = x")
    assert [holder["frees"] for holder in ask("why", name="x")["holders"]] == [False, False]


def test_nothing_is_parked_where_there_is_no_device(ask):
    assert ask("names")["parked"] == []
    with pytest.raises(InputError, match="no accelerator"):
        ask("park", names=["x"])
    with pytest.raises(InputError, match="nothing of it is parked"):
        ask("restore", names=["x"])
    with pytest.raises(InputError, match="nothing is done"):
        ask("move", token="0" * 32)


MOVED = """
import json
from IPython.core.interactiveshell import InteractiveShell
import torch
from jupyter_gpumem.faces import wire
from jupyter_gpumem.faces.requests import Requests
from jupyter_gpumem.faces.settings import GPUMem
shell = InteractiveShell.instance()
shell.user_ns["x"] = torch.ones(1 << 20, device=DEVICE)
requests = Requests(shell, GPUMem(parent=shell))
def ask(verb, **args):
    message = wire.read({"v": 1, "id": "r1", "page": "p", "verb": verb, "args": args})
    return wire.reply("r1", verb, requests.answer(message))["result"]
offer = ask("park", names=["x"])
done = ask("move", token=offer["token"])["done"]
parked = ask("names")
back = ask("move", token=ask("restore", names=["x"])["token"])["done"]
print(json.dumps([offer["parking"]["moved"], done["direction"], parked["parked"], parked["names"]["names"], back["done"], str(shell.user_ns["x"].device)]))
"""


def test_a_name_goes_to_host_memory_and_comes_back(run_on):
    moved, direction, parked, names, done, device = run_on("cuda", MOVED).json
    assert moved == [{"name": "x", "device": "cuda:0", "nbytes": 4 << 20, "storages": 1, "tensors": 1}]
    assert (direction, done) == ("park", True)
    assert parked == [{"name": "x", "device": "cuda:0", "nbytes": 4 << 20}]
    assert names == []
    assert device == "cuda:0"
