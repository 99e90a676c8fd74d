"""The report: one page that says what the pictures say, and needs nothing else."""
from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from jupyter_gpumem import model
from jupyter_gpumem.pictures.report import MARK, report

sys.path.insert(0, str(Path(__file__).parent))
import records

EVIL = "</title><script>alert(1)</script><img src=x onerror=alert(1)>\"'&"
CELLS = model.Timeline((records.MEASURED, records.CLEANED), (("cuda:0", 80 << 30),))
ACCOUNT = model.Account(
    "torch", "cuda:0", model.Sum(24, (model.Entry("names", 24), model.Entry("unexplained", 0))), model.Sum(None, ()),
    model.Sum(None, ()),
)
VOID = {"meta"}


class Page(HTMLParser):
    """Balanced tags, the visible text, and all attributes."""

    def __init__(self, source):
        super().__init__()
        self.open, self.text, self.tags, self.attributes = [], "", [], []
        self.feed(source)
        assert self.open == [], f"left open: {self.open}"

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.text += data


@pytest.fixture(scope="module")
def source():
    return report(records.SNAPSHOT, (ACCOUNT,), CELLS)


def test_it_says_what_the_pictures_say(source):
    page = Page(source)
    for fact in ("NVIDIA A100", "9.0 GiB of 80.0 GiB used", "name19", "Out[3]", "names", "24 B", "cell [7]", "unexplained"):
        assert fact in page.text
    assert page.tags.count("svg") == 2, "areas and cells"
    assert page.tags.count("h2") == 4


def test_it_needs_no_script_and_no_network(source):
    assert not re.search(r"<script|<link|src=|href=|@import|url\(|https?://", source)
    assert len(source) < 60_000


def test_it_can_be_told_from_other_files_by_its_first_kilobyte(source):
    assert MARK in source[:1024]


def test_it_has_a_dark_side(source):
    assert "prefers-color-scheme:dark" in source
    assert "color-scheme:light dark" in source


def test_names_are_text_and_never_markup():
    evil = records.holding(EVIL, name=EVIL)
    device = model.Device("GPU-x", "gpu", 0, EVIL, 10, 5, 5, alias=EVIL, notes=(EVIL,))
    pool = model.Allocator(EVIL, EVIL, 1, 10, 5)
    cells = model.Timeline((model.CellUse(EVIL, (), (pool,)),))
    page = Page(report(model.Snapshot(1.0, ("cpu",), (device,), (pool,), (evil,), (EVIL,)), (), cells))
    assert not {"img", "script"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert EVIL in page.text


def test_an_empty_session_is_a_page_too():
    page = Page(report(records.EMPTY, (), model.Timeline(())))
    assert "No NVIDIA driver" in page.text
    assert page.tags.count("h2") == 1
    assert "svg" not in page.tags
