"""The main job in a real kernel."""
from __future__ import annotations

import json
import os
import sys

import pytest

pytestmark = pytest.mark.kernel
ALLOCATED = "__import__('torch').cuda.memory_allocated()"


def test_loading_imports_no_framework_and_no_driver(kernel):
    kernel.good("%load_ext jupyter_gpumem")
    heavy = ["torch", "pynvml", "plotly", "ipywidgets", "numpy"]
    assert kernel.value(f"[m for m in {heavy!r} if m in __import__('sys').modules]") == []


def test_snapshot_is_text_and_html(kernel):
    kernel.good("%load_ext jupyter_gpumem")
    kernel.good("import torch\nweights = torch.ones(1 << 18)")
    got = kernel.good("%gpumem")
    assert "weights" in got.text
    assert "1.0 MiB" in got.text
    html = got.bundles[0]["text/html"]
    assert "weights" in html
    assert "<script" not in html


def test_wrapped_cell_awaits_and_keeps_its_value(kernel):
    kernel.good("%load_ext jupyter_gpumem")
    got = kernel.good("%%gpumem\nimport asyncio\nawait asyncio.sleep(0)\n'a value'")
    assert "'a value'" in got.text
    assert "cell [" in got.text


def test_failing_wrapped_cell_fails_on_its_own_line(kernel):
    kernel.good("%load_ext jupyter_gpumem")
    got = kernel.run("%%gpufree\nx = 1\n1 / 0")
    assert got.reply["status"] == "error"
    assert got.reply["ename"] == "ZeroDivisionError"
    assert "> 3 1 / 0" in got.traceback


def test_interrupt_in_a_wrapped_cell(kernel):
    kernel.good("%load_ext jupyter_gpumem")
    waiting = "%%gpufree\nimport time\nheld = __import__('torch').ones(1 << 18)\nprint('started', flush=True)\n"
    msg_id = kernel.send(waiting + "while True:\n    time.sleep(0.01)")
    while True:  # until the cell runs
        message = kernel.client.get_iopub_msg(timeout=60)
        if message["msg_type"] == "stream" and "started" in message["content"]["text"]:
            break
    kernel.manager.interrupt_kernel()
    got = kernel.wait(msg_id)
    assert got.reply["ename"] == "KeyboardInterrupt"
    assert "delete name held" in got.text
    assert kernel.value("'held' in globals()") is False


def test_silent_cells_say_nothing(kernel):
    kernel.good("%load_ext jupyter_gpumem")
    kernel.good("%gpumem on")
    got = kernel.run("1 + 1", silent=True)
    assert got.text == ""
    kernel.good("%gpumem off")


def test_completion_of_names_and_flags(kernel):
    kernel.good("%load_ext jupyter_gpumem")
    kernel.good("a_long_name = 1")

    def complete(text):
        msg_id = kernel.client.complete(text, len(text))
        while True:
            reply = kernel.client.get_shell_msg(timeout=60)
            if reply["parent_header"].get("msg_id") == msg_id:
                return reply["content"]["matches"]

    assert "a_long_name" in complete("%gpufree a_lo")
    assert "--keep-output" in complete("%gpufree --keep")
    assert "--dry-run" in complete("%%gpufree --dr")


def test_help_is_the_parsers_own(kernel):
    kernel.good("%load_ext jupyter_gpumem")
    got = kernel.run("%gpufree?")
    shown = str(got.reply.get("payload"))
    assert "--keep-traceback" in shown
    assert "usage: %gpufree" in shown


def test_mistyped_flag_shows_usage_and_runs_nothing(kernel):
    kernel.good("%load_ext jupyter_gpumem")
    got = kernel.run("%%gpufree --kep a\nran = True")
    assert got.reply["status"] == "error"
    assert "did you mean --keep?" in got.text + got.traceback
    assert "Traceback" not in got.text + got.traceback
    assert kernel.value("'ran' in globals()") is False


def test_other_magics_work_as_before(kernel, tmp_path):
    kernel.good("%load_ext jupyter_gpumem")
    (tmp_path / "script.py").write_text("from_script = 5\n")
    kernel.good(f"%run {tmp_path / 'script.py'}")
    assert kernel.value("from_script") == 5
    kernel.good("stored = 7\n%store stored")
    kernel.good("%gpufree")
    kernel.good("del stored\n%store -r stored")
    assert kernel.value("stored") == 7
    kernel.good("%load_ext autoreload\n%autoreload 2")
    (tmp_path / "fresh.py").write_text("def answer():\n    return 1\n")
    kernel.good(f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nimport fresh")
    kernel.good("%%gpumem\nassert fresh.answer() == 1")
    (tmp_path / "fresh.py").write_text("def answer():\n    return 20 + 2\n")
    kernel.good("%%gpumem\nassert fresh.answer() == 22")
    for mode in ("Plain", "Verbose", "Minimal", "Context"):
        kernel.good(f"%xmode {mode}")
        got = kernel.run("%%gpufree\ndef f(a):\n    return 1 / a\nf(0)")
        assert got.reply["ename"] == "ZeroDivisionError"
    kernel.good("%gpufree")


def test_postmortem_needs_the_kept_traceback(kernel):
    kernel.good("%load_ext jupyter_gpumem\nimport torch")
    failing = "def broken():\n    inside = torch.ones(1 << 18)\n    raise ValueError('x')\nbroken()"
    kernel.run("%%gpufree --keep-traceback\n" + failing)
    local = "__import__('sys').last_value.__traceback__.tb_next.tb_next.tb_frame.f_locals"
    assert kernel.value(f"'inside' in ({local} or {{}})") or kernel.value(
        "'inside' in __import__('sys').last_value.__traceback__.tb_next.tb_frame.f_locals"
    )
    kernel.run("%%gpufree\n" + failing)
    assert kernel.value("hasattr(__import__('sys'), 'last_value')") is False
    kernel.good("%gpufree")


def test_two_notebooks_fill_one_gpu_and_each_sees_the_other(cuda_kernel):
    cuda_kernel.good("%load_ext jupyter_gpumem\nimport torch")
    cuda_kernel.good("a = torch.ones(25 << 20, device='cuda')")
    other = (
        "import subprocess, sys; done = subprocess.run([sys.executable, '-W', 'ignore', '-c', '''"
        "import simgpu; simgpu.install(cuda=True); import torch; b = torch.ones(5 << 20, device=\"cuda\")\n"
        "import jupyter_gpumem\n"
        "for d in jupyter_gpumem.snapshot().devices[:1]: print(len(d.processes), d.used >> 20)'''],"
        " capture_output=True, text=True); print(done.stdout, done.stderr[-500:])"
    )
    got = cuda_kernel.good(other)
    assert got.text.split()[:2] == ["2", str(100 + 64 + 20 + 64)]
    cuda_kernel.good("%gpufree a")


def test_out_of_memory_and_back(cuda_kernel):
    cuda_kernel.good("%load_ext jupyter_gpumem\nimport torch\n%config GPUMem.after_error = 'off'")
    cuda_kernel.good("def step(mib):\n    acts = [torch.ones(mib << 18, device='cuda')]\n"
                     "    while True:\n        acts.append(acts[-1] * 2)")
    cuda_kernel.good("weights = torch.ones(1 << 20, device='cuda')")
    got = cuda_kernel.run("step(256)")
    assert got.reply["ename"] == "OutOfMemoryError"
    assert cuda_kernel.value(ALLOCATED) > 1 << 30
    shown = cuda_kernel.good("%gpumem")
    assert "step()" in shown.text
    assert "cuda:0" in shown.text
    freed = cuda_kernel.good("%gpufree")
    assert "back to the driver" in freed.text
    assert cuda_kernel.value(ALLOCATED) == 4 << 20
    assert cuda_kernel.value("float(weights.sum())") == float(1 << 20)


def test_wrapped_cell_gives_back_what_it_made(cuda_kernel):
    cuda_kernel.good("%load_ext jupyter_gpumem\nimport torch")
    before = cuda_kernel.value(ALLOCATED)
    got = cuda_kernel.good(
        "%%gpufree --keep kept\n"
        "kept = torch.ones(1 << 18, device='cuda')\n"
        "net = torch.nn.Linear(512, 512, device='cuda')\n"
        "out = net(torch.ones(64, 512, device='cuda'))\n"
        "loss = out.square().mean(); loss.backward()\n"
        "history = {'loss': float(loss), 'out': out}\n"
        "score = 3\n"
        "out"
    )
    assert "delete name net" in got.text
    assert "move to host history" in got.text
    assert cuda_kernel.value("(score, history['out'].device.type, 'net' in globals())") == (3, "cpu", False)
    assert cuda_kernel.value(ALLOCATED) - before == 1 << 20
    assert "freed at" in cuda_kernel.value("repr(_)")
    cuda_kernel.good("%gpufree kept")


def test_nbclient_sees_the_failure(tmp_path):
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    cells = ["%load_ext jupyter_gpumem", "%%gpufree\nx = 1\n1 / 0", "never = 1"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    spec = tmp_path / "kernels" / "tested"
    spec.mkdir(parents=True)
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec.joinpath("kernel.json").write_text(json.dumps({"argv": argv, "display_name": "t", "language": "python"}))
    os.environ["JUPYTER_PATH"] = str(tmp_path)
    try:
        client = NotebookClient(notebook, kernel_name="tested", timeout=120)
        with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
            client.execute()
    finally:
        del os.environ["JUPYTER_PATH"]
    assert notebook.cells[2].execution_count is None


def test_unloading_leaves_nothing(kernel):
    kernel.good("%load_ext jupyter_gpumem")
    kernel.good("%unload_ext jupyter_gpumem")
    ours = (
        "[str(c) for e in get_ipython().events.callbacks.values() for c in e if 'gpumem' in str(c)]"
        " + [str(t) for t in get_ipython().input_transformers_cleanup if 'gpumem' in str(t)]"
    )
    assert kernel.value(ours) == []
    assert kernel.run("%gpumem").reply["status"] == "error"
    kernel.good("%load_ext jupyter_gpumem")
