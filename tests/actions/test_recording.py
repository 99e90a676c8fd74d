"""The recording is the framework's own, and is refused where it cannot be."""
from __future__ import annotations

import pytest
import torch  # noqa: F401 - a framework is imported

from jupyter_gpumem.actions.recording import record
from jupyter_gpumem.errors import InputError
from jupyter_gpumem.frameworks import torch_history


def test_without_a_device_in_use_nothing_is_recorded():
    with pytest.raises(InputError):
        record("on")


def test_a_file_without_a_folder_is_refused_before_anything_is_asked(monkeypatch):
    monkeypatch.setattr(torch_history, "dump", None)
    with pytest.raises(InputError, match="there is no folder"):
        record("/nowhere/at/all.pickle")


def test_ending_what_was_never_begun_is_nothing():
    assert "has ended" in record("off").text
