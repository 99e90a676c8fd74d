"""Storages and their causes."""
from __future__ import annotations

import pytest

from jupyter_gpumem import model


@pytest.mark.parametrize("cause", model.Cause)
def test_what_a_name_keeps_never_dangles(cause):
    assert cause.dangling is (cause not in (model.Cause.NAME, model.Cause.MODULE, model.Cause.REGISTRY))
    assert not cause.freeable or cause.dangling
