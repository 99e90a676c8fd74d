"""Records in a shell's formatters."""
from __future__ import annotations

from jupyter_gpumem.faces import showing
from jupyter_gpumem.model import Notice


def test_a_record_is_text_and_html_while_registered(shell):
    record = Notice("something <b>")
    showing.register(shell)
    data, _ = shell.display_formatter.format(record)
    assert data["text/plain"] == "something <b>"
    assert "&lt;b&gt;" in data["text/html"]
    showing.unregister(shell)
    data, _ = shell.display_formatter.format(record)
    assert "text/html" not in data
    assert data["text/plain"].startswith("Notice(")


def test_showing_makes_no_output_of_the_cell(shell, capsys):
    showing.register(shell)
    shell.user_ns["show"], shell.user_ns["record"] = showing.show, Notice("a line")
    shell.run_cell("show(record)", store_history=True)
    assert shell.user_ns["Out"] == {}
    assert "a line" in capsys.readouterr().out
    showing.unregister(shell)
