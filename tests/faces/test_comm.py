"""The link of a kernel with its pages: each request is answered once, whatever it is."""
from __future__ import annotations

import json
import threading
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("ipykernel")

from jupyter_gpumem.faces import comm, wire
from jupyter_gpumem.faces.settings import GPUMem


class Comm:
    """What the link uses of a comm; ``messages`` is what a page would hear."""

    def __init__(self):
        self.messages = []
        self.handler = None

    def on_msg(self, handler):
        self.handler = handler

    def send(self, data):
        self.messages.append(json.loads(json.dumps(data, allow_nan=False)))


@pytest.fixture
def kernel(monkeypatch):
    """What the link uses of a kernel. Its real counterpart is in ``tests/kernel``."""
    monkeypatch.setattr(comm, "_made_comm", lambda kernel: Comm())
    manager = SimpleNamespace(comms={})
    manager.register_comm = lambda made: manager.comms.update({wire.COMM: made})
    answered = []
    return SimpleNamespace(
        comm_manager=manager,
        control_handlers={"comm_info_request": lambda *message: answered.append(("usual", message))},
        session=SimpleNamespace(send=lambda stream, kind, content, parent, ident: answered.append((kind, content))),
        answered=answered,
    )


@pytest.fixture
def link(shell, kernel):
    shell.run_cell("import torch\nx = torch.zeros(1000)")
    shell.kernel = kernel
    made = comm.open_link(shell, GPUMem(parent=shell))
    yield made
    made.close()
    del shell.kernel


def request(verb, id="r1", page="p1", **args):
    return {"v": 1, "id": id, "page": page, "verb": verb, "args": args}


@pytest.fixture
def shell_channel(link):
    """``shell_channel(data)`` → what is answered to a message on the shell channel."""

    def ask(data):
        before = len(link._comm.messages)
        link._on_shell({"content": {"comm_id": wire.COMM, "data": data}})
        return link._comm.messages[before:]

    return ask


@pytest.fixture
def control(link, kernel):
    def ask(data):
        before = len(kernel.answered)
        kernel.control_handlers["comm_info_request"]("stream", b"ident", {"content": {"jupyter_gpumem": data}})
        return [content["jupyter_gpumem"] for _, content in kernel.answered[before:]]

    return ask


def test_opening_says_nothing(link):
    assert link._comm.messages == []


def test_a_request_is_answered_once_by_its_id(shell_channel):
    (answer,) = shell_channel(request("names"))
    assert (answer["kind"], answer["id"], answer["ok"]) == ("reply", "r1", True)
    assert shell_channel(request("names")) == [], "the same id again"
    assert shell_channel(request("sample", id="r1")) == [], "the same id with another verb"


def test_an_id_is_good_once_over_both_channels(shell_channel, control):
    assert control(request("sample"))[0]["ok"]
    assert shell_channel(request("sample")) == []


@pytest.mark.parametrize("data", [None, [], "x", 3, {}, {"id": 7}, {"verb": "names"}])
def test_what_is_no_request_is_not_answered(shell_channel, control, data):
    assert shell_channel(data) == []
    assert control(data) == []


def test_a_broken_request_with_an_id_is_refused_with_words(shell_channel):
    (answer,) = shell_channel({"v": 1, "id": "r1", "page": "p", "verb": "eval", "args": {}})
    assert (answer["ok"], answer["error"]["code"]) == (False, "input")
    assert "watch" in answer["error"]["text"]


def test_a_newer_page_is_told_to_update(shell_channel):
    (answer,) = shell_channel({**request("names"), "v": 2})
    assert "version 1" in answer["error"]["text"]


def test_control_answers_what_needs_no_tensor(control):
    assert control(request("watch", "a", interval=60_000, lease=30))[0]["result"]["lease"] == 30
    assert control(request("sample", "b"))[0]["result"]["kind"] == "sample"
    assert control(request("unwatch", "c"))[0]["result"] == {"watching": 0}
    refused = control(request("names", "d"))[0]
    assert (refused["ok"], refused["error"]["code"]) == (False, "input")


FAULT = """
raise RuntimeError("CUDA error: device-side assert triggered")
"""


def test_why_a_cell_failed_comes_with_the_lease_and_is_dismissed_beside_a_running_cell(shell, kernel):
    """As the extension tells it: the cell fails, a page that comes later hears of it."""
    import torch  # noqa: F401  # as in a session that has used it

    shell.kernel = kernel
    shell.run_line_magic("load_ext", "jupyter_gpumem")
    link = shell.meta["jupyter_gpumem"]._link
    try:
        handler = kernel.control_handlers["comm_info_request"]

        def ask(data):
            handler("stream", b"ident", {"content": {"jupyter_gpumem": data}})
            return kernel.answered[-1][1]["jupyter_gpumem"]["result"]

        assert ask(request("watch", "a", interval=60_000, lease=30))["verdict"] is None
        assert not shell.run_cell(FAULT).success

        def told():
            return [message["verdict"] for message in link._comm.messages if message["kind"] == "verdict"]

        (verdict,) = told()
        assert verdict["kind"] == "fault"
        assert ask(request("watch", "b", interval=60_000, lease=30))["verdict"] == verdict
        assert ask(request("dismiss", "c", verdict=verdict["id"])) == {"dismissed": True}
        assert ask(request("watch", "d", interval=60_000, lease=30))["verdict"] is None
        assert told() == [verdict, None]
    finally:
        shell.run_line_magic("unload_ext", "jupyter_gpumem")
        del shell.kernel


def test_other_messages_of_the_control_channel_go_where_they_went(kernel, link):
    kernel.control_handlers["comm_info_request"]("stream", b"ident", {"content": {"target_name": "x"}})
    assert kernel.answered[-1][0] == "usual"


def test_while_a_cell_runs_requests_for_tensors_are_refused(link, shell_channel):
    link.live.begin(SimpleNamespace(cell_id="c"), 1)
    assert shell_channel(request("names"))[0]["error"]["code"] == "busy"
    assert shell_channel(request("sample", "r2"))[0]["ok"]


def test_another_thread_does_not_touch_tensors(link, shell_channel):
    answers = []
    thread = threading.Thread(target=lambda: answers.extend(shell_channel(request("names"))))
    thread.start()
    thread.join(30)
    assert answers[0]["error"]["code"] == "busy"


def test_a_request_is_cancelled_before_it_is_begun(shell, shell_channel, control):
    (offer,) = shell_channel(request("plan", "p", names=["x"], dangling=False, empty=False))
    assert control(request("cancel", "c", target="f"))[0]["result"] == {"cancelled": True}
    (answer,) = shell_channel(request("free", "f", token=offer["result"]["token"]))
    assert answer["error"]["code"] == "cancelled"
    assert "x" in shell.user_ns


def test_what_has_been_done_cannot_be_cancelled(shell, shell_channel, control):
    shell_channel(request("names", "n"))
    assert control(request("cancel", "c", target="n"))[0]["result"] == {"cancelled": False}


def test_a_fault_of_ours_is_an_answer(link, shell_channel, monkeypatch):
    monkeypatch.setattr("jupyter_gpumem.faces.requests.Requests.answer", lambda *_: 1 / 0)
    (answer,) = shell_channel(request("names"))
    assert (answer["error"]["code"], answer["error"]["text"]) == ("fault", "ZeroDivisionError: division by zero")


def test_messages_to_all_are_counted_and_carry_the_boot(link, shell_channel):
    first, second = shell_channel(request("names", "a"))[0], shell_channel(request("names", "b"))[0]
    assert second["n"] == first["n"] + 1
    assert first["boot"] == second["boot"] == link._boot


def test_closing_takes_everything_back_and_says_good_bye_to_those_who_watch(shell, kernel):
    usual = kernel.control_handlers["comm_info_request"]
    shell.kernel = kernel
    link = comm.open_link(shell, GPUMem(parent=shell))
    link.live.watch("p", 60_000, 30, True)
    made = link._comm
    link.close()
    assert made.messages[-1]["kind"] == "bye"
    assert kernel.control_handlers == {"comm_info_request": usual}
    assert kernel.comm_manager.comms == {}
    link = comm.open_link(shell, GPUMem(parent=shell))
    made = link._comm
    link.close()
    assert made.messages == [], "nobody watched"
    del shell.kernel


def test_a_handler_that_somebody_has_put_over_ours_stays(shell, kernel):
    shell.kernel = kernel
    link = comm.open_link(shell, GPUMem(parent=shell))
    kernel.control_handlers["comm_info_request"] = theirs = lambda *_: None
    link.close()
    assert kernel.control_handlers["comm_info_request"] is theirs
    del shell.kernel


def test_a_shell_without_a_kernel_has_no_link(shell):
    assert comm.open_link(shell, GPUMem(parent=shell)) is None


def test_ids_are_forgotten_in_the_end(link, shell_channel):
    for number in range(2000):
        shell_channel({"v": 1, "id": f"r{number}", "page": "p", "verb": "nothing", "args": {}})
    assert len(link._begun) <= comm._MOST


@pytest.mark.parametrize(
    ("ip", "transport", "remote"),
    [("127.0.0.1", "tcp", False), ("localhost", "tcp", False), ("", "tcp", False), ("10.0.0.7", "tcp", True), ("/run/k", "ipc", False)],
)
def test_a_kernel_that_listens_on_a_network_is_on_another_machine(ip, transport, remote):
    assert comm._is_remote(SimpleNamespace(parent=SimpleNamespace(ip=ip, transport=transport))) is remote


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=20,
)
VERBS = st.sampled_from(wire.VERBS) | st.text(max_size=12)
ARGS = st.dictionaries(
    st.sampled_from(["names", "dangling", "empty", "name", "device", "storage", "token", "target", "interval", "lease"]),
    JSON | st.sampled_from(["x", "y", 1000, True, False, ["x"]]),
    max_size=4,
)
REQUEST = st.fixed_dictionaries(
    {"v": st.just(1) | JSON, "id": st.integers(0, 5).map(str) | JSON, "page": st.just("p") | JSON, "verb": VERBS, "args": ARGS | JSON}
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.booleans(), REQUEST | JSON), max_size=8))
def test_fuzz_each_id_is_answered_at_most_once_and_nothing_is_deleted_unasked(shell, link, shell_channel, control, stream):
    """Over both channels, with broken messages and with ids that come twice."""
    link._begun.clear()
    link._cancelled.clear()
    answers = [answer for on_control, data in stream for answer in (control if on_control else shell_channel)(data)]
    answers = [answer for answer in answers if answer["kind"] == "reply"]
    ids = [answer["id"] for answer in answers]
    assert len(ids) == len(set(ids))
    asked = {data["id"] for _, data in stream if isinstance(data, dict) and isinstance(data.get("id"), str) and 0 < len(data["id"]) <= 512}
    assert set(ids) == asked, "and each that can be answered is"
    assert "x" in shell.user_ns, "no token was ever offered"
    for page in list(link.live._leases):
        link.live.unwatch(page)
