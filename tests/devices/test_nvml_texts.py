"""Refusals of the driver, in words."""
from __future__ import annotations

import pytest

from jupyter_gpumem.devices.nvml_texts import init_problem, lost


@pytest.mark.parametrize("code", [1, 4, 9, 12, 18, 28, 999, 12345])
def test_every_code_has_one_sentence(code):
    text = init_problem(code)
    assert text.endswith((".", "."))
    assert "\n" not in text


def test_a_lost_gpu_is_a_row_without_figures():
    device = lost(3, 15)
    assert (device.index, device.total, device.processes) == (3, None, None)
    assert "lost" in device.notes[0]
