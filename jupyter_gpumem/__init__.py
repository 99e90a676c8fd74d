"""Where GPU memory went in this notebook, who holds it, and how to get it back.

``%load_ext jupyter_gpumem`` in a notebook, or the functions below in any Python. Importing this package imports no
framework and starts no driver.
"""
from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jupyter_gpumem.faces.api import (
        account,
        advise,
        assert_no_leak,
        dangling,
        describe,
        diagnose,
        diff,
        find_batch_size,
        find_leak,
        forecast,
        free,
        graph,
        holdings,
        limit,
        mark,
        micro_batches,
        park,
        parked,
        plan,
        preallocated,
        report,
        resizable,
        restore,
        retry_on_oom,
        snapshot,
        watch,
        why,
    )

__all__ = [
    "account",
    "advise",
    "assert_no_leak",
    "dangling",
    "describe",
    "diagnose",
    "diff",
    "find_batch_size",
    "find_leak",
    "forecast",
    "free",
    "graph",
    "holdings",
    "limit",
    "mark",
    "micro_batches",
    "park",
    "parked",
    "plan",
    "preallocated",
    "report",
    "resizable",
    "restore",
    "retry_on_oom",
    "snapshot",
    "watch",
    "why",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module(f"{__name__}.faces.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def load_ipython_extension(ipython: Any) -> None:
    """Register the magics, the renderers and the cell watcher with a shell."""
    import_module(f"{__name__}.faces.extension").load(ipython)


def unload_ipython_extension(ipython: Any) -> None:
    """Take everything back."""
    import_module(f"{__name__}.faces.extension").unload(ipython)


def _jupyter_labextension_paths() -> list[dict[str, str]]:
    """Where a development install finds the sidebar that was built."""
    return [{"src": "labextension", "dest": "jupyter-gpumem"}]
