"""The main story, as a person lives it."""
from __future__ import annotations

from playwright.sync_api import expect

MIB = 2**20

LEAK = """\
import torch, time
kept = []
for _ in range(8):
    kept.append(torch.zeros(64, 1024, 1024, dtype=torch.uint8, device="cuda"))
    time.sleep(0.5)
model = torch.nn.Linear(1024, 1024, device="cuda")
"""
FAIL = """\
def step():
    acts = torch.zeros(256, 1024, 1024, dtype=torch.uint8, device="cuda")
    raise RuntimeError("in the middle")
step()
"""


def test_see_a_leak_while_the_cell_runs_ask_why_and_free_it(lab, open_page):
    page = open_page(lab, lab.notebook("story.ipynb", [LEAK, FAIL], "simgpu"))
    page.load()
    page.run(0, wait=False)
    page.wait_text("cell [1] is running", 60)
    assert page.status() == "busy"
    page.tab.wait_for_function("parseFloat(document.querySelector('.jp-gpumem-cardUsed').innerText) > 200")
    assert page.status() == "busy", "it grows on screen while the cell runs"
    page.wait_text("kept", 60)

    row = page.tab.locator(".jp-gpumem-name", has_text="kept")
    assert "512.0 MiB" in row.inner_text()
    row.get_by_role("button", name="Why is kept there?").click()
    page.tab.wait_for_selector(".jp-gpumem-paths li")
    assert page.tab.locator(".jp-gpumem-paths li").first.inner_text().splitlines()[0] == "kept"
    page.wait_text("largest inside: kept[")
    page.tab.get_by_role("button", name="Close").click()

    before = page.used()
    row.get_by_role("button", name="Delete kept").click()
    page.tab.get_by_role("button", name="Free 512.0 MiB").click()
    page.wait_text("512.0 MiB freed.")
    page.tab.wait_for_function("parseFloat(document.querySelector('.jp-gpumem-cardUsed').innerText) < 200")
    assert page.used() < before - 400 * MIB, "the device card falls"
    expect(page.tab.locator(".jp-gpumem-name", has_text="kept")).to_have_count(0)
    expect(page.tab.locator(".jp-gpumem-name", has_text="model")).to_have_count(1)
    page.tab.get_by_role("button", name="Close").click()

    page.run(1)
    page.wait_text("Last error")
    page.wait_text("last error: frame of step()")
    page.tab.get_by_role("button", name="Free dangling").click()
    page.tab.wait_for_selector(".jp-gpumem-actions")
    assert "forget the last error" in page.text()
    page.tab.get_by_role("button", name="Free 256.0 MiB").click()
    page.wait_text("256.0 MiB freed.")
    page.wait_text("Nothing dangles")
    assert page.tab.locator(".jp-Cell .jp-OutputArea-output", has_text="in the middle").count() == 1


def test_cells_whose_memory_stayed_are_marked(lab, open_page):
    cells = ["import torch; a = torch.zeros(8, 1024, 1024, dtype=torch.uint8, device='cuda')", "b = 1"]
    page = open_page(lab, lab.notebook("marks.ipynb", cells, "simgpu"))
    page.load()
    page.run(0)
    mark = page.tab.wait_for_selector(".jp-InputPrompt[data-gpumem-stayed]", timeout=30_000)
    assert mark.get_attribute("data-gpumem-stayed") == "+8.0 MiB"
    page.record()
    page.run(1)
    page.tab.wait_for_function("window.gpumem.some(message => message.kind === 'cell')")
    assert page.tab.locator(".jp-InputPrompt[data-gpumem-stayed]").count() == 1


def test_deleting_waits_for_the_running_cell_and_can_be_cancelled(lab, open_page):
    cells = ["import torch, time; x = torch.zeros(64, 1024, 1024, dtype=torch.uint8, device='cuda')", "time.sleep(8)", "x.shape"]
    page = open_page(lab, lab.notebook("waits.ipynb", cells, "simgpu"))
    page.load()
    page.run(0)
    page.tab.wait_for_selector(".jp-gpumem-name")
    page.tab.get_by_role("button", name="Delete x").click()
    page.tab.wait_for_selector(".jp-gpumem-actions")
    page.run(1, wait=False)
    page.wait_text("is running")
    page.tab.get_by_role("button", name="Free 64.0 MiB").click()
    page.wait_text("Waiting for the running cell to end…")
    page.tab.get_by_role("button", name="Cancel").click()
    page.wait_no_text("Waiting for the running cell to end…")
    page.tab.wait_for_function("window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.status === 'idle'")
    page.run(2)
    assert page.tab.locator(".jp-OutputArea-output", has_text="torch.Size([64, 1024, 1024])").count() == 1


def test_empty_caches_gives_back_what_the_allocator_keeps(lab, open_page):
    cells = ["import torch; x = torch.zeros(256, 1024, 1024, dtype=torch.uint8, device='cuda'); del x"]
    page = open_page(lab, lab.notebook("caches.ipynb", cells, "simgpu"))
    page.load()
    page.run(0)
    page.wait_text("cached 256.0 MiB")
    page.tab.get_by_role("button", name="Empty caches").click()
    page.tab.get_by_role("button", name="Free 256.0 MiB").click()
    page.wait_text("Done")
    page.wait_text("cached 0 B")
