"""Fixtures of the whole suite: simulated hardware, processes on it, and the watch that nothing of ours stays behind."""
from __future__ import annotations

import atexit
import gc
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

TESTS = Path(__file__).resolve().parent
sys.path.insert(0, str(TESTS))

from building import CompilerMissing  # noqa: E402


def build_or_skip(*builders):
    """Without a compiler a user's run skips what needs the simulated hardware, CI fails."""
    try:
        for build in builders:
            build()
    except CompilerMissing as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(str(missing))
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def c_compiler():
    """A C compiler, and the mock NVML built with it."""
    import fakenvml

    build_or_skip(fakenvml.build)


@pytest.fixture(scope="session")
def compiler(c_compiler):
    """A C++ compiler, and the simulated devices built with it."""
    import simgpu

    build_or_skip(lambda: simgpu.build(cuda=True), lambda: simgpu.build(cuda=False))


@pytest.fixture
def nvml_machine(tmp_path, monkeypatch, c_compiler):
    """A mock machine whose NVML the pynvml of this process uses: ``.put(text)``, ``.calls()``, ``.use(variant)``.

    Processes that the test starts are on that machine too; with ``nvml_env`` they also find its NVML.
    """
    import fakenvml
    import pynvml

    machine = fakenvml.Machine(tmp_path)
    monkeypatch.setenv("NVML_MOCK_STATE", str(machine.path))
    monkeypatch.setenv("NVML_MOCK_TRACE", str(machine.trace_path))

    def use(variant):
        monkeypatch.setattr(pynvml, "nvmlLib", fakenvml.load(variant))
        pynvml._nvmlGetFunctionPointer_cache.clear()

    use("new")
    machine.use = use
    yield machine
    assert machine.open_count() == 0, "NVML was left initialised"
    pynvml._nvmlGetFunctionPointer_cache.clear()


@pytest.fixture
def nvml_env(nvml_machine):
    """Variables with which another process finds ``nvml_machine`` and its NVML, by the name of the library alone."""
    import fakenvml

    return fakenvml.environment(nvml_machine.path)


PRELUDE = """
import sys
sys.path[:0] = [{tests!r}, {root!r}]
DEVICE = {device!r}
if DEVICE in ("cuda", "simgpu"):
    import simgpu
    simgpu.install(cuda=DEVICE == "cuda")
"""


@pytest.fixture
def run_on(compiler):
    """``run_on("cpu" | "cuda" | "simgpu", source, **env)`` → what the source printed; ``.json`` is its last line.

    A process has one kind of device for life, so each snippet gets a process of its own.
    """

    def run(device, source, **env):
        prelude = PRELUDE.format(tests=str(TESTS), root=str(TESTS.parent), device=device)
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", prelude + source],
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, "SIMGPU_MEM_MB": "256", **env},
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        lines = done.stdout.strip().splitlines()
        try:
            last = json.loads(lines[-1]) if lines else None
        except ValueError:
            last = None
        return SimpleNamespace(out=done.stdout, err=done.stderr, json=last)

    return run


@pytest.fixture
def shell(tmp_path, monkeypatch):
    """A real IPython shell, with its names, hooks and singletons taken away afterwards."""
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    from jupyter_gpumem import session

    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    config = Config()
    config.HistoryManager.hist_file = ":memory:"
    config.InteractiveShell.colors = "NoColor"
    InteractiveShell.clear_instance()
    made = InteractiveShell.instance(config=config)
    saved = dict(vars(sys.modules["builtins"]))
    displayhook, excepthook = sys.displayhook, sys.excepthook
    main = sys.modules["__main__"]
    yield made
    if "jupyter_gpumem" in made.extension_manager.loaded:
        made.extension_manager.unload_extension("jupyter_gpumem")
    session.forget_error(made)  # something may keep the shell, and the next test would see its error
    made.reset(new_session=False)
    atexit.unregister(made.atexit_operations)
    made.atexit_operations()
    InteractiveShell.clear_instance()
    sys.modules["__main__"] = main
    sys.displayhook, sys.excepthook = displayhook, excepthook
    for name in ("get_ipython", "display", "exit", "quit", "_"):
        if name not in saved and hasattr(sys.modules["builtins"], name):
            delattr(sys.modules["builtins"], name)
    for name in ("last_exc", "last_value", "last_traceback", "last_type"):
        if hasattr(sys, name):
            delattr(sys, name)
    gc.collect()


@pytest.fixture(autouse=True)
def leave_no_trace():
    """No thread of ours and no setting of the collector's is changed by a test."""
    enabled, threshold = gc.isenabled(), gc.get_threshold()
    yield
    assert (gc.isenabled(), gc.get_threshold()) == (enabled, threshold)
    ours = [thread for thread in threading.enumerate() if thread.name.startswith("jupyter_gpumem")]
    for thread in ours:
        thread.join(10)
    assert not any(thread.is_alive() for thread in ours), "a thread of ours is left"
