"""The machines that people have, and what goes wrong with them while the panel is open."""
from __future__ import annotations

import os

import fakenvml
import pytest
from labserver import LabServer

A = 'gpu 0 name="NVIDIA A100" uuid=GPU-a total=80G reserved=600M used=20G util=35 temp=41 power=72000\n'
B = 'gpu 1 name="NVIDIA B200" uuid=GPU-b total=180G reserved=600M used=3G util=1 temp=30 power=52000\n'
MIG = (
    'gpu 0 name="NVIDIA A100" uuid=GPU-a total=80G used=20G util=NA mig=1 maxmig=7\n'
    'mig 0 0 uuid=MIG-a name="NVIDIA A100 MIG 1g.10gb" gi=1 ci=0 total=10G used=1G\n'
    'mig 0 1 uuid=MIG-b name="NVIDIA A100 MIG 2g.20gb" gi=2 ci=0 total=20G used=12G\n'
)
INIT = "fault fn=nvmlInit* code={}\n"
MATRIX = {
    "a healthy machine again": (A + B, ["GPU 0", "GPU 1", "20.0 / 80.0 GiB", "load 35 %", "41 °C", "72 W"]),
    "driver not loaded": (A + INIT.format("DRIVER_NOT_LOADED"), ["Host memory", "The NVIDIA driver is not loaded."]),
    "no permission": (A + INIT.format("NO_PERMISSION"), ["Host memory", "/dev/nvidiactl"]),
    "driver updated under a running one": (A + INIT.format("LIB_RM_VERSION_MISMATCH"), ["Host memory", "reboot"]),
    "container lost its GPUs": (A + INIT.format("UNKNOWN"), ["Host memory", "This container lost its GPUs"]),
    "no device": ("system driver=550.54.15\n", ["Host memory", "lists no GPU"]),
    "one GPU is lost and the other goes on": (A + B + "fault fn=* dev=0 code=GPU_IS_LOST\n", ["fallen off the bus", "3.0 / 180.0 GiB"]),
    "a GPU that must be reset": (A + "fault fn=* dev=0 code=RESET_REQUIRED\n", ["must be reset"]),
    "unified memory": ('gpu 0 name="NVIDIA GB10" uuid=GPU-a total=NA util=5 temp=50 power=9000\nproc 0 pid={pid} used=19G\n', ["Unified memory", "19.0", "50 °C"]),
    "no utilisation (WSL)": (A.replace("util=35", "util=NA"), ["load N/A", "41 °C", "72 W"]),
    "no temperature": (A.replace("temp=41", "temp=NA"), ["load 35 %", "N/A", "72 W"]),
    "no power": (A.replace("power=72000", "power=NA"), ["load 35 %", "41 °C", "N/A"]),
    "processes without figures (Windows)": (A + "proc 0 pid={pid} used=NA\n", ["does not say how much memory each process holds", "20.0 / 80.0 GiB"]),
    "a list that names nobody": (A, ["unattributed", "nobody that can be seen"]),
    "MIG": (MIG, ["GPU 0 · MIG 0", "GPU 0 · MIG 1", "12.0 / 20.0 GiB"]),
    "MIG parent without permission": (
        MIG + "fault fn=nvmlDeviceGetMemoryInfo* dev=0 code=NO_PERMISSION\n",
        ["No permission to read the whole GPU", "GPU 0 · MIG 1", "12.0 / 20.0 GiB"],
    ),
    "MIG instances made anew": (MIG.replace("MIG-b", "MIG-c").replace("used=12G", "used=7G"), ["7.0 / 20.0 GiB"]),
    "an old consumer card": (A + "fault fn=nvmlDeviceGetUtilizationRates code=NOT_SUPPORTED\nfault fn=nvmlDeviceGetComputeRunningProcesses* code=NOT_SUPPORTED\nfault fn=nvmlDeviceGetGraphicsRunningProcesses* code=NOT_SUPPORTED\n", ["load N/A", "unattributed"]),
    "a call that hangs": (A + "delay fn=nvmlDeviceGetMemoryInfo* ms=4000\n", ["the driver may be stuck"]),
}


@pytest.fixture(scope="module")
def fast(tmp_path_factory, compiler):
    """A server whose panel samples five times a second, and the machine of its kernels."""
    from simgpu import kernel as simulated

    home = tmp_path_factory.mktemp("machines")
    simulated.write_kernelspec(home / "data", home / "machine")
    server = LabServer(home, settings={"jupyter-gpumem:plugin": {"interval": 200, "alertAt": 80, "notify": True}})
    server.machine = fakenvml.Machine(home / "machine")
    yield server
    server.stop()


@pytest.fixture
def page(fast, open_page, request):
    from simgpu import kernel as simulated

    fast.machine.put(simulated.MACHINE)
    made = open_page(fast, fast.notebook(f"{request.node.name}.ipynb", ["1"], "simgpu"))
    made.load()
    return made


def test_the_fault_matrix_live(fast, page):
    """The panel says each as it comes, is never blank, and the log gets no line a poll."""
    page.tab.evaluate(
        """() => {
            window.blanks = 0;
            const panel = document.querySelector('#jupyter-gpumem-panel');
            new MutationObserver(() => { window.blanks += panel.querySelector('.jp-gpumem-card') ? 0 : 1; })
                .observe(panel, {childList: true, subtree: true});
        }"""
    )
    logged = len(fast.log_path.read_text().splitlines())
    for what, (text, said) in MATRIX.items():
        fast.machine.put(text.format(pid=os.getpid()))
        for words in said:
            try:
                page.wait_text(words, 15)
            except Exception as error:
                raise AssertionError(f"{what}: {words!r} is not said in: {page.text()}") from error
        fast.machine.put(A + B)
        page.wait_text("3.0 / 180.0 GiB", 30)
    assert page.tab.evaluate("window.blanks") == 0
    lines = [line for line in fast.log_path.read_text().splitlines()[logged:] if "gpumem" in line or "NVML" in line]
    assert len(lines) <= len(MATRIX), lines


def test_a_driver_that_goes_and_comes_back(fast, page):
    fast.machine.path.rename(fast.machine.path.with_suffix(".away"))
    page.wait_text("The NVIDIA driver is not loaded.")
    fast.machine.put(A)
    page.wait_text("NVIDIA A100")


def test_eight_gpus_are_readable_in_a_narrow_panel(fast, page):
    fast.machine.put("".join(f'gpu {i} name="NVIDIA H100 80GB HBM3" uuid=GPU-{i} total=80G used={10 * i}G\n' for i in range(8)))
    page.wait_text("GPU 7")
    cards = page.tab.locator(".jp-gpumem-card")
    assert cards.count() == 8
    page.panel.evaluate("node => { node.style.width = node.style.minWidth = '260px'; }")
    for index in range(8):
        head = cards.nth(index).locator(".jp-gpumem-cardHead")
        assert head.get_attribute("aria-expanded") == "false"
        title, used = head.locator(".jp-gpumem-cardTitle"), head.locator(".jp-gpumem-cardUsed")
        for part in (title, used):
            assert part.evaluate("node => node.scrollWidth <= node.clientWidth + 1"), "nothing is cut off"
    cards.nth(3).locator(".jp-gpumem-cardHead").click()
    assert "unattributed" in cards.nth(3).inner_text()


def test_a_full_gpu_is_pointed_out(fast, page):
    fast.machine.put(A.replace("used=20G", "used=75G"))
    page.wait_text("of the memory is used")
    assert page.tab.locator(".jp-gpumem-card[data-alert]").count() == 1
    page.tab.wait_for_selector(".Toastify__toast", timeout=15_000)
    fast.machine.put(A)
    page.wait_no_text("of the memory is used")


def test_names_of_machines_and_processes_are_text(fast, page):
    fast.machine.put(A.replace("NVIDIA A100", "<img src=x onerror=window.pwned=1>"))
    page.wait_text("<img src=x")
    assert page.tab.evaluate("window.pwned") is None
    assert page.panel.locator("img").count() == 0
