"""Figures on the screen. plotly is asked for when a figure is, and stays optional.

A figure is displayed as data for the front end's own plotly (JupyterLab, Notebook 7 and VS Code have one where plotly
is installed), with its words as text: a saved notebook holds kilobytes, not a copy of the library.
"""
from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from jupyter_gpumem import session
from jupyter_gpumem.analysis import account, graphs, snapshot
from jupyter_gpumem.errors import InputError
from jupyter_gpumem.faces.showing import show_bundle
from jupyter_gpumem.model import CellUse, Timeline
from jupyter_gpumem.pictures import graph_svg, text

_PLOTLY = "application/vnd.plotly.v1+json"


def show_plot(kind: str, name: str | None, value: object, device: str | None, cells: Sequence[Any]) -> None:
    """Display one of the kinds of picture: ``treemap``, ``timeline``, ``segments``, ``graph`` (of ``value``).

    Raises InputError where plotly is not installed, or there is nothing to draw.
    """
    if kind == "graph":
        _show_graph(name or "", value)
        return
    plots = _plots()
    for figure in _figures(plots, kind, device, cells):
        show_bundle({_PLOTLY: json.loads(figure.to_json()), "text/plain": plots.alt(figure)})


def _figures(plots: Any, kind: str, device: str | None, cells: Sequence[CellUse]) -> list[Any]:
    shell = session.current()
    if kind == "treemap":
        return [plots.treemap(snapshot.take(shell, device))]
    if kind == "timeline":
        if not cells:
            raise InputError("no cell has been watched yet; %gpumem on watches every cell")
        return [plots.timeline(timeline(cells))]
    accounts = [found for found in account.take(shell, device) if found.segments]
    if not accounts:
        raise InputError("no framework here lists the segments of its allocator; torch does so for CUDA in use")
    return [plots.segments(found) for found in accounts]


def timeline(cells: Sequence[CellUse]) -> Timeline:
    """The watched cells, with the sizes of their devices where the driver tells them."""
    used = {allocator.device for cell in cells for allocator in cell.after}
    return Timeline(tuple(cells), tuple((name, total) for name, total in snapshot.totals().items() if name in used))


def _show_graph(name: str, value: object) -> None:
    """As a drawing where graphviz is there, as text everywhere."""
    found = graphs.graph(session.current(), name, value)
    bundle: dict[str, Any] = {"text/plain": text.render(found)}
    drawing = graph_svg.graph_svg(found)
    if drawing is not None:
        bundle["image/svg+xml"] = drawing
    show_bundle(bundle)


def _plots() -> Any:
    try:
        return import_module("jupyter_gpumem.pictures.plots")
    except ImportError as missing:
        raise InputError(f"figures need plotly: pip install plotly ({missing})") from None
