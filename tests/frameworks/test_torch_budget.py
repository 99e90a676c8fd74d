"""Where a limit counts, and what starts nothing."""
from __future__ import annotations

import types

import pytest
import torch

from jupyter_gpumem.errors import InputError
from jupyter_gpumem.frameworks import torch_budget

IN_USE = """
import json, simgpu, torch
from jupyter_gpumem import frameworks
reader = frameworks.loaded()[0]
said = [reader.current_device()]
assert simgpu.initialising_calls() == []
kept = torch.zeros(1, device=DEVICE + ":1")
calls = len(simgpu.initialising_calls())
said += [reader.current_device(), [reader.in_use(f"{DEVICE}:{n}") for n in (0, 1)]]
with getattr(torch, DEVICE).device(1):
    said += [reader.current_device(), reader.total(DEVICE + ":1")]
print(json.dumps([said, len(simgpu.initialising_calls()) - calls]))
"""


@pytest.mark.parametrize("device", ["cuda", "simgpu"])
def test_a_device_is_in_use_once_it_has_a_context(run_on, device):
    (before, current, used, inside, total), started = run_on(device, IN_USE, SIMGPU_DEVICES="2").json
    assert before is None or device == "simgpu"
    assert current == f"{device}:0"
    assert used == [False, True]
    assert inside == f"{device}:1"
    assert total == 256 << 20
    assert started == 0


class Metal(types.SimpleNamespace):
    """``torch.mps`` as far as limits go: a fraction can be set and not be read."""

    def __init__(self):
        super().__init__(fractions=[])

    def driver_allocated_memory(self):
        return 1

    def recommended_max_memory(self):
        return 1000

    def set_per_process_memory_fraction(self, fraction):
        self.fractions.append(fraction)


def test_the_limit_of_mps_is_set_back_to_its_default(monkeypatch):
    metal = Metal()
    monkeypatch.setattr(torch, "mps", metal)
    monkeypatch.setenv("PYTORCH_MPS_HIGH_WATERMARK_RATIO", "")
    torch_budget.set_limit("mps:0", 250)
    torch_budget.set_limit("mps:0", 500)
    assert torch_budget.end_limit("mps:0")
    assert not torch_budget.end_limit("mps:0")
    monkeypatch.setenv("PYTORCH_MPS_HIGH_WATERMARK_RATIO", "0.9")
    torch_budget.set_limit("mps:0", 500)
    torch_budget.restore()
    assert metal.fractions == [0.25, 0.5, 1.7, 0.5, 0.9]


def test_nothing_is_taken_beforehand_where_pieces_are_not_split(monkeypatch):
    monkeypatch.setattr(torch, "mps", Metal())
    with pytest.raises(InputError, match="does not split"):
        torch_budget.reserve("mps:0", 10)


@pytest.mark.parametrize("module", [types.SimpleNamespace(), types.SimpleNamespace(mem_get_info=lambda index: (1, 100))])
def test_a_backend_without_limits_is_refused(monkeypatch, module):
    monkeypatch.setattr(torch, "elsewhere", module, raising=False)
    with pytest.raises(InputError, match="cannot limit"):
        torch_budget.set_limit("elsewhere:0", 10)
