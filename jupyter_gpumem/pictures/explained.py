"""Blocks of the records that explain: accounts, growth, leaks, graphs, timelines, objects in depth, and why.

To be imported wherever blocks are made: importing it registers them.
"""
from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from jupyter_gpumem import model
from jupyter_gpumem.model import Account, Graph, Growth, Leaks, NameUse, ObjectUse, Sum, Timeline, Trend, Verdict, Why
from jupyter_gpumem.pictures.blocks import (
    CURES,
    Bar,
    Block,
    Heading,
    Line,
    Segment,
    Table,
    blocks,
    count,
    pairs,
    table,
    use_text,
)
from jupyter_gpumem.units import series, shown, signed

_LINES = 40
"""Of a tree."""
_PINNED_ROWS = 6
_CELLS = 30

# ---------------------------------------------------------------- accounts
_WORDS = {
    "names": "names",
    "graphs": "autograd graphs",
    "dangling": "dangling",
    "libraries": "libraries and registries",
    "running": "running code",
    "rounding": "rounding",
    "unexplained": "unexplained",
    "outside": "outside this allocator",
    "allocated": "allocated",
    "awaiting": "freed, awaiting a stream",
    "cached": "cached, can go back",
    "fragments": "fragments, cannot go back",
    "reserved": "reserved",
    "context": "context and libraries",
    "others": "other processes",
    "unattributed": "unattributed",
    "private": "private pools",
    "tensors": "its tensors",
    "rest": "the rest of it: Python, libraries, data",
    "resident": "this process, resident",
    "system": "other processes and the system",
}
_COLOURS = {
    "names": "allocated",
    "reserved": "allocated",
    "private": "fragments",
    "tensors": "allocated",
    "rest": "context",
    "resident": "allocated",
    "system": "others",
}
"""Where a part's colour has another name: ``reserved`` is what the driver keeps, elsewhere."""


@blocks.register
def _account(account: Account) -> list[Block]:
    name = f"{account.framework} {account.device}"
    on_host = any(entry.kind == "tensors" for entry in account.reserved.entries)
    mine = "resident memory of this process" if on_host else f"{name}  reserved"
    found = [*_sum(f"{name}  allocated", account.allocated), *_sum(mine, account.reserved)]
    found += [*_fragments(account.segments), *_sum(f"{account.device}  used by all processes", account.used)]
    notes = account.notes or (("the search for holders ran out of time",) if account.partial else ())
    return [*found, *(Line(note, warn=account.partial) for note in notes)]


def _known(nbytes: int | None) -> str:
    return "unknown" if nbytes is None else shown(nbytes)


def _sum(title: str, parts: Sum) -> list[Block]:
    """A sum, drawn if it is wholly known. Parts of nothing are left out, but *unexplained* is always answered."""
    told = [entry for entry in parts.entries if entry.nbytes != 0 or entry.note or entry.kind == "unexplained"]
    found: list[Block] = [Heading(title, _known(parts.total))]
    # what is less than 0 has no length: the table tells it
    drawn = [(entry.kind, entry.nbytes) for entry in told if entry.nbytes and entry.nbytes > 0]
    if drawn and all(entry.nbytes is not None for entry in parts.entries):
        segments = (Segment(_COLOURS.get(kind, kind), _WORDS.get(kind, kind), nbytes) for kind, nbytes in drawn)
        found.append(Bar(title, sum(nbytes for _, nbytes in drawn), tuple(segments)))
    columns = ("part", "size", "note") if any(entry.note for entry in told) else ("part", "size")
    rows = [(_WORDS.get(entry.kind, entry.kind), _known(entry.nbytes), entry.note)[: len(columns)] for entry in told]
    return [*found, *([table(columns, rows, {1}, None, len(rows))] if rows else [])]


def _fragments(segments: Sequence[model.Segment]) -> list[Block]:
    """The segments whose free bytes cannot go back to the driver, and what in them is in use."""
    pinned = sorted((s for s in segments if s.free and not s.returnable and not s.private), key=lambda s: -s.free)
    if not pinned:
        return []
    rows = [(f"{s.pool}, {shown(s.nbytes)}", shown(s.free), _pinned_by(s.pins)) for s in pinned]
    sizes = [s.free for s in pinned]
    figure = f"{shown(sum(sizes))} in {count(len(sizes), 'segment')}"
    return [
        Heading("Fragments", figure),
        table(("segment", "free bytes", "pinned by"), rows, {1}, sizes, _PINNED_ROWS),
    ]


def _pinned_by(pins: Sequence[model.Block]) -> str:
    first = pins[0]
    waits = "freed, awaiting a stream" if first.state == "awaiting" else "unexplained"
    who = first.holder.path if first.holder is not None else waits
    site = f", made at {first.site}" if first.site else ""
    rest = f" and {len(pins) - 1} more" if len(pins) > 1 else ""
    return f"{who} ({shown(first.nbytes)}{site}){rest}"


# ---------------------------------------------------------------- growth
@blocks.register
def _growth(growth: Growth) -> list[Block]:
    both = pairs(*growth.allocators)
    shared = len({a.device for pair in both for a in pair if a}) < len(both)
    nets = []
    for old, new in both:
        one = new or old
        if one is not None:
            net = None if new is None else new.allocated - (old.allocated if old else 0)
            where = f"{one.framework} {one.device}" if shared else one.device
            nets.append(f"{where} {'unchanged' if net == 0 else signed(net)}")
    found: list[Block] = [Heading(f"{growth.before} → {growth.after}", ", ".join(nets) or "no device in use")]
    if growth.partial:
        found.append(Line("the search for holders ran out of time: some of it may be only for that reason", warn=True))
    if not growth.changes:
        return [*found, Line("no holder keeps more or less than before")]
    rows = [(c.path, c.kind, f"{c.storages:+d}" if c.storages else "±0", signed(c.nbytes)) for c in growth.changes]
    cells = table(("path", "change", "storages", "bytes"), rows, {2, 3}, None, 30)
    if cells.cut:
        rest = growth.changes[30:]
        cells = Table(cells.columns, cells.rows, cells.right, f"{cells.cut}, {signed(sum(c.nbytes for c in rest))}")
    return [*found, cells]


_VERDICTS = {
    Verdict.LEAK: "a leak: it grew in each of the last rounds",
    Verdict.UNSURE: "not sure: something grew, but the evidence is short",
    Verdict.STEADY: "steady",
}


@blocks.register
def _leaks(leaks: Leaks) -> list[Block]:
    found: list[Block] = [Heading(leaks.title, f"{_VERDICTS[leaks.verdict]}; {count(leaks.rounds, 'round')}")]
    if leaks.trends:
        mixed = len({trend.verdict for trend in leaks.trends}) > 1
        rows = [
            (t.path, series(t.sizes), _per_round(t), *([t.verdict.value] if mixed else [])) for t in leaks.trends
        ]
        columns = ("path", "after each round", "per round", *(["verdict"] if mixed else []))
        found.append(table(columns, rows, {2}, None, 20))
    elif leaks.verdict is Verdict.STEADY:
        found.append(Line("nothing keeps more after the last round than after the first"))
    return [*found, *(Line(note) for note in leaks.notes)]


def _per_round(trend: Trend) -> str:
    """The mean over the rounds in which it has been growing without a pause, up to now; over all if it pauses now."""
    steps = [after - before for before, after in pairwise(trend.sizes)]
    if not steps:
        return ""
    since = next((index for index in range(len(steps), 0, -1) if steps[index - 1] <= 0), 0)
    tail = steps[since:] or steps
    return f"{'' if len(set(tail)) == 1 else 'about '}{signed(round(sum(tail) / len(tail)))}"


@blocks.register
def _timeline(timeline: Timeline) -> list[Block]:
    """The newest cells, oldest first as they were run."""
    if not timeline.cells:
        return [Line("no cell was watched")]
    cells = timeline.cells[-_CELLS:]
    uses = [(cell, old, new) for cell in cells for old, new in pairs(cell.before, cell.after) if old or new]
    places = dict.fromkeys(_place(old, new) for _, old, new in uses)
    one_place, told = len(places) < 2, any(cell.peak_line for cell in cells)
    rows = []
    for cell, old, new in uses:
        start, end = old.allocated if old else 0, new.allocated if new else None
        change = "unchanged" if end == start else signed(None if end is None else end - start)
        row = [cell.title + (" (failed)" if cell.failed else ""), *([] if one_place else [_place(old, new)])]
        row += [f"{shown(start)} → {shown(end)}", change, shown(new.peak if new else None)]
        rows.append((*row, *([cell.peak_line or ""] if told else [])))
    columns = ["cell", *([] if one_place else ["device"]), "before → after", "change", "peak"]
    columns += ["peak made by"] if told else []
    figures = {columns.index(name) for name in ("before → after", "change", "peak")}
    earlier = len(timeline.cells) - len(cells)
    totals = dict(timeline.totals)
    where = [f"{place} ({shown(totals[place])})" if place in totals else place for place in places]
    return [
        Heading("Cells", f"{len(timeline.cells)} on {', '.join(where) or 'no device'}"),
        Table(tuple(columns), tuple(rows), frozenset(figures), f"… and {earlier} earlier" if earlier else ""),
    ]


def _place(old: model.Allocator | None, new: model.Allocator | None) -> str:
    one = new or old
    return "" if one is None else one.device


# ---------------------------------------------------------------- graphs
class _Row(NamedTuple):
    """A line of a graph that is drawn as a tree."""

    prefix: str
    node: model.GraphNode
    again: bool
    """It stands above already."""
    shared: bool
    """Several operations need it."""


def _rows(graph: Graph) -> list[_Row]:
    """As ``git log --graph`` draws one: the longest way down keeps its column, what else is needed branches off."""
    nodes = {node.number: node for node in graph.nodes}
    edges = [(a, b) for a, b in dict.fromkeys(graph.edges) if a in nodes and b in nodes]
    needs: dict[int, list[int]] = {number: [] for number in nodes}
    needed = dict.fromkeys(nodes, 0)
    for a, b in edges:
        needs[a].append(b)
        needed[b] += 1
    length = _lengths(needs)
    rows: list[_Row] = []
    seen: set[int] = set()
    todo = [(number, 0, False) for number in reversed(nodes) if not needed[number]]
    while todo:
        number, depth, is_branch = todo.pop()
        prefix = "│ " * (depth - 1) + "├ " if is_branch else "│ " * depth
        rows.append(_Row(prefix, nodes[number], number in seen, needed[number] > 1))
        if number not in seen and needs[number]:
            trunk = max(needs[number], key=lambda child: length[child])
            todo.append((trunk, depth, False))
            todo += [(child, depth + 1, True) for child in reversed(needs[number]) if child != trunk]
        seen.add(number)
    return rows


def _lengths(needs: dict[int, list[int]]) -> dict[int, int]:
    """The operations on the longest way down from each one. Without recursion: graphs are thousands deep."""
    length: dict[int, int] = {}
    entered: set[int] = set()
    for start in needs:
        todo = [start]
        while todo:
            number = todo[-1]
            deeper = [] if number in entered else [child for child in needs[number] if child not in length]
            entered.add(number)
            todo += deeper
            if not deeper:
                length[todo.pop()] = 1 + max((length.get(child, 0) for child in needs[number]), default=0)
    return length


@blocks.register
def _graph(graph: Graph) -> list[Block]:
    rows = _rows(graph)
    largest = {n.number for n in heapq.nlargest(3, graph.nodes, key=lambda n: n.nbytes) if n.nbytes}
    marks = [row.node.number in largest and not row.again for row in rows]
    kept = _kept(rows, marks)
    cells = [_graph_row(rows[at], graph.nbytes if marks[at] else 0) for at in kept]
    hidden = [rows[at].node for at in range(len(rows)) if at not in kept and not rows[at].again]
    left_out, bytes_out = len(hidden) + graph.left_out, sum(node.nbytes for node in hidden)
    cut = ""
    if left_out:
        size = f", {shown(bytes_out)}" if not graph.left_out else f", of which {len(hidden)} save {shown(bytes_out)}"
        cut = f"… and {count(left_out, 'more operation')}{size if hidden else ''}"
    title = Heading(f"Graph of {graph.name or 'this tensor'}", f"{shown(graph.nbytes)} beside the tensor itself")
    if not cells:
        return [title, Line("it has no graph")]
    return [title, Table(("operation", "saves", "size", "largest"), tuple(cells), frozenset({2, 3}), cut)]


def _kept(rows: Sequence[_Row], marks: Sequence[bool]) -> set[int]:
    """The rows to show: all, or the first and those that save most, in their order."""
    if len(rows) <= _LINES:
        return set(range(len(rows)))
    order = sorted(range(len(rows)), key=lambda at: (at > 0, not marks[at], rows[at].again, -rows[at].node.nbytes, at))
    return set(order[:_LINES])


def _graph_row(row: _Row, whole: int) -> tuple[str, str, str, str]:
    node = row.node
    name = f"{row.prefix}{node.label}{f' #{node.number}' if row.shared else ''}"
    if row.again:
        return f"{name} (see above)", "", "", ""
    saved = ", ".join(node.saved[:2]) + (f" and {len(node.saved) - 2} more" if len(node.saved) > 2 else "")
    share = f"◀ {100 * node.nbytes / whole:.0f}%" if whole else ""
    return name, saved or ("leaf" if node.is_leaf else ""), shown(node.nbytes) if node.nbytes else "", share


# ---------------------------------------------------------------- one object
@blocks.register
def _object(use: ObjectUse) -> list[Block]:
    title = Heading(f"{use.name}  {use.kind}", shown(use.nbytes))
    if not use.parts:
        return [title, Line("it holds no memory of an imported framework")]
    chosen = _largest(use.parts, _LINES)
    rows = list(_parts(use.parts, set(chosen), 0))
    while len(rows) > _LINES:  # the lines that say what was cut take room too
        chosen.pop()
        rows = list(_parts(use.parts, set(chosen), 0))
    return [title, Table(("part", "what", "size"), tuple(rows), frozenset({2}))]


def _largest(parts: Sequence[NameUse], most: int) -> list[int]:
    """The ids of the largest parts of all depths, largest first; none comes before what it is a part of."""
    waiting = [(-part.nbytes, at, part) for at, part in enumerate(parts)]
    heapq.heapify(waiting)
    number = len(waiting)
    chosen: list[int] = []
    while waiting and len(chosen) < most:
        _, _, part = heapq.heappop(waiting)
        chosen.append(id(part))
        for inner in part.parts:
            heapq.heappush(waiting, (-inner.nbytes, number, inner))
            number += 1
    return chosen


def _parts(parts: Sequence[NameUse], chosen: set[int], depth: int) -> Iterator[tuple[str, str, str]]:
    """The rows of a level and of what lies below it, with one for what was cut of it."""
    ordered = sorted(parts, key=lambda part: -part.nbytes)
    cut = [part for part in ordered if id(part) not in chosen]
    cut = cut if len(cut) > 1 else []  # to say "1 more" would take as much room
    indent = "  " * depth
    for part in ordered:
        if part not in cut:
            opened = any(id(inner) in chosen for inner in part.parts)
            closed = f", {count(len(part.parts), 'part')}" if part.parts and not opened else ""
            yield indent + part.name, use_text(part) + closed, shown(part.nbytes)
            yield from _parts(part.parts, chosen, depth + 1) if opened else ()
    if cut:
        yield f"{indent}… {len(cut)} more", "", shown(sum(part.nbytes for part in cut))


_ALONE = {True: "yes", False: "no", None: "—"}


@blocks.register
def _why(why: Why) -> list[Block]:
    found: list[Block] = [Heading(f"Why {why.name or 'this'} is alive", shown(why.nbytes))]
    rows = [(holder.path, CURES[holder.cause][0], _ALONE[holder.frees]) for holder in why.holders]
    if rows:
        found.append(table(("held by", "which is", "alone enough?"), rows, (), None, 30))
    else:
        found.append(Line("no holder found"))
    found += [Line(f"and {count(why.more, 'more holder')}")] if why.more else []
    if why.cuts and not any(holder.frees for holder in why.holders):
        found.append(Line(f"to free it let go of {'all of: ' if len(why.cuts) > 1 else ''}{', '.join(why.cuts)}"))
    if why.partial:
        found.append(Line("the search ran out of time: there may be more holders", warn=True))
    return [*found, *(Line(note) for note in why.notes)]
