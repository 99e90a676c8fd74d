"""Plans, and what stands for a freed value."""
from __future__ import annotations

from jupyter_gpumem import model


def test_promise_leaves_the_cache_out():
    actions = (
        model.Action(model.Step.NAME, "a", 5),
        model.Action(model.Step.CACHE, "autocast cache", None),
        model.Action(model.Step.EMPTY, "cuda:0", 100),
    )
    assert model.Plan(actions, ("cuda",)).promised == 5


def test_freed_explains_itself_in_one_line():
    text = repr(model.Freed("Tensor", 4096, "14:03:22", (32, 32), "float32"))
    assert text == "<Tensor (32, 32) float32, 4.0 KiB, freed at 14:03:22 by gpufree>"
