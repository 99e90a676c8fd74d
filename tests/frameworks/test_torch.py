"""Tensors of all kinds, counted by their storages."""
from __future__ import annotations

import gc
import warnings

import pytest
import torch

from jupyter_gpumem.frameworks import torch as reader

warnings.filterwarnings("ignore", module="torch")


class Raising(torch.Tensor):
    @classmethod
    def __torch_function__(cls, *args, **kwargs):
        raise RuntimeError("ran __torch_function__")

    shape = device = dtype = property(lambda self: 1 / 0)


class Wrapper(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)

    def __init__(self, inner):
        self.inner = inner

    __torch_dispatch__ = classmethod(lambda cls, *args, **kwargs: 1 / 0)


def nbytes(tensor):
    return sum(part.nbytes for part in reader.parts(tensor))


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: torch.zeros(100), 400),
        (lambda: torch.zeros(100)[3:5], 400),
        (lambda: torch.zeros(1).expand(1000), 4),
        (lambda: torch.zeros(10, dtype=torch.complex64).conj(), 80),
        (lambda: torch.zeros(10, dtype=torch.bfloat16), 20),
        (lambda: torch.nn.Parameter(torch.zeros(10)), 40),
        (lambda: torch.zeros(10).untyped_storage(), 40),
        (lambda: torch.tensor(3.0), 4),
        (lambda: torch.zeros(0), 0),
        (lambda: torch.zeros(10, device="meta"), 0),
        (lambda: torch.eye(4).to_sparse(), 4 * 2 * 8 + 4 * 4),
        (lambda: torch.sparse_csr_tensor([0, 1, 2], [0, 1], [1.0, 2.0], size=(2, 2)), 3 * 8 + 2 * 8 + 2 * 4),
        (lambda: torch.nested.nested_tensor([torch.zeros(2, 3), torch.zeros(4, 3)]), 72),
        (lambda: torch.nested.nested_tensor([torch.zeros(2, 3)], layout=torch.jagged), 0),
        (lambda: torch.quantize_per_tensor(torch.zeros(8), 0.1, 0, torch.qint8), 8),
        (lambda: torch.zeros(4, 4).to_mkldnn(), 0),
        (lambda: torch.nn.parameter.UninitializedParameter(), 0),
        (lambda: torch.zeros(100).as_subclass(Raising), 400),
        (lambda: Wrapper(torch.zeros(100)), 0),
    ],
)
def test_bytes_of_every_kind(make, expected):
    assert nbytes(make()) == expected


def test_fake_tensors_hold_nothing():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.ones(1024)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert nbytes(fake) == 0


def test_tensors_that_escaped_a_transform_do_no_harm():
    escaped = []
    torch.func.vmap(lambda x: (escaped.append(x), x)[1])(torch.zeros(3, 2))
    assert reader.parts(escaped[0]) == []


def test_views_share_one_storage():
    whole = torch.zeros(10)
    assert {part.address for view in (whole, whole[1:], whole.detach()) for part in reader.parts(view)} == {
        whole.untyped_storage()._cdata
    }


def test_finding_runs_no_code_of_the_objects():
    class Proxy:
        __class__ = property(lambda self: 1 / 0)

    class Meta(type):
        def __instancecheck__(cls, other):
            raise RuntimeError

        __subclasscheck__ = __instancecheck__

    class Odd(metaclass=Meta):
        pass

    tensor = torch.zeros(1)
    assert reader.find([Proxy(), Odd(), tensor, Odd, 3]) == [tensor]


def test_description_is_read_past_overridden_properties():
    text = reader.describe(torch.zeros(2, 3).as_subclass(Raising))
    assert (text.kind, text.shape, text.dtype, text.nbytes) == ("Raising", (2, 3), "float32", 24)


def test_a_gradient_is_a_referent_and_asking_a_nonleaf_warns_nobody():
    leaf = torch.zeros(3, requires_grad=True)
    result = leaf * 2
    result.sum().backward()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [g is leaf.grad for g in reader.referents(leaf)] == [True]
        assert list(reader.referents(result)) == []


def test_references_that_nobody_can_see_are_counted():
    tensor = torch.zeros(10)
    views = [tensor[1:], tensor[2:]]
    assert reader.unseen([tensor, *views]) == 0
    assert reader.unseen([tensor]) == len(views)
    assert reader.unseen([torch.eye(2).to_sparse()]) is None


def test_a_view_knows_the_tensor_that_it_was_made_of():
    base = torch.zeros(10)
    view, other = base[1:], torch.zeros(10)
    assert reader.is_base(base, [view])
    assert not reader.is_base(other, [view])
    assert not reader.is_base(view, [base])


def test_the_base_that_a_view_keeps_is_no_unseen_reference():
    view = torch.zeros(10)[1:]
    assert reader.unseen([view]) == 0
    assert reader.unseen([view, view[1:]]) == 0


def test_remembered_storages_die_as_if_nobody_remembered_them():
    first, second = torch.zeros(10), torch.zeros(20)
    address = first.untyped_storage()._cdata
    remembered = reader.remember([first, first[1:], second])
    assert (remembered.gone(), remembered.alive()) == (0, 120)
    assert remembered.knows(address)
    del first
    gc.collect()
    assert (remembered.gone(), remembered.knows(address)) == (40, False)
    assert remembered.alive() == 80


def test_a_copy_in_host_memory_has_no_graph_and_stays_a_leaf():
    weight = torch.nn.Parameter(torch.ones(3))
    assert type(reader.to_host(weight)) is torch.nn.Parameter
    result = (weight * 2).sum()
    assert reader.to_host(result).grad_fn is None
    assert reader.to_host(torch.ones(2, requires_grad=True)).requires_grad


def test_autocast_left_open_is_a_cache_that_can_be_cleared():
    assert reader.held_caches() == ()
    mixed = torch.autocast("cpu")
    mixed.__enter__()
    try:
        assert reader.held_caches() == ("autocast cache",)
    finally:
        mixed.__exit__(None, None, None)
    assert reader.held_caches() == ()


def test_modules_show_their_parts_as_attributes():
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    assert [name for name, _ in reader.submodules(net)] == ["0", "1"]
    assert [name for name, _ in reader.submodules(net[1])] == [
        "weight", "bias", "running_mean", "running_var", "num_batches_tracked",
    ]
    assert list(reader.submodules(object())) == []


FIGURES = """
import json, torch
from jupyter_gpumem.frameworks import torch as reader
before = reader.allocators()
x = torch.ones(1 << 20, device=DEVICE)
y = x * 2
del y
figures = [(a.device, a.allocated, a.peak, a.reserved >= a.allocated) for a in reader.allocators()]
counted = reader.activity()
z = torch.ones(5, device=DEVICE)
print(json.dumps([len(before), figures, counted != reader.activity(), reader.may_use(), reader.devices()]))
"""


@pytest.mark.parametrize("device", ["cuda", "simgpu"])
def test_allocator_figures(run_on, device):
    count, figures, moved, kind, devices = run_on(device, FIGURES).json
    assert count == 0, "nothing is initialised before the first use"
    assert figures[0] == [f"{device}:0", 4 << 20, 8 << 20, True]
    assert moved
    assert kind == device
    assert devices == [f"{device}:0", f"{device}:1"]


def test_uuid_is_nvmls(run_on):
    source = "import torch, json\nfrom jupyter_gpumem.frameworks import torch as reader\n"
    source += "a = reader.uuids(); torch.ones(1, device='cuda'); print(json.dumps([a, reader.uuids()]))"
    before, after = run_on("cuda", source).json
    assert before == {}
    assert after["cuda:1"] == "GPU-00000000-0000-0000-0000-000000000001"


EVERY_VERB = """
import json, os, tempfile
os.environ["IPYTHONDIR"] = tempfile.mkdtemp()
import torch
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
import contextlib, io
said = io.StringIO()
with contextlib.redirect_stdout(said):
    for cell in ["%load_ext jupyter_gpumem", "import torch", "x = torch.ones(5)", "%gpumem", "%gpumem x", "%gpumem --why x", "%gpumem --dangling",
                 "%gpumem --json", "%gpufree --dry-run", "%gpufree", "%gpumem on", "1 + 1", "%%gpumem\\ny = 1", "%%gpufree\\nz = torch.ones(3)",
                 "%gpumem off", "%gpufree x", "import jupyter_gpumem as g; g.snapshot(); g.holdings(); g.dangling(); g.plan(); g.free()",
                 "import jupyter_gpumem as g\\nwith g.watch(show=lambda use: None): pass", "%unload_ext jupyter_gpumem"]:
        result = shell.run_cell(cell, store_history=True)
        assert result.success, (cell, said.getvalue())
print(json.dumps([simgpu.initialising_calls(), torch.cuda.is_initialized()]))
"""


def test_no_verb_initialises_cuda(run_on):
    calls, initialized = run_on("cuda", EVERY_VERB, PYTORCH_NVML_BASED_CUDA_CHECK="0").json
    assert calls == []
    assert not initialized


def test_the_record_of_initialising_calls_can_fail(run_on):
    source = "import json, torch; torch.cuda.current_device(); torch.ones(1, device='cuda'); print(json.dumps(simgpu.initialising_calls()))"
    assert "current_device" in run_on("cuda", source).json
