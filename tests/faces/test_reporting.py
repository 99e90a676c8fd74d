"""The report as a file: whole or not at all, and never over a file that is not ours."""
from __future__ import annotations

import os

import pytest

import jupyter_gpumem
from jupyter_gpumem.errors import InputError
from jupyter_gpumem.faces import reporting


def test_it_is_written_and_written_again(tmp_path):
    file = tmp_path / "report.html"
    notice = jupyter_gpumem.report(file)
    assert str(file) in notice.text
    first = file.read_text()
    assert first.startswith("<!DOCTYPE html>") and "Host memory" in first
    jupyter_gpumem.report(str(file))
    assert [one.name for one in tmp_path.iterdir()] == ["report.html"]


def test_it_has_the_rights_of_any_new_file(tmp_path):
    other = tmp_path / "other"
    other.touch()
    jupyter_gpumem.report(tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_mode == other.stat().st_mode


def test_a_file_that_is_no_report_stays(tmp_path):
    file = tmp_path / "thesis.html"
    file.write_text("<html>years of work</html>")
    with pytest.raises(InputError, match="is no report of ours"):
        jupyter_gpumem.report(file)
    assert file.read_text() == "<html>years of work</html>"
    (tmp_path / "empty.html").touch()
    jupyter_gpumem.report(tmp_path / "empty.html")
    assert (tmp_path / "empty.html").stat().st_size


def test_a_link_is_followed_and_stays_a_link(tmp_path):
    file, link = tmp_path / "real.html", tmp_path / "link.html"
    link.symlink_to(file)
    jupyter_gpumem.report(link)
    assert link.is_symlink() and file.stat().st_size


@pytest.mark.parametrize(
    ("name", "words"), [("no/such/folder.html", "there is no folder"), (".", "is no file"), ("a\0b", "cannot be written")]
)
def test_what_cannot_be_written_is_refused(tmp_path, name, words):
    with pytest.raises(InputError, match=words):
        jupyter_gpumem.report(os.path.join(tmp_path, name))
    assert not list(tmp_path.iterdir())


def test_a_disk_that_is_full_leaves_the_old_report(tmp_path, monkeypatch):
    file = tmp_path / "report.html"
    jupyter_gpumem.report(file)
    before = file.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(reporting.os, "replace", full)
    with pytest.raises(InputError, match="No space left on device"):
        jupyter_gpumem.report(file)
    assert file.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["report.html"]


def test_names_may_hold_anything(tmp_path, monkeypatch):
    file = tmp_path / "report.html"
    monkeypatch.setattr(reporting, "report", lambda *_: f"{reporting.MARK}\ud800")
    jupyter_gpumem.report(file)
    assert b"ud800" in file.read_bytes()


def test_the_watched_cells_are_in_it(shell, tmp_path, capsys):
    shell.run_cell("%load_ext jupyter_gpumem\nimport torch")
    shell.run_cell("%%gpumem\nweights = torch.zeros(1000)", store_history=True)
    shell.run_cell(f"%gpumem --html {tmp_path / 'r.html'}")
    assert "the report is in" in capsys.readouterr().out
    page = (tmp_path / "r.html").read_text()
    assert "Cell by cell" in page and "weights" in page


def test_a_refusal_in_a_magic_is_one_line(shell, tmp_path, capsys):
    shell.run_cell("%load_ext jupyter_gpumem")
    assert not shell.run_cell(f"%gpumem --html {tmp_path}/nowhere/r.html").success
    said = capsys.readouterr()
    assert "there is no folder" in said.out + said.err
