"""Every global generator goes back to where it was, and taking the state draws nothing."""
from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import numpy
import torch

from jupyter_gpumem import randomness

ROOT = Path(__file__).parents[1]


def draw():
    return random.random(), float(numpy.random.rand()), float(numpy.random.randn()), torch.rand(2).tolist()


def test_all_of_them_go_back():
    numpy.random.randn()  # the second of a pair is kept in the state
    before = randomness.take()
    drawn = draw()
    for _ in range(5):
        draw()
    before.restore()
    assert draw() == drawn
    before.restore()
    assert draw() == drawn, "a state can be put back more than once"


def test_taking_draws_nothing():
    expected = randomness.take()
    drawn = draw()
    expected.restore()
    randomness.take()
    assert draw() == drawn


def test_a_seed_is_part_of_the_state():
    torch.manual_seed(3)
    before = randomness.take()
    torch.manual_seed(4)
    before.restore()
    assert torch.initial_seed() == 3


def test_inside_the_users_modes():
    from torch._subclasses.fake_tensor import FakeTensorMode

    before = randomness.take()
    drawn = torch.rand(2).tolist()
    with FakeTensorMode(), torch.device("meta"), torch.inference_mode():
        randomness.take().restore()
        before.restore()
    assert torch.rand(2).tolist() == drawn


def test_a_state_holds_no_tensor_and_shows_no_numbers():
    state = randomness.take()
    assert {type(one) for one in state.frameworks["torch"].values()} == {bytes}
    assert repr(state) == "State()"


def test_nothing_is_imported():
    code = "import sys; from jupyter_gpumem import randomness; randomness.take().restore(); print([m for m in ('numpy', 'torch') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"


def test_numpys_generator_is_taken_before_its_first_use():
    code = """
import numpy
from jupyter_gpumem import randomness
state = randomness.take()
first = numpy.random.rand()
state.restore()
assert numpy.random.rand() == first
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_a_framework_imported_later_begins_anew():
    code = """
from jupyter_gpumem import randomness
state = randomness.take()
import torch
first = torch.rand(3).tolist()
state.restore()
assert torch.rand(3).tolist() == first
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
