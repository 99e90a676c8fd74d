"""JupyterLab or Notebook 7 on a local port, with folders of its own, and the browser that looks at it."""
from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from urllib.parse import quote

import nbformat

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
CHROMIUM_ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]

# what JupyterLab and Notebook themselves write to the console, with our extension disabled too
_NOISE = re.compile(
    r"reading 'schema'|\[yjs#509\]|favicon|ResizeObserver|Failed to load resource|WebSocket|websocket"
    # ipywidgets' own comm, in a second tab on the same kernel
    r"|Comm not found for comm id [0-9a-f]{8}-"
)


def chromium_path() -> str | None:
    """The browser of this machine."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def kernel_environment() -> dict[str, str]:
    """Variables of every kernel: it finds the package from the checkout."""
    return {"PYTHONPATH": os.pathsep.join([str(TESTS), str(ROOT)]), "PYTHONWARNINGS": "ignore"}


def write_kernelspec(data: Path, name: str, argv: list[str], env: dict[str, str] | None = None, language="python"):
    """A kernelspec for one server."""
    folder = data / "kernels" / name
    folder.mkdir(parents=True, exist_ok=True)
    spec = {"argv": argv, "display_name": name, "language": language, "env": {**kernel_environment(), **(env or {})}}
    (folder / "kernel.json").write_text(json.dumps(spec))


class LabServer:
    """A server that runs from ``LabServer(...)`` to ``stop()``."""

    def __init__(self, home: Path, app: str = "lab", settings: dict | None = None) -> None:
        self.home = home
        self.root = home / "root"
        self.data = home / "data"
        for folder in (self.root, self.data):
            folder.mkdir(parents=True, exist_ok=True)
        write_kernelspec(self.data, "plain", [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"])
        self.settings({"@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False}})
        self.settings(settings or {})
        # connection files are sockets' neighbours: their path must be short
        self.runtime = Path(tempfile.mkdtemp(prefix="gm"))
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log_path = home / "server.log"
        self._log = self.log_path.open("w")
        # JupyterLab may live in another environment than the kernels and the tests
        prefix = os.environ.get("GPUMEM_LAB_PREFIX", sys.prefix)
        command = [f"{prefix}/bin/jupyter", app, "--no-browser", "--ip=127.0.0.1", f"--port={self.port}"]
        command += ["--ServerApp.port_retries=0", "--allow-root", "--IdentityProvider.token="]
        command += [f"--ServerApp.root_dir={self.root}", "--LabApp.expose_app_in_browser=True"]
        command += ["--JupyterNotebookApp.expose_app_in_browser=True"]
        env = {
            **os.environ,
            "JUPYTER_CONFIG_DIR": str(home / "config"),
            "JUPYTER_DATA_DIR": str(self.data),
            "JUPYTER_RUNTIME_DIR": str(self.runtime),
            "IPYTHONDIR": str(home / "ipython"),
            "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
            "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
        }
        self.process = subprocess.Popen(command, stdout=self._log, stderr=subprocess.STDOUT, env=env)
        self._wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(self.url + "/api", timeout=2).read()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(self.log_path.read_text()) from None
                time.sleep(0.1)

    def settings(self, values: dict) -> None:
        """Write user settings: ``plugin:name`` → values."""
        for plugin, content in values.items():
            file = self.home / "settings" / (plugin.replace(":", "/") + ".jupyterlab-settings")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(content))

    def notebook(self, name: str, cells: list[str], kernel: str = "plain") -> str:
        """Write a notebook and return its path below the server's root."""
        node = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        node.metadata["kernelspec"] = {"name": kernel, "display_name": kernel, "language": "python"}
        nbformat.write(node, self.root / name)
        return name

    def get(self, path: str) -> object:
        """What the server's REST API answers."""
        return json.loads(urllib.request.urlopen(self.url + path, timeout=10).read())

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._log.close()
        shutil.rmtree(self.runtime, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


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
