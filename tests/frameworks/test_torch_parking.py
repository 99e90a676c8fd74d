"""Storages move in place: every tensor on them stays what it was, and a failure anywhere leaves all as it was."""
from __future__ import annotations

import pytest

PRELUDE = """
import gc, json, sys, weakref
import torch
from jupyter_gpumem.actions import parking
from jupyter_gpumem.errors import InputError
from jupyter_gpumem.frameworks import torch_parking
device = DEVICE + ":0"
backend = getattr(torch, DEVICE)
plain = lambda t: t.detach().cpu().resolve_conj().resolve_neg().flatten().tolist()
def figures():
    return backend.memory_allocated(0), backend.memory_reserved(0)
def refused(objects, act=None):
    try:
        (act or parking.park)(None, objects)
    except InputError as refusal:
        return str(refusal)
"""

KINDS = PRELUDE + """
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Linear(32, 32)).to(device)
model[1].weight = model[0].weight
optimizer = torch.optim.Adam(model.parameters())
model(torch.randn(4, 32, device=device)).pow(2).sum().backward()
optimizer.step()
class Named(torch.Tensor):
    pass
x = torch.randn(8, dtype=torch.complex64, device=device)
x.mul_(2)
things = {
    "view": model[0].weight.detach()[3:],
    "complex": x,
    "conj": x.conj(),
    "imag": x.imag,
    "neg": torch._neg_view(x.imag),
    "empty": torch.empty(0, 3, device=device),
    "scalar": torch.tensor(3.0, device=device),
    "transposed": torch.randn(3, 4, device=device).t(),
    "half": torch.randn(5, dtype=torch.bfloat16, device=device),
    "bytes": torch.arange(7, dtype=torch.uint8, device=device),
    "subclass": torch.randn(3, device=device).as_subclass(Named),
}
things["expanded"] = things["scalar"].expand(5, 5)
with torch.inference_mode():
    things["inference"] = torch.ones(5, device=device)
nibbles = torch.empty(4, dtype=torch.uint4, device=device) if hasattr(torch, "uint4") else None
everything = {"model": model, "optimizer": optimizer, "things": things, "nibbles": nibbles}
def tensors():
    found = [*model.parameters(), *(p.grad for p in model.parameters()), *things.values()]
    return found + [value for state in optimizer.state.values() for value in state.values()]
def seen(views=True):
    return [
        [id(t), type(t).__name__, list(t.shape), list(t.stride()), t.storage_offset(), str(t.dtype), t.requires_grad,
         None if t.is_inference() else t._version, t.is_conj(), t.is_neg(), t._is_view() if views else None, plain(t)]
        for t in tensors()
    ]
views = DEVICE == "cuda"
before = seen(views)
parking.park(None, everything)
parked, in_between = seen(views), figures()
kinds = sorted({t.device.type for t in tensors()} | {nibbles.device.type if nibbles is not None else "cpu"})
things["view"].add_(1)
aliased = bool((model[0].weight[3:].detach() == things["view"]).all())
things["view"].sub_(1)
things["view"].copy_(torch.tensor(before[len(list(model.parameters())) * 2][-1]).view_as(things["view"]))
parking.restore(None, everything)
after = seen(views)
strip = lambda rows: [row[:7] + row[8:] for row in rows]
things["view"].zero_()
tied = model[1].weight is model[0].weight and float(model[1].weight.detach()[3:].abs().sum()) == 0
model(torch.randn(4, 32, device=device)).pow(2).sum().backward()
optimizer.step()
devices = sorted({str(t.device) for t in things.values()})
print(json.dumps([before == parked, strip(before) == strip(after), in_between, kinds, aliased, tied, devices]))
"""


@pytest.mark.parametrize("device", ["cuda", "simgpu"])
def test_every_kind_of_tensor_stays_what_it_was(run_on, device):
    same, back, in_between, kinds, aliased, tied, devices = run_on(device, KINDS).json
    assert same, "versions, strides, bits and identities are those from before, in host memory"
    assert back, "and back on the device, with the same bytes"
    assert kinds == ["cpu"]
    assert in_between == [0, 0], "allocated and reserved: all is back with the driver"
    assert aliased
    assert tied
    assert devices == [f"{device}:0"]


UNTOUCHED = PRELUDE + """
a = torch.randn(1000, device=device)
free = torch.empty(1 << 20, device=device)
del free
backend.set_device(1) if hasattr(backend, "set_device") else None
state, peak = torch.get_rng_state(), backend.max_memory_allocated(0)
with torch.inference_mode():
    parking.park(None, {"a": a})
    inside = torch.is_inference_mode_enabled()
modes = inside, torch.is_inference_mode_enabled(), torch.is_grad_enabled()
same = bool((state == torch.get_rng_state()).all()), peak == backend.max_memory_allocated(0)
with torch.device("meta"):
    parking.restore(None)
print(json.dumps([*modes, *same, str(a.device)]))
"""


@pytest.mark.parametrize("device", ["cuda", "simgpu"])
def test_modes_random_state_and_peak_are_the_users(run_on, device):
    inside, inference, grad, random, peak, where = run_on(device, UNTOUCHED).json
    assert (inside, inference, grad, random, peak) == (True, False, True, True, True)
    assert where == f"{device}:0"


REFUSED = PRELUDE + """
answers = {}
model = torch.nn.Linear(8, 8, device=device)
loss = model(torch.ones(2, 8, device=device)).pow(2).sum()
answers["graph"] = refused({"model": model})
loss.backward()
answers["spent"] = refused({"model": model}) or "parked"
parking.restore(None)
held = torch.ones(8, device=device)
storage = held.untyped_storage()
answers["storage"] = refused({"held": held})
del storage
y = torch.randn(8, dtype=torch.complex64, device=device)
hidden = y.conj().imag
answers["unseen"] = refused({"y": y})
class Wrapper(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)
    def __init__(self, inner):
        self.inner = inner
    def __tensor_flatten__(self):
        return ["inner"], None
    __torch_dispatch__ = classmethod(lambda cls, *a, **k: NotImplemented)
answers["wrapper"] = refused({"w": Wrapper(torch.ones(3, device=device))})
answers["nothing"] = refused({"n": [1, 2]})
answers["twice"] = [refused({"held": held}), refused({"held": held})]
answers["restored"] = [refused({"held": held}, parking.restore), refused({"held": held}, parking.restore)]
hooked = torch.ones(3, device=device, requires_grad=True)
hooked.register_hook(lambda grad: grad)
answers["hook"] = refused({"hooked": hooked}) or "parked"
answers["devices"] = [str(t.device) for t in (y, held)]
print(json.dumps(answers))
"""


@pytest.mark.parametrize("device", ["cuda", "simgpu"])
def test_what_cannot_be_moved_is_refused_with_the_reason(run_on, device):
    said = run_on(device, REFUSED).json
    assert "autograd graph that can still run backward" in said["graph"]
    assert said["spent"] == "parked", "a graph that backward has gone through is in nobody's way"
    assert "a storage object of its own holds it" in said["storage"]
    assert "Python cannot see" in said["unseen"]
    assert "keeps its values in other tensors" in said["wrapper"]
    assert "nothing of it is on" in said["nothing"]
    assert said["twice"][0] is None
    assert "parked already" in said["twice"][1]
    assert said["restored"][0] is None
    assert "nothing of it is parked" in said["restored"][1]
    assert said["hook"] == "parked" if device == "cuda" else "hooks" in said["hook"]
    assert said["devices"] == [f"{device}:0"] * 2


INJECTED = PRELUDE + """
gc.collect()
gc.freeze()  # what is not ours is looked at no more: the looks are quick
weight = torch.nn.Parameter(torch.randn(64, 64, device=device))
(weight * 2).sum().backward()
view = weight.detach()[1:]
def tensors():
    return [weight, view, weight.grad]
def state():
    return [[id(t), str(t.device), t._version, t.requires_grad, t._is_view(), plain(t)] for t in tensors()]
def failing(name, at):
    real, calls = getattr(torch_parking, name), [0]
    def call(*arguments):
        calls[0] += 1
        if calls[0] == at:
            raise MemoryError("injected") if at % 2 else KeyboardInterrupt()
        return real(*arguments)
    setattr(torch_parking, name, call)
    return real, calls
objects = {"weight": weight}
wrong, tried = [], []
for act in (parking.park, parking.restore):
    for name in ("_allocate", "_buffer", "_copy", "_checksum", "_twin", "_set", "_swap", "_version"):
        at = 0
        while True:
            at += 1
            before, at_first = state(), figures()
            real, calls = failing(name, at)
            fault = None
            try:
                act(None, objects)
            except (InputError, KeyboardInterrupt) as error:
                fault = type(error).__name__
            finally:
                setattr(torch_parking, name, real)
            gc.collect()
            if fault is None:
                (parking.restore if act is parking.park else parking.park)(None, objects)
                break
            tried.append([act.__name__, name, at])
            if (state(), figures()) != (before, at_first):
                wrong.append([act.__name__, name, at, figures(), at_first, state() == before])
    if act is parking.park:
        parking.park(None, objects)
print(json.dumps([wrong, len(tried), sorted({(act, name) for act, name, _ in tried})]))
"""


@pytest.mark.parametrize("device", ["cuda", "simgpu"])
def test_a_failure_at_any_step_leaves_everything_as_it_was(run_on, device):
    wrong, tried, steps = run_on(device, INJECTED).json
    assert wrong == []
    setter = "_set" if device == "cuda" else "_swap"
    for act in ("park", "restore"):
        for step in ("_allocate", "_buffer", "_copy", "_checksum", "_twin", setter):
            assert [act, step] in steps, "each step has been failed at"
    assert tried > 30


WRONG_BYTES = PRELUDE + """
a = torch.arange(100.0, device=device)
real = torch_parking._checksum
answers = iter([1, 2])
torch_parking._checksum = lambda data: next(answers)
said = refused({"a": a})
torch_parking._checksum = real
print(json.dumps([said, str(a.device), plain(a) == list(range(100))]))
"""


def test_a_copy_with_other_bytes_is_not_used(run_on):
    said, where, same = run_on("cuda", WRONG_BYTES).json
    assert "does not have the bytes" in said
    assert where == "cuda:0"
    assert same


def test_a_checksum_changes_with_any_byte():
    import torch

    from jupyter_gpumem.frameworks import torch_parking

    data = torch.arange(20_001, dtype=torch.int64).to(torch.uint8)
    known = torch_parking._checksum(data)
    assert torch_parking._checksum(data.clone()) == known
    for at in (0, 4095, 4096, 19_999, 20_000):
        changed = data.clone()
        changed[at] += 1
        assert torch_parking._checksum(changed) != known
