"""The fixture ``no_gpu_leak`` in a pytest of its own."""
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HEAVY = ("torch", "IPython", "psutil", "pynvml", "numpy")

HEAD = """
import pytest, torch

def dangle():
    out = torch.ones(1000, requires_grad=True).exp()
    out.grad_fn.register_hook(lambda *grads, keep=out: None)
"""


def run(tmp_path, source):
    """What a pytest says that loads the plugin by name, as its entry point would."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_it.py").write_text(HEAD + source)
    bare = "import sys; sys.path.insert(0, sys.argv.pop(1)); import pytest; sys.exit(pytest.main(sys.argv[1:]))"
    plugins = ["-p", "no:cacheprovider", "-p", "jupyter_gpumem.pytest_plugin"]
    if "jupyter_gpumem" in installed_plugins():
        plugins = plugins[:2]
    done = subprocess.run(
        [sys.executable, "-c", bare, str(ROOT), "-rA", "-q", *plugins, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
    )
    return done.stdout + done.stderr


def installed_plugins():
    from importlib.metadata import entry_points

    return {point.name for point in entry_points(group="pytest11")}


def test_a_test_that_leaves_nothing_passes(tmp_path):
    out = run(tmp_path, """
def test_clean(no_gpu_leak, tmp_path):
    kept = torch.zeros(1000)
    assert kept.sum() == 0

def test_rounds(no_gpu_leak):
    for _ in range(5):
        last = torch.zeros(1000)
        no_gpu_leak.round()
""")
    assert "2 passed" in out


def test_what_dangles_fails_the_test_that_made_it(tmp_path):
    out = run(tmp_path, """
def test_first(no_gpu_leak):
    dangle()

def test_second(no_gpu_leak):
    pass
""")
    assert "ERROR test_it.py::test_first" in out
    assert "2 passed, 1 error" in out
    assert "2 storages made in test_first, 7.8 KiB, still there" in out
    assert "cycle through C++" in out


def test_rounds_that_grow_fail(tmp_path):
    out = run(tmp_path, """
def test_grows(no_gpu_leak):
    kept = []
    for _ in range(4):
        kept.append(torch.zeros(1000))
        no_gpu_leak.round()
""")
    assert "leak in 3 rounds of test_grows" in out
    assert "'kept'[·]" in out
    assert "1 error" in out


def test_a_failure_of_its_own_is_not_covered(tmp_path):
    out = run(tmp_path, """
def test_fails(no_gpu_leak):
    dangle()
    no_gpu_leak.round()
    assert 1 == 2

@pytest.mark.xfail
def test_expected(no_gpu_leak):
    dangle()
    assert 1 == 2

def test_skips(no_gpu_leak):
    dangle()
    pytest.skip("no")
""")
    assert "1 failed, 1 skipped, 1 xfailed" in out
    assert "assert 1 == 2" in out
    assert "LeakError" not in out


def test_the_plugin_is_light():
    code = f"import pytest\nbefore = set({HEAVY}) & set(__import__('sys').modules)\nimport jupyter_gpumem.pytest_plugin, sys\nprint(sorted((set({HEAVY}) & set(sys.modules)) - before), 'jupyter_gpumem.actions' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == ["[]", "False"]
