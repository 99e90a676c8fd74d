"""The simulated CUDA for a process that has not imported torch yet, and perhaps never will: a kernel.

``arm()`` waits for ``import torch``. Until then nothing is imported or loaded.
"""
from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import simgpu


class _Finder(importlib.abc.MetaPathFinder):
    """Finds torch as ever, but with our loader. Being asked is no import yet: many only look whether torch is there."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "torch":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(self, spec.loader)
        return spec


class _Loader(importlib.abc.Loader):
    """torch's own loader, with the device's library loaded before and torch's Python layer told of it afterwards."""

    def __init__(self, finder: _Finder, genuine: importlib.abc.Loader) -> None:
        self._finder, self._genuine = finder, genuine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._genuine, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        simgpu._load(cuda=True)
        return self._genuine.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._genuine
        self._genuine.exec_module(module)
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
        simgpu.finish("simgpu", cuda=True)


def arm() -> None:
    """Install the simulated CUDA when torch is imported."""
    if "torch" in sys.modules:
        raise RuntimeError("torch is imported already")
    sys.meta_path.insert(0, _Finder())
