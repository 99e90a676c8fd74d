"""Out of memory in a real kernel with a simulated GPU: the cell fails as it did, the memory is back, a retry goes on."""
from __future__ import annotations

import pytest

pytestmark = pytest.mark.kernel
ALLOCATED = "__import__('torch').cuda.memory_allocated()"
MIB = 1 << 20
STEP = """
def step(n):
    held = []
    for _ in range(8):
        held.append(torch.zeros(n, 1 << 20, dtype=torch.uint8, device="cuda"))
    return len(held)
"""


@pytest.fixture
def gpu(cuda_kernel):
    cuda_kernel.good("%load_ext jupyter_gpumem\n%config GPUMem.after_error = 'oom'\nimport torch")
    cuda_kernel.good("%reset -f out\n%gpufree")
    cuda_kernel.good(STEP)
    return cuda_kernel


WAYS = {
    "plain": "step(500)",
    "awaited": "import asyncio\nawait asyncio.sleep(0)\nstep(500)",
    "raised from another": "try:\n    step(500)\nexcept Exception as e:\n    raise RuntimeError('training failed') from e",
    "in the context": "try:\n    step(500)\nexcept Exception:\n    raise RuntimeError('training failed')",
    "under time": "%%time\nstep(500)",
    "measured": "%%gpumem\nstep(500)",
    "cleaned": "%%gpufree\nstep(500)",
    "in a future": "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(1) as pool:\n    pool.submit(step, 500).result()",
}


@pytest.mark.parametrize("cell", WAYS.values(), ids=WAYS)
def test_the_memory_is_back_after_the_cell(gpu, cell):
    before = gpu.value(ALLOCATED)
    got = gpu.run(cell)
    assert "out of memory" in got.traceback or "training failed" in got.traceback
    if cell == WAYS["under time"] and got.reply["status"] == "ok":
        gpu.good("%gpufree")  # older IPython shows the error inside the magic, and the cell succeeds
    else:
        assert got.reply["status"] == "error"
    assert "held" not in gpu.value("list(globals())")
    assert gpu.value(ALLOCATED) == before


def test_the_verdict_stands_below_the_traceback(gpu):
    got = gpu.run("step(500)")
    assert "step(" in got.traceback
    assert "500.0 MiB" in got.text
    assert "given back" in got.text


def test_what_a_name_holds_stays(gpu):
    gpu.good("mine = torch.ones(1 << 18, device='cuda')")
    gpu.run("step(500)")
    assert gpu.value("int(mine.sum())") == 1 << 18
    gpu.good("%gpufree mine")


def test_an_error_that_the_user_keeps_stays(gpu):
    got = gpu.run("try:\n    step(500)\nexcept Exception as e:\n    kept = e\n    raise")
    assert got.reply["status"] == "error"
    assert gpu.value(ALLOCATED) >= 1000 * MIB
    gpu.good("%gpufree kept\n%gpufree")


def test_other_errors_keep_their_frames_unless_asked(gpu):
    failing = "def fail():\n    x = torch.zeros(1 << 20, device='cuda')\n    1 / 0\nfail()"
    before = gpu.value(ALLOCATED)
    gpu.run(failing)
    assert gpu.value(ALLOCATED) > before
    gpu.good("%config GPUMem.after_error = 'any'")
    got = gpu.run(failing)
    assert got.reply["ename"] == "ZeroDivisionError"
    assert gpu.value(ALLOCATED) == before


def test_off_and_keep_traceback_leave_the_error_alone(gpu):
    gpu.run("%%gpumem --keep-traceback\nstep(500)")
    assert gpu.value(ALLOCATED) >= 1000 * MIB
    gpu.good("%gpufree\n%config GPUMem.after_error = 'off'")
    got = gpu.run("step(500)")
    assert got.text == ""
    assert gpu.value(ALLOCATED) >= 1000 * MIB
    gpu.good("%gpufree")


def test_a_dead_context_is_told_and_left_alone(gpu):
    got = gpu.run("raise RuntimeError('CUDA error: device-side assert triggered\\nCUDA kernel errors might be asynchronously reported')")
    assert got.reply["status"] == "error"
    assert "restart" in got.text


def test_a_retry_ends_with_the_size_that_fits(gpu):
    got = gpu.good("%%gpufree --retry 3 --halve n\nn = 600\nstep(n)\nn")
    assert got.traceback == ""
    assert "with n=150 went through" in got.text
    assert gpu.value("n") == 150
    assert gpu.value("Out[max(Out)]") == 150


def test_an_interrupt_ends_the_tries(gpu):
    msg_id = gpu.send("%%gpufree --retry 3 --halve n\nn = 4\nimport time\nprint('started', flush=True)\nwhile True:\n    time.sleep(0.01)")
    while True:
        message = gpu.client.get_iopub_msg(timeout=60)
        if message["msg_type"] == "stream" and "started" in message["content"]["text"]:
            break
    gpu.manager.interrupt_kernel()
    assert gpu.wait(msg_id).reply["ename"] == "KeyboardInterrupt"
    assert gpu.value("[n for n in globals() if 'gpumem' in n]") == []
