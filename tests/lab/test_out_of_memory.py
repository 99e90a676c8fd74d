"""A cell runs out of memory: the verdict, the way back, a try with less, and a model that makes room on the host."""
from __future__ import annotations

import os
from pathlib import Path

import pytest
from playwright.sync_api import expect

MIB = 2**20
SHOTS = os.environ.get("GPUMEM_SHOTS")
"""A folder for pictures of the panel, for those who want to look at it."""

STEP = """\
import torch
def step(n):
    held = []
    for _ in range(8):
        held.append(torch.zeros(n, 1 << 20, dtype=torch.uint8, device="cuda"))
    return len(held)
"""
FAIL = "step(500)"
RETRY = "%%gpufree --retry 3 --halve n\nn = 600\nstep(n)\nn"
MODEL = "teacher = torch.nn.Linear(1 << 12, 1 << 14, bias=False, device='cuda')"
ASSERT = "raise RuntimeError('CUDA error: device-side assert triggered')"
DANGLE = """\
class Box: pass
def boxed():
    box = Box()
    box.held = torch.zeros(1200, 1 << 20, dtype=torch.uint8, device="cuda")
    return box
boxed()
"""
FAIL_BESIDE_IT = "step(100)"


def shot(page, name):
    if SHOTS:
        Path(SHOTS).mkdir(parents=True, exist_ok=True)
        page.tab.screenshot(path=f"{SHOTS}/{name}.png")


def outputs(page, index):
    return page.tab.locator(".jp-Cell").nth(index).locator(".jp-OutputArea-output")


def wait_used(page, below=None, above=None):
    """Until the device's card says less, or more, than so many bytes."""
    for _ in range(120):
        used = page.used()
        if (below is None or used < below) and (above is None or used > above):
            return used
        page.tab.wait_for_timeout(250)
    raise AssertionError(f"{used / MIB:.0f} MiB are used")


def refresh(page):
    """List the names: on a slow machine the page only does so when it is asked."""
    page.tab.get_by_role("button", name="Refresh", exact=True).click()


@pytest.fixture
def page(lab, open_page, request):
    cells = [STEP, FAIL, RETRY, MODEL, ASSERT, DANGLE, FAIL_BESIDE_IT]
    page = open_page(lab, lab.notebook(f"{request.node.name}.ipynb", cells, "simgpu"), width=1400, height=1000)
    page.load()
    page.run(0)
    return page


def test_the_verdict_stands_in_the_panel_and_the_memory_is_back(page):
    page.run(1)
    verdict = page.tab.locator(".jp-gpumem-verdict")
    expect(verdict).to_contain_text("500.0 MiB asked")
    expect(verdict).to_contain_text("Cause:")
    expect(verdict).to_contain_text("Cure:")
    expect(verdict).to_contain_text("that only the error held is back")
    said = " ".join(outputs(page, 1).all_inner_texts())
    assert "OutOfMemoryError" in said
    assert said.index("OutOfMemoryError") < said.index("out of memory on cuda:0") < said.index("cause:") < said.index("cure:")
    wait_used(page, below=500 * MIB)
    shot(page, "verdict")

    page.tab.reload()
    page.tab.wait_for_function("window.jupyterapp?.restored.then(() => true)", timeout=60_000)
    page.command("gpumem:open")
    expect(verdict).to_contain_text("500.0 MiB asked")  # a page that comes later is told too
    verdict.get_by_role("button", name="Dismiss").click()
    expect(verdict).to_have_count(0)
    page.tab.reload()
    page.tab.wait_for_function("window.jupyterapp?.restored.then(() => true)", timeout=60_000)
    page.command("gpumem:open")
    page.tab.wait_for_selector(".jp-gpumem-card", timeout=60_000)
    expect(verdict).to_have_count(0)


def test_a_try_with_less_goes_through(page):
    page.run(2)
    expect(outputs(page, 2).last).to_be_visible()
    said = " ".join(outputs(page, 2).all_inner_texts())
    assert "with n=150 went through" in said
    assert page.tab.locator(".jp-gpumem-verdict").count() == 0, "the cell did not fail"
    shot(page, "retry")


def test_what_dangles_is_freed_from_the_verdict(page):
    page.run(5)
    page.run(6)
    verdict = page.tab.locator(".jp-gpumem-verdict")
    expect(verdict).to_contain_text("1.2 GiB dangles")
    shot(page, "dangling")
    verdict.get_by_role("button", name="Free dangling").click()
    page.tab.get_by_role("button", name="Free 1.2 GiB").click()
    page.wait_text("1.2 GiB freed.")
    wait_used(page, below=500 * MIB)


def test_a_fault_of_the_device_has_its_line(page):
    page.run(4)
    expect(page.tab.locator(".jp-gpumem-verdict")).to_contain_text("A fault of the device")
    expect(page.tab.locator(".jp-gpumem-verdict")).to_contain_text("restart")


def test_a_model_makes_room_on_the_host_and_comes_back(page):
    page.run(3)
    refresh(page)
    row = page.tab.locator(".jp-gpumem-name", has_text="teacher")
    expect(row).to_contain_text("256.0 MiB")
    full = page.used()
    row.get_by_role("button", name="Move teacher to host memory").click()
    page.wait_text("from cuda:0 to host memory")
    assert page.used() >= full, "a plan moves nothing"
    shot(page, "to-host-plan")
    page.tab.get_by_role("button", name="Move 256.0 MiB to host memory").click()
    page.wait_text("256.0 MiB moved to host memory.")
    wait_used(page, below=full - 200 * MIB)
    expect(row).to_have_count(0)
    parked = page.tab.get_by_role("region", name="In host memory")
    expect(parked).to_contain_text("teacher")
    expect(parked).to_contain_text("256.0 MiB")
    page.tab.get_by_role("button", name="Close").click()
    shot(page, "in-host-memory")

    parked.get_by_role("button", name="Bring teacher back").click()
    page.wait_text("from host memory to cuda:0")
    page.tab.get_by_role("button", name="Bring 256.0 MiB back").click()
    page.wait_text("256.0 MiB brought back.")
    wait_used(page, above=full - 10 * MIB)
    expect(row).to_contain_text("256.0 MiB")
    expect(parked).to_have_count(0)


def test_where_the_bytes_are(page):
    page.run(3)
    page.tab.get_by_role("button", name="Account").click()
    allocated = page.tab.get_by_role("table", name="torch cuda:0: allocated")
    expect(allocated).to_contain_text("names")
    expect(allocated).to_contain_text("256.0 MiB")
    expect(page.tab.locator(".jp-gpumem-sum")).to_have_count(6)  # three for each of two devices
    shot(page, "account")
    page.tab.get_by_role("button", name="Close").click()
    expect(page.tab.locator(".jp-gpumem-sum")).to_have_count(0)
