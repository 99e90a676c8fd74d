"""The comm and the control channel of a real kernel, spoken as the page speaks them."""
from __future__ import annotations

import itertools
import time
import uuid

import pytest

pytestmark = pytest.mark.kernel
COMM = "jupyter_gpumem"
SLEEP = "import time\nfor _ in range({}): time.sleep(0.05)"


class Page:
    """A page: asks over both channels, hears the comm by its id."""

    def __init__(self, kernel):
        self.client = kernel.client
        self.ids = (uuid.uuid4().hex for _ in itertools.count())
        self.name = uuid.uuid4().hex

    def request(self, verb, **args):
        return {"v": 1, "id": next(self.ids), "page": self.name, "verb": verb, "args": args}

    def control(self, verb, **args):
        """The answer over the control channel, or None if nobody of ours answers."""
        message = self.client.session.msg("comm_info_request", {COMM: self.request(verb, **args)})
        self.client.control_channel.send(message)
        while True:
            reply = self.client.get_control_msg(timeout=60)
            if reply["parent_header"].get("msg_id") == message["header"]["msg_id"]:
                assert reply["msg_type"] == "comm_info_reply"
                return reply["content"].get(COMM)

    def send(self, verb, **args):
        request = self.request(verb, **args)
        message = self.client.session.msg("comm_msg", {"comm_id": COMM, "data": request})
        self.client.shell_channel.send(message)
        return request["id"]

    def heard(self, timeout=60):
        """The next message of the comm."""
        while True:
            message = self.client.get_iopub_msg(timeout=timeout)
            if message["msg_type"] == "comm_msg" and message["content"]["comm_id"] == COMM:
                return message["content"]["data"]

    def until(self, wanted):
        while not wanted(message := self.heard()):
            pass
        return message

    def ask(self, verb, **args):
        id = self.send(verb, **args)
        return self.until(lambda message: message["kind"] == "reply" and message["id"] == id)

    def drain(self):
        """Everything that has arrived, of any type."""
        found = []
        while self.client.iopub_channel.msg_ready():
            found.append(self.client.get_iopub_msg(timeout=1))
        return found


@pytest.fixture
def page(kernel):
    kernel.good("%load_ext jupyter_gpumem")
    made = Page(kernel)
    yield made
    made.control("unwatch")
    kernel.good("%unload_ext jupyter_gpumem")


def test_a_kernel_that_has_not_loaded_it_answers_as_ever(kernel):
    assert Page(kernel).control("sample") is None


def test_loading_says_nothing_on_the_comm(kernel):
    page = Page(kernel)
    page.drain()
    kernel.client.execute("%load_ext jupyter_gpumem", silent=True)
    kernel.good("pass")
    assert not [m for m in page.drain() if m["msg_type"].startswith("comm")]
    kernel.good("%unload_ext jupyter_gpumem")


def test_a_sample_is_answered_beside_a_running_cell(kernel, page):
    page.control("watch", interval=50, lease=30)
    kernel.send(SLEEP.format(20))
    page.until(lambda m: m["kind"] == "sample" and m["running"])
    for _ in range(3):
        assert page.control("sample")["result"]["running"]["ended"] is None
    page.until(lambda m: m["kind"] == "cell")


def test_the_messages_that_the_page_asks_with_count_as_no_activity():
    """Else a kernel that is only looked at would never be culled."""
    manager = pytest.importorskip("jupyter_server.services.kernels.kernelmanager").MappingKernelManager
    if hasattr(manager, "untracked_message_types"):
        assert "comm_info_request" in manager().untracked_message_types


@pytest.mark.parametrize(
    "cell",
    [
        "import time; time.sleep(2)",
        "import time\nend = time.time() + 2\nwhile time.time() < end: sum(range(1000))",
        "import time, torch\nend = time.time() + 2\nm = torch.rand(300, 300)\nwhile time.time() < end: m @ m",
        "import time, numpy\nend = time.time() + 2\nm = numpy.random.rand(300, 300)\nwhile time.time() < end: m @ m",
    ],
    ids=["sleep", "python", "torch", "numpy"],
)
def test_samples_are_pushed_while_a_cell_runs(kernel, page, cell):
    assert page.control("watch", interval=100, lease=30)["ok"]
    kernel.send(cell)
    page.until(lambda m: m["kind"] == "sample" and m["running"])
    inside = []
    while (message := page.heard())["kind"] != "cell":
        inside.append(message)
    assert len([m for m in inside if m["kind"] == "sample"]) >= 3
    counts = [m["n"] for m in inside]
    assert counts == list(range(counts[0], counts[0] + len(counts))), "none is lost"
    assert message["run"]["ended"] >= message["run"]["begun"]


def test_names_wait_for_the_cell_and_a_sample_does_not(kernel, page):
    kernel.send(SLEEP.format(20))
    id = page.send("names")
    assert page.control("sample")["ok"]
    answer = page.until(lambda m: m["kind"] == "reply")
    assert answer["id"] == id
    assert answer["ok"]


def test_a_waiting_request_is_cancelled(kernel, page):
    kernel.good("import torch; x = torch.zeros(100)")
    offer = page.ask("plan", names=["x"], dangling=False, empty=False)["result"]
    busy = kernel.send(SLEEP.format(20))
    id = page.send("free", token=offer["token"])
    assert page.control("cancel", target=id)["result"] == {"cancelled": True}
    answer = page.until(lambda m: m["kind"] == "reply")
    assert (answer["id"], answer["error"]["code"]) == (id, "cancelled")
    assert kernel.value("x.numel()") == 100
    assert busy


def test_freeing_frees(kernel, page):
    kernel.good("import torch; x = torch.zeros(1000)")
    offer = page.ask("plan", names=["x"], dangling=False, empty=False)["result"]
    assert page.ask("free", token=offer["token"])["result"]["report"]["freed"] == 4000
    assert kernel.run("x").reply["ename"] == "NameError"


def test_asking_leaves_the_history_and_the_count_alone(kernel, page):
    kernel.good("import torch; x = torch.zeros(1000)")
    before = kernel.value("(get_ipython().execution_count, len(In), sorted(Out), _, __)")
    for verb, args in [("names", {}), ("why", {"name": "x"}), ("plan", {"names": ["x"], "dangling": True, "empty": True})]:
        assert page.ask(verb, **args)["ok"]
        assert page.control("sample")["ok"]
    assert kernel.value("(get_ipython().execution_count, len(In), sorted(Out), _, __)") == before


def test_when_the_lease_is_given_back_the_kernel_is_silent(kernel, page):
    page.control("watch", interval=50, lease=30)
    page.until(lambda m: m["kind"] == "sample")
    page.control("unwatch")
    kernel.good("import threading\n[t.join(10) for t in threading.enumerate() if t.name == 'jupyter_gpumem-live']")
    page.drain()
    kernel.good("pass")
    assert not [m for m in page.drain() if m["msg_type"].startswith("comm")]
    assert kernel.value("[t.name for t in __import__('threading').enumerate() if 'gpumem' in t.name]") == []


def test_unloading_says_good_bye_to_those_who_watch(kernel, page):
    page.control("watch", interval=1000, lease=30)
    kernel.client.execute("%unload_ext jupyter_gpumem", silent=True)
    assert page.until(lambda m: m["kind"] == "bye")["v"] == 1
    assert page.control("sample") is None
    kernel.good("%load_ext jupyter_gpumem")


def test_a_second_page_hears_the_same(kernel, page):
    other = Page(kernel)
    page.control("watch", interval=100, lease=30)
    other.control("watch", interval=50, lease=30)
    page.until(lambda m: m["kind"] == "sample" and m["interval"] == 50)
    other.control("unwatch")
    assert page.until(lambda m: m["kind"] == "sample" and m["interval"] == 100)


def test_an_interrupt_does_not_end_the_samples(kernel, page):
    page.control("watch", interval=100, lease=30)
    kernel.send(SLEEP.format(400))
    page.until(lambda m: m["kind"] == "sample" and m["running"])
    time.sleep(0.2)  # the signal is to hit the loop, not the cell's first line
    kernel.manager.interrupt_kernel()
    assert page.until(lambda m: m["kind"] == "cell")["run"]["failed"]
    assert page.until(lambda m: m["kind"] == "sample" and m["running"] is None)


def test_prints_of_a_cell_come_out_where_they_belong(kernel, page):
    """Samples from the thread do not become part of the cell's output."""
    page.control("watch", interval=50, lease=30)
    got = kernel.good("import time\nfor i in range(5):\n    print(i)\n    time.sleep(0.1)\n41 + 1")
    assert got.text.split() == ["0", "1", "2", "3", "4", "42"]


def test_messages_of_any_kind_harm_nothing(kernel, page):
    for data in (None, [], "x", {"v": 1, "id": "q", "page": "p", "verb": "eval", "args": {"code": "1/0"}}, {"id": {}}, {"v": 1e308}):
        message = page.client.session.msg("comm_msg", {"comm_id": COMM, "data": data})
        page.client.shell_channel.send(message)
    assert page.until(lambda m: m["kind"] == "reply")["error"]["code"] == "input"
    assert page.ask("names")["ok"]
