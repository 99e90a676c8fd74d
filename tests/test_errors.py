"""The error that users see."""
from __future__ import annotations

from jupyter_gpumem.errors import InputError


def test_is_a_value_error_with_its_sentence():
    assert issubclass(InputError, ValueError)
    assert str(InputError("no device 'cuda:9'")) == "no device 'cuda:9'"
