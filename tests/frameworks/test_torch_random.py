"""Generators of devices: those in use are put back, and none is brought into use."""
from __future__ import annotations

import pytest

IN_USE = """
import json, torch
from jupyter_gpumem import randomness
torch.zeros(1, device=DEVICE)
generators = [torch.default_generator, *getattr(getattr(torch, DEVICE), "default_generators", ())]
def draw():
    return [torch.rand(2, device=DEVICE).tolist(), *(torch.rand(2, generator=g).tolist() for g in generators)]
state = randomness.take()
drawn = draw()
draw()
state.restore()
print(json.dumps([sorted(state.frameworks["torch"]), len(generators), draw() == drawn]))
"""


@pytest.mark.parametrize(("device", "generators"), [("cuda", 3), ("simgpu", 1)])
def test_all_devices_go_back(run_on, device, generators):
    devices, count, same = run_on(device, IN_USE, SIMGPU_DEVICES="2").json
    assert devices == ["cpu", f"{device}:0", f"{device}:1"]
    assert count == generators
    assert same


LATER = """
import json, simgpu, torch
from jupyter_gpumem import randomness
state = randomness.take()
state.restore()
assert simgpu.initialising_calls() == [], simgpu.initialising_calls()
torch.zeros(1, device="cuda")
torch.cuda.default_generators[0].manual_seed(7)
first = torch.rand(3, generator=torch.cuda.default_generators[0]).tolist()
state.restore()
print(json.dumps([sorted(state.frameworks["torch"]), torch.rand(3, generator=torch.cuda.default_generators[0]).tolist() == first]))
"""


def test_a_device_first_used_later_begins_anew_from_its_seed(run_on):
    devices, same = run_on("cuda", LATER).json
    assert devices == ["cpu"], "taking a state initialises nothing"
    assert same


CAPTURING = """
import json, torch
from jupyter_gpumem.frameworks import torch_random
torch.zeros(1, device="cuda")
class Capturing:
    def get_state(self):
        raise RuntimeError("Cannot call CUDAGeneratorImpl::current_seed during CUDA graph capture")
genuine = torch.cuda.default_generators
torch.cuda.default_generators = (Capturing(),)
states = torch_random.take(["cuda:0"])
torch.cuda.default_generators = genuine
first = torch.rand(2, generator=genuine[0]).tolist()
torch_random.restore(states, ["cuda:0"])
print(json.dumps([first, torch.rand(2, generator=genuine[0]).tolist()]))
"""


def test_a_generator_that_cannot_be_read_is_left_alone(run_on):
    first, second = run_on("cuda", CAPTURING).json
    assert first != second
