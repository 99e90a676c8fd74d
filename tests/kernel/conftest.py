"""A real kernel of the Python that runs the tests."""
from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]


class Kernel:
    """A running kernel: ``run(code)`` gives the reply, the text and the displayed bundles."""

    def __init__(self, argv, env):
        from jupyter_client.kernelspec import KernelSpec
        from jupyter_client.manager import KernelManager

        self.manager = KernelManager()
        self.manager._kernel_spec = KernelSpec(argv=argv, language="python", display_name="test")
        self.manager.start_kernel(env=env)
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=120)

    def send(self, code, **options):
        # with stop_on_error a kernel aborts what comes within a moment of a failing cell
        return self.client.execute(code, stop_on_error=False, **options)

    def run(self, code, **options):
        return self.wait(self.send(code, **options))

    def wait(self, msg_id):
        got = Result()
        while True:
            message = self.client.get_iopub_msg(timeout=120)
            if message["parent_header"].get("msg_id") != msg_id:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "stream":
                got.text += content["text"]
            elif kind in ("display_data", "execute_result"):
                got.bundles.append(content["data"])
                got.text += content["data"].get("text/plain", "") + "\n"
            elif kind == "error":
                got.traceback = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(content["traceback"]))
            elif kind == "status" and content["execution_state"] == "idle":
                break
        while True:
            reply = self.client.get_shell_msg(timeout=120)
            if reply["parent_header"].get("msg_id") == msg_id:
                got.reply = reply["content"]
                return got

    def good(self, code):
        got = self.run(code)
        assert got.reply["status"] == "ok", got.traceback
        return got

    def value(self, expression):
        """The value of an expression, without a trace in the kernel's outputs."""
        got = self.wait(self.send("pass", user_expressions={"it": expression}, store_history=False))
        answer = got.reply["user_expressions"]["it"]
        assert answer["status"] == "ok", answer
        return eval(answer["data"]["text/plain"], {})

    def stop(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


class Result:
    def __init__(self):
        self.text, self.bundles, self.traceback, self.reply = "", [], "", {}


def environment(tmp_path):
    path = os.pathsep.join([str(TESTS), str(TESTS.parent)])
    return {**os.environ, "PYTHONPATH": path, "IPYTHONDIR": str(tmp_path / "ipython"), "PYTHONWARNINGS": "ignore"}


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    """A kernel that looks at host memory."""
    env = environment(tmp_path_factory.mktemp("kernel"))
    started = Kernel([sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"], env)
    yield started
    started.stop()


@pytest.fixture(scope="module")
def cuda_kernel(tmp_path_factory, compiler):
    """A kernel on a machine with two simulated GPUs of 2 GiB."""
    from simgpu import kernel as simulated

    folder = tmp_path_factory.mktemp("cuda_kernel")
    env = {**environment(folder), **simulated.environment(folder / "machine")}
    env["PYTHONPATH"] = os.pathsep.join([str(TESTS), str(TESTS.parent)])
    started = Kernel([sys.executable, "-m", "simgpu.kernel", "-f", "{connection_file}"], env)
    yield started
    started.stop()
