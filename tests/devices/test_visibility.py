"""CUDA_VISIBLE_DEVICES: the oracle is torch's own parser, which its authors checked against the driver."""
from __future__ import annotations

import itertools
import random

import pytest

from jupyter_gpumem.devices.visibility import visible_uuids
from jupyter_gpumem.model import Device

UUIDS = ["GPU-e1a0", "GPU-9e55", "GPU-e2b0", "GPU-77aa"]
GPUS = [Device(uuid, "gpu", index, "NVIDIA A100") for index, uuid in enumerate(UUIDS)]
MIG = Device("MIG-4f02", "mig", 0, "1g.10gb", parent=UUIDS[3])
OTHER = Device("MIG-5a11", "mig", 1, "1g.10gb", parent=UUIDS[3])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", []),
        ("-1", []),
        ("none", []),
        ("void", []),
        ("NoDevFiles", []),
        ("one,two", []),
        ("0", [0]),
        ("1,0", [1, 0]),
        ("0,1,0", []),
        ("0,-1,1", [0]),
        ("1,7,0", [1]),
        (" 2 , 1", [2, 1]),
        ("0x", [0]),
        ("GPU-9e55", [1]),
        ("GPU-9e", [1]),
        ("GPU-e", []),
        ("GPU-9e,GPU-7,GPU-e", [1, 3]),
        ("GPU-9e,GPU-9e55", []),
        ("GPU-9e,GPU-e,GPU-e", []),
        ("GPU-9e,1,1", [1]),
        ("GPU-9e,1", [1]),
        ("GPU-none", []),
    ],
)
def test_oracle(value, expected):
    assert visible_uuids(GPUS, {"CUDA_VISIBLE_DEVICES": value}) == tuple(UUIDS[index] for index in expected)


def test_unset_is_all_in_order():
    assert visible_uuids(GPUS, {}) == tuple(UUIDS)


def test_unset_beside_mig_only_cuda_can_tell():
    assert visible_uuids([*GPUS, MIG], {}) is None


@pytest.mark.parametrize("value", ["MIG-4f02", "MIG-4f02,MIG-5a11", "MIG-4"])
def test_cuda_uses_the_first_instance_only(value):
    assert visible_uuids([*GPUS, MIG, OTHER], {"CUDA_VISIBLE_DEVICES": value}) == ("MIG-4f02",)


@pytest.mark.parametrize("value", ["3", "0,3", "GPU-77"])
def test_who_names_a_gpu_in_mig_mode_gets_an_instance_that_only_cuda_can_tell(value):
    assert visible_uuids([*GPUS, MIG], {"CUDA_VISIBLE_DEVICES": value}) is None


def test_other_gpus_beside_one_in_mig_mode_are_known():
    assert visible_uuids([*GPUS, MIG], {"CUDA_VISIBLE_DEVICES": "1,0"}) == (UUIDS[1], UUIDS[0])


def test_torch_reads_it_the_same_way(monkeypatch):
    """4,000 lists of the words that people and tools write, against torch's parser; the seed is fixed."""
    cuda = pytest.importorskip("torch.cuda")
    words = ["0", "1", "2", "3", "7", "-1", " 1", "0x", "a", "", "GPU-9e", "GPU-e", "GPU-9e55", "GPU-", "gpu-9e", "+1", "1.5", "GPU-zz"]
    chance = random.Random(1)
    for _ in range(4000):
        value = ",".join(chance.choice(words) for _ in range(chance.randint(1, 4)))
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
        parsed = cuda._parse_visible_devices()
        if parsed and isinstance(parsed[0], str):
            parsed = cuda._transform_uuid_to_ordinals(parsed, UUIDS)
        known = itertools.takewhile(lambda ordinal: ordinal < len(UUIDS), parsed)
        assert visible_uuids(GPUS) == tuple(UUIDS[ordinal] for ordinal in known), value


def test_old_form_of_an_instance_only_cuda_can_resolve():
    assert visible_uuids([*GPUS, MIG], {"CUDA_VISIBLE_DEVICES": "MIG-GPU-77aa/1/0"}) is None


def test_ordinals_mean_nothing_among_different_gpus_unless_ordered_by_bus():
    mixed = [Device("GPU-a", "gpu", 0, "A100"), Device("GPU-b", "gpu", 1, "T4")]
    assert visible_uuids(mixed, {"CUDA_VISIBLE_DEVICES": "0"}) is None
    assert visible_uuids(mixed, {}) is None
    ordered = {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert visible_uuids(mixed, ordered) == ("GPU-b",)
    assert visible_uuids(mixed, {"CUDA_VISIBLE_DEVICES": "GPU-b"}) == ("GPU-b",)
