"""Advice on the screen."""
from __future__ import annotations

import re

import pytest

from jupyter_gpumem.model import Advice, Checkup
from jupyter_gpumem.pictures import html, text

ADVICE = Advice("accumulated loss", "Losses are kept together with their graphs", ("losses[·] holds 6 losses.", "They are alike."),
                "6 graphs keep 9.0 MiB", 9 << 20, "losses.append(loss.item())", ("losses",), "cuda:0")
UNKNOWN = Advice("unused devices", "One GPU is full", ("cuda:0 is full.",), "", None, 'part.to("cuda:1")', (), "cuda:0")
ON_HOST = Advice("pinned memory", "Much is page-locked", ("a lot",), "all of it", 1 << 30, "del x", ("x",), "cpu")
CHECKUP = Checkup(("cuda:0",), (ADVICE, UNKNOWN, ON_HOST), ("2 models", "no optimizers"), ("A note.",), True)


@pytest.fixture(params=["text", "html"])
def said(request):
    def words(record):
        source = text.render(record) if request.param == "text" else re.sub(r"<style>.*?</style>", "", html.render(record), flags=re.S)
        return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", source).replace("&quot;", '"'))

    return words


@pytest.mark.parametrize("fact", [
    "Losses are kept together with their graphs", "9.0 MiB of cuda:0", "losses[·] holds 6 losses.", "They are alike.", "6 graphs keep 9.0 MiB",
    "losses.append(loss.item())", "how many bytes that gives cannot be told beforehand", 'part.to("cuda:1")', "1.0 GiB of host memory",
    "looked at on cuda:0: 2 models, no optimizers", "A note.",
])
def test_all_of_it_is_said(said, fact):
    assert fact in said(CHECKUP)


def test_nothing_to_advise_is_an_answer(said):
    got = said(Checkup(("cpu",), (), ("3 models",)))
    assert "Nothing to advise" in got and "looked at on cpu: 3 models" in got


def test_one_piece_of_advice_alone(said):
    assert "9.0 MiB of cuda:0" in said(ADVICE)


def test_hostile_names_are_text_and_lines_keep_to_the_page():
    evil = "<img src=x onerror=alert(1)>\x1b[2J"
    record = Checkup((evil,), (Advice(evil, evil, (evil,), evil, 1, evil, (evil,), evil),), (evil,))
    assert "<img" not in html.render(record)
    assert "\x1b" not in text.render(record) + html.render(record)
    assert max(map(len, text.render(CHECKUP).splitlines())) <= 100
