"""The live widget, without a page: what it is given, what it shows of it, and when it is silent."""
from __future__ import annotations

import html as markup
import re

import pytest

pytest.importorskip("ipywidgets")

from jupyter_gpumem import model
from jupyter_gpumem.errors import InputError
from jupyter_gpumem.faces import widgets
from jupyter_gpumem.faces.widgets import LiveView

GIB = 1 << 30
GPU = model.Device("GPU-1", "gpu", 0, "A100 <b>", 80 * GIB, 9 * GIB, 71 * GIB, alias="cuda:0", utilization=3)
OTHER = model.Device("GPU-2", "gpu", 1, "Other", 80 * GIB, GIB, 79 * GIB, alias="cuda:1")
HOST = model.Device("cpu", "host", None, "Host memory", 64 * GIB, 8 * GIB, 56 * GIB, alias="cpu")
SHARES = model.Shares(6 * GIB, GIB, GIB, GIB, 71 * GIB)


def sample(*devices, at=1000.0, allocators=(), running=None):
    return model.Sample(at, devices, (SHARES,) * len(devices), (), allocators, running)


class FakeLive:
    """Notes leases, and answers with one sample."""

    def __init__(self, taken=None):
        self.taken, self.following = taken or sample(HOST), {}

    def take(self):
        return self.taken

    def follow(self, name, viewer, interval, seconds):
        self.following[name] = (viewer, interval, seconds)

    def unwatch(self, name):
        self.following.pop(name, None)


@pytest.fixture
def live():
    return FakeLive()


@pytest.fixture
def view(live):
    made = LiveView(live, None)
    yield made
    made.close()


@pytest.fixture
def sent(view):
    """The HTML that went to the page, in order."""
    values = []
    view._body.observe(lambda change: values.append(change["new"]), "value")
    return values


def words(source):
    return markup.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", source)))


def test_what_it_says_of_a_device(view, sent):
    pool = model.Allocator("torch", "cuda:0", 4 * GIB, 5 * GIB, 6 * GIB)
    assert view.show(sample(GPU, HOST, allocators=(pool,), running=model.CellRun(7, "c", 988.0)))
    said = words(sent[-1])
    for fact in ("cuda:0 A100 <b>", "9.0 GiB of 80.0 GiB used", "this notebook 6.0 GiB", "other notebooks 1.0 GiB",
                 "torch: allocated 4.0 GiB, reserved 5.0 GiB, peak 6.0 GiB", "utilisation 3%",
                 "cell [7] has been running for 12 s"):
        assert fact in said
    assert "Host memory" not in said, "with a GPU the host is not what is watched"
    assert "<b>" not in sent[-1]


def test_nothing_is_sent_while_nothing_new_is_said(view, sent):
    for at in range(10):
        view.show(sample(GPU, at=1000.0 + at))
    assert len(sent) == 1
    grown = model.Device("GPU-1", "gpu", 0, "A100 <b>", 80 * GIB, 10 * GIB, 70 * GIB, alias="cuda:0", utilization=3)
    view.show(sample(grown, at=1010.0))
    assert len(sent) == 2
    assert "<polygon" in sent[-1], "what came before is in the line"
    assert "used 9.0 GiB to 10.0 GiB in the 10 s up to " in words(sent[-1])


def test_a_message_is_small_however_long_it_has_gone_on(view, sent):
    for at in range(3000):
        used = (at % 70) * GIB
        view.show(sample(*[model.Device(f"GPU-{n}", "gpu", n, "A100", 80 * GIB, used, 80 * GIB - used, alias=f"cuda:{n}")
                           for n in range(8)], at=1000.0 + at))
    assert len(sent[-1]) < 25_000
    assert all(len(moments) <= 2 * widgets.SECONDS for moments in view._past.values())


def test_a_named_device_alone(live):
    live.taken = sample(GPU, OTHER, HOST)
    view = LiveView(live, "cpu")
    view.show(live.taken)
    assert "Host memory" in view._body.value
    assert "Other" not in view._body.value
    view.close()
    with pytest.raises(InputError, match="no device 'tpu:3'"):
        LiveView(live, "tpu:3")


def test_it_follows_with_a_lease_that_ends(view, live, monkeypatch):
    bundles = []
    monkeypatch.setattr(widgets, "show_bundle", bundles.append)
    view.open()
    assert live.following["widget"] == (view, 1.0, 300.0)
    assert bundles[0]["application/vnd.jupyter.widget-view+json"]["model_id"] == view._box.model_id
    live.following.clear()
    view.ended()
    assert "paused: no cell has run for 5 minutes" in words(view._body.value)
    assert view._resume.layout.display is None
    view._resume.click()
    assert live.following["widget"][0] is view
    assert view._resume.layout.display == "none"
    view.show(live.taken)
    assert "paused" not in view._body.value


def test_when_its_comm_is_closed_it_wants_no_more(view, live):
    assert view.show(live.taken)
    view._box.close()
    assert view.show(live.taken) is False


def test_a_terminal_has_no_place_for_it(shell, capsys):
    shell.run_cell("%load_ext jupyter_gpumem")
    assert not shell.run_cell("%gpumem --live").success
    said = capsys.readouterr()
    assert "--live needs a notebook's kernel" in said.out + said.err


def test_without_ipywidgets_one_line_says_what_is_missing(shell, live, capsys, monkeypatch):
    import sys

    shell.run_cell("%load_ext jupyter_gpumem")
    shell.meta["jupyter_gpumem"].magics.live = live
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    monkeypatch.delitem(sys.modules, "jupyter_gpumem.faces.widgets")
    assert not shell.run_cell("%gpumem --live").success
    said = capsys.readouterr()
    assert "pip install ipywidgets" in said.out + said.err


def test_with_the_real_thread_it_is_filled_and_ends(monkeypatch):
    from jupyter_gpumem.faces.live import Live

    monkeypatch.setattr(widgets, "show_bundle", lambda bundle: None)
    live = Live(lambda message: None)
    view = LiveView(live, None)
    view.open()
    assert "Host memory" in view._body.value
    view.close()
    live.stop()
    assert not live._leases
