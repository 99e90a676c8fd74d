"""A simulated accelerator for the CPU build of torch: ``install()`` gives device ``simgpu``, ``install(cuda=True)``
impersonates ``cuda`` itself. See README.md for what it can and cannot show.
"""
from __future__ import annotations

import atexit
import ctypes
import importlib.util
import json
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .python_layer import Call

_HERE = Path(__file__).resolve().parent
if str(_HERE.parent) not in sys.path:
    sys.path.append(str(_HERE.parent))
from building import build as _build  # noqa: E402

_library: ctypes.CDLL | None = None
_kept: list[object] = []
_OomCallback = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong, ctypes.c_longlong)


def build(cuda: bool = False) -> Path:
    """The library for the installed torch, compiled on first use (15 s). Raises CompilerMissing."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None and spec.submodule_search_locations
    torch = Path(spec.submodule_search_locations[0])
    version = re.search(r"'(.+?)'", (torch / "version.py").read_text()[:200])
    source = _HERE / "simgpu.cpp"
    sources = [source, *sorted(_HERE.glob("*.hpp")), _HERE.parent / "fakenvml" / "machine.h"]
    command = ["g++", "-O1", "-std=c++20", "-fPIC", "-shared", *(["-DSIM_CUDA"] if cuda else []), str(source)]
    command += ["-isystem", str(torch / "include"), "-isystem", str(torch / "include/torch/csrc/api/include")]
    command += [f"-L{torch / 'lib'}", f"-Wl,-rpath,{torch / 'lib'}", "-lc10", "-ltorch", "-ltorch_cpu"]
    name = "libsimcuda.so" if cuda else "libsimgpu.so"
    return _build("simgpu", name, sources, command, salt=version[1] if version else "")


def install(name: str = "simgpu", cuda: bool = False) -> ModuleType:
    """Make the device. With ``cuda=True`` before the first ``import torch``: torch looks its CUDA hooks up then, once.

    Returns the device's module, ``torch.simgpu`` or ``torch.cuda``.
    """
    if cuda and "torch" in sys.modules:
        raise RuntimeError("install(cuda=True) must come before the first import of torch")
    _load(cuda)
    return finish(name, cuda)


def _load(cuda: bool) -> None:
    """The part that must happen before torch is imported."""
    global _library
    if _library is not None:
        return
    library = ctypes.CDLL(str(build(cuda)))
    library.simgpu_total.restype = ctypes.c_longlong
    library.simgpu_fraction.restype = ctypes.c_double
    library.simgpu_set_fraction.argtypes = [ctypes.c_int, ctypes.c_double]
    for function in ("simgpu_name", "simgpu_uuid", "simgpu_snapshot_json", "simgpu_trace_json"):
        getattr(library, function).restype = ctypes.c_char_p
    library.simgpu_record.argtypes = [ctypes.c_void_p, ctypes.c_longlong]
    for function in ("simgpu_set_capacity", "simgpu_set_external"):
        getattr(library, function).argtypes = [ctypes.c_int, ctypes.c_longlong]
    # After a backward() a device thread of autograd may ask for the GIL just while the interpreter ends, and the process
    # aborts ("terminate called without an active exception", in some rounds a third of the runs): this lets it finish.
    atexit.register(lambda: time.sleep(float(os.environ.get("SIMGPU_EXIT_WAIT", "0.05"))))
    library.simgpu_install()
    _library = library


def finish(name: str, cuda: bool) -> ModuleType:
    """The part that needs torch: its Python layer is told of the device."""
    from . import python_layer

    return python_layer.patch_cuda(_loaded()) if cuda else python_layer.make_module(_loaded(), name)


def _loaded() -> ctypes.CDLL:
    assert _library is not None, "call install() first"
    return _library


def set_capacity(device: int, nbytes: int) -> None:
    """The memory of a device, whatever the machine says; 0 goes back to that."""
    _loaded().simgpu_set_capacity(device, nbytes)


def set_external(device: int, nbytes: int) -> None:
    """Pretend that somebody else holds this much, without any such process. NVML counts it as used."""
    _loaded().simgpu_set_external(device, nbytes)


def join(state: Path | str) -> None:
    """Become a process of the mock NVML's machine, as if ``NVML_MOCK_STATE`` had named it from the start.

    The number of devices stays what it was.
    """
    os.environ["NVML_MOCK_STATE"] = str(state)
    _loaded().simgpu_publish()


def snapshot() -> dict[str, object]:
    """Segments and blocks, with the field names of ``torch.cuda.memory._snapshot()``."""
    return {"segments": json.loads(_loaded().simgpu_snapshot_json())}


def set_oom_callback(function: Callable[[int, int, int, int], None]) -> None:
    """Call ``function(device, asked, total, free)`` before an out-of-memory error is raised."""
    callback = _OomCallback(function)
    _kept.append(callback)
    _loaded().simgpu_set_oom_callback(callback)


def initialising_calls() -> list[Call]:
    """The calls so far that initialised CUDA, or made a context on a device, in order.

    Each is the name of the call, a ``str``, whose ``.stack`` tells where it came from.
    """
    from . import python_layer

    return list(python_layer.initialising)
