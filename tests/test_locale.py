"""The zh-CN catalogue: whole, and what JupyterLab finds. The page's own sentences are checked by its own tests."""
from __future__ import annotations

import ast
import json
import re
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import jupyter_gpumem

PACKAGE = Path(jupyter_gpumem.__file__).parent
FILE = PACKAGE / "locale" / "zh_CN" / "LC_MESSAGES" / "jupyter_gpumem.json"
CATALOGUE = json.loads(FILE.read_text(encoding="utf-8"))
SENTENCE = re.compile(r"[A-Z].* .*[.)]$", re.DOTALL)


def sentences(file):
    """Whole sentences in the code of a file: no documentation, nothing that is put together."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    apart = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    apart |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) and id(node) not in apart else None
        if isinstance(text, str) and SENTENCE.match(text):
            yield text


TOLD = sorted({text for file in (PACKAGE / "devices").glob("*.py") for text in sentences(file)})


def test_there_are_sentences():
    assert "The NVIDIA driver is not loaded." in TOLD
    assert len(TOLD) >= 20


@pytest.mark.parametrize("text", TOLD)
def test_what_is_said_of_devices_is_translated(text):
    assert text in CATALOGUE, f"add it to {FILE.name}"


def test_every_translation_says_something_and_has_the_same_places():
    for text, (translated,) in ((text, found) for text, found in CATALOGUE.items() if text):
        assert translated.strip(), text
        assert sorted(re.findall(r"%\d", text)) == sorted(re.findall(r"%\d", translated)), text


def test_the_head_is_what_jupyterlab_reads():
    assert CATALOGUE[""]["domain"] == "jupyter_gpumem"
    assert CATALOGUE[""]["language"] == "zh-CN"


def test_jupyterlab_finds_the_catalogue():
    translation = pytest.importorskip("jupyterlab_server.translation_utils")
    if not any(entry.name == "jupyter_gpumem" for entry in entry_points(group="jupyterlab.locale")):
        pytest.skip("the package is not installed here")
    pytest.importorskip("jupyterlab_language_pack_zh_CN")
    packs, _ = translation.get_language_pack("zh_CN")
    assert packs["jupyter_gpumem"]["Free dangling"] == CATALOGUE["Free dangling"]
