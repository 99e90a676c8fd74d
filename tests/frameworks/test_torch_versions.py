"""What was written to is seen, and gradients and buffers go back."""
from __future__ import annotations

import gc
import weakref

import pytest
import torch

from jupyter_gpumem.frameworks.torch_versions import mark_versions


def mark(*objects):
    return mark_versions([part for obj in objects for part in (obj, *(obj.parameters() if isinstance(obj, torch.nn.Module) else ()))])


WRITES = {
    "add_": lambda t: t.add_(1),
    "an item": lambda t: t.__setitem__(0, 1.0),
    "a view": lambda t: t[1:].zero_(),
    "out=": lambda t: torch.ones(4, out=t),
    "copy_": lambda t: t.copy_(torch.ones(4)),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_write_is_seen(write):
    tensor, other = torch.zeros(4), torch.zeros(4)
    marked = mark(tensor, other)
    assert marked.written() == []
    write(tensor)
    assert [found is tensor for found in marked.written()] == [True]


def test_reading_and_new_tensors_are_no_writes():
    tensor = torch.zeros(4)
    marked = mark(tensor)
    (tensor + 1).add_(1)
    assert marked.written() == []


def test_an_optimizers_step_is_seen():
    net = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    marked = mark(net)
    net(torch.ones(2, 3)).sum().backward()
    assert marked.written() == []
    optimizer.step()
    assert {id(found) for found in marked.written()} == {id(p) for p in net.parameters()}


def test_new_gradients_are_taken_away():
    net = torch.nn.Linear(3, 1)
    marked = mark(net)
    net(torch.ones(2, 3)).sum().backward()
    marked.put_back()
    assert [parameter.grad for parameter in net.parameters()] == [None, None]


def test_a_gradient_that_was_added_to_is_a_write():
    net = torch.nn.Linear(3, 1)
    net(torch.ones(2, 3)).sum().backward()
    marked = mark(net)
    net(torch.ones(2, 3)).sum().backward()
    assert {id(found) for found in marked.written()} == {id(p.grad) for p in net.parameters()}


def test_a_gradient_that_was_replaced_comes_back_while_it_lives():
    net = torch.nn.Linear(3, 1)
    net(torch.ones(2, 3)).sum().backward()
    kept = net.weight.grad
    marked = mark(net)
    net.zero_grad()
    net(torch.ones(2, 3)).sum().backward()
    assert marked.written() == []
    marked.put_back()
    assert net.weight.grad is kept
    assert net.bias.grad is None


def test_buffers_go_back_each_time():
    norm = torch.nn.BatchNorm1d(3)
    before = {name: buffer.clone() for name, buffer in norm.named_buffers()}
    marked = mark(norm)
    for _ in range(2):
        norm(torch.randn(5, 3))
        assert marked.written() == []
        marked.put_back()
        assert all(torch.equal(buffer, before[name]) for name, buffer in norm.named_buffers())


def test_buffers_too_large_to_copy_are_watched(monkeypatch):
    monkeypatch.setattr("jupyter_gpumem.frameworks.torch_versions._MOST_COPIED", 8)
    norm = torch.nn.BatchNorm1d(3)
    marked = mark_versions([norm, *norm.buffers()])
    norm.running_mean.zero_()
    norm.num_batches_tracked.zero_()  # 8 bytes: copied
    assert [found is norm.running_mean for found in marked.written()] == [True]


def test_buffers_that_nobody_changed_are_not_written_to():
    norm = torch.nn.BatchNorm1d(3)
    norm.running_mean.fill_(float("nan"))
    marked = mark(norm)
    versions = [buffer._version for buffer in norm.buffers()]
    marked.put_back()
    assert [buffer._version for buffer in norm.buffers()] == versions


def test_nothing_is_kept_alive_and_nothing_raises():
    odd = [torch.sparse_coo_tensor([[0]], [1.0], (2,)), torch.empty(2, device="meta"), torch.nn.LazyLinear(2)]
    with torch.inference_mode():
        odd.append(torch.zeros(2))
    tensor = torch.zeros(4, requires_grad=True)
    tensor.sum().backward()
    refs = [weakref.ref(tensor), weakref.ref(tensor.grad)]
    marked = mark_versions([*odd, tensor])
    del tensor
    gc.collect()
    assert [ref() for ref in refs] == [None, None]
    assert marked.written() == []
    marked.put_back()
