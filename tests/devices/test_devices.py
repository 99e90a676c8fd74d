"""All sources together."""
from __future__ import annotations

import sys

import pytest

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


@pytest.mark.parametrize("error", [ImportError("no such module"), KeyError("odd vendor")])
def test_a_package_that_cannot_be_imported_is_a_sentence(monkeypatch, error):
    def fail(name):
        raise error

    monkeypatch.setattr(devices, "import_module", fail)
    reading = devices.read()
    assert reading.devices == ()
    assert type(error).__name__ in reading.problem
    assert "reinstall" in reading.problem


def test_without_nvidia_ml_py_nothing_raises(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    for name in ("nvml", "nvml_processes"):
        monkeypatch.delitem(sys.modules, f"jupyter_gpumem.devices.{name}", raising=False)
        monkeypatch.delattr(devices, name, raising=False)
    assert "pynvml" in devices.read().problem
