"""The simulated CUDA for a process that has not imported torch yet, and perhaps never will: a kernel.

``arm()`` waits for ``import torch``. Until then nothing is imported or loaded.
"""
from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from types import ModuleType

import simgpu


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        assert spec is not None and spec.loader is not None
        simgpu._load(cuda=True)
        spec.loader = _Loader(spec.loader)
        return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, genuine: importlib.abc.Loader) -> None:
        self._genuine = genuine

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._genuine.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._genuine
        self._genuine.exec_module(module)
        simgpu.finish("simgpu", cuda=True)


def arm() -> None:
    """Install the simulated CUDA when torch is imported."""
    if "torch" in sys.modules:
        raise RuntimeError("torch is imported already")
    sys.meta_path.insert(0, _Finder())
