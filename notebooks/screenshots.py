"""Pictures of the sidebar, made in a real JupyterLab on simulated GPUs.

    python notebooks/screenshots.py [FOLDER]

README's own picture goes beside it; with a folder, all states of the panel go there, to be looked at.
"""
from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "lab"), str(ROOT / "tests")]

import fakenvml
from labserver import CHROMIUM_ARGS, LabServer, Page, chromium_path
from playwright.sync_api import sync_playwright
from simgpu import kernel as simulated

PICTURE = ROOT / "notebooks" / "sidebar.png"
TRAIN = """\
import torch, time
model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(8)]).to("cuda")
optimizer = torch.optim.Adam(model.parameters())
losses = []
for step in range(6):
    x = torch.randn(4096, 1024, device="cuda")
    loss = model(x).square().mean()
    losses.append(loss)          # with its graph
    optimizer.zero_grad(); loss.backward(retain_graph=True); optimizer.step()
    time.sleep(0.5)
"""
FULL = """\
def evaluate(batch):
    images = torch.zeros(batch, 64, 2**20, dtype=torch.uint8, device="cuda")
    return images.float()
evaluate(8)
"""
BUSY = "for epoch in range(40): time.sleep(0.5)"
MANY = "import torch\nfor i in range(10_000):\n    globals()[f'tensor_{i:05}'] = torch.zeros(1 + i, dtype=torch.uint8)"
EIGHT = "".join(
    f'gpu {i} name="NVIDIA H100 80GB HBM3" uuid=GPU-{i} total=80G reserved=600M used={11 * i}G '
    f"util={12 * i} temp={40 + i} power={90 + 60 * i}000\n"
    for i in range(8)
)
MIG = (
    'gpu 0 name="NVIDIA A100-SXM4-80GB" uuid=GPU-a total=80G used=20G util=NA temp=41 power=92000 mig=1 maxmig=7\n'
    'mig 0 0 uuid=MIG-a name="NVIDIA A100 MIG 1g.10gb" gi=1 ci=0 total=10G used=1G\n'
    'mig 0 1 uuid=MIG-b name="NVIDIA A100 MIG 2g.20gb" gi=2 ci=0 total=20G used=12G\n'
)
DARK = {"@jupyterlab/apputils-extension:themes": {"theme": "JupyterLab Dark"}}
CHINESE = {"@jupyterlab/translation-extension:plugin": {"locale": "zh_CN"}}


class Studio:
    """Servers and a browser for pictures."""

    def __init__(self, browser, folder: Path) -> None:
        self.browser = browser
        self.folder = folder
        self.servers: list[LabServer] = []

    def server(self, settings=None, machine=simulated.MACHINE, app="lab") -> LabServer:
        home = Path(tempfile.mkdtemp(prefix="gpumem-pictures"))
        (home / "machine").mkdir()
        fakenvml.Machine(home / "machine").put(machine)
        simulated.write_kernelspec(home / "data", home / "machine")
        ours = {"jupyter-gpumem:plugin": {"minutes": 1}}
        self.servers.append(LabServer(home, app=app, settings={**ours, **(settings or {})}))
        return self.servers[-1]

    def page(self, server, name, cells, kernel="simgpu", load="Load the extension", **options) -> Page:
        page = Page(self.browser, server, server.notebook(name, cells, kernel), **options)
        page.tab.get_by_role("button", name=load).click()
        page.tab.wait_for_selector(".jp-gpumem-card", timeout=60_000)
        return page

    def take(self, page, name) -> None:
        page.tab.wait_for_timeout(1500)
        page.tab.screenshot(path=self.folder / f"{name}.png")
        print(self.folder / f"{name}.png", flush=True)

    def stop(self) -> None:
        for server in self.servers:
            server.stop()


def readme(studio: Studio, settings=None, name="light") -> None:
    page = studio.page(studio.server(settings), "train.ipynb", [TRAIN, FULL], height=1000)
    page.run(0)
    page.run(1)
    page.panel.get_by_role("button", name="Refresh").click()
    page.wait_text("Last error", 60)
    row = page.tab.locator(".jp-gpumem-name", has_text="losses")
    row.get_by_role("button", name="Why is losses there?").click()
    page.tab.wait_for_selector(".jp-gpumem-paths li")
    studio.take(page, name)


def everything(studio: Studio) -> None:
    readme(studio)
    readme(studio, DARK, "dark")
    chinese = studio.page(studio.server(CHINESE), "train.ipynb", [TRAIN], load="加载扩展", height=1000)
    chinese.run(0)
    chinese.tab.wait_for_selector(".jp-gpumem-name")
    studio.take(chinese, "chinese")
    server = studio.server()
    page = studio.page(server, "train.ipynb", [TRAIN, FULL, BUSY], height=1300)
    page.run(0)
    page.run(1)
    page.panel.get_by_role("button", name="Refresh").click()
    page.wait_text("Last error", 60)
    studio.take(page, "out-of-memory")
    page.tab.get_by_role("button", name="Free dangling").click()
    page.tab.wait_for_selector(".jp-gpumem-actions")
    studio.take(page, "plan")
    page.run(2, wait=False)
    page.wait_text("is running")
    page.tab.locator(".jp-gpumem-notecard button.jp-mod-primary").click()
    page.wait_text("Waiting for the running cell")
    studio.take(page, "busy")
    many = studio.page(server, "many.ipynb", [MANY], kernel="plain")
    many.run(0)
    many.wait_text("in 10000", 60)
    studio.take(many, "no-gpu-10000-names")
    for name, machine in (("eight-gpus", EIGHT), ("mig", MIG)):
        studio.take(studio.page(studio.server(machine=machine), f"{name}.ipynb", ["1"]), name)
    seven = studio.page(studio.server(app="notebook"), "seven.ipynb", [TRAIN], root="notebooks")
    seven.run(0)
    seven.tab.wait_for_selector(".jp-gpumem-name")
    studio.take(seven, "notebook-7")


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path(), headless=True, args=CHROMIUM_ARGS)
        studio = Studio(browser, folder or PICTURE.parent)
        try:
            if folder is None:
                readme(studio, name=PICTURE.stem)
            else:
                folder.mkdir(parents=True, exist_ok=True)
                everything(studio)
        finally:
            studio.stop()


if __name__ == "__main__":
    main()
