"""Segments, blocks and addresses, from the simulated allocator and from lists in the formats of other versions."""
from __future__ import annotations

import gc
import warnings

import pytest
import torch

from jupyter_gpumem.frameworks import torch_allocator as reader
from jupyter_gpumem.frameworks.records import Frame

MIB = 1 << 20


class FakeBackend:
    """``torch.cuda`` as far as a list of segments goes; ``traces`` is whether it can leave the history out."""

    def __init__(self, listed, ready=True, traces=True):
        self.listed, self.ready, self.asked = listed, ready, []
        self.memory_snapshot = self._new if traces else self._old

    def is_initialized(self):
        return self.ready

    def _new(self, mempool_id=None, include_traces=True):
        self.asked.append(include_traces)
        if isinstance(self.listed, Exception):
            raise self.listed
        return self.listed

    def _old(self):
        return self.listed


@pytest.fixture
def lists(monkeypatch):
    def put(listed, **options):
        backend = FakeBackend(listed, **options)
        monkeypatch.setattr(torch, "cuda", backend)
        return backend

    return put


def segment(*blocks, address=1000, **more):
    total = sum(block["size"] for block in blocks)
    return {"device": 0, "address": address, "total_size": total, "segment_type": "large", "blocks": list(blocks), **more}


def block(size, state="active_allocated", **more):
    return {"size": size, "state": state, **more}


def test_states_and_addresses(lists):
    backend = lists(
        [
            segment(
                block(512, requested_size=500, address=1000),
                block(1024, "active_pending_free", requested_size=1000, address=1512),
                block(100, "active_awaiting_free", address=2536),
                block(200, "inactive", requested_size=7, address=2636),
                block(10, "a state of the future", address=2836),
            )
        ]
    )
    (found,) = reader.segments("cuda:0")
    assert backend.asked == [False], "the recorded history is left out"
    assert (found.device, found.address, found.nbytes, found.pool) == ("cuda:0", 1000, 1846, "large")
    assert [(b.state, b.requested) for b in found.blocks] == [
        ("allocated", 500), ("awaiting", 1000), ("awaiting", None), ("free", None), ("awaiting", None),
    ]
    assert (found.free, found.returnable) == (200, False)
    assert [b.nbytes for b in found.pins] == [1024, 512, 100, 10]


def test_older_versions_give_no_addresses_of_blocks_and_take_no_argument(lists):
    lists([segment(block(512), block(256, "inactive"), block(128))], traces=False)
    (found,) = reader.segments("cuda:0")
    assert [b.address for b in found.blocks] == [1000, 1512, 1768]


def test_each_device_has_its_own_in_the_order_of_addresses(lists):
    lists([segment(block(512), address=9000), {**segment(block(512)), "device": 1}, segment(block(512), address=500)])
    assert [s.address for s in reader.segments("cuda:0")] == [500, 9000]
    assert [s.address for s in reader.segments("cuda:1")] == [1000]
    assert reader.segments("cuda:2") == ()


def test_none_where_there_is_no_list(lists):
    lists(RuntimeError("cudaMallocAsync does not yet support this"))
    assert reader.segments("cuda:0") is None
    backend = lists([], ready=False)
    assert reader.segments("cuda:0") is None
    assert backend.asked == [], "not asked before it is initialised"
    assert reader.segments("cpu") is None
    assert reader.segments("mps:0") is None
    assert reader.segments("no_such_backend:0") is None


def test_an_expandable_segment_goes_back_by_pages(lists):
    page = 20 * MIB
    lists(
        [
            segment(
                block(5 * MIB),
                block(50 * MIB, "inactive"),  # the pages from 20 to 40 MiB are free as a whole
                block(25 * MIB),
                block(40 * MIB, "inactive"),  # from 80 to 120 MiB
                address=page,
                is_expandable=True,
            )
        ]
    )
    found = reader.segments("cuda:0")
    assert [(s.address // MIB - 20, s.nbytes // MIB, s.returnable) for s in found] == [
        (0, 20, False), (20, 20, True), (40, 40, False), (80, 40, True),
    ]
    assert [[b.nbytes // MIB for b in s.blocks] for s in found] == [[5, 15], [20], [15, 25], [40]]
    assert sum(s.nbytes for s in found) == 120 * MIB
    lists([segment(block(5 * MIB), block(50 * MIB, "inactive"), is_expandable=True)])
    assert len(reader.segments("cuda:0")) == 1, "of other pages than we know: left whole"


SIMULATED = """
import json, torch
from jupyter_gpumem.frameworks import torch as reader
none_yet = reader.segments(DEVICE + ":0"), reader.requested(DEVICE + ":0"), reader.allocation_sites(DEVICE + ":0")
x = torch.ones(1000, device=DEVICE); y = torch.ones(1 << 20, device=DEVICE); v = y[100:]
found = reader.segments(DEVICE + ":0")
places = {b.address: b.nbytes for s in found or () for b in s.blocks if b.state == "allocated"}
joined = [[places.get(p) for p in reader.data_pointers(t).values()] for t in (x, y, v, v.untyped_storage())]
own = [[p.address for p in reader.parts(t)] == list(reader.data_pointers(t)) for t in (x, y, v, x.untyped_storage())]
module = getattr(torch, DEVICE)
total = sum(s.nbytes for s in found) == module.memory_reserved() if found else None
print(json.dumps([none_yet, total, joined, own, reader.requested(DEVICE + ":0"), reader.segments("cpu"), reader.requested("cpu"),
                  simgpu.initialising_calls() if DEVICE == "cuda" else None]))
"""


@pytest.mark.parametrize("device", ["cuda", "simgpu"])
def test_storages_are_joined_with_their_blocks(run_on, device):
    none_yet, total, joined, own, requested, *rest = run_on(device, SIMULATED).json
    assert none_yet == [None, None, {}]
    if device == "cuda":
        assert total
        assert joined == [[4096], [4 << 20], [4 << 20], [4 << 20]]
    assert own == [True] * 4
    assert requested == 4000 + (4 << 20)
    assert rest[:2] == [None, None]
    assert rest[2] in (None, ["_lazy_init"])


def test_a_lazy_copy_is_not_made_by_asking_where_it_lies():
    whole = torch.ones(1000)
    copy = whole._lazy_clone()
    (address,) = reader.data_pointers(copy).values()
    assert address == next(iter(reader.data_pointers(whole).values()))
    assert list(reader.data_pointers(copy.untyped_storage()).values()) == [address]
    assert torch._C._is_cow_tensor(copy) and torch._C._is_cow_tensor(whole)
    assert list(reader.data_pointers(copy)) == [copy.untyped_storage()._cdata]


def test_an_older_torch_skips_lazy_copies(monkeypatch):
    monkeypatch.delattr(torch._C, "_data_address")
    plain = torch.ones(10)
    assert list(reader.data_pointers(plain).values()) == [plain.data_ptr()]
    copy = plain._lazy_clone()
    assert reader.data_pointers(copy) == {}
    assert torch._C._is_cow_tensor(copy)


class Raising(torch.Tensor):
    @classmethod
    def __torch_function__(cls, *args, **kwargs):
        raise RuntimeError("ran __torch_function__")

    layout = property(lambda self: 1 / 0)


class Wrapper(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)

    def __init__(self, inner):
        self.inner = inner

    __torch_dispatch__ = classmethod(lambda cls, *args, **kwargs: 1 / 0)


@pytest.mark.parametrize(
    ("make", "count"),
    [
        (lambda: torch.ones(10), 1),
        (lambda: torch.ones(10)[3:], 1),
        (lambda: torch.ones(0), 0),
        (lambda: torch.ones(10, device="meta"), 0),
        (lambda: torch.eye(4).to_sparse(), 2),
        (lambda: torch.eye(4).to_sparse_csr(), 3),
        (lambda: torch.eye(4).to_mkldnn(), 0),
        (lambda: torch.nn.parameter.UninitializedParameter(), 0),
        (lambda: torch.ones(10).as_subclass(Raising), 1),
        (lambda: Wrapper(torch.ones(10)), 0),
        (lambda: torch.nested.nested_tensor([torch.zeros(2, 3)], layout=torch.jagged), 0),
        (lambda: object(), 0),
    ],
)
def test_addresses_of_every_kind(make, count):
    tensor = make()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(reader.data_pointers(tensor)) == count


def test_no_mode_of_the_users_runs():
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Dispatch(TorchDispatchMode):
        def __torch_dispatch__(self, *args, **kwargs):
            raise AssertionError("ran the mode")

    class Function(TorchFunctionMode):
        def __torch_function__(self, *args, **kwargs):
            raise AssertionError("ran the mode")

    plain, storage, sparse = torch.ones(10), torch.ones(10).untyped_storage(), torch.eye(3).to_sparse()
    with Dispatch():
        counts = [len(reader.data_pointers(t)) for t in (plain, storage, sparse)]
    with Function():
        counts += [len(reader.data_pointers(t)) for t in (plain, storage, sparse)]
    assert counts == [1, 1, 2] * 2


def test_asking_leaves_no_object():
    kept = [torch.ones(10), torch.ones(10).untyped_storage(), torch.eye(3).to_sparse()]
    for tensor in kept:
        reader.data_pointers(tensor)
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(50):
        for tensor in kept:
            reader.data_pointers(tensor)
    gc.collect()
    assert abs(len(gc.get_objects()) - before) <= 5


# ---------------------------------------------------------------- where a block was allocated
def frame(filename, line=1, name="f"):
    return {"filename": filename, "line": line, "name": name}


def test_the_innermost_line_of_the_users():
    stack = [
        frame("??", 0, "alloc"),
        frame("/pytorch/c10/core/impl.cpp"),
        frame(torch.nn.__file__),
        frame("/home/me/.venv/lib/python3.11/site-packages/einops/ops.py"),
        frame(warnings.__file__),
        frame("<eval_with_key>.3"),
        frame("/home/me/model.py", 12, "forward"),
        frame("/tmp/ipykernel_12/345.py", 3, "<module>"),
    ]
    assert reader.user_frame(reader.frames_of(stack)) == Frame("/home/me/model.py", 12, "forward")
    assert reader.user_frame(reader.frames_of(stack[:6])) is None
    cell = frame("<ipython-input-12-abcdef012345>", 3, "<module>")
    assert reader.user_frame(reader.frames_of([*stack[:6], cell])) == Frame(cell["filename"], 3, "<module>")


def test_sites_are_read_while_torch_records(lists, monkeypatch):
    theirs = [frame(torch.__file__), frame("/home/me/train.py", 7, "step")]
    listed = [segment(block(512, frames=theirs), block(256), block(128, frames=[]), block(64, "inactive", frames=theirs))]
    backend = lists(listed)
    backend.memory = None
    assert reader._cuda is not backend
    monkeypatch.setattr(reader, "_cuda", backend)
    assert reader.allocation_sites("cuda:0") == {}, "this torch cannot record"
    monkeypatch.setattr(torch._C, "_cuda_isHistoryEnabled", lambda: False, raising=False)
    assert reader.allocation_sites("cuda:0") == {}
    assert backend.asked == []
    monkeypatch.setattr(torch._C, "_cuda_isHistoryEnabled", lambda: True)
    assert reader.allocation_sites("cuda:0") == {1000: Frame("/home/me/train.py", 7, "step")}

    class Memory:
        @staticmethod
        def _allocation_traceback(address):
            return [frame("/home/me/other.py", address, "<module>")] if address == 1512 else None

    backend.memory = Memory
    assert reader.allocation_sites("cuda:0")[1512] == Frame("/home/me/other.py", 1512, "<module>")
    assert set(reader.allocation_sites("cuda:0")) == {1000, 1512}


@pytest.mark.gpu
def test_on_a_real_gpu():
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    torch.cuda.memory._record_memory_history("state", context="state", stacks="python", max_entries=100)
    try:
        kept = torch.ones(1 << 20, device="cuda")
        copy = kept._lazy_clone()
        found = reader.segments("cuda:0")
        assert sum(s.nbytes for s in found) == torch.cuda.memory_reserved(0)
        assert sum(b.nbytes for s in found for b in s.blocks if b.state == "allocated") == torch.cuda.memory_allocated(0)
        (address,) = reader.data_pointers(kept).values()
        assert list(reader.data_pointers(copy).values()) == [address]
        assert torch._C._is_cow_tensor(copy)
        assert address in {b.address for s in found for b in s.blocks}
        assert reader.allocation_sites("cuda:0")[address].filename == __file__
    finally:
        torch.cuda.memory._record_memory_history(None)
