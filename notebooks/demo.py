"""Executes the quickstart, or another notebook of this folder, as a person would, prints what they would see, and says
how to open it in JupyterLab.

On a machine with a GPU that torch can use the notebook runs there; elsewhere on a simulated GPU, or, where there is no
C++ compiler to build that, on host memory.
"""
from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent


def kernel(choice: str, build_in: Path) -> str:
    """Write a kernelspec for the wanted machine into a folder and return its name."""
    sys.path.insert(0, str(ROOT / "tests"))
    from jupyter_gpumem import devices

    if choice == "auto" and devices.read().devices:
        choice = "real"
    if choice in ("auto", "simulated"):
        try:
            from building import CompilerMissing
            from simgpu import build
            from simgpu.kernel import write_kernelspec

            print("Building the simulated GPU (once, 15 s) …", flush=True)
            build(cuda=True)
            write_kernelspec(build_in, build_in / "machine")
            return "simgpu"
        except CompilerMissing as missing:
            print(f"{missing}; going on with host memory")
    spec = build_in / "kernels" / "plain"
    spec.mkdir(parents=True, exist_ok=True)
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    text = {"argv": argv, "display_name": "Python 3", "language": "python"}
    spec.joinpath("kernel.json").write_text(json.dumps(text))
    return "plain"


def execute(notebook: Path, name: str, build_in: Path) -> nbformat.NotebookNode:
    """The notebook, run in a kernel of that name."""
    os.environ["JUPYTER_PATH"] = str(build_in)
    # the kernel finds the package and the simulated GPU; its cells must not depend on the machine's own settings
    os.environ["IPYTHONDIR"] = str(build_in / "ipython")
    node = nbformat.read(notebook, as_version=4)
    NotebookClient(node, kernel_name=name, timeout=300, resources={"metadata": {"path": str(build_in)}}).execute()
    return node


def show(node: nbformat.NotebookNode) -> None:
    """Print cells and outputs as text."""
    for cell in node.cells:
        if cell.cell_type == "markdown":
            print(f"\n{cell.source}\n")
            continue
        print("\n".join(f"  ┃ {line}" for line in cell.source.splitlines()))
        for output in cell.outputs:
            if output.output_type == "stream":
                text = output.text
            elif output.output_type == "error":
                text = f"{output.ename}: {output.evalue[:160]}"
            else:
                text = output.data.get("text/plain", "")
            print("\n".join(f"    {line}" for line in text.rstrip().splitlines()))
        print()


def save(node: nbformat.NotebookNode, name: str, result: Path) -> None:
    """Write a notebook that opens with a kernel of that name."""
    node.metadata.kernelspec = {"name": name, "display_name": name, "language": "python"}
    nbformat.write(node, result)


def open_lab(name: str, build_in: Path) -> None:
    """JupyterLab with the quickstart and the sidebar, until it is ended with Ctrl-C."""
    save(nbformat.read(HERE / "quickstart.ipynb", as_version=4), name, build_in / "quickstart.ipynb")
    print("The panel is the chip icon in the right sidebar. Ctrl-C ends JupyterLab.", flush=True)
    os.environ["JUPYTER_PATH"] = str(build_in)
    os.environ["IPYTHONDIR"] = str(build_in / "ipython")
    command = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={build_in}", "quickstart.ipynb"]
    command += ["--allow-root"] if hasattr(os, "getuid") and os.getuid() == 0 else []
    os.chdir(build_in)
    os.execv(sys.executable, command)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machine", choices=("auto", "real", "simulated", "host"), default="auto")
    parser.add_argument("--lab", action="store_true", help="open JupyterLab with the sidebar instead")
    parser.add_argument("--quiet", action="store_true", help="only execute and save")
    parser.add_argument("--notebook", choices=sorted(p.stem for p in HERE.glob("*.ipynb")), default="quickstart")
    options = parser.parse_args()
    build_in = ROOT / "build" / ("demo" if options.notebook == "quickstart" else options.notebook)
    shutil.rmtree(build_in, ignore_errors=True)
    build_in.mkdir(parents=True)
    name = kernel(options.machine, build_in)
    if options.lab:
        open_lab(name, build_in)
        return
    node = execute(HERE / f"{options.notebook}.ipynb", name, build_in)
    result = build_in / f"{options.notebook}.ipynb"
    save(node, name, result)
    if not options.quiet:
        show(node)
    print(f"Executed and saved: {result.relative_to(ROOT)}")
    print("To see it live, with the GPU memory panel in the right sidebar of JupyterLab:  make lab")


if __name__ == "__main__":
    main()
