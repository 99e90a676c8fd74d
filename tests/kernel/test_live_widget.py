"""``%gpumem --live`` in a real kernel: it goes on while a cell runs, and is gone when it is to be."""
from __future__ import annotations

import html
import re

import pytest

pytest.importorskip("ipywidgets")
pytestmark = pytest.mark.kernel
VIEW = "application/vnd.jupyter.widget-view+json"
# the cell goes on until the test has seen what it waits for
WAITING = "import os, time\nwhile not os.path.exists({!r}): time.sleep(0.05)"


@pytest.fixture
def loaded(kernel):
    kernel.good("%load_ext jupyter_gpumem")
    yield kernel
    kernel.good("%unload_ext jupyter_gpumem")


def is_update(message, words):
    """Whether a message of any widget brings HTML with these words."""
    if message["msg_type"] != "comm_msg":
        return False
    data = message["content"]["data"]
    value = data.get("state", {}).get("value", "") if data.get("method") == "update" else ""
    return words in html.unescape(value)


def until(kernel, wanted):
    while not wanted(message := kernel.client.get_iopub_msg(timeout=120)):
        pass
    return message


def drained(kernel):
    found = []
    while kernel.client.iopub_channel.msg_ready():
        found.append(kernel.client.get_iopub_msg(timeout=1))
    return found


def test_it_shows_a_widget_and_words_for_where_there_is_none(loaded):
    got = loaded.good("%gpumem --live")
    (bundle,) = [bundle for bundle in got.bundles if VIEW in bundle]
    assert set(bundle) == {VIEW, "text/plain", "text/html"}
    assert "Host memory" in bundle["text/plain"]
    assert bundle[VIEW]["model_id"]
    assert "Host memory" in bundle["text/html"]
    assert sum(map(len, map(str, bundle.values()))) < 20_000


def test_it_goes_on_while_a_cell_runs(loaded, tmp_path):
    loaded.good("%gpumem --live")
    done = tmp_path / "done"
    request = loaded.send(WAITING.format(str(done)))
    first = until(loaded, lambda m: is_update(m, "has been running for"))
    until(loaded, lambda m: is_update(m, "has been running for") and m["content"] != first["content"])
    done.touch()
    assert first["content"]["data"]["state"].keys() == {"value"}
    size = len(str(first["content"]))
    assert size < 8000, "one message"
    until(loaded, lambda m: is_update(m, "no cell is running"))
    while loaded.client.get_shell_msg(timeout=120)["parent_header"].get("msg_id") != request:
        pass


def test_a_second_one_takes_the_place_of_the_first(loaded):
    count = "len(__import__('ipywidgets').Widget.get_manager_state()['state'])"
    loaded.good("%gpumem --live")
    once = loaded.value(count)
    loaded.good("%gpumem --live")
    assert loaded.value(count) == once


def test_unloading_closes_it_and_ends_the_thread(kernel):
    threads = "[t.name for t in __import__('threading').enumerate() if t.name == 'jupyter_gpumem-live']"
    kernel.good("%load_ext jupyter_gpumem")
    kernel.good("%gpumem --live")
    assert kernel.value(threads) == ["jupyter_gpumem-live"]
    drained(kernel)
    kernel.good("%unload_ext jupyter_gpumem")
    assert kernel.value(threads) == []


def test_it_makes_no_output_name_or_history(loaded):
    before = loaded.value("(len(Out), sorted(n for n in globals() if not n.startswith('_')))")
    loaded.good("%gpumem --live")
    assert loaded.value("(len(Out), sorted(n for n in globals() if not n.startswith('_')))") == before


def test_a_device_that_is_not_there_is_one_line(loaded):
    got = loaded.run("%gpumem --live --device tpu:9")
    assert got.reply["status"] == "error"
    assert "no device 'tpu:9'" in re.sub(r"\s+", " ", got.traceback + got.text)
    assert not got.bundles
