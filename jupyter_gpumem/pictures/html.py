"""Records as HTML: one fragment that needs nothing else, in JupyterLab's colours where it finds them.

It must be readable in a saved notebook, after ``nbconvert``, in dark mode and by a screen reader; so there is no
script, every colour has a fallback, and whatever the bar shows is also said in words.
"""
from __future__ import annotations

from collections.abc import Sequence
from html import escape

from jupyter_gpumem.model import Snapshot
from jupyter_gpumem.pictures import advised, diagnosed, explained, forecasts, moved  # noqa: F401  # so that their blocks are registered
from jupyter_gpumem.pictures.blocks import Bar, Block, Fold, Heading, Line, Segment, Table, blocks, dangling
from jupyter_gpumem.pictures.text import visible
from jupyter_gpumem.units import shown

STYLE = """<style>
.gpumem{--gm-fg:var(--jp-ui-font-color1,inherit);--gm-dim:var(--jp-ui-font-color2,inherit);
--gm-line:var(--jp-border-color2,rgba(128,128,128,.35));--gm-warn:var(--jp-warn-color0,#d9730d);
font-family:var(--jp-ui-font-family,system-ui,sans-serif);font-size:13px;line-height:1.45;color:var(--gm-fg);
max-width:60em;margin:2px 0 6px}
.gpumem.gpumem h4{display:flex;flex-wrap:wrap;gap:0 1em;justify-content:space-between;margin:12px 0 2px;padding:0;
font:600 13px/1.45 var(--jp-ui-font-family,system-ui,sans-serif);color:inherit;white-space:pre-wrap}
.gpumem.gpumem h4:first-child{margin-top:0}
.gpumem h4 span{font-weight:400;font-variant-numeric:tabular-nums}
.gpumem.gpumem p{margin:1px 0!important;color:var(--gm-dim);overflow-wrap:anywhere}
.gpumem.gpumem p:has(+table){color:var(--gm-fg);margin-top:6px!important}
.gpumem.gpumem p.warn{color:var(--gm-fg);border-left:3px solid var(--gm-warn);padding-left:7px}
.gpumem code{font-family:var(--jp-code-font-family,monospace);font-size:12px;background:none;color:inherit}
.gpumem p code{border:1px solid var(--gm-line);border-radius:3px;padding:0 4px;margin-left:.6em;color:var(--gm-fg)}
.gpumem .bar{display:flex;height:12px;border:1px solid var(--gm-line);border-radius:3px;overflow:hidden;margin:3px 0}
.gpumem .bar i{display:block;min-width:1px}
.gpumem i{-webkit-print-color-adjust:exact;print-color-adjust:exact}
.gpumem.gpumem ul{list-style:none;display:flex;flex-wrap:wrap;gap:0 1.2em;
margin:0 0 2px!important;padding:0!important;color:var(--gm-dim)}
.gpumem.gpumem li{margin:0;white-space:nowrap;font-variant-numeric:tabular-nums}
.gpumem li i{display:inline-block;width:9px;height:9px;border-radius:2px;margin-right:5px;
border:1px solid var(--gm-line)}
.gpumem table{border-collapse:collapse;width:100%!important;margin:2px 0 4px!important;border:0;font-size:12.5px;
table-layout:auto}
.gpumem tr,.gpumem tr:hover,.gpumem thead{background:none!important;border:0}
.gpumem.gpumem th,.gpumem.gpumem td{text-align:left!important;padding:1px 16px 1px 0;border:0;
border-bottom:1px solid var(--gm-line);vertical-align:top;overflow-wrap:anywhere;max-width:none;white-space:normal}
.gpumem.gpumem th{font-weight:400;color:var(--gm-dim)}
.gpumem.gpumem th:first-child,.gpumem.gpumem td:first-child{min-width:6em}
.gpumem.gpumem .held th:first-child{width:56%}
.gpumem .again th{font-size:0;line-height:0;padding:0!important}
.gpumem.gpumem .n{text-align:right!important;white-space:nowrap;font-variant-numeric:tabular-nums;width:1%;
overflow-wrap:normal}
.gpumem.gpumem th:last-child,.gpumem.gpumem td:last-child{padding-right:0}
.gpumem.gpumem td code{background:none!important;padding:0;border:0;color:inherit;white-space:pre-wrap}
.gpumem .allocated{background:#1f77c9}.gpumem .cached{background:#7db5e8}.gpumem .context{background:#8a7fc0}
.gpumem .others{background:#d08a2e}.gpumem .reserved{background:#8c8c8c}.gpumem .free{background:transparent}
.gpumem .graphs{background:#2f9e8f}.gpumem .dangling,.gpumem .fragments{background:#c8553d}
.gpumem .libraries{background:#8a7fc0}.gpumem .running,.gpumem .awaiting{background:#d08a2e}
.gpumem .rounding{background:#8c8c8c}
.gpumem .unattributed,.gpumem .unexplained{background:repeating-linear-gradient(45deg,#b9b04a 0 3px,#8f8836 3px 6px)}
</style>"""
"""The fallbacks inherit the page's own colour, so that they are right on light and on dark paper. ``!important`` only
where JupyterLab's and nbconvert's own rules for tables in outputs would win."""
_ALONE = "font:12px/1.5 var(--jp-ui-font-family,system-ui,sans-serif);overflow-wrap:anywhere"
"""One line, below every cell of a notebook maybe, carries no style sheet."""


def render(record: object) -> str:
    """A record as an HTML fragment. Raises TypeError for what is none of ours."""
    return _page(blocks(record))


def render_dangling(snapshot: Snapshot) -> str:
    """Only what dangles in a snapshot."""
    return _page(dangling(snapshot))


def _page(found: Sequence[Block]) -> str:
    if len(found) == 1 and isinstance(found[0], Line):
        mark = ";border-left:3px solid var(--jp-warn-color0,#d9730d);padding-left:7px" if found[0].warn else ""
        return f'<div class="gpumem-line" style="{_ALONE}{mark}">{_words(found[0])}</div>'
    return STYLE + fragment(found)


def fragment(found: Sequence[Block]) -> str:
    """Blocks as HTML, for a page that has ``STYLE`` once."""
    return f'<div class="gpumem">{_parts(found)}</div>'


def _parts(found: Sequence[Block]) -> str:
    parts: list[str] = []
    headers: tuple[str, ...] = ()
    for block in found:
        parts.append(_table(block, block.columns == headers) if isinstance(block, Table) else _block(block))
        headers = block.columns if isinstance(block, Table) else () if isinstance(block, Heading) else headers
    return "".join(parts)


def _block(block: Heading | Bar | Line | Fold) -> str:
    if isinstance(block, Fold):
        opened = " open" if block.open else ""
        return f"<details{opened}><summary>{_text(block.title)}</summary>{_parts(block.blocks)}</details>"
    if isinstance(block, Heading):
        # JupyterLab's table of contents would list the headings that it finds in outputs
        figure = f" <span>{_text(block.figure)}</span>" if block.figure else ""
        return f'<h4 class="jp-toc-ignore">{_text(block.text)}{figure}</h4>'
    if isinstance(block, Bar):
        return _bar(block)
    return f'<p class="warn">{_words(block)}</p>' if block.warn else f"<p>{_words(block)}</p>"


def _text(text: str) -> str:
    return escape(visible(text))


def _words(line: Line) -> str:
    return _text(line.text) + (f" <code>{_text(line.code)}</code>" if line.code else "")


def _bar(bar: Bar) -> str:
    parts = "".join(f'<i class="{s.kind}" style="flex:{s.nbytes} 0 0"></i>' for s in bar.segments if s.nbytes)
    words = "; ".join(f"{s.label} {shown(s.nbytes)}" for s in bar.segments)
    label = _text(f"Memory of {bar.label}: {words}")
    legend = "".join(_legend(segment) for segment in bar.segments)
    return f'<div class="bar" role="img" aria-label="{label}">{parts}</div><ul aria-hidden="true">{legend}</ul>'


def _legend(segment: Segment) -> str:
    return f'<li><i class="{segment.kind}"></i>{_text(segment.label)} {shown(segment.nbytes)}</li>'


def _table(table: Table, again: bool) -> str:
    """``again``: the table above has the same header, so this one's is for screen readers only."""

    def cells(tag: str, row: Sequence[str]) -> str:
        scope = ' scope="col"' if tag == "th" else ""
        figure = ' class="n"'
        return "".join(
            f"<{tag}{scope}{figure if column in table.right else ''}>{_cell(tag, column, text)}</{tag}>"
            for column, text in enumerate(row)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in table.rows)
    first = '<thead class="again">' if again else "<thead>"
    head = f"{first}<tr>{cells('th', table.columns)}</tr></thead>"
    cut = f"<p>{_text(table.cut)}</p>" if table.cut else ""
    kind = ' class="held"' if table.columns[0] == "held by" else ""  # aligned from cause to cause
    return f"<table{kind}>{head}<tbody>{body}</tbody></table>{cut}"


def _cell(tag: str, column: int, text: str) -> str:
    """The first column names things of the user's code."""
    return f"<code>{_text(text)}</code>" if tag == "td" and column == 0 else _text(text)
