"""Graphs as SVG, laid out by the program ``dot`` of graphviz where there is one. Needs no plotly.

Names are text of the user's: they are escaped for dot, whose output for SVG is escaped in its turn.
"""
from __future__ import annotations

import re
import shutil
import subprocess
from html import escape

from jupyter_gpumem.model import Graph
from jupyter_gpumem.pictures.blocks import count
from jupyter_gpumem.pictures.text import visible
from jupyter_gpumem.units import shown

_GREY = "#808080"
"""Has a contrast of more than 3:1 on white and on #111: graphs lie on light and on dark paper."""
_DARK = "#1a1a1a"
_PAGE = 480
"""Points that the output of a narrow notebook is wide."""
_SHARES = ((0.25, "#1f77c9", "#ffffff"), (0.05, "#7db5e8", _DARK), (0.0, "#d3e5f6", _DARK))
"""Least share of the bytes, fill, words."""


def graph_svg(graph: Graph) -> str | None:
    """A graph as SVG, by the program ``dot``; None where that is missing or fails."""
    dot = shutil.which("dot")
    if dot is None:
        return None
    try:
        done = subprocess.run([dot, "-Tsvg"], input=_dot(graph).encode(), capture_output=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    svg = done.stdout.decode(errors="replace")
    if "<svg" not in svg:
        return None
    # several of them may lie in one page, so that no element may have an id
    svg = re.sub(r'<!--.*?-->|(?<=[a-z]) id="[^"]*"', "", svg[svg.index("<svg") :], flags=re.DOTALL)
    saved = {f"n{node.number}": escape(visible(", ".join(node.saved))) for node in graph.nodes}
    svg = re.sub(r"<title>(.*?)</title>\n?", lambda found: _title(saved.get(found[1], "")), svg)
    # JupyterLab shows it as a picture of its full size and cuts off what is beyond; without a size it is fitted
    svg = re.sub(r'<svg width="(\d+)pt"\s+height="\d+pt"', lambda s: "<svg" if int(s[1]) > _PAGE else s[0], svg)
    words = escape(visible(f"Graph of {graph.name}: {count(len(graph.nodes), 'operation')}, {shown(graph.nbytes)}"))
    return svg.replace("<svg", f'<svg role="img" aria-label="{words}" style="max-width:100%;height:auto"', 1)


def _title(words: str) -> str:
    return f"<title>{words}</title>\n" if words else ""


def _dot(graph: Graph) -> str:
    grey = f'color="{_GREY}" fontcolor="{_GREY}"'
    face = 'fontname="Helvetica,Arial,sans-serif" fontsize=11'
    lines = [
        'digraph { bgcolor="transparent"; rankdir=TB; nodesep=0.2; ranksep=0.3;',
        f'node [shape=box style="rounded" height=0.3 margin="0.12,0.05" {grey} {face}]; edge [{grey} arrowsize=0.6];',
    ]
    known = set()
    for node in graph.nodes:
        label = "\\n".join([_quoted(node.label), *([shown(node.nbytes)] if node.nbytes else [])])
        look = next(((fill, ink) for least, fill, ink in _SHARES if node.nbytes > least * graph.nbytes), None)
        fill = f' style="rounded,filled" fillcolor="{look[0]}" fontcolor="{look[1]}"' if look and node.nbytes else ""
        lines.append(f'n{node.number} [label="{label}"{fill}{" shape=ellipse" if node.is_leaf else ""}];')
        known.add(node.number)
    lines += [f"n{a} -> n{b};" for a, b in graph.edges if a in known and b in known]
    if graph.left_out:
        lines.append(f'rest [label="… and {count(graph.left_out, "more operation")}" shape=plaintext];')
    return "\n".join([*lines, "}"])


def _quoted(text: str) -> str:
    """For a quoted label of dot: backslashes and entities lose their meaning."""
    return visible(text[:80]).replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;")
