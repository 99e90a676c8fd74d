"""The magics in a shell."""
from __future__ import annotations

import json

import pytest


@pytest.fixture
def say(shell, capsys):
    shell.run_cell("%load_ext jupyter_gpumem\nimport torch")

    def run(cell):
        capsys.readouterr()
        result = shell.run_cell(cell, store_history=True)
        said = capsys.readouterr()
        return result, said.out + said.err

    return run


def test_json_has_the_records_fields(say):
    say("weights = torch.zeros(1000)")
    _, text = say("%gpumem --json")
    seen = json.loads(text)
    assert {"watched", "devices", "allocators", "holdings"} <= set(seen)
    assert any(h["holder"]["name"] == "weights" and h["nbytes"] == 4000 for h in seen["holdings"])


@pytest.mark.parametrize(
    ("line", "record"),
    [
        ("", "Snapshot"), ("weights", "ObjectUse"), ("--why weights", "Why"), ("--dangling", "Dangling"),
        ("--account", "Accounts"), ("--diff before", "Growth"),
    ],
)
def test_json_of_each_question(say, line, record):
    say("%gpumem --mark before")
    say("weights = torch.zeros(1000)")
    seen = json.loads(say(f"%gpumem --json {line}")[1])
    assert (seen["schema"], seen["record"]) == ("jupyter_gpumem/1", record)


def test_the_schema_of_json_is_json(say):
    seen = json.loads(say("%gpumem --json-schema")[1])
    assert {"Snapshot", "Why", "Holding"} <= set(seen["$defs"])


def test_one_object_and_its_holders(say):
    say("weights = torch.zeros(1000)\nalias = [weights]")
    assert "3.9 KiB" in say("%gpumem weights")[1]
    assert "alias[0]" in say("%gpumem --why weights")[1]


def test_dangling_alone(say):
    say("torch.zeros(1000)")
    text = say("%gpumem --dangling")[1]
    assert "Out[" in text
    assert "Host memory" not in text


def test_the_account_closes_in_words(say):
    say("weights = torch.zeros(1000)")
    text = say("%gpumem --account")[1]
    assert "weights" not in text and "names" in text and "used by all processes" in text


def test_advice_with_its_line_and_nothing_to_advise(say, shell):
    say("model = torch.nn.Linear(600, 600)\nmodel(torch.ones(2, 600)).sum().backward()\nmodel.zero_grad(set_to_none=False)")
    text = say("%gpumem --advise")[1]
    assert "Gradients are kept as zeros" in text and "model.zero_grad(set_to_none=True)" in text
    assert json.loads(say("%gpumem --advise --json")[1])["record"] == "Checkup"
    say("model.zero_grad(set_to_none=True)")
    assert "model.zero_grad" not in say("%gpumem --advise")[1]
    assert shell.user_ns["Out"] == {}


def test_marks_and_what_changed_since(say):
    say("%gpumem --mark before")
    say("weights = torch.zeros(1000)")
    text = say("%gpumem --diff before")[1]
    assert "weights" in text and "+3.9 KiB" in text
    say("%gpumem --mark after")
    say("del weights")
    assert "weights" in say("%gpumem --diff before after")[1]


def test_a_cell_that_leaks_is_found_by_running_it_again(say):
    say("losses = []\nw = torch.ones(1000, requires_grad=True)")
    for _ in range(4):
        _, text = say("%%gpumem --leak\nlosses.append((w * w).sum())")
    assert "losses[·]" in text
    assert "leak" in text
    for _ in range(4):
        _, text = say("%%gpumem --leak\nloss = (w * w).sum()")
    assert "steady" in text


def test_free_says_what_came_back(say):
    say("weights = torch.zeros(1000)\nother = weights[1:]")
    text = say("%gpufree weights")[1]
    assert "delete name weights" in text
    assert "Still held" in text
    assert "other" in text


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("%gpufree nope", "no name 'nope'"),
        ("%gpumem nope", "no name 'nope'"),
        ("%gpumem --why torch.nope", "is not a name"),
        ("%gpumem --diff nope", "no mark 'nope'"),
        ("%gpumem --diff a b c", "one mark or two"),
        ("%gpumem --plot treemop", "did you mean treemap?"),
        ("%gpumem --plot graph", "takes a name"),
        ("%gpumem --json --plot treemap", "not with --plot"),
        ("%gpumem --json on", "not with on"),
        ("%gpumem --why x --account", "--why and --account are two"),
        ("%gpumem x --dangling", "--dangling and NAME are two"),
        ("%gpufree --device tpu:0", "there is: cpu"),
        ("%%gpufree --keep z\nx = 1", "the cell makes no such name"),
        ("%%gpufree --keep 3\nx = 1", "takes names of Python"),
        ("%%gpumem --device cuda:5\nx = 1", "there is: cpu"),
        ("%%gpufree\n", "cell body is empty"),
        ("%gpumem on off", "unknown: off"),
    ],
)
def test_bad_input_is_one_line_and_nothing_has_run(say, shell, cell, words):
    before = set(shell.user_ns)
    result, text = say(cell)
    assert not result.success
    assert words in text
    assert "Traceback" not in text
    assert len([line for line in text.splitlines() if line.strip()]) == 1
    assert {name for name in set(shell.user_ns) - before if not name.startswith("_")} == set()


def test_called_by_name_they_do_the_same(say, shell):
    say("get_ipython().run_cell_magic('gpufree', '--keep a', 'a = torch.zeros(3)\\nb = torch.zeros(3)')")
    assert "a" in shell.user_ns
    assert "b" not in shell.user_ns


def test_hostile_values_in_the_namespace_do_no_harm(say):
    say(
        "class Bad:\n    def __getattr__(self, n): raise SystemExit\n"
        "    __len__ = __repr__ = __eq__ = __bool__ = lambda s, *a: 1/0\n    __class__ = property(lambda s: 1/0)\nbad = Bad()"
    )
    for cell in ("%gpumem", "%gpumem bad", "%gpufree", "%%gpufree\nworse = Bad()", "%gpumem --dangling"):
        result, text = say(cell)
        assert result.success, text


def test_a_limit_where_there_is_none_is_refused_in_one_line(say):
    assert "host memory has no budget" in say("%gpumem --limit 8GiB --device cpu")[1]
