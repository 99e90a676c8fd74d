"""Records as one page of HTML that can be sent to others: no script, nothing from the network, light and dark.

Everything that is drawn is also said in words, and every text of the user's is escaped.
"""
from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from html import escape

from jupyter_gpumem.model import Account, Device, Snapshot, Timeline
from jupyter_gpumem.pictures import html
from jupyter_gpumem.pictures.blocks import blocks
from jupyter_gpumem.pictures.text import visible
from jupyter_gpumem.pictures.tiles import COLOURS, GREY
from jupyter_gpumem.pictures.timeline_svg import timeline_svg
from jupyter_gpumem.pictures.treemap_svg import treemap_svg
from jupyter_gpumem.units import shown

MARK = '<meta name="generator" content="jupyter_gpumem">'
"""What tells a report from any other file: it stands in its first kilobyte."""
_STYLE = """<style>
:root{color-scheme:light dark;--paper:#fff;--ink:#1a1a1a}
@media (prefers-color-scheme:dark){:root{--paper:#111;--ink:#e0e0e0}}
@media print{:root{--paper:#fff;--ink:#1a1a1a}}
body{margin:0;background:var(--paper);color:var(--ink);font:14px/1.5 system-ui,sans-serif}
main{max-width:960px;margin:0 auto;padding:24px 16px 48px}
h1{font-size:22px;margin:0}
h2{font-size:16px;margin:32px 0 8px;border-bottom:1px solid rgba(128,128,128,.4);padding-bottom:3px}
header p{margin:2px 0 0;color:#767676}
@media (prefers-color-scheme:dark){header p{color:#9a9a9a}}
.gpumem.gpumem{max-width:none}
.gpumem+.gpumem{margin-top:20px}
figure{margin:8px 0}
figcaption{display:flex;flex-wrap:wrap;gap:0 1.2em;font-size:12.5px}
figcaption i{display:inline-block;width:9px;height:9px;border-radius:2px;margin-right:5px;border:1px solid GREY}
i,rect{-webkit-print-color-adjust:exact;print-color-adjust:exact}
</style>""".replace("GREY", GREY)
_KINDS = {
    "names": "names",
    "graphs": "autograd graphs",
    "libraries": "libraries and registries",
    "dangling": "dangling",
    "unexplained": "unexplained",
    "cached": "cached",
}


def report(snapshot: Snapshot, accounts: Sequence[Account], cells: Timeline) -> str:
    """The page: devices, names and what dangles; areas; the accounts; the cells that were watched."""
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(snapshot.time))
    parts = [("Devices, names, and what dangles", html.fragment(blocks(snapshot)))]
    areas = treemap_svg(snapshot)
    if areas is not None:
        parts.append(("By size", f"<figure>{areas}<figcaption>{_legend()}</figcaption></figure>"))
    parts += [("The account", "".join(html.fragment(blocks(account)) for account in accounts))] if accounts else []
    if cells.cells:
        drawing = timeline_svg(cells)
        figure = f"<figure>{drawing}</figure>" if drawing is not None else ""
        parts.append(("Cell by cell", figure + html.fragment(blocks(cells))))
    body = "".join(f"<section><h2>{title}</h2>{content}</section>" for title, content in parts)
    # html's own style sheet first: the page's rules are the last word
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n{MARK}\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        f"<title>GPU memory, {when}</title>\n{html.STYLE}\n{_STYLE}\n</head>\n<body>\n<main>\n"
        f"<header><h1>GPU memory</h1><p>{escape(visible(_subtitle(when, snapshot.devices)))}</p></header>\n"
        f"{body}\n</main>\n</body>\n</html>\n"
    )


def _subtitle(when: str, devices: Iterable[Device]) -> str:
    used = [f"{d.alias or d.name} {shown(d.used)} of {shown(d.total)}" for d in devices if d.kind != "host"]
    return f"{when}{': ' if used else ''}{', '.join(used[:8])}{f' and {len(used) - 8} more' if len(used) > 8 else ''}"


def _legend() -> str:
    return "".join(
        f'<span><i style="background:{COLOURS[kind][0]}"></i>{words}</span>' for kind, words in _KINDS.items()
    )
