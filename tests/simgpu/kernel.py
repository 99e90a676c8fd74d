"""A kernel on a machine with simulated GPUs: ``python -m simgpu.kernel -f connection.json``, or a kernelspec of it.

    python -m simgpu.kernel install FOLDER     writes a kernelspec into FOLDER and prints how to use it
"""
from __future__ import annotations

import json
import os
import sys
from pathlib import Path

_TESTS = Path(__file__).resolve().parents[1]
MACHINE = """\
system driver=550.54.15
gpu 0 name="Simulated GPU 0" total=2G reserved=64M util=0 temp=41 power=72000
gpu 1 name="Simulated GPU 1" total=2G reserved=64M util=0 temp=38 power=55000
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
        "SIMGPU_DEVICES": "2",
        "SIMGPU_MEM_MB": str(2048 - 64),
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
    from ipykernel import kernelapp

    kernelapp.launch_new_instance()


if __name__ == "__main__":
    main()
