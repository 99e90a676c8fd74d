"""All sources together."""
from __future__ import annotations

from jupyter_gpumem import devices


def test_reading_merges_devices_and_problems(nvml_machine):
    nvml_machine.put("gpu 0 uuid=GPU-a total=16G\n")
    reading = devices.read()
    assert [device.uuid for device in reading.devices] == ["GPU-a"]
    assert reading.problem is None


def test_host_is_a_device_like_the_others():
    device = devices.read_host()
    assert (device.kind, device.alias, device.uuid) == ("host", "cpu", "cpu")
    assert device.total > device.free > 0
