"""What advice asks of torch; values are read without allocating on the device and without running anybody's code."""
from __future__ import annotations

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch.utils.checkpoint import checkpoint

from jupyter_gpumem.frameworks import torch_advice

MIB = 1 << 20


def test_traits():
    weight = torch.nn.Parameter(torch.ones(2))
    made = weight * 2
    assert torch_advice.traits(weight) == (True, True, True, True)
    assert torch_advice.traits(made) == (False, True, False, True)
    assert torch_advice.traits(torch.ones(2, dtype=torch.int8)) == (False, False, True, False)
    assert torch_advice.traits(weight.untyped_storage()) is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [(3, 3.0), (2.5, 2.5), (torch.tensor(7.0), 7.0), ("3", None), (True, None), (torch.ones(2), None), (None, None)],
    ids=["int", "float", "tensor", "text", "bool", "two elements", "nothing"],
)
def test_numbers(value, expected):
    assert torch_advice.number(value) == expected


@pytest.mark.parametrize("shape", [(), (7,), (3, 5), (0,), (2, 3, 4, 5), (3 * MIB,)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_zeros_are_told_from_one_value_anywhere(shape, dtype):
    tensor = torch.zeros(shape, dtype=dtype)
    told = torch_advice.zeros(tensor, 1 << 30)
    assert told == (True, told.whole, tensor.numel() * tensor.element_size())
    if tensor.numel():
        tensor.view(-1)[-1] = 1
        assert torch_advice.zeros(tensor, 1 << 30).zero is False


@settings(max_examples=25, phases=[Phase.generate], deadline=None)
@given(st.permutations(range(4)), st.integers(0, 119))
def test_a_dense_tensor_in_any_order_of_dimensions_is_read_wholly(order, at):
    tensor = torch.zeros(2, 3, 4, 5).permute(order)
    assert torch_advice.zeros(tensor, MIB).zero is True
    tensor.reshape(-1)  # a view or a copy: the layout stays what it was
    tensor[tuple(int(index) for index in torch.unravel_index(torch.tensor(at), tensor.shape))] = -1
    assert torch_advice.zeros(tensor, MIB).zero is False


@pytest.mark.parametrize(
    "tensor",
    [
        lambda: torch.zeros(4, 4)[:, ::2],
        lambda: torch.zeros(3, 1).expand(3, 4),
        lambda: torch.zeros(3, 3).to_sparse(),
        lambda: torch.zeros(3).untyped_storage(),
        lambda: torch.zeros(3, device="meta"),
    ],
    ids=["gaps", "expanded", "sparse", "storage", "meta"],
)
def test_what_is_no_dense_block_is_unknown(tensor):
    assert torch_advice.zeros(tensor(), MIB).zero is None


def test_reading_is_bounded_and_spread():
    tensor = torch.zeros(8 * MIB)
    told = torch_advice.zeros(tensor, MIB)
    assert told.zero is True and told.read <= MIB + (8 << 10) and told.whole == 32 * MIB
    tensor[-1] = 1
    assert torch_advice.zeros(tensor, MIB).zero is False
    tensor[0] = 1
    assert torch_advice.zeros(tensor, MIB).read <= 4 << 10, "few bytes settle it"


ON_DEVICE = """
import json, torch
from jupyter_gpumem.frameworks import torch_advice
tensor = torch.zeros(5 << 20, device=DEVICE)
before = dict(torch.accelerator.memory_stats()), torch.get_rng_state().tolist()[:20]
told = torch_advice.zeros(tensor, 1 << 30)
same = before == (dict(torch.accelerator.memory_stats()), torch.get_rng_state().tolist()[:20])
print(json.dumps([told, same, torch_advice.bfloat16(DEVICE + ":0"), torch_advice.bfloat16("nowhere:0"), torch_advice.device_total(DEVICE + ":0")]))
"""


@pytest.mark.parametrize("device", ["cuda", "simgpu"])
def test_reading_on_the_device_allocates_nothing_there(run_on, device):
    told, same, bfloat16, nowhere, total = run_on(device, ON_DEVICE).json
    assert told == [True, 20 * MIB, 20 * MIB]
    assert same and bfloat16 and nowhere is None
    assert total == (256 * MIB if device == "cuda" else None)


def test_roles_of_nodes():
    leaf = torch.ones(3, requires_grad=True)
    product = leaf * 2
    assert torch_advice.node_role((product + 1).grad_fn) == "sum"
    assert torch_advice.node_role(product.grad_fn) is None
    assert torch_advice.node_role(product.grad_fn.next_functions[0][0]) == "leaf"


@pytest.mark.parametrize("reentrant", [True, False])
def test_nodes_that_compute_again(reentrant):
    leaf = torch.ones(3, requires_grad=True)
    todo, roles = [checkpoint(lambda x: x.exp() * 2, leaf, use_reentrant=reentrant).grad_fn], set()
    while todo:
        node = todo.pop()
        roles.add(torch_advice.node_role(node))
        todo += [following for following, _ in node.next_functions if following is not None]
    assert "checkpoint" in roles
    assert torch_advice.node_role(leaf.exp().grad_fn) is None


def test_a_loader_that_has_not_begun():
    loader = torch.utils.data.DataLoader(range(4), num_workers=3, prefetch_factor=5)
    assert torch_advice.is_loader(type(loader)) and not torch_advice.is_loader(list)
    assert torch_advice.loader(loader) == (3, 5, ())
    assert torch_advice.loader(torch.utils.data.DataLoader(range(4)))[0] == 0


def test_the_environment_tells_whether_segments_grow(monkeypatch):
    monkeypatch.delenv("PYTORCH_ALLOC_CONF", raising=False)
    for text, expected in (("", False), ("expandable_segments:True", True), ("max_split_size_mb:64, expandable_segments: true", True),
                           ("expandable_segments:False", False)):
        monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", text)
        assert torch_advice.expands() is expected


def test_page_locked_memory_is_asked_only_where_cuda_is_in_use(monkeypatch):
    assert torch_advice.pinned_bytes() is None
    assert torch_advice.pinned(torch.ones(3)) is False
    monkeypatch.setattr(torch_advice, "_cuda", type("cuda", (), {"is_initialized": staticmethod(lambda: True)}))
    monkeypatch.setattr(torch._C, "_cuda_hostMemoryStats", lambda: {"allocated_bytes": {"current": 4096}}, raising=False)
    assert torch_advice.pinned_bytes() == 4096


def test_defaults():
    assert torch_advice.default_float() == "float32"
    assert torch_advice.collective() is None
    assert torch_advice.device_total("cpu") is None
