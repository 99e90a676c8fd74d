"""The first line of a wrapped cell."""
from __future__ import annotations

import pytest

from jupyter_gpumem.errors import InputError
from jupyter_gpumem.faces import directives


def transformed(shell, cell):
    return "".join(directives.without_directive(shell, cell.splitlines(keepends=True)))


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("%%gpumem\nx = 1\n", "# %%gpumem\nx = 1\n"),
        ("%%gpufree --keep x\nx = 1\n", "# %%gpufree --keep x\nx = 1\n"),
        ("\n\n%%gpumem\nx = 1\n", "\n\n# %%gpumem\nx = 1\n"),
        ("%%gpumem\n    x = 1\n", "    # %%gpumem\n    x = 1\n"),
        ("%%gpufree\n%%time\nx = 1\n", "%%time\nx = 1\n"),
        ("%%gpufree\n\n%%bash\nls\n", "%%bash\nls\n"),
    ],
)
def test_a_right_one_is_taken_away(shell, cell, expected):
    assert transformed(shell, cell) == expected
    assert transformed(shell, expected) == expected, "once is enough"


@pytest.mark.parametrize(
    "cell",
    [
        "x = 1\n%%gpumem\n", "%%gpufree --kep x\nx = 1\n", "%%gpufree --keep y\nx = 1\n", "%%gpumem\n", "%%gpumem\n\n\n",
        "%%gpumem?\n", "%%gpumemory\nx = 1\n", "%%gpufree --device tpu:9\nx = 1\n", "", "%gpumem\n", "text = '%%gpumem'\n",
    ],
)
def test_anything_else_is_left_to_ipython(shell, cell):
    assert transformed(shell, cell) == cell


@pytest.mark.parametrize(
    "body",
    [
        "a = 1", "a: int = 1", "a, b = 1, 2", "for a in []: pass", "with x as a: pass", "def a(): pass", "class a: pass",
        "import a", "import q as a", "from q import a", "(a := 1)", "[*a] = []", "if x:\n    a = 1", "async def a(): pass",
        "match x:\n    case a: pass",
        "exec('a = 1')", "from q import *", "%run script.py", "globals()['a'] = 1",
    ],
)
def test_kept_names_that_the_cell_makes_or_may_make(shell, body):
    assert directives.check(shell, "gpufree", "--keep a", body).keep == ("a",)


def test_a_kept_name_that_the_cell_cannot_make(shell):
    with pytest.raises(InputError, match="did you mean 'model'"):
        directives.check(shell, "gpufree", "--keep modle", "model = 1\nother = 2")


def test_a_name_that_exists_may_be_kept(shell):
    shell.run_cell("old = 1")
    assert directives.check(shell, "gpufree", "--keep old", "x = 1").keep == ("old",)


def test_reading_finds_the_directive_below_other_magics(shell):
    directive, below = directives.read(shell, "%%time\n%%gpufree --dry-run\nx = 1")
    assert directive.clean
    assert directive.dry_run
    assert below
    assert directives.read(shell, "x = 1\n%%gpufree") == (None, False)
    assert directives.read(shell, "%%gpufree --bad\nx") == (None, False)
