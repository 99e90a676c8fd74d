"""Records in a shell's formatters."""
from __future__ import annotations

import pytest

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


class Clock:
    """Seconds that a test sets."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def test_progress_appears_after_a_second_and_is_throttled(monkeypatch):
    seen = []

    class Handle:
        def update(self, data, raw):
            seen.append(data["text/plain"])

    def display(data, raw, display_id):
        seen.append(data["text/plain"])
        return Handle()

    monkeypatch.setattr("IPython.display.display", display)
    clock = Clock()
    tell = showing.progress("to host memory", clock)
    for clock.now, done in ((0.5, 1), (1.5, 2 << 20), (1.6, 3 << 20), (1.9, 3 << 20), (1.95, 4 << 20)):
        tell(done, 4 << 20)
    assert [line.partition("] ")[2] for line in seen] == [
        "2.0 MiB of 4.0 MiB",
        "3.0 MiB of 4.0 MiB",
        "4.0 MiB of 4.0 MiB",
    ]
    assert "[███████████████               ]" in seen[0]


def test_what_is_quick_shows_no_progress(monkeypatch):
    monkeypatch.setattr("IPython.display.display", lambda *_, **__: pytest.fail("shown"))
    clock = Clock()
    tell = showing.progress("back", clock)
    clock.now = 0.9
    tell(1, 2)
    clock.now = 1.1
    tell(2, 2)
