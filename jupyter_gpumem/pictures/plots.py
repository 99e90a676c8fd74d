"""Records as figures of plotly. To be imported only when a figure is wanted: plotly is optional.

Names are text of the user's: plotly would take ``<b>``, ``%{x}`` and ``$x$`` in them for markup, so that they go
through ``_text`` and never into a template. Figures are saved with notebooks, so that they are cut to what can be
seen: a few hundred tiles, blocks or cells, in plain lists, without plotly's large default template. They lie on light
and on dark paper: the paper is transparent and the words are grey.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Any

import plotly.graph_objects as go

from jupyter_gpumem.model import Account, Allocator, Block, CellUse, Snapshot, Timeline
from jupyter_gpumem.pictures.blocks import count
from jupyter_gpumem.pictures.text import visible
from jupyter_gpumem.pictures.tiles import COLOURS, GREY, chosen_of, held, kind, tiles_of
from jupyter_gpumem.units import shown

_GRID = "rgba(128,128,128,.3)"
_PIECES, _CELLS, _TICKS = 900, 400, 20
_BARS = (60, 30, 15)
"""Rows of a map of segments: fewer where each has many blocks."""


def alt(figure: go.Figure) -> str:
    """What a figure shows, in one or two sentences of plain text, for those who do not see it."""
    return str(figure.layout.meta["alt"])


def _text(text: str, most: int = 80) -> str:
    """A text of the user's as plotly shows it letter by letter; long ones lose their middle."""
    text = visible(text)
    if len(text) > most:
        text = f"{text[: most * 2 // 3]}…{text[-(most - most * 2 // 3 - 1) :]}"
    return escape(text, quote=False).replace("$", "&#36;")


def _figure(traces: Sequence[Any], title: str, words: str, **layout: Any) -> go.Figure:
    return go.Figure(
        traces,
        {
            "template": "none",
            "title": {"text": title, "font": {"size": 15}, "x": 0, "xref": "paper", "y": 1, "yref": "container",
                      "yanchor": "top", "pad": {"t": 14}},
            "font": {"color": GREY, "size": 12},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": GREY, "activecolor": GREY},
            "margin": {"l": 10, "r": 10, "t": 48, "b": 10},
            "meta": {"alt": visible(words.strip())},
            **layout,
        },
    )


def _unit(most: int) -> tuple[int, str]:
    """The largest unit of which there is one, in bytes and in words. To divide by it loses nothing."""
    name = shown(most).split()[1]
    return 1024 ** ("B", "KiB", "MiB", "GiB", "TiB", "PiB").index(name), name


def _axis(unit: str, **more: Any) -> dict[str, Any]:
    return {"ticksuffix": f" {unit}", "rangemode": "tozero", "gridcolor": _GRID, "zerolinecolor": _GRID,
            "automargin": True, **more}


# ---------------------------------------------------------------- what is held, as areas
def treemap(snapshot: Snapshot) -> go.Figure:
    """What is held, as areas: devices, names or causes, steps of paths, storages. Small ones are drawn as one tile."""
    top, title, words = held(snapshot)
    tiles = list(tiles_of(top, chosen_of(top)))
    trace = go.Treemap(
        branchvalues="total",
        ids=[str(number) for number, _, _ in tiles],
        parents=["" if parent is None else str(parent) for _, parent, _ in tiles],
        labels=[_text(tile.label, 40) for _, _, tile in tiles],
        values=[tile.nbytes for _, _, tile in tiles],
        text=[shown(tile.nbytes) for _, _, tile in tiles],
        customdata=[_text(tile.hover, 120) for _, _, tile in tiles],
        hovertemplate="%{customdata}<br>%{text}<extra></extra>",
        texttemplate=[
            "%{label}<br>%{text}" if tile.inner or 300 * tile.nbytes >= top.nbytes else " "
            for _, _, tile in tiles
        ],
        textfont={"color": [COLOURS[tile.kind][1] for _, _, tile in tiles]},
        marker={"colors": [COLOURS[tile.kind][0] for _, _, tile in tiles], "line": {"width": 1, "color": GREY}},
        pathbar={"textfont": {"color": GREY}},
        tiling={"pad": 2},
        sort=True,
    )
    return _figure([trace], title, words, height=520)


# ---------------------------------------------------------------- cell by cell
_Use = tuple[CellUse, "Allocator | None", "Allocator | None"]


def timeline(timeline: Timeline) -> go.Figure:
    """Allocated bytes before and after each cell, its peak, what is reserved, and the device where that is near."""
    seen = [a for cell in timeline.cells for a in (*cell.before, *cell.after)]
    # a device that was never used would be an empty row
    keys = list(dict.fromkeys((a.framework, a.device) for a in seen if a.allocated or a.peak or a.reserved))
    cells = timeline.cells[-(_CELLS // max(1, len(keys))) :]
    shared = len({device for _, device in keys}) < len(keys)
    traces: list[Any] = []
    axes: dict[str, Any] = {}
    names, words, ends = [], [], []
    for row, key in enumerate(keys):
        uses = [(cell, _of(cell.before, key), _of(cell.after, key)) for cell in cells]
        total = dict(timeline.totals).get(key[1])
        top, bottom = 1 - row / len(keys) - 0.06, 1 - (row + 1) / len(keys) + (0.06 if row + 1 < len(keys) else 0)
        axis, drawn = _row(uses, total)
        number = str(row + 1) if row else ""
        axes[f"yaxis{number}"] = {**axis, "domain": [bottom, top]}
        known = {trace.name for trace in traces}
        traces += [t.update(yaxis=f"y{number}", showlegend=t.name not in known) for t in drawn]
        name = " ".join(key) if shared else key[1]
        title = _text(name) + (f", {shown(total)} in all" if total is not None else "")
        names.append({"text": title, "x": 0, "y": top, "xref": "paper", "yref": "paper", "showarrow": False,
                      "xanchor": "left", "yanchor": "bottom"})
        peaks = [(new.peak or 0, cell.title) for cell, _, new in uses if new]
        peak, title = max(peaks, key=lambda one: one[0], default=(0, ""))
        ends.append(next((new.allocated for _, _, new in reversed(uses) if new), 0))
        highest = f"; highest peak {shown(peak)} in {title}" if peak else ""
        words.append(f"{name} ends with {shown(ends[-1])}{highest}.")
    places = range(0, len(cells), max(1, -(-len(cells) // _TICKS)))
    across = {"tickvals": list(places), "ticktext": [_text(cells[at].title, 24) for at in places], "showgrid": False,
              "zeroline": False, "automargin": True, "range": [-0.6, max(1, len(cells)) - 0.4],
              "anchor": f"y{len(keys)}" if len(keys) > 1 else "y"}
    earlier = f", {len(timeline.cells) - len(cells)} earlier left out" if len(cells) < len(timeline.cells) else ""
    title = f"{shown(sum(ends))} allocated after {count(len(cells), 'cell')}{earlier}"
    return _figure(traces, title, f"{title}. {' '.join(words)}", xaxis=across, annotations=names, hovermode="closest",
                   height=140 + 220 * max(1, len(keys)), legend=_LEGEND, **axes)


_LEGEND = {"orientation": "h", "y": 1, "x": 1, "xanchor": "right", "yanchor": "bottom", "traceorder": "normal"}


def _of(allocators: Iterable[Allocator], key: tuple[str, str]) -> Allocator | None:
    return next((a for a in allocators if (a.framework, a.device) == key), None)


def _row(uses: Sequence[_Use], total: int | None) -> tuple[dict[str, Any], list[Any]]:
    """The axis and the lines of one device. Bytes change in the middle of a cell, and stay until the next."""
    both = [allocator for _, old, new in uses for allocator in (old, new) if allocator is not None]
    most = max((size or 0 for a in both for size in (a.allocated, a.peak, a.reserved)), default=0)
    is_near = total is not None and 0 < total <= 4 * most  # if it is far, it would press all others to the ground
    divisor, unit = _unit(max(most, (total or 0) if is_near else 0))

    def step(what: str, read: Callable[[Allocator], int | None], **look: Any) -> Any:
        x, y = [], []
        for at, (_, old, new) in enumerate(uses):
            x += [at - 0.5, at, at + 0.5]
            before, after = read(old) if old else 0 if new else None, read(new) if new else None
            y += [None if size is None else size / divisor for size in (before, after, after)]
        hover = f"{what} %{{y:.4~g}} {unit}<extra></extra>"
        return go.Scatter(x=x, y=y, name=what, mode="lines", hovertemplate=hover, **look)

    blue = COLOURS["names"][0]
    lines = [step("allocated", lambda a: a.allocated, line={"shape": "hv", "color": blue, "width": 2},
                  fill="tozeroy", fillcolor="rgba(31,119,201,.2)")]
    if any(new and new.reserved is not None for _, _, new in uses):
        lines.append(step("reserved", lambda a: a.reserved, line={"shape": "hv", "color": "#7db5e8", "width": 1.5}))
    peaks = [
        (at, new.peak / divisor, _peak_text(cell, old, new))
        for at, (cell, old, new) in enumerate(uses)
        if new is not None and new.peak is not None
    ]
    if peaks:
        x, y, texts = zip(*peaks, strict=True)
        lines.append(go.Scatter(
            x=x, y=y, name="peak", mode="markers", marker={"symbol": "triangle-up", "size": 9, "color": "#d08a2e"},
            customdata=texts, hovertemplate="%{customdata}<extra></extra>",
        ))
    if is_near and total is not None:
        lines.append(go.Scatter(x=[-0.5, len(uses) - 0.5], y=[total / divisor] * 2, name="whole device", mode="lines",
                                line={"color": GREY, "width": 1.5, "dash": "dash"}, hoverinfo="name"))
    return _axis(unit), lines


def _peak_text(cell: CellUse, old: Allocator | None, new: Allocator) -> str:
    change = f"{shown(old.allocated if old else 0)} → {shown(new.allocated)}"
    line = f"<br>{_text(cell.peak_line)}" if cell.peak_line else ""
    return f"{_text(cell.title, 40)}: {change}, peak {shown(new.peak)}{line}"


# ---------------------------------------------------------------- segments
_STATES = {
    "names": "held by names",
    "graphs": "autograd graphs",
    "libraries": "libraries and registries",
    "dangling": "dangling",
    "unexplained": "unexplained",
    "awaiting": "freed, awaiting a stream",
    "free": "free",
}
_Piece = tuple[str, int, int, str]
"""State, offset, bytes, words."""
_Placed = tuple[int, str, Block]
"""Offset, state, block."""


def segments(account: Account) -> go.Figure:
    """A map of the allocator's segments, a bar each, largest first: what lies where, and which free bytes are between.

    Blocks too small to be seen are drawn together with their neighbours, by state; bytes of each state stay exact.
    """
    ordered = sorted(account.segments, key=lambda segment: -segment.nbytes)
    widest = ordered[0].nbytes if ordered else 0
    placed = [[(block.address - s.address, _state(block), block) for block in s.blocks] for s in ordered]
    least, bars = 0, _BARS[0]
    rows = [_pieces(blocks, least) for blocks in placed[:bars]]
    while sum(map(len, rows)) > _PIECES and least < widest:
        fewer = next((number for number in _BARS if number < bars), bars)
        if least >= widest // 512 and fewer < min(bars, len(ordered)):
            least, bars = 0, fewer  # rather fewer segments than none in which one sees what lies where
        else:
            least = 2 * least or max(1, widest // 2048)
        rows = [_pieces(blocks, least) for blocks in placed[:bars]]
    drawn, rest = ordered[:bars], ordered[bars:]
    labels = [f"{segment.pool}, {shown(segment.nbytes)}" for segment in drawn]
    scale = 1.0
    if rest:
        nbytes = sum(segment.nbytes for segment in rest)
        scale = min(1.0, widest / nbytes)  # a row wider than all others would make them too small to see
        rows.append(_together([(0, state, block) for blocks in placed[bars:] for _, state, block in blocks]))
        labels.append(f"{len(rest)} more, {shown(nbytes)}{' (not to scale)' if scale < 1 else ''}")
    divisor, unit = _unit(widest)
    traces = []
    for state, words in _STATES.items():
        mine = [(row, *piece[1:]) for row, pieces in enumerate(rows) for piece in pieces if piece[0] == state]
        scales = [scale / divisor if row == len(drawn) else 1 / divisor for row, *_ in mine]
        if mine:
            traces.append(go.Bar(
                orientation="h", name=words, x=[size * by for (_, _, size, _), by in zip(mine, scales, strict=True)],
                base=[at * by for (_, at, _, _), by in zip(mine, scales, strict=True)], y=[row for row, *_ in mine],
                customdata=[text for *_, text in mine], hovertemplate=f"%{{customdata}}<extra>{words}</extra>",
                marker=_marker(state, [0.5 if size > widest / 150 else 0 for _, _, size, _ in mine]), width=0.8,
                textposition="none",
            ))
    free = sum(segment.free for segment in ordered)
    kept = sum(segment.free for segment in ordered if not segment.returnable)
    title = f"{account.device}: {shown(sum(s.nbytes for s in ordered))} in {count(len(ordered), 'segment')}"
    high = max(3, len(rows))
    words = f"{title}; {shown(free)} are free, of which {shown(kept)} cannot go back to the driver"
    title += f", {shown(free)} free"
    if not ordered:
        title = words = f"{account.device}: no segments are known"
    return _figure(
        traces, _text(title, 200), f"{words}.", barmode="overlay", hovermode="closest",
        height=150 + 24 * high, xaxis=_axis(unit),
        legend={**_LEGEND, "x": 0, "xanchor": "left", "y": -36 / (24 * high), "yanchor": "top"},
        yaxis={"tickvals": list(range(len(rows))), "ticktext": labels, "autorange": "reversed", "showgrid": False,
               "zeroline": False, "automargin": True},
    )


def _marker(state: str, frames: list[float]) -> dict[str, Any]:
    """The look of blocks; their frames would hide those that are very small."""
    colour = COLOURS[state][0]
    hatched = {"shape": "/", "bgcolor": colour, "fgcolor": "#7d762c", "size": 5, "solidity": 0.4}
    return {"color": colour, "line": {"width": frames, "color": GREY},
            **({"pattern": hatched} if state == "unexplained" else {})}


def _state(block: Block) -> str:
    if block.state != "allocated":
        return block.state
    return "unexplained" if block.holder is None else kind(block.holder.cause, block.holder.path)


def _pieces(blocks: Sequence[_Placed], least: int) -> list[_Piece]:
    """The blocks of a segment to draw; neighbours smaller than ``least`` bytes together."""
    pieces: list[_Piece] = []
    small: list[_Placed] = []
    for at, state, block in blocks:
        if small and (block.nbytes >= least or at + block.nbytes - small[0][0] > 4 * least):
            pieces += _together(small)
            small = []
        if block.nbytes >= least:
            pieces.append((state, at, block.nbytes, _block_text(block)))
        else:
            small.append((at, state, block))
    return pieces + _together(small)


def _together(blocks: Sequence[_Placed]) -> list[_Piece]:
    """Neighbouring blocks as one piece for each state."""
    by_state: dict[str, list[Block]] = {}
    for _, state, block in blocks:
        by_state.setdefault(state, []).append(block)
    pieces: list[_Piece] = []
    at = blocks[0][0] if blocks else 0
    for state in _STATES:
        mine = by_state.get(state, [])
        nbytes = sum(block.nbytes for block in mine)
        if mine:
            text = _block_text(mine[0]) if len(mine) == 1 else f"{len(mine)} blocks, {shown(nbytes)}"
            pieces.append((state, at, nbytes, text))
            at += nbytes
    return pieces


def _block_text(block: Block) -> str:
    """Holder, bytes, what was asked for, and where."""
    words = [shown(block.nbytes)]
    words += [f"requested {shown(block.requested)}"] if block.requested not in (None, block.nbytes) else []
    words += [_text(block.site, 40)] if block.site else []
    return (f"{_text(block.holder.path, 60)}<br>" if block.holder is not None else "") + ", ".join(words)
