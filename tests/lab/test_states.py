"""What the panel says where there are no figures, and what becomes of it when kernels, pages and tabs come and go."""
from __future__ import annotations

import os
import signal
import sys

import psutil
import pytest
from labserver import write_kernelspec
from playwright.sync_api import expect

OTHER_LANGUAGE = """
from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelapp import IPKernelApp
class Kernel(IPythonKernel):
    language_info = {"name": "julia", "version": "1", "mimetype": "text/plain", "file_extension": ".jl"}
IPKernelApp.launch_instance(kernel_class=Kernel)
"""
SLEEP = "import time\nfor _ in range(100): time.sleep(0.1)"


@pytest.fixture(scope="module", autouse=True)
def kernelspecs(lab):
    write_kernelspec(lab.data, "julia", [sys.executable, "-c", OTHER_LANGUAGE, "-f", "{connection_file}"], language="julia")
    without = [sys.executable, "-I", "-S", "-c", WITHOUT, "-f", "{connection_file}"]
    write_kernelspec(lab.data, "without", without, {"PYTHONPATH": ""})


WITHOUT = f"""
import sys
sys.path += {[path for path in sys.path if "site-packages" in path]!r}
sys.meta_path.insert(0, type("Missing", (), {{"find_spec": staticmethod(lambda name, path=None, target=None: (_ for _ in ()).throw(
    ModuleNotFoundError("No module named 'jupyter_gpumem'", name="jupyter_gpumem")) if name == "jupyter_gpumem" else None)}})())
from ipykernel.kernelapp import launch_new_instance
launch_new_instance()
"""


def wait_status(page, status):
    page.tab.wait_for_function(
        "status => window.jupyterapp.shell.currentWidget.sessionContext.session?.kernel?.status === status", arg=status
    )


def pid_of(page):
    """The process id of the kernel of the page, which is the one with its connection file."""
    wanted = f"kernel-{page.kernel_id()}.json"
    return next(p.pid for p in psutil.process_iter(["cmdline"]) if any(wanted in a for a in p.info["cmdline"] or ()))


def test_a_kernel_without_the_package_says_so(lab, open_page):
    page = open_page(lab, lab.notebook("without.ipynb", ["1"], "without"))
    page.wait_state("notLoaded", 60)
    page.tab.get_by_role("button", name="Load the extension").click()
    page.wait_state("notInstalled")
    assert "%pip install jupyter_gpumem" in page.text()
    assert "No module named 'jupyter_gpumem'" in page.text()
    page.tab.get_by_role("button", name="Try again").click()
    page.wait_state("notInstalled")


def test_a_kernel_of_another_language_says_so(lab, open_page):
    page = open_page(lab, lab.notebook("julia.ipynb", ["1"], "julia"))
    page.wait_state("notPython", 60)
    assert "julia" in page.text()


def test_no_notebook_is_open(lab, open_page):
    page = open_page(lab, lab.notebook("closed.ipynb", ["1"]))
    page.wait_state("notLoaded", 60)
    page.tab.evaluate("window.jupyterapp.shell.currentWidget.context.model.dirty = false")
    page.command("application:close")
    page.wait_state("noNotebook")


def test_a_notebook_without_a_kernel(lab, open_page):
    page = open_page(lab, lab.notebook("nokernel.ipynb", ["1"]))
    page.load()
    page.tab.evaluate("window.jupyterapp.shell.currentWidget.sessionContext.shutdown()")
    page.wait_state("noKernel")
    assert page.tab.locator(".jp-gpumem-card").count() == 0, "old figures are not shown as if they were new"


def test_loading_by_hand_is_noticed(lab, open_page):
    page = open_page(lab, lab.notebook("byhand.ipynb", ["%load_ext jupyter_gpumem", "%unload_ext jupyter_gpumem"]))
    page.wait_state("notLoaded", 60)
    page.run(0)
    page.wait_state("ready")
    page.run(1)
    page.wait_state("notLoaded")


def test_without_a_gpu_the_host_is_shown_and_why(lab, open_page):
    page = open_page(lab, lab.notebook("host.ipynb", ["1"]))
    page.load()
    page.wait_text("No NVIDIA driver on this machine (libnvidia-ml.so.1 was not found).")
    assert "Host memory" in page.tab.locator(".jp-gpumem-card").inner_text()


def test_restart_forgets_and_offers_to_load_again(lab, open_page):
    page = open_page(lab, lab.notebook("restart.ipynb", ["import torch; x = torch.zeros(2**20)"]))
    page.load()
    page.run(0)
    expect(page.tab.locator(".jp-gpumem-name", has_text="x")).to_have_count(1)
    page.tab.evaluate("window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()")
    page.load()
    expect(page.tab.locator(".jp-gpumem-name")).to_have_count(0)


def test_a_kernel_that_is_killed_comes_back_unloaded(lab, open_page):
    page = open_page(lab, lab.notebook("killed.ipynb", [SLEEP]))
    page.load()
    page.run(0, wait=False)
    wait_status(page, "busy")
    os.kill(pid_of(page), signal.SIGKILL)
    page.wait_state("notLoaded", 60)
    expect(page.tab.locator(".jp-gpumem-card")).to_have_count(0)
    if page.tab.locator(".jp-Dialog").count():
        page.tab.keyboard.press("Escape")
    page.load()


def test_an_interrupt_leaves_the_panel_live(lab, open_page):
    page = open_page(lab, lab.notebook("interrupt.ipynb", [SLEEP]))
    page.load()
    page.record()
    page.run(0, wait=False)
    wait_status(page, "busy")
    page.command("notebook:interrupt-kernel")
    wait_status(page, "idle")
    page.tab.wait_for_function("window.gpumem.filter(m => m.kind === 'cell' && m.run.failed).length === 1")
    seen = len(page.messages("sample"))
    page.tab.wait_for_function("seen => window.gpumem.filter(m => m.kind === 'sample').length > seen + 2", arg=seen)


def test_a_reload_in_the_middle_of_a_cell_shows_figures_before_its_end(lab, open_page):
    page = open_page(lab, lab.notebook("reload.ipynb", ["import time; time.sleep(25)"]))
    page.load()
    page.command("docmanager:save")
    page.run(0, wait=False)
    page.wait_text("cell [1] is running")
    page.tab.reload()
    page.tab.wait_for_selector(".jp-NotebookPanel .jp-Cell", timeout=60_000)
    if page.tab.locator("#jupyter-gpumem-panel").count() == 0 or not page.panel.is_visible():
        page.command("gpumem:open")
    page.wait_text("cell [1] is running")
    assert page.status() != "idle"


def test_opening_the_panel_in_the_middle_of_a_cell_shows_figures_before_its_end(lab, open_page):
    cells = ["%load_ext jupyter_gpumem", "import time; time.sleep(15)"]
    page = open_page(lab, lab.notebook("late.ipynb", cells), panel=False)
    page.run(0)
    page.run(1, wait=False)
    wait_status(page, "busy")
    page.command("gpumem:open")
    page.wait_text("cell [2] is running", 10)
    assert page.status() == "busy", "asking changes no busy mark"


def test_two_tabs_watch_one_kernel(lab, open_page):
    name = lab.notebook("twotabs.ipynb", ["import torch; x = torch.zeros(2**20)"])
    first = open_page(lab, name)
    first.load()
    second = open_page(lab, name, reuse=first.context)
    second.wait_state("ready", 60)
    first.run(0)
    for page in (first, second):
        expect(page.tab.locator(".jp-gpumem-name", has_text="x")).to_have_count(1)
    first.record()
    second.tab.close()
    seen = len(first.messages("sample"))
    first.tab.wait_for_function("seen => window.gpumem.filter(m => m.kind === 'sample').length > seen + 2", arg=seen)


def test_a_console_on_the_same_kernel(lab, open_page):
    page = open_page(lab, lab.notebook("console.ipynb", ["x = 1"]))
    page.load()
    kernel = page.kernel_id()
    page.command("notebook:create-console")
    page.tab.wait_for_selector(".jp-CodeConsole")
    page.wait_state("ready")
    assert page.kernel_id() == kernel
    expect(page.tab.locator(".jp-gpumem-card")).to_have_count(1)


def test_two_notebooks_and_a_change_of_kernel(lab, open_page):
    """Each notebook has its own figures; what one kernel answers late is not shown for the other."""
    lab.notebook("second.ipynb", ["import torch; second = torch.zeros(2**21)"])
    page = open_page(lab, lab.notebook("first.ipynb", ["import torch; first = torch.zeros(2**20)"]))
    page.load()
    page.run(0)
    expect(page.tab.locator(".jp-gpumem-name", has_text="first")).to_have_count(1)
    page.command("docmanager:open", {"path": "second.ipynb"})
    page.load()
    page.run(0)
    expect(page.tab.locator(".jp-gpumem-name", has_text="second")).to_have_count(1)
    expect(page.tab.locator(".jp-gpumem-name", has_text="first")).to_have_count(0)
    page.command("docmanager:open", {"path": "first.ipynb"})
    expect(page.tab.locator(".jp-gpumem-name", has_text="first")).to_have_count(1)
    before = page.kernel_id()
    page.tab.evaluate("window.jupyterapp.shell.currentWidget.sessionContext.changeKernel({name: 'plain'})")
    page.tab.wait_for_function("before => window.jupyterapp.shell.currentWidget.sessionContext.session?.kernel?.id !== before", arg=before)
    page.wait_state("notLoaded", 60)
    expect(page.tab.locator(".jp-gpumem-name")).to_have_count(0)


def test_a_renamed_notebook_is_known_by_its_new_name(lab, open_page):
    page = open_page(lab, lab.notebook("oldname.ipynb", ["1"]))
    page.load()
    who = page.tab.locator(".jp-gpumem-processes")
    expect(who).to_contain_text("oldname.ipynb")
    page.tab.evaluate("window.jupyterapp.shell.currentWidget.context.rename('newname.ipynb')")
    expect(who).to_contain_text("newname.ipynb", timeout=20_000)


def test_shutting_a_kernel_down_from_the_panel_asks_first(lab, open_page):
    page = open_page(lab, lab.notebook("shutdown.ipynb", ["1"]))
    page.load()
    kernel = page.kernel_id()
    button = page.tab.get_by_role("button", name="Shut down the kernel of shutdown.ipynb")
    button.click()
    page.tab.locator(".jp-Dialog").get_by_role("button", name="Cancel").click()
    assert any(one["id"] == kernel for one in lab.get("/api/kernels"))
    button.click()
    page.tab.locator(".jp-Dialog").get_by_role("button", name="Shut down").click()
    page.wait_state("noKernel")
    assert not any(one["id"] == kernel for one in lab.get("/api/kernels"))


def test_a_hidden_panel_leaves_the_kernel_in_peace(lab, open_page):
    page = open_page(lab, lab.notebook("hidden.ipynb", ["1"]))
    page.load()
    page.record()
    page.tab.wait_for_function("window.gpumem.length > 2")
    page.tab.evaluate("window.jupyterapp.shell.collapseRight()")
    # a message on its way may still come; then several intervals pass without one
    page.tab.wait_for_function(
        "() => { const last = window.gpumem.at(-1).at; return Date.now() / 1000 - last > 5; }", timeout=30_000
    )
    before = lab.get(f"/api/kernels/{page.kernel_id()}")["last_activity"]
    page.tab.wait_for_function("since => Date.now() - since > 12000", arg=page.tab.evaluate("Date.now()"))
    after = lab.get(f"/api/kernels/{page.kernel_id()}")["last_activity"]
    assert before == after, "the kernel can be culled"
    assert "Host memory" in page.tab.locator(".jp-gpumem-status").inner_text(), "the status bar goes on"
    page.command("gpumem:open")
    seen = len(page.messages("sample"))
    page.tab.wait_for_function("seen => window.gpumem.filter(m => m.kind === 'sample').length > seen", arg=seen)


