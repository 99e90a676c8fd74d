"""Devices as the allocator and the driver tell of them."""
from __future__ import annotations

import pytest

SOURCE = """
import json, torch
from jupyter_gpumem.analysis import holders
from jupyter_gpumem.analysis.advice.places import places
kept = [torch.ones(1 << 20, device=DEVICE + ":0") for _ in range(4)]
del kept[::2]
whole = torch.empty(30 << 20, dtype=torch.uint8, device=DEVICE + ":0"); del whole
with holders.look(None, (DEVICE,)) as seen:
    found = places(seen, (DEVICE,))
print(json.dumps([list(one) for one in found] + [torch.accelerator.memory_reserved(0)]))
"""
FIELDS = ("device", "allocated", "reserved", "cached", "fragments", "largest", "pins", "total", "used", "others", "bfloat16")
MIB = 1 << 20


@pytest.mark.parametrize("device", ["cuda", "simgpu"])
def test_cached_and_fragments(run_on, device):
    first, *_, reserved = run_on(device, SOURCE, SIMGPU_DEVICES="2").json
    one = dict(zip(FIELDS, first, strict=True))
    assert (one["device"], one["allocated"], one["reserved"]) == (f"{device}:0", 8 * MIB, reserved)
    if device == "cuda":
        assert one["cached"] == 30 * MIB
        assert sum(one["fragments"]) == reserved - 38 * MIB and one["largest"] <= sum(one["fragments"])
        assert one["total"] == 256 * MIB
    else:
        assert one["cached"] == reserved - 8 * MIB and one["fragments"] == []
    assert one["bfloat16"] is True


def test_others_on_the_device(run_on, nvml_machine, nvml_env):
    nvml_machine.put("gpu 0 total=300M\nproc 0 pid=77 type=C used=40M\n")
    one = dict(zip(FIELDS, run_on("cuda", SOURCE, SIMGPU_DEVICES="1", **nvml_env).json[0], strict=True))
    assert one["others"] == [[77, 40 * MIB]] and one["total"] == 300 * MIB and one["used"] >= 40 * MIB


def test_a_machine_without_accelerator_has_none(run_on):
    source = "import torch, json\nfrom jupyter_gpumem.analysis import holders\nfrom jupyter_gpumem.analysis.advice.places import places\n"
    assert run_on("cpu", source + "with holders.look(None, ('cpu',)) as seen: print(json.dumps(places(seen, ('cpu',))))").json == []
