"""The panel for a long time at its fastest: three tabs, cells without pause, reloads and a restart.

    python tests/benchmarks/soak.py [MINUTES]      10 unless told

Prints the memory of kernel, server and page as they go; ends with 1 if one of them grew, if a request stayed without
an answer, or if the kernel went on talking when nobody looked any more.
"""
from __future__ import annotations

import re
import statistics
import sys
import tempfile
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "lab"), str(ROOT / "tests")]

from labserver import CHROMIUM_ARGS, LabServer, Page, chromium_path  # noqa: E402
from playwright.sync_api import sync_playwright  # noqa: E402
from simgpu import kernel as simulated  # noqa: E402

INTERVAL = 100
CELLS = [
    "import torch, time\nfor i in range(30):\n    x = torch.zeros(64, 2**20, dtype=torch.uint8, device='cuda')\n    time.sleep(0.1)\ndel x",
    "import time\nend = time.time() + 2\nwhile time.time() < end: sum(range(1000))",
    "try: 1 / 0\nexcept ZeroDivisionError: pass",
]
RUNS = "page that runs the cells"
"""JupyterLab keeps about 100 kB for each cell that is run, with the panel hidden too: this page is shown, not judged."""
GROWTH = 1.15
"""By how much the second half may lie above the first: collectors and caches breathe."""
_ASKED = re.compile(rb'"id": ?"([0-9a-f-]{36})"[^{}]*"page"')
_ANSWERED = re.compile(rb'"kind": ?"reply", ?"id": ?"([0-9a-f-]{36})"')


class Wire:
    """The ids of requests and of answers on the sockets of a tab."""

    def __init__(self, tab):
        self.asked, self.answered, self.gone = set(), set(), set()
        tab.on("websocket", self._listen)

    def _listen(self, socket):
        socket.on("framesent", lambda data: self.asked.update(_ASKED.findall(_bytes(data))))
        socket.on("framereceived", lambda data: self.answered.update(_ANSWERED.findall(_bytes(data))))

    def forget(self):
        """A page or a kernel goes: what is on its way has nobody left to answer to, or to be answered by."""
        self.gone |= self.asked - self.answered

    def open(self):
        return self.asked - self.answered - self.gone


def _bytes(data):
    return data.encode() if isinstance(data, str) else data


def heap(page):
    """Bytes of the page's JavaScript that are in use, after a collection."""
    session = page.context.new_cdp_session(page.tab)
    session.send("HeapProfiler.collectGarbage")
    used = session.send("Runtime.getHeapUsage")["usedSize"]
    session.detach()
    return int(used)


def kernel_process(page):
    wanted = f"kernel-{page.kernel_id()}.json"
    return next(p for p in psutil.process_iter(["cmdline"]) if any(wanted in part for part in p.info["cmdline"] or ()))


def opened(browser, server, name, reuse=None):
    page = Page(browser, server, name, reuse=reuse)
    wire = Wire(page.tab)
    page.tab.reload()
    page.tab.wait_for_selector(".jp-NotebookPanel .jp-Cell", timeout=60_000)
    page.command("gpumem:open")
    return page, wire


def loaded(page):
    """Press *Load* if it is there."""
    page.tab.wait_for_selector('.jp-gpumem-header[data-state="ready"], .jp-gpumem-header[data-state="notLoaded"]', state="attached", timeout=60_000)
    button = page.tab.get_by_role("button", name="Load the extension")
    if button.count():
        button.click()
    page.tab.wait_for_selector(".jp-gpumem-card", timeout=60_000)


def main() -> int:
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 10
    home = Path(tempfile.mkdtemp(prefix="gpumem-soak"))
    simulated.write_kernelspec(home / "data", home / "machine")
    server = LabServer(home, settings={"jupyter-gpumem:plugin": {"interval": INTERVAL}})
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium_path(), headless=True, args=CHROMIUM_ARGS)
            return soak(browser, server, 60 * minutes)
    finally:
        server.stop()


def soak(browser, server, seconds) -> int:
    """Three tabs of one notebook: one runs the cells, one watches all the time, one watches and is reloaded."""
    name = server.notebook("soak.ipynb", CELLS, "simgpu")
    runs, runs_wire = opened(browser, server, name)
    loaded(runs)
    watches, watches_wire = opened(browser, server, name, reuse=runs.context)
    loaded(watches)
    reloads, reloads_wire = opened(browser, server, name, reuse=runs.context)
    loaded(reloads)
    wires = (runs_wire, watches_wire, reloads_wire)
    runs.run(0)  # torch is imported before anything is measured
    series = {what: [] for what in ("kernel", "server", "watching page", "reloaded page", RUNS)}
    begun, restarted, reloaded, rounds = time.monotonic(), False, 0, 0
    while (past := time.monotonic() - begun) < seconds:
        for index in range(len(CELLS)):
            runs.run(index)
        rounds += 1
        if not restarted and past > seconds / 2:
            restart(runs, wires)
            restarted = True
        if past > (reloaded + 1) * seconds / 5:
            reload(reloads, reloads_wire)
            reloaded += 1
        if rounds % 4 == 1:
            sizes = (
                kernel_process(runs).memory_info().rss,
                psutil.Process(server.process.pid).memory_info().rss,
                *(heap(page) for page in (watches, reloads, runs)),
            )
            for values, size in zip(series.values(), sizes, strict=True):
                values.append(size)
            print(f"{past:5.0f} s", *(f"{what} {size / 2**20:7.1f} MiB" for what, size in zip(series, sizes, strict=True)), flush=True)
    faults = grown(series)
    watches.tab.wait_for_timeout(5000)
    for wire in wires:
        print(f"{len(wire.asked)} requests, {len(wire.open())} without an answer")
        faults += ["a request stayed without an answer"] if wire.open() or not wire.asked else []
    kernel = runs.kernel_id()
    for page in (runs, watches, reloads):
        page.tab.close()
    faults += talks(server, kernel)
    print(f"{rounds} rounds of cells, {reloaded} reloads, 1 restart:", "; ".join(faults) or "flat, answered, silent afterwards")
    return bool(faults)


def restart(page, wires):
    page.tab.evaluate("window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()")
    page.wait_state("notLoaded", 60)
    loaded(page)
    for wire in wires:
        wire.forget()
    page.run(0)


def reload(page, wire):
    wire.forget()
    page.tab.reload()
    page.tab.wait_for_selector(".jp-NotebookPanel .jp-Cell", timeout=60_000)
    page.command("gpumem:open")
    page.tab.wait_for_selector(".jp-gpumem-card", timeout=60_000)


def grown(series) -> list[str]:
    """What lies higher in the second half than in the first."""
    faults = []
    for what, values in series.items():
        half = len(values) // 2
        before, after = statistics.median(values[:half]), statistics.median(values[half:])
        print(f"{what}: median {before / 2**20:.1f} MiB in the first half, {after / 2**20:.1f} MiB in the second ({after / before:.2f} ×)")
        if after / before > GROWTH and what != RUNS:
            faults.append(f"{what} has grown")
    return faults


def talks(server, kernel) -> list[str]:
    """Whether the kernel goes on when the leases of the pages, which are gone, have run out."""
    time.sleep(35)
    quiet = server.get(f"/api/kernels/{kernel}")["last_activity"]
    time.sleep(10)
    talked = server.get(f"/api/kernels/{kernel}")["last_activity"] != quiet
    return ["the kernel talks although nobody looks"] if talked else []


if __name__ == "__main__":
    sys.exit(main())
