"""Records as HTML."""
from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from jupyter_gpumem import model
from jupyter_gpumem.pictures import html

sys.path.insert(0, str(Path(__file__).parent))
import records

EVIL = "<img src=x onerror=alert(1)>\"'&"


class Page(HTMLParser):
    """Balanced tags and the visible text."""

    def __init__(self, source):
        super().__init__()
        self.open, self.text, self.tags, self.attributes = [], "", [], []
        self.feed(source)
        assert self.open == [], f"left open: {self.open}"

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.text += data


@pytest.mark.parametrize("name", records.ALL)
def test_says_the_facts(name):
    page = Page(html.render(records.ALL[name]))
    joined = page.text + " ".join(value or "" for _, value in page.attributes)
    squeezed = joined.replace(": ", " ")
    missing = [fact for fact in records.FACTS[name] if fact not in joined and fact.replace(": ", " ") not in squeezed]
    assert not missing, f"{missing}\n{page.text}"


def test_names_are_text_and_never_markup():
    evil = records.holding(EVIL, name=EVIL)
    device = model.Device("GPU-x", "gpu", 0, EVIL, 10, 5, 5, alias=EVIL, processes=(model.Process(1, 5),), notes=(EVIL,))
    page = Page(html.render(model.Snapshot(1.0, ("cpu",), (device,), (), (evil,), (EVIL,))))
    assert not {"img", "script"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert EVIL in page.text


@pytest.mark.parametrize("name", records.ALL)
def test_needs_nothing_from_outside(name):
    source = html.render(records.ALL[name])
    assert not re.search(r"<script|<link|src=|href=|@import|url\(", source)
    assert ' id="' not in source, "two outputs in one page would collide"
    assert len(source) < 30_000


def test_every_colour_of_the_theme_has_a_fallback():
    source = html.render(records.SNAPSHOT)
    assert "var(--jp-" in source
    assert not re.search(r"var\(--jp-[a-z0-9-]+\)", source)


def test_the_bar_is_said_in_words():
    page = Page(html.render(records.SNAPSHOT))
    roles = dict(page.attributes)
    labels = [value for name, value in page.attributes if name == "aria-label"]
    assert roles["role"] == "img"
    assert any("allocated 4.0 GiB" in label for label in labels)


def test_tables_have_headers():
    assert ("scope", "col") in Page(html.render(records.SNAPSHOT)).attributes


def test_only_what_dangles():
    page = Page(html.render_dangling(records.SNAPSHOT))
    assert "Out[3]" in page.text
    assert "name19" not in page.text
