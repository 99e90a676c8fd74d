"""A real JupyterLab in a real browser, with real kernels on simulated GPUs."""
from __future__ import annotations

import json
import os
import re
import sys
import urllib.request
from urllib.parse import quote

import pytest

pytest.importorskip("jupyterlab")
pytest.importorskip("playwright")

from playwright.sync_api import expect, sync_playwright  # noqa: E402

sys.path.insert(0, os.path.dirname(__file__))
from labserver import CHROMIUM_ARGS, LabServer, chromium_path  # noqa: E402

EXTENSION = "jupyter-gpumem"
expect.set_options(timeout=30_000)
# what JupyterLab and Notebook themselves write to the console, with our extension disabled too
_NOISE = re.compile(r"reading 'schema'|\[yjs#509\]|favicon|ResizeObserver|Failed to load resource|WebSocket|websocket")


@pytest.fixture(scope="session")
def chromium():
    path = chromium_path()
    if path is None:
        if os.environ.get("CI") == "true":
            pytest.fail("no chromium on this machine")
        pytest.skip("no chromium on this machine")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, headless=True, args=CHROMIUM_ARGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def lab(tmp_path_factory, compiler):
    """A JupyterLab whose kernel ``simgpu`` has two GPUs of 2 GiB, and ``plain`` none."""
    from simgpu import kernel as simulated

    home = tmp_path_factory.mktemp("lab")
    simulated.write_kernelspec(home / "data", home / "machine")
    server = LabServer(home)
    assert any(one["name"] == EXTENSION for one in federated(server)), "the sidebar is not installed: make lab-build"
    yield server
    server.stop()


def federated(server):
    """The prebuilt extensions that the page of a server loads."""
    html = urllib.request.urlopen(server.url + "/lab", timeout=20).read().decode()
    return json.loads(re.search(r'id="jupyter-config-data"[^>]*>(.*?)</script>', html, re.S)[1])["federated_extensions"]


@pytest.fixture
def open_page(chromium):
    """``open_page(server, path)`` → a :class:`Page`; what the console says against us fails the test."""
    opened = []

    def open_(server, path, **options):
        page = Page(chromium, server, path, **options)
        opened.append(page)
        return page

    yield open_
    faults = [fault for page in opened for fault in page.faults]
    for page in opened:
        page.context.close()
    assert not faults, faults


class Page:
    """A browser tab with a notebook and our panel."""

    def __init__(self, browser, server, path, width=1280, height=900, reuse=None, panel=True, root=None, **context):
        self.server = server
        self.context = reuse or browser.new_context(viewport={"width": width, "height": height}, **context)
        self.tab = self.context.new_page()
        self.faults = []
        self.tab.on("pageerror", lambda error: self._note(str(error)))
        self.tab.on("console", lambda message: message.type == "error" and self._note(message.text))
        workspace = re.sub(r"\W", "-", f"{path}-{id(self)}")
        place = root if root else f"lab/workspaces/{workspace}/tree"
        self.tab.goto(f"{server.url}/{place}/{quote(path)}")
        self.tab.wait_for_function("window.jupyterapp?.restored.then(() => true)", timeout=60_000)
        self.tab.wait_for_selector(".jp-NotebookPanel .jp-Cell", timeout=60_000)
        if panel:
            self.command("gpumem:open")

    def _note(self, text):
        if not _NOISE.search(text):
            self.faults.append(text)

    def command(self, name, args=None):
        """Run a command of JupyterLab's and wait for it."""
        self.tab.evaluate("([name, args]) => window.jupyterapp.commands.execute(name, args).then(() => 0)", [name, args or {}])

    def start(self, name, args=None):
        """Run a command without waiting for its end."""
        self.tab.evaluate("([name, args]) => { void window.jupyterapp.commands.execute(name, args); }", [name, args or {}])

    def wait_state(self, state, timeout=30):
        self.tab.wait_for_selector(f'.jp-gpumem-header[data-state="{state}"]', state="attached", timeout=1000 * timeout)

    def load(self):
        """Press *Load the extension* and wait for figures."""
        self.wait_state("notLoaded", 60)
        self.tab.get_by_role("button", name="Load the extension").click()
        self.tab.wait_for_selector(".jp-gpumem-card", timeout=60_000)

    def run(self, index, wait=True):
        """Run a cell; ``wait`` for its end."""
        select = """index => {
            const notebook = window.jupyterapp.shell.currentWidget.content;
            notebook.activeCellIndex = index;
            notebook.deselectAll();
        }"""
        self.tab.evaluate(select, index)
        self.tab.wait_for_function(
            "['idle', 'busy'].includes(window.jupyterapp.shell.currentWidget.sessionContext.session?.kernel?.status)",
            timeout=60_000,
        )
        (self.command if wait else self.start)("notebook:run-cell")

    def status(self):
        return self.tab.evaluate("window.jupyterapp.shell.currentWidget.sessionContext.session?.kernel?.status")

    def kernel_id(self):
        return self.tab.evaluate("window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.id")

    @property
    def panel(self):
        return self.tab.locator("#jupyter-gpumem-panel")

    def text(self):
        return self.panel.inner_text()

    def wait_text(self, text, timeout=30):
        """Until the panel says a text."""
        self.tab.wait_for_function(
            "text => document.querySelector('#jupyter-gpumem-panel')?.innerText.includes(text)",
            arg=text,
            timeout=1000 * timeout,
        )

    def wait_no_text(self, text, timeout=30):
        self.tab.wait_for_function(
            "text => !document.querySelector('#jupyter-gpumem-panel')?.innerText.includes(text)",
            arg=text,
            timeout=1000 * timeout,
        )

    def used(self, card=0):
        """Bytes in the head of a device's card."""
        text = self.tab.locator(".jp-gpumem-cardUsed").nth(card).inner_text()
        part, _, whole = text.partition(" / ")
        unit = part.split()[1] if " " in part else whole.split()[1]
        return float(part.split()[0]) * 1024 ** ["B", "KiB", "MiB", "GiB", "TiB"].index(unit)

    def record(self):
        """Keep what the kernel sends: ``messages()`` has it afterwards."""
        self.tab.evaluate(
            """() => {
                window.gpumem = [];
                const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
                kernel.iopubMessage.connect((_, message) => {
                    if (message.header.msg_type === 'comm_msg' && message.content.comm_id === 'jupyter_gpumem') {
                        window.gpumem.push({at: Date.now() / 1000, ...message.content.data,
                            size: JSON.stringify(message).length, status: kernel.status});
                    }
                });
            }"""
        )

    def messages(self, kind=None):
        return [m for m in self.tab.evaluate("window.gpumem") if kind is None or m["kind"] == kind]
