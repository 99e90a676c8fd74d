"""Each storage once, with its size and its end."""
from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from jupyter_gpumem.errors import InputError
from jupyter_gpumem.frameworks import torch_lifetimes
from jupyter_gpumem.frameworks.torch_lifetimes import Log


@pytest.fixture
def fake():
    with FakeTensorMode() as mode:
        yield mode


def test_views_share_and_the_end_is_told(fake):
    log = Log(["cpu"])
    x = torch.empty(10)
    log.see(x, kind="inputs")
    log.see(x[2:])
    y = x + 1
    log.see(y)
    assert log.numbers([x, x[2:], y]) == [0, 0, 1]
    del y
    done = log.rehearsal((), (), ())
    assert [one.nbytes for one in done.allocations] == [40, 40]
    assert (1, 0) in done.events
    assert (0, 0) not in done.events


def test_kinds_can_be_told_later(fake):
    log = Log(["cpu"])
    x = torch.empty(4)
    log.see(x)
    log.name([x], "gradients")
    assert log.kind_of(x) == "gradients"
    assert [one.kind for one in log.rehearsal((), (), ()).allocations] == ["gradients"]


def test_a_device_that_is_not_in_use_is_refused(fake):
    with pytest.raises(InputError, match="starts no device"):
        Log(["cuda"]).see(torch.empty(4))


def test_tensors_in_containers():
    x, y = torch.ones(1), torch.ones(2)
    assert [id(t) for t in torch_lifetimes.tensors_of({"a": [x, (y, 3)], "b": None})] == [id(x), id(y)]


def test_the_line_of_the_users():
    frame = torch_lifetimes.user_line()
    assert (frame.filename, frame.function) == (__file__, "test_the_line_of_the_users")
