"""What may be typed, and the words for a slip."""
from __future__ import annotations

import pytest

from jupyter_gpumem.errors import InputError
from jupyter_gpumem.faces import grammar


def test_keep_takes_names_with_commas_and_again():
    options = grammar.cell_gpufree().read("--keep a,b --keep c --dry-run")
    assert options.keep == ("a", "b", "c")
    assert options.dry_run


@pytest.mark.parametrize(
    ("parser", "line", "words"),
    [
        (grammar.cell_gpufree, "--kep a", "did you mean --keep"),
        (grammar.cell_gpufree, "--keep 1a", "takes names of Python"),
        (grammar.cell_gpufree, "--keep", "expected one argument"),
        (grammar.cell_gpufree, "name", "unknown: name"),
        (grammar.line_gpufree, "--drry-run", "did you mean --dry-run"),
        (grammar.line_gpumem, "--why", "expected one argument"),
        (grammar.line_gpumem, "a b", "unknown: b"),
        (grammar.cell_gpumem, "--dry-run", "unknown: --dry-run"),
        (grammar.line_gpumem, "--forecast", "takes all that is behind it"),
        (grammar.line_gpumem, "'open", "No closing quotation"),
    ],
)
def test_a_slip_is_one_line_with_the_usage(parser, line, words):
    with pytest.raises(InputError) as refused:
        parser().read(line)
    assert words in str(refused.value)
    assert "usage: %" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_flags_of_later_days_are_not_listed():
    listed = [flag for make in (*grammar.CELLS.values(), *grammar.LINES.values()) for flag in make().flags()]
    assert set(listed) == {
        "--why", "--dangling", "--account", "--advise", "--forecast", "--mark", "--diff", "--plot", "--record", "--limit", "--live", "--html", "--json", "--json-schema", "--leak",
        "--device", "--dry-run", "--keep-output", "--keep-traceback", "--keep", "--retry", "--halve", "--floor", "--to-host",
    }
