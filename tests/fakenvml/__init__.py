"""A mock ``libnvidia-ml.so.1`` that the unmodified pynvml loads.

Its machine is a text file (see the head of ``machine.h``), which may change while processes hold handles.
"""
from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(_HERE.parent))
from building import build as _build  # noqa: E402

VARIANTS = {"new": None, "old": "old.map", "oldest": "oldest.map"}
"""A driver of today; one of 2020, without the third version of the process list; one before 450."""


def build(variant: str = "new") -> Path:
    """The library, compiled on first use. Raises CompilerMissing."""
    source = _HERE / "nvml_mock.c"
    command = ["gcc", "-O1", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden", "-shared", "-fPIC"]
    command += ["-Wl,-soname,libnvidia-ml.so.1", str(source)]
    sources = [source, _HERE / "machine.h"]
    if VARIANTS[variant] is not None:
        sources.append(_HERE / VARIANTS[variant])
        command.append(f"-Wl,--version-script={sources[-1]}")
    return _build(f"fakenvml-{variant}", "libnvidia-ml.so.1", sources, command)


def environment(state: Path, variant: str = "new") -> dict[str, str]:
    """Variables with which a new process finds the mock and its machine."""
    folders = [str(build(variant).parent), os.environ.get("LD_LIBRARY_PATH", "")]
    return {"LD_LIBRARY_PATH": ":".join(filter(None, folders)), "NVML_MOCK_STATE": str(state)}


class Machine:
    """The state file of a mock machine, and the trace of the calls made to it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "machine.txt"
        self.trace_path = folder / "trace.txt"

    def put(self, text: str) -> None:
        """Replace the machine at once."""
        part = self.path.with_suffix(".part")
        part.write_text(text)
        part.rename(self.path)

    def calls(self) -> list[tuple[str, int]]:
        """Function and result code of every call so far."""
        return [(name, code) for _, name, code in self._rows()]

    def _rows(self) -> list[tuple[int, str, int]]:
        if not self.trace_path.exists():
            return []
        rows = [line.split() for line in self.trace_path.read_text().splitlines()]
        return [(int(row[0]), row[2], int(row[4])) for row in rows]

    def open_count(self) -> int:
        """How often this process has initialised NVML and not shut it down again."""
        names = [name for pid, name, code in self._rows() if (pid, code) == (os.getpid(), 0)]
        return sum(name.startswith("nvmlInit") for name in names) - names.count("nvmlShutdown")


def load(variant: str = "new") -> ctypes.CDLL:
    """The library in this process, to be put where pynvml keeps its own."""
    return ctypes.CDLL(str(build(variant)))
