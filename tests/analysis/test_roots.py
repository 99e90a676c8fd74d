"""Where the search begins."""
from __future__ import annotations

import contextvars
import threading

from jupyter_gpumem.analysis import roots
from jupyter_gpumem.model import Cause


def labels(found, value):
    return [root.label for root in found if root.value is value]


def test_names_of_the_user_without_those_in_question(shell):
    shell.run_cell("a = [1]\nb = [2]\nimport sys")
    found = {root.name for root in roots.names(shell, without=("b",))}
    assert "a" in found
    assert not {"b", "sys"} & found


def test_locals_of_other_threads_are_in_use():
    value, started, stop = object(), threading.Event(), threading.Event()

    def work(kept):
        started.set()
        stop.wait()

    thread = threading.Thread(target=work, args=(value,), name="a-worker")
    thread.start()
    started.wait()
    found = labels(roots.live(None), value)
    stop.set()
    thread.join()
    assert any("thread 'a-worker': work()" in label and "local 'kept'" in label for label in found)


def test_locals_of_the_calling_function_are_in_use():
    value = object()
    assert any("local 'value'" in label for label in labels(roots.live(None), value))


def test_context_variables():
    value, variable = object(), contextvars.ContextVar("last_seen")
    token = variable.set(value)
    assert "context variable 'last_seen'" in labels(roots.live(None), value)
    variable.reset(token)


def test_what_leaves_can_be_told_to_stay(shell, capsys):
    shell.run_cell("[1]", store_history=True)
    shell.run_cell("1 / 0")
    causes = {root.cause for root in roots.leaving(shell)}
    assert causes == {Cause.LAST_ERROR, Cause.OUTPUT}
    assert {root.cause for root in roots.leaving(shell, error=False, output=False)} == set()
    capsys.readouterr()
