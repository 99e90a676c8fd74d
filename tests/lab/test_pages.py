"""The page as different people have it: many names, hostile names, a keyboard, another language, Notebook 7."""
from __future__ import annotations

import pytest
from labserver import LabServer
from playwright.sync_api import expect

MANY = """\
import torch
for i in range(10_000):
    globals()[f"tensor_{i:05}"] = torch.zeros(1 + i, dtype=torch.uint8)
"""
HOSTILE = """\
import torch
get_ipython().user_ns["<img src=x onerror=window.pwned=1>"] = torch.zeros(1000)
class Evil(torch.nn.Module): pass
Evil.__qualname__ = Evil.__name__ = "<script>window.pwned=1</script>"
evil = Evil(); evil.weight = torch.nn.Parameter(torch.zeros(3000))
torch.zeros(2000)
"""


def test_ten_thousand_names_scroll_sort_and_filter(lab, open_page):
    page = open_page(lab, lab.notebook("many.ipynb", [MANY]))
    page.load()
    page.run(0)
    page.wait_text("in 10000", 60)
    rows = page.tab.locator(".jp-gpumem-name")
    assert 5 < rows.count() < 40, "only those in sight exist"
    expect(rows.first).to_contain_text("tensor_09999")
    table = page.tab.locator(".jp-gpumem-table")
    table.evaluate("node => { node.scrollTop = node.scrollHeight; }")
    expect(rows.last).to_contain_text("tensor_00000")
    page.tab.get_by_role("button", name="Descending").click()
    table.evaluate("node => { node.scrollTop = 0; }")
    expect(rows.first).to_contain_text("tensor_00000")
    page.tab.get_by_label("Filter names").fill("tensor_0777")
    expect(rows).to_have_count(10)


def test_the_keyboard_alone(lab, open_page):
    cells = ["import torch; large = torch.zeros(2**20); small = torch.zeros(2**10)"]
    page = open_page(lab, lab.notebook("keyboard.ipynb", cells))
    page.load()
    page.run(0)
    expect(page.tab.locator(".jp-gpumem-name")).to_have_count(2)
    table = page.tab.locator(".jp-gpumem-table")
    table.focus()
    page.tab.keyboard.press("ArrowDown")
    assert page.tab.locator(".jp-gpumem-name[aria-selected=true]").inner_text().startswith("small")
    page.tab.keyboard.press("Enter")
    page.wait_text("Why is small there?")
    expect(page.tab.locator(".jp-gpumem-notecard :focus, .jp-gpumem-heading:focus")).to_have_count(1)
    page.tab.keyboard.press("Tab")
    page.tab.keyboard.press("Enter")
    page.wait_no_text("Why is small there?")
    table.focus()
    page.tab.keyboard.press("Delete")
    page.tab.wait_for_selector(".jp-gpumem-actions")
    page.tab.keyboard.press("Tab")
    page.tab.keyboard.press("Enter")
    page.wait_text("4.0 KiB freed.")
    expect(page.tab.locator(".jp-gpumem-name")).to_have_count(1)


def test_every_control_has_a_name_and_every_picture_words(lab, open_page):
    page = open_page(lab, lab.notebook("names.ipynb", ["import torch; x = torch.zeros(2**20)"]))
    page.load()
    page.run(0)
    expect(page.tab.locator(".jp-gpumem-name")).to_have_count(1)
    nameless = page.panel.evaluate(
        """panel => [...panel.querySelectorAll('button, input, select, svg, [role=img], [role=listbox]')]
            .filter(node => !(node.getAttribute('aria-label') || node.innerText?.trim() || node.closest('button[aria-label]')
                || node.closest('[aria-hidden=true]')))
            .map(node => node.outerHTML.slice(0, 200))"""
    )
    assert nameless == []
    assert page.tab.get_by_role("region", name="GPU memory").count() == 1


def test_at_twice_the_size_nothing_is_cut_off(lab, open_page):
    page = open_page(lab, lab.notebook("zoom.ipynb", ["import torch; x = torch.zeros(2**20)"]), width=640, height=450)
    page.load()
    page.run(0)
    expect(page.tab.locator(".jp-gpumem-name")).to_have_count(1)
    content = page.tab.locator(".jp-gpumem-content")
    assert content.evaluate("node => node.scrollWidth <= node.clientWidth"), "it does not scroll sideways"


def test_names_that_look_like_markup_are_text(lab, open_page):
    page = open_page(lab, lab.notebook("hostile&amp;<b>.ipynb", [HOSTILE]))
    page.load()
    page.run(0)
    expect(page.tab.locator(".jp-gpumem-name")).to_have_count(2)
    page.wait_text("<img src=x onerror=window.pwned=1>")
    page.wait_text("<script>window.pwned=1</script>")
    page.tab.get_by_role("button", name="Why is <img").click()
    page.tab.wait_for_selector(".jp-gpumem-paths li")
    page.tab.get_by_role("button", name="Delete <img").click()
    expect(page.tab.locator(".jp-gpumem-notecard")).to_have_count(2)
    page.wait_no_text("Planning…")
    assert "hostile&amp;<b>.ipynb" in page.text()
    assert page.panel.locator("img, script, b:has(*)").count() == 0
    assert page.tab.evaluate("window.pwned") is None


def test_commands_are_in_the_palette_and_force_no_shortcut(lab, open_page):
    page = open_page(lab, lab.notebook("palette.ipynb", ["1"]))
    page.load()
    listed = page.tab.evaluate("window.jupyterapp.commands.listCommands().filter(name => name.startsWith('gpumem:')).sort()")
    assert listed == ["gpumem:empty-caches", "gpumem:free-dangling", "gpumem:load-extension", "gpumem:open", "gpumem:refresh-names"]
    bound = page.tab.evaluate("window.jupyterapp.commands.keyBindings.filter(one => one.command.startsWith('gpumem:')).length")
    assert bound == 0
    page.command("gpumem:free-dangling")
    page.tab.wait_for_selector(".jp-gpumem-notecard")


def test_in_chinese(lab, open_page, tmp_path_factory):
    home = tmp_path_factory.mktemp("chinese")
    server = LabServer(home, settings={"@jupyterlab/translation-extension:plugin": {"locale": "zh_CN"}})
    try:
        page = open_page(server, server.notebook("zh.ipynb", ["import torch; x = torch.zeros(2**20)"]))
        page.tab.get_by_role("button", name="加载扩展").click()
        page.wait_text("主机内存", 60)
        page.run(0)
        expect(page.tab.locator(".jp-gpumem-name")).to_have_count(1)
        left = set(page.panel.evaluate("panel => [...panel.querySelectorAll('button, summary, h3, figcaption, .jp-gpumem-note')].map(n => n.innerText.trim())"))
        english = [text for text in left if text and text.isascii() and any(word.isalpha() and len(word) > 3 for word in text.split())]
        assert english == []
    finally:
        server.stop()


@pytest.fixture(scope="module")
def classic(tmp_path_factory, compiler):
    from simgpu import kernel as simulated

    home = tmp_path_factory.mktemp("notebook7")
    simulated.write_kernelspec(home / "data", home / "machine")
    server = LabServer(home, app="notebook")
    yield server
    server.stop()


def test_notebook_7(classic, open_page):
    cells = ["import torch; x = torch.zeros(8, 2**20, dtype=torch.uint8, device='cuda')"]
    page = open_page(classic, classic.notebook("seven.ipynb", cells, "simgpu"), root="notebooks")
    page.load()
    page.run(0)
    expect(page.tab.locator(".jp-gpumem-name", has_text="x")).to_have_count(1)
    assert "GPU 0" in page.text()


def test_twenty_notebooks_are_told_apart(lab, open_page):
    names = [lab.notebook(f"many{number}.ipynb", ["1"]) for number in range(20)]
    page = open_page(lab, names[0])
    page.load()
    for name in names[1:]:
        page.command("docmanager:open", {"path": name})
    page.wait_state("notLoaded", 60)
    page.command("docmanager:open", {"path": names[0]})
    page.wait_state("ready")
    expect(page.tab.locator(".jp-gpumem-processes")).to_contain_text("many0.ipynb")
    page.tab.evaluate("window.jupyterapp.serviceManager.sessions.shutdownAll()")
    page.wait_state("noKernel")
