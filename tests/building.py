"""Compiling the simulated hardware on first use, into a cache that git ignores."""
from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

CACHE = Path(os.environ.get("GPUMEM_TEST_CACHE", Path(__file__).resolve().parents[1] / ".cache"))


class CompilerMissing(RuntimeError):
    """There is no C or C++ compiler on this machine."""


def build(name: str, output: str, sources: Sequence[Path], command: Sequence[str], salt: str = "") -> Path:
    """Run ``command`` (the compiler and its flags) over ``sources`` once for each content of them.

    Several processes may ask at once: one builds, the others wait for it.
    """
    compiler = shutil.which(command[0])
    digest = hashlib.sha256("\0".join([*command, salt]).encode())
    for source in sources:
        digest.update(source.read_bytes())
    target = CACHE / name / digest.hexdigest()[:16] / output
    if target.exists():
        return target
    if compiler is None:
        raise CompilerMissing(f"no {command[0]} on this machine: install a compiler to simulate the GPU")
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target.parent / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            made = target.with_suffix(".part")
            subprocess.run([*command, "-o", str(made)], check=True)
            made.rename(target)
    return target
