"""The panel in a real browser: what is lost and how old it gets, what it weighs on the wire, how it scrolls.

``GPUMEM_BENCH_SECONDS`` is the length of the cells, 20 unless told.
"""
from __future__ import annotations

import gzip
import itertools
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "lab"))
pytest.importorskip("jupyterlab")
pytest.importorskip("playwright")

from labserver import CHROMIUM_ARGS, LabServer, Page, chromium_path, write_kernelspec  # noqa: E402
from playwright.sync_api import sync_playwright  # noqa: E402

OLDEST = ROOT / ".venv-oldest" / "bin" / "python"
SECONDS = float(os.environ.get("GPUMEM_BENCH_SECONDS", "20"))
INTERVAL = 1000
LOOP = f"end = time.time() + {SECONDS}\nwhile time.time() < end: "
CELLS = {
    "sleeps": f"import time; time.sleep({SECONDS})",
    "Python": f"import time\n{LOOP}sum(range(1000))",
    "numpy": f"import time, numpy\nm = numpy.random.rand(500, 500)\n{LOOP}m @ m",
    "torch": f"import time, torch\nm = torch.rand(500, 500)\n{LOOP}m @ m",
}
MANY = "import torch\nfor i in range(10_000):\n    globals()[f'tensor_{i:05}'] = torch.zeros(1 + i, dtype=torch.uint8)"


@pytest.fixture(scope="module")
def browser():
    if chromium_path() is None:
        pytest.skip("no chromium on this machine")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium_path(), headless=True, args=CHROMIUM_ARGS)
        yield launched
        launched.close()


@pytest.fixture
def serve(tmp_path, compiler):
    from simgpu import kernel as simulated

    servers = []

    def start(subshells="disabled"):
        settings = {
            "jupyter-gpumem:plugin": {"interval": INTERVAL},
            "@jupyterlab/apputils-extension:kernels-settings": {"commsOverSubshells": subshells},
        }
        home = tmp_path / subshells
        simulated.write_kernelspec(home / "data", home / "machine")
        server = LabServer(home, settings=settings)
        servers.append(server)
        if OLDEST.exists():
            argv = [str(OLDEST), "-m", "simgpu.kernel", "-f", "{connection_file}"]
            path = os.pathsep.join([str(ROOT / "tests"), str(ROOT)])
            write_kernelspec(server.data, "oldest", argv, {**simulated.environment(home / "machine"), "PYTHONPATH": path})
        return server

    yield start
    for server in servers:
        server.stop()


def run_and_listen(page, index):
    """The samples of a cell's run, as they arrived."""
    page.tab.evaluate("window.gpumem = []")
    page.run(index, wait=False)
    page.tab.wait_for_function("window.gpumem.some(m => m.kind === 'cell')", timeout=1000 * (SECONDS + 120))
    run = page.messages("cell")[0]["run"]
    heard = [m for m in page.messages() if m["n"] is not None]
    samples = [m for m in heard if m["kind"] == "sample" and run["begun"] <= m["time"] <= run["ended"]]
    lost = sum(max(0, b["n"] - a["n"] - 1) for a, b in itertools.pairwise(heard))
    # the newest figures on screen are oldest just before the next ones arrive
    arrivals = [(m["at"], m["time"]) for m in samples] + [(run["ended"], None)]
    oldest = max((later[0] - earlier[1] for earlier, later in itertools.pairwise(arrivals)), default=float("inf"))
    return len(samples), lost, oldest


@pytest.mark.parametrize("subshells", ["disabled", "perCommTarget", "perComm"])
def test_samples_while_cells_run(row, browser, serve, subshells):
    server = serve(subshells)
    for kernel in ("simgpu", "oldest") if OLDEST.exists() else ("simgpu",):
        page = Page(browser, server, server.notebook(f"{kernel}.ipynb", list(CELLS.values()), kernel))
        page.load()
        page.record()
        for index, what in enumerate(CELLS):
            count, lost, oldest = run_and_listen(page, index)
            name = "ipykernel 7" if kernel == "simgpu" else "ipykernel 6"
            row(
                f"{name}, comms over subshells {subshells}, cell: {what}",
                f"{lost} of {count} lost, age ≤ {1000 * oldest / INTERVAL:.2f} × interval",
                "0 lost, 1.5",
            )
        page.context.close()


def test_bytes_on_the_wire(row, browser, serve):
    server = serve()
    page = Page(browser, server, server.notebook("wire.ipynb", ["import time; time.sleep(20)"]))
    sizes = []

    def count(payload):
        data = payload.encode() if isinstance(payload, str) else payload
        sizes.append(len(data) if b"jupyter_gpumem" in data else 0)

    def listen(socket):
        socket.on("framereceived", count)
        socket.on("framesent", count)

    page.tab.on("websocket", listen)
    page.tab.reload()
    page.tab.wait_for_selector(".jp-NotebookPanel .jp-Cell", timeout=60_000)
    page.command("gpumem:open")
    page.load()

    def per_minute(seconds):
        sizes.clear()
        page.tab.wait_for_timeout(1000 * seconds)
        return f"{60 / seconds * sum(sizes) / 1024:.1f} KiB/min"

    page.tab.wait_for_timeout(3000)
    row(f"on the wire, watched every {INTERVAL} ms", per_minute(20), "-")
    page.run(0, wait=False)
    row("on the wire, watched and busy", per_minute(15), "-")
    page.tab.wait_for_timeout(8000)
    page.tab.evaluate("window.jupyterapp.shell.collapseRight()")
    page.tab.wait_for_timeout(2000)
    row("on the wire, panel hidden, status bar on", per_minute(30), "-")
    page.context.close()


FRAMES = """
async seconds => {
    const table = document.querySelector('.jp-gpumem-table');
    const tasks = [], frames = [];
    const observer = new PerformanceObserver(list => tasks.push(...list.getEntries().map(entry => entry.duration)));
    observer.observe({type: 'longtask'});
    const end = performance.now() + 1000 * seconds;
    let last = performance.now(), top = 0;
    await new Promise(resolve => {
        const frame = now => {
            frames.push(now - last);
            last = now;
            top = (top + 400) % table.scrollHeight;
            table.scrollTop = top;
            now < end ? requestAnimationFrame(frame) : resolve();
        };
        requestAnimationFrame(frame);
    });
    observer.disconnect();
    frames.sort((a, b) => a - b);
    return {tasks, median: frames[frames.length >> 1], worst: frames[Math.floor(0.99 * frames.length)]};
}
"""


def test_frames_with_ten_thousand_names(row, browser, serve):
    server = serve()
    page = Page(browser, server, server.notebook("many.ipynb", [MANY]))
    page.load()
    page.run(0)
    page.wait_text("in 10000", 60)
    page.tab.wait_for_timeout(2000)
    seen = page.tab.evaluate(FRAMES, 15)
    row(
        "scrolling 10,000 names while samples arrive",
        f"frame {seen['median']:.0f} ms, 99 %: {seen['worst']:.0f} ms; {len(seen['tasks'])} long tasks, longest {max(seen['tasks'], default=0):.0f} ms",
        "no task > 50 ms",
    )
    page.context.close()


def test_size_of_the_javascript(row):
    scripts = list((ROOT / "jupyter_gpumem" / "labextension" / "static").glob("*.js"))
    assert scripts
    total = sum(len(gzip.compress(script.read_bytes(), 9)) for script in scripts)
    row("all JavaScript, gzip", f"{total / 1000:.1f} kB", "60 kB")
