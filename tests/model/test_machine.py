"""What the machine says, in records."""
from __future__ import annotations

import dataclasses

import pytest

from jupyter_gpumem import model


def test_a_record_cannot_be_changed():
    record = model.Allocator("torch", "cuda:0", 5)
    with pytest.raises(dataclasses.FrozenInstanceError):
        record.allocated = 6


def test_cached_is_unknown_without_a_pool_and_never_negative():
    assert model.Allocator("torch", "cpu", 5).cached is None
    assert model.Allocator("torch", "cuda:0", 5, 9).cached == 4
    assert model.Allocator("torch", "cuda:0", 9, 5).cached == 0
