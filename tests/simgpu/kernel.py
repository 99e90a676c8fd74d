"""A kernel on a machine with simulated GPUs: ``python -m simgpu.kernel -f connection.json``, or a kernelspec of it.

torch is not imported before the user does: what a bare kernel is not, this one is not either.

    python -m simgpu.kernel install FOLDER     writes a kernelspec into FOLDER and prints how to use it
"""
from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path

_TESTS = Path(__file__).resolve().parents[1]
MACHINE = """\
system driver=550.54.15
gpu 0 name="Simulated GPU 0" uuid=GPU-51000000-0000-4000-8000-000000000000 total=2G reserved=64M temp=41 power=72000
gpu 1 name="Simulated GPU 1" uuid=GPU-51000000-0000-4000-8000-000000000001 total=2G reserved=64M temp=38 power=55000
"""


def environment(folder: Path) -> dict[str, str]:
    """Variables for a process on a machine with two simulated GPUs of 2 GiB, whose state lies in ``folder``."""
    sys.path.insert(0, str(_TESTS))
    import fakenvml

    folder.mkdir(parents=True, exist_ok=True)
    machine = fakenvml.Machine(folder)
    if not machine.path.exists():
        machine.put(MACHINE)
    path = os.pathsep.join(filter(None, [str(_TESTS), os.environ.get("PYTHONPATH", "")]))
    return {
        **fakenvml.environment(machine.path),
        "PYTHONPATH": path,
        "SIMGPU_CONTEXT_MB": "64",
    }


def write_kernelspec(folder: Path, state: Path) -> Path:
    """A kernelspec ``simgpu`` below ``folder``, which then belongs into ``JUPYTER_PATH``."""
    spec = folder / "kernels" / "simgpu"
    spec.mkdir(parents=True, exist_ok=True)
    text = {
        "argv": [sys.executable, "-m", "simgpu.kernel", "-f", "{connection_file}"],
        "display_name": "Python 3 with simulated GPUs",
        "language": "python",
        "env": environment(state),
    }
    (spec / "kernel.json").write_text(json.dumps(text, indent=1))
    return spec


def main() -> None:
    if sys.argv[1:2] == ["install"]:
        folder = Path(sys.argv[2]).resolve()
        print(write_kernelspec(folder, folder / "machine"))
        return
    from simgpu import late

    late.arm()
    # the very start of a kernel, which also keeps the files beside the notebook from hiding modules that it needs
    runpy.run_module("ipykernel_launcher", run_name="__main__")


if __name__ == "__main__":
    main()
