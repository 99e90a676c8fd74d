"""Whose a process is, seen from real processes that are started as Jupyter starts kernels."""
from __future__ import annotations

import os
import subprocess
import sys
import time

import psutil
import pytest

from jupyter_gpumem.devices import owners

GONE = 2**22 - 3
KERNEL = "kernel-0c0ffee0-1234.json"
WAIT = "import sys; sys.stdin.read()"
START = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {wait!r}], stdin=subprocess.PIPE{options})
print(child.pid, flush=True)
sys.stdin.read()
os._exit(0)
"""


@pytest.fixture(autouse=True)
def fresh():
    """Nothing is believed from an earlier test."""
    owners._known.clear()
    owners._kernels.clear()


@pytest.fixture
def start():
    """``start(source, *arguments, **env)`` → a process that leads a session of its own, as kernels do."""
    started = []

    def begin(source, *arguments, leads=True, **env):
        process = subprocess.Popen(
            [sys.executable, "-c", source, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=leads,
            env={**os.environ, **env},
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def look(pid):
    owners._known.clear()
    return owners.read([pid])[0]


def test_a_process_has_its_name_and_its_user():
    owner = look(os.getpid())
    assert (owner.pid, owner.name, owner.user) == (os.getpid(), psutil.Process().name(), psutil.Process().username())


def test_a_kernel_is_known_by_its_connection_file(start):
    process = start(WAIT, "-f", f"/run/user/{KERNEL}", JPY_SESSION_NAME="work/train.ipynb")
    owner = look(process.pid)
    assert (owner.role, owner.kernel, owner.notebook) == ("kernel", "0c0ffee0-1234", "work/train.ipynb")


@pytest.mark.parametrize("argument", [f"--f={KERNEL}", f"C:\\run\\{KERNEL}", KERNEL])
def test_however_the_file_is_passed(start, argument):
    assert look(start(WAIT, argument).pid).kernel == "0c0ffee0-1234"


@pytest.mark.parametrize("argument", ["kernel-.json.bak", "mykernel-1.json", "kernel-a b.json", "kernel.json"])
def test_other_files_make_no_kernel(start, argument):
    assert look(start(WAIT, argument).pid).role == "other"


@pytest.mark.parametrize("options", ["", ", start_new_session=True"], ids=["same session", "session of its own"])
def test_a_child_belongs_to_its_kernel(start, options):
    kernel = start(START.format(wait=WAIT, options=options), KERNEL, JPY_SESSION_NAME="a.ipynb")
    child = int(kernel.stdout.readline())
    owner = look(child)
    assert (owner.role, owner.kernel, owner.notebook) == ("child", "0c0ffee0-1234", "a.ipynb")


def test_a_forked_worker_that_shows_its_kernels_command_line_is_a_child(start):
    fork = "import os, sys\npid = os.fork()\nif pid: print(pid, flush=True)\nsys.stdin.read()"
    kernel = start(fork, KERNEL)
    worker = int(kernel.stdout.readline())
    assert look(kernel.pid).role == "kernel"
    assert (look(worker).role, look(worker).kernel) == ("child", "0c0ffee0-1234")


def test_a_worker_that_outlives_its_kernel_is_an_orphan_with_its_notebook(start):
    kernel = start(START.format(wait=WAIT.replace("stdin.read()", "stdin.read(); import time; time.sleep(60)"), options=""), KERNEL, JPY_SESSION_NAME="a.ipynb")
    child = int(kernel.stdout.readline())
    try:
        assert look(kernel.pid).role == "kernel"
        assert look(child).role == "child"
        kernel.kill()
        kernel.wait()
        owner = look(child)
        assert (owner.role, owner.kernel, owner.notebook) == ("orphan", "0c0ffee0-1234", "a.ipynb")
        owners._kernels.clear()
        owner = look(child)
        assert (owner.role, owner.notebook) == ("orphan", "a.ipynb"), "by the environment where nothing is remembered"
    finally:
        psutil.Process(child).kill()


def test_the_caller_is_no_child_of_a_kernel_by_its_session(start):
    assert look(start(WAIT, leads=False).pid).role == "other"


@pytest.mark.parametrize(("first", "role"), [(True, "ended"), (None, "ended"), (False, "foreign")])
def test_a_process_that_is_gone(monkeypatch, first, role):
    monkeypatch.setattr(owners, "in_first_pid_namespace", lambda: first)
    assert look(GONE).role == role


def test_a_process_that_proc_hides_is_not_called_ended(monkeypatch):
    def forbid(pid, signal):
        raise PermissionError

    monkeypatch.setattr(owners.os, "kill", forbid)
    assert look(GONE).role == "hidden"


def test_a_zombie_has_ended():
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    try:
        assert look(child.pid).role == "ended"
    finally:
        child.wait()


@pytest.mark.parametrize(("opened", "named"), [("/dev/nvidia0", True), ("/dev/nvidiactl", True), ("/dev/null", False), (None, False)])
def test_in_a_container_a_drivers_pid_is_believed_only_if_it_uses_a_gpu(tmp_path, monkeypatch, opened, named):
    """It may be the host's number of somebody else."""
    folder = tmp_path / str(os.getpid()) / "fd"
    folder.mkdir(parents=True)
    if opened:
        (folder / "7").symlink_to(opened)
    monkeypatch.setattr(owners._has_gpu_open, "__defaults__", (tmp_path,))
    monkeypatch.setattr(owners, "in_first_pid_namespace", lambda: False)
    assert (owners.read([os.getpid()], of_gpu=True)[0].role != "foreign") is named
    assert look(os.getpid()).name is not None, "not from a driver: no doubt"


def test_a_user_whose_files_may_not_be_read_still_has_an_owner(monkeypatch):
    def denied(self):
        raise psutil.AccessDenied

    monkeypatch.setattr(psutil.Process, "cmdline", denied)
    monkeypatch.setattr(psutil.Process, "environ", denied)
    owner = look(os.getpid())
    assert owner.name is not None
    assert owner.kernel is None


def test_what_was_found_is_believed_for_a_while_and_then_looked_at_anew(start, monkeypatch):
    now = [time.monotonic()]
    monkeypatch.setattr(owners.time, "monotonic", lambda: now[0])
    process = start(WAIT)
    first = owners.read([process.pid])[0]
    monkeypatch.setattr(owners, "_owner", lambda pid: owners.Owner(pid, "another"))
    assert owners.read([process.pid])[0] == first
    now[0] += owners._BELIEVED
    assert owners.read([process.pid])[0].name == "another"


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(owners, "_owner", lambda pid: owners.Owner(pid))
    for begin in range(1, 20_000, 500):
        owners.read(range(begin, begin + 500))
    assert len(owners._known) <= owners._MOST + 500


def test_the_order_is_that_of_the_ids():
    pids = [os.getpid(), GONE, os.getppid()]
    assert [owner.pid for owner in owners.read(pids)] == pids
