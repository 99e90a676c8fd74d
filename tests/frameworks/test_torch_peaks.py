"""Nested windows have true peaks, and the user's own counter answers as if we were not there."""
from __future__ import annotations

import pytest

STORY = """
import json, torch
from jupyter_gpumem.frameworks import torch_peaks
if DEVICE == "cuda":
    peak, reset = torch.cuda.max_memory_allocated, torch.cuda.reset_peak_memory_stats
else:
    peak, reset = torch.accelerator.max_memory_allocated, torch.accelerator.reset_peak_memory_stats
MIB = 1 << 20
def spike(mib):
    x = torch.empty(mib * MIB, dtype=torch.uint8, device=DEVICE); del x
held = torch.empty(2 * MIB, dtype=torch.uint8, device=DEVICE)
spike(50)
said = [peak() // MIB]
outer = torch_peaks.open_window()
spike(10)
inner = torch_peaks.open_window()
spike(5)
said.append(peak() // MIB)
said.append(inner.close()[f"{DEVICE}:0"] // MIB)
spike(20)
second = torch_peaks.open_window()
reset()
spike(3)
said.append(peak() // MIB)
said.append(second.close()[f"{DEVICE}:0"] // MIB)
said.append(outer.close()[f"{DEVICE}:0"] // MIB)
said.append(outer.close()[f"{DEVICE}:0"] // MIB)
said.append(peak() // MIB)
genuine = [name for name in dir(torch._C) if "jupyter_gpumem" in str(getattr(getattr(torch._C, name), "__module__", ""))]
torch_peaks.restore()
left = [name for name in dir(torch._C) if "jupyter_gpumem" in str(getattr(getattr(torch._C, name), "__module__", ""))]
print(json.dumps([said, len(genuine) > 0, left]))
"""


@pytest.mark.parametrize("device", ["cuda", "simgpu"])
def test_windows_nest_and_the_users_peak_stays(run_on, device):
    said, wrapped, left = run_on(device, STORY).json
    first, unchanged, inner, after_reset, second, outer, again, at_the_end = said
    assert first == unchanged == 52, "our windows took nothing from the user's peak"
    assert inner == 7
    assert after_reset == 5, "the user's own reset counts"
    assert second == 5
    assert outer == again == 22
    assert at_the_end == 5
    assert wrapped
    assert left == [], "torch's own functions are back"
