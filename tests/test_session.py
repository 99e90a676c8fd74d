"""What IPython keeps, and where."""
from __future__ import annotations

import sys

import pytest

from jupyter_gpumem import session


def run(shell, *cells):
    for cell in cells:
        shell.run_cell(cell, store_history=True)


def test_names_are_the_users(shell):
    run(shell, "a = 1", "2", "_private = 3", "_ = 'mine'", "_7 = 'mine too'")
    names = session.user_names(shell)
    assert {"a", "_private", "_", "_7"} <= set(names)
    assert not {"In", "Out", "exit", "get_ipython", "_oh", "_2", "__"} & set(names)


def test_the_shells_own_underscore_is_no_name(shell):
    run(shell, "object()")
    assert "_" not in session.user_names(shell)


def test_outputs_come_once_under_the_label_that_a_user_knows(shell):
    run(shell, "[1]", "[2]")
    labels = [label for label, value in session.outputs(shell) if value in ([1], [2])]
    assert labels == ["Out[1]", "Out[2]"]


def test_replacing_an_output_reaches_every_place(shell):
    run(shell, "big = ['big']\nbig")
    value = shell.user_ns["big"]
    session.replace_outputs(shell, [value], lambda old: "record")
    places = [shell.user_ns["Out"][1], shell.user_ns["_"], shell.user_ns["_1"], shell.user_ns_hidden["_"]]
    places += [shell.displayhook._, shell.last_execution_result.result]
    assert places == ["record"] * 6
    assert shell.user_ns["big"] is value
    run(shell, "5")
    assert shell.user_ns["_"] == 5, "the shell still knows _ as its own"
    assert shell.user_ns["__"] == "record"


def test_a_name_that_the_user_bound_is_not_replaced(shell):
    run(shell, "['shown']", "_ = _1\n_3 = _1")
    session.replace_outputs(shell, [shell.user_ns["Out"][1]], lambda old: "record")
    assert shell.user_ns["Out"][1] == "record"
    assert shell.user_ns["_3"] == ["shown"]


def test_the_last_error_is_found_and_forgotten(shell, capsys):
    run(shell, "1 / 0")
    assert any(isinstance(error, ZeroDivisionError) for error in session.errors(shell))
    session.forget_error(shell)
    assert session.errors(shell) == []
    assert session.error_leftovers(shell) == []
    assert not hasattr(sys, "last_value")
    capsys.readouterr()


def test_a_failing_cell_keeps_its_own_error_to_report_it(shell, capsys):
    result = shell.run_cell("1 / 0")
    session.forget_error(shell, running=result)
    assert isinstance(result.error_in_exec, ZeroDivisionError)
    capsys.readouterr()


def test_namespaces_of_scripts(shell, tmp_path):
    script = tmp_path / "script.py"
    script.write_text("table = [1]\n")
    run(shell, f"%run {script}")
    ((file, module),) = session.run_namespaces(shell).items()
    assert vars(module)["table"] == [1]
    session.forget_namespace(shell, file)
    assert session.run_namespaces(shell) == {}


def test_callbacks_of_the_user_are_registrations_and_ours_are_not(shell):
    def mine(*_):
        pass

    shell.events.register("post_run_cell", mine)
    run(shell, "%load_ext jupyter_gpumem")
    labels = [label for label, callback in session.registrations(shell) if callback is mine]
    assert labels == ["shell callback 'post_run_cell'"]
    assert not [c for _, c in session.registrations(shell) if "jupyter_gpumem" in getattr(c, "__module__", "")]
    shell.events.unregister("post_run_cell", mine)


@pytest.mark.parametrize("function", [session.user_names, session.outputs, session.errors, session.run_namespaces])
def test_plain_python_has_answers_too(function):
    assert function(None) is not None


def test_the_cell_that_a_file_name_stands_for(shell):
    run(shell, "1", "def f():\n    return 2", "3")
    name = shell.user_ns["f"].__code__.co_filename
    assert session.cell_of_file(shell, name) == 2
    assert session.cell_of_file(None, "<ipython-input-12-0123456789ab>") == 12
    assert session.cell_of_file(None, "<ipython-input-0-0123456789ab>") is None, "a cell without a count"
    assert session.cell_of_file(shell, "/home/me/train.py") is None
    assert session.cell_of_file(None, "/tmp/ipykernel_12/345.py") is None


def test_the_cell_of_a_file_where_ipython_keeps_no_table(shell, monkeypatch):
    class Compiler:
        """IPython 7.34 with ipykernel 6.17: a name follows from the text of the cell alone."""

        def get_code_name(self, raw_code, transformed_code, number):
            return f"/tmp/ipykernel_12/{len(raw_code)}.py"

    run(shell, "1 + 1", "12", "22222", "12")
    monkeypatch.setattr(shell, "compile", Compiler())
    assert session.cell_of_file(shell, "/tmp/ipykernel_12/5.py") == 3, "the last of equal ones"
    assert session.cell_of_file(shell, "/tmp/ipykernel_12/2.py") == 4
    assert session.cell_of_file(shell, "/tmp/ipykernel_12/99.py") is None
    assert session.cell_of_file(shell, "/home/me/5.py") is None
    monkeypatch.setattr(shell, "compile", None)
    assert session.cell_of_file(shell, "/tmp/ipykernel_12/5.py") is None
