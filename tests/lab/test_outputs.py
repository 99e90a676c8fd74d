"""All pictures in a notebook of a real JupyterLab: they are drawn, light and dark, and the saved file stays small.

``GPUMEM_PICTURES=FOLDER`` keeps the screenshots there, to be looked at.
"""
from __future__ import annotations

import json
import os
import re
from pathlib import Path

import nbformat
import pytest
from labserver import LabServer
from playwright.sync_api import expect

pytest.importorskip("ipywidgets")
pytest.importorskip("plotly")

THEMES = "@jupyterlab/apputils-extension:themes"
WORK = """\
import os, time, torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(512, 512) for _ in range(6))
    def forward(self, x):
        for layer in self.layers: x = layer(x).relu()
        return x
model = Net().to("cuda")
optimizer = torch.optim.Adam(model.parameters())
losses = []
for step in range(4):
    loss = model(torch.randn(4096, 512, device="cuda")).square().mean()
    losses.append(loss)
    loss.backward(retain_graph=True); optimizer.step(); optimizer.zero_grad()
fragments = [torch.zeros(3 * 2**20, dtype=torch.uint8, device="cuda") for _ in range(12)][::2]
"""
FAIL = "def evaluate(n):\n    images = torch.zeros(n, 2**20, dtype=torch.uint8, device='cuda')\n    return images @ images\nevaluate(64)"
WAITING = "while not os.path.exists({!r}): time.sleep(0.1)"
SHOWN = {
    "snapshot": "%gpumem",
    "account": "%gpumem --account",
    "why": "%gpumem --why losses",
    "treemap": "%gpumem --plot treemap",
    "timeline": "%gpumem --plot timeline",
    "segments": "%gpumem --plot segments",
    "graph": "%gpumem --plot graph loss",
    "live": "%gpumem --live",
}
CELLS = ["%load_ext jupyter_gpumem\n%gpumem on", WORK, FAIL, "torch.zeros(2**22, device='cuda')", *SHOWN.values()]
FIRST = len(CELLS) - len(SHOWN)
CONTRAST = """
root => {
    const channels = c => (c.match(/[\\d.]+/g) || []).map(Number);
    const light = c => c.slice(0, 3).map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const paper = node => {
        for (; node; node = node.parentElement) {
            const colour = channels(getComputedStyle(node).backgroundColor);
            if (colour.length === 3 || colour[3] > 0.5) return colour;
        }
        return [255, 255, 255];
    };
    const worst = [];
    for (const node of root.querySelectorAll('.gpumem h4, .gpumem p, .gpumem td, .gpumem th, .gpumem li, .gpumem-line')) {
        if (!node.innerText.trim() || getComputedStyle(node).fontSize === '0px') continue;
        const [a, b] = [light(channels(getComputedStyle(node).color)), light(paper(node))].sort((x, y) => y - x);
        worst.push([(a + 0.05) / (b + 0.05), node.innerText.slice(0, 60)]);
    }
    return worst.sort((x, y) => x[0] - y[0])[0] || [21, ''];
}
"""

BEYOND = """
area => {
    const edge = area.getBoundingClientRect().right;
    return Math.max(0, ...[...area.querySelectorAll('.gpumem, .gpumem *, img, .js-plotly-plot')]
        .map(node => node.getBoundingClientRect().right - edge));
}
"""


@pytest.fixture(params=["light", "dark"])
def theme(request):
    return request.param


@pytest.fixture
def server(theme, tmp_path, compiler):
    from simgpu import kernel as simulated

    simulated.write_kernelspec(tmp_path / "data", tmp_path / "machine")
    settings = {THEMES: {"theme": "JupyterLab Dark"}} if theme == "dark" else {}
    started = LabServer(tmp_path, settings=settings)
    yield started
    started.stop()


def test_the_live_widget_in_notebook_7(tmp_path, open_page, compiler):
    from simgpu import kernel as simulated

    simulated.write_kernelspec(tmp_path / "data", tmp_path / "machine")
    server = LabServer(tmp_path, app="notebook")
    try:
        done = tmp_path / "done"
        cells = ["import os, time\n%load_ext jupyter_gpumem", "%gpumem --live", WAITING.format(str(done))]
        path = server.notebook("seven.ipynb", cells, kernel="simgpu")
        page = open_page(server, path, panel=False, root="notebooks")
        page.run(0)
        page.run(1)
        expect(output(page, 1)).to_contain_text("Simulated GPU 1")
        page.run(2, wait=False)
        expect(output(page, 1)).to_contain_text("has been running for")
        done.touch()
        expect(output(page, 1)).to_contain_text("no cell is running")
    finally:
        server.stop()


def output(page, index):
    return page.tab.locator(".jp-Notebook .jp-Cell").nth(index).locator(".jp-Cell-outputArea")


def kept(page, index, name, theme):
    folder = os.environ.get("GPUMEM_PICTURES")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        output(page, index).screenshot(path=f"{folder}/{name}-{theme}.png")


def test_every_picture_is_drawn_and_the_saved_notebook_is_small(server, open_page, theme, tmp_path):
    done = tmp_path / "done"
    cells = [*CELLS, WAITING.format(str(done))]
    page = open_page(server, server.notebook("all.ipynb", cells, kernel="simgpu"), panel=False, height=1800, width=1100)
    for index in range(len(CELLS)):
        page.run(index)
    for index, name in enumerate(SHOWN, FIRST):
        area = output(page, index)
        area.scroll_into_view_if_needed()
        if name in ("treemap", "timeline", "segments"):
            expect(area.locator(".js-plotly-plot .main-svg").first).to_be_visible()
            expect(area).to_contain_text(re.compile(r"[KMG]iB"))
        elif name == "graph":
            # a drawing where graphviz is there, which JupyterLab shows as a picture; else text
            drawn = area.locator(".jp-RenderedSVG img").or_(area.get_by_text("Backward0"))
            expect(drawn.first).to_be_visible()
        elif name == "live":
            expect(area.locator(".widget-html .gpumem").first).to_be_visible()
            expect(area).to_contain_text("Simulated GPU 1")
        else:
            expect(area.locator(".gpumem").first).to_be_visible()
        kept(page, index, name, theme)
        ratio, words = area.evaluate(CONTRAST)
        assert ratio >= 4.5, f"{name}: {words!r} has a contrast of {ratio:.1f}"
        assert area.evaluate(BEYOND) <= 1, f"{name} is cut off at its side"
    live = FIRST + [*SHOWN].index("live")
    page.run(len(CELLS), wait=False)
    expect(output(page, live)).to_contain_text("has been running for")
    kept(page, live, "live-busy", theme)
    done.touch()
    expect(output(page, live)).to_contain_text("no cell is running")
    expect(page.tab.locator(".jp-Notebook")).not_to_contain_text("jupyter_gpumem:")  # a fault of ours is told so
    page.command("docmanager:save")
    saved = server.root / "all.ipynb"
    page.tab.wait_for_function("!document.querySelector('.jp-mod-current.jp-mod-dirty')")
    node = nbformat.read(saved, as_version=4)
    nbformat.validate(node)
    assert [cell.execution_count for cell in node.cells if cell.cell_type == "code"] == [*range(1, len(cells) + 1)]
    size = saved.stat().st_size
    assert size < 1_000_000
    live_bytes = len(json.dumps(node.cells[live].outputs)) + len(json.dumps(node.metadata))
    assert live_bytes < 30_000, "the widget leaves its words in the notebook, and no state"
