"""Records to blocks: the headings, bars, tables and lines of which the text and the HTML are both made.

So the console and the notebook say the same, and a renderer knows nothing of memory.
"""
from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from jupyter_gpumem import model
from jupyter_gpumem.model import Allocator, Cause, Device, Holding, NameUse, Plan, Snapshot, Step
from jupyter_gpumem.units import shown, signed

MOST_ROWS = 12


@dataclass(frozen=True)
class Heading:
    """What follows, and its sum."""

    text: str
    figure: str = ""


@dataclass(frozen=True)
class Segment:
    """A part of a device's memory. ``kind`` gives its colour or shade."""

    kind: str
    label: str
    nbytes: int | None
    """None: said in the legend, not drawn."""


@dataclass(frozen=True)
class Bar:
    """The parts of one device's memory, in order."""

    label: str
    total: int
    segments: tuple[Segment, ...]


@dataclass(frozen=True)
class Table:
    """Rows of text; the columns named in ``right`` are figures."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: frozenset[int] = frozenset()
    cut: str = ""
    """What was left out, with its count."""


@dataclass(frozen=True)
class Line:
    """A sentence. ``code`` is what the reader may type; ``warn`` marks what went wrong."""

    text: str
    code: str = ""
    warn: bool = False


@dataclass(frozen=True)
class Fold:
    """Details behind a title. HTML folds them in; text shows them where they are ``open``."""

    title: str
    blocks: tuple[Block, ...]
    open: bool = False


Block = Heading | Bar | Table | Line | Fold


@functools.singledispatch
def blocks(record: object) -> list[Block]:
    """The blocks of a record. Raises TypeError for anything else."""
    raise TypeError(f"there is no picture of a {type(record).__name__}")


def device_blocks(device: Device, allocators: Sequence[Allocator]) -> list[Block]:
    """A device: name and sums, the bar, the figures one by one."""
    mine = [a for a in allocators if device.alias is not None and a.device == device.alias]
    name = f"MIG instance {device.index}  {device.name}" if device.kind == "mig" else device.name
    used = f"{shown(device.used)} of {shown(device.total)} used"
    found: list[Block] = [Heading(f"{device.alias}  {name}" if device.alias else name, used)]
    if device.total and device.used is not None:
        found.append(Bar(device.alias or device.name, device.total, _segments(device, mine)))
    found += [_allocator(allocator) for allocator in mine]
    found += _processes(device)
    if device.kind != "host":
        found.append(Line(_figures(device)))
    return [*found, *(Line(note) for note in device.notes)]


def _figures(device: Device) -> str:
    load = "N/A" if device.utilization is None else f"{device.utilization}%"
    heat = "N/A" if device.temperature is None else f"{device.temperature} °C"
    power = "N/A" if device.power is None else f"{device.power / 1000:.0f} W"
    return f"utilisation {load}, temperature {heat}, power {power}"


def _segments(device: Device, mine: Sequence[Allocator]) -> tuple[Segment, ...]:
    """This process, others, what nobody answers for, the driver's reserve, and what is free. Zeros are left out."""
    host, used = device.kind == "host", device.used
    allocated, cached = sum(a.allocated for a in mine), sum(a.cached or 0 for a in mine)
    own = [p.used for p in device.processes or () if p.own]
    others = [p.used for p in device.processes or () if not p.own]
    taken = allocated + cached
    unsaid = None in own or (taken > 0 and not own)  # in a container we may be listed under another id, or not at all
    context = None if unsaid else max(0, sum(u or 0 for u in own) - taken)
    taken += context or 0
    theirs = None if device.processes is None or (others and set(others) == {None}) else sum(u or 0 for u in others)
    if theirs is not None and used is not None:
        theirs = min(theirs, max(0, used - taken))  # then we may be among them: nothing is counted twice
    nobody = None if used is None else max(0, used - taken - (theirs or 0))
    if host:  # nobody lists the others
        theirs, nobody = nobody, 0
    parts = (
        Segment("allocated", "tensors" if host else "allocated", allocated),
        Segment("cached", "cached", cached),
        Segment("context", "rest of this process" if host else "context and libraries", context),
        Segment("others", "other processes", theirs),
        Segment("unattributed", "unattributed", nobody),
        Segment("reserved", "driver", 0 if host else device.reserved),
        Segment("free", "free", device.free),
    )
    return tuple(part for part in parts if part.nbytes != 0)


def _processes(device: Device) -> list[Block]:
    """Who else is there, by process id; a host does not list them."""
    others = [p for p in device.processes or () if not p.own]
    words = [f"pid {p.pid} {shown(p.used)}{'' if p.kind == 'compute' else f' ({p.kind})'}" for p in others[:4]]
    more = f" and {len(others) - 4} more" if len(others) > 4 else ""
    return [Line(f"other processes: {', '.join(words)}{more}")] if others else []


def _allocator(a: Allocator) -> Line:
    return Line(f"{a.framework}: allocated {shown(a.allocated)}, cached {shown(a.cached)}, peak {shown(a.peak)}")


def _ordered(devices: Sequence[Device]) -> list[Device]:
    """Each GPU, then its instances."""
    place = {device.uuid: index for index, device in enumerate(devices)}
    return sorted(devices, key=lambda d: (place.get(d.parent or d.uuid, place[d.uuid]), d.parent is not None))


@blocks.register
def _snapshot(snapshot: Snapshot) -> list[Block]:
    found: list[Block] = []
    visible = [d for d in _ordered(snapshot.devices) if d.kind != "host"]
    visible += [d for d in snapshot.devices if d.kind == "host"]
    for device in visible:
        found += device_blocks(device, snapshot.allocators)
    known = {device.alias for device in visible}
    unknown = {a.device: [b for b in snapshot.allocators if b.device == a.device] for a in snapshot.allocators}
    for name, mine in unknown.items():
        found += [] if name in known else [Heading(name, "memory of the device N/A"), *map(_allocator, mine)]
    found += [Line(note, warn=snapshot.partial) for note in snapshot.notes]
    if not found:
        found.append(Line("no device could be read"))
    return [*found, *_names(snapshot), *_elsewhere(snapshot), *dangling(snapshot)]


def _names(snapshot: Snapshot) -> list[Block]:
    named = [h for h in snapshot.holdings if h.holder.cause is Cause.NAME]
    if not named:
        return [Heading("Names", "none holds memory of " + _watched(snapshot.watched))]
    groups: dict[str, list[Holding]] = {}
    for holding in named:
        groups.setdefault(holding.holder.name or holding.holder.path, []).append(holding)
    ordered = sorted(groups.items(), key=lambda item: -_sum(item[1]))
    total = _sum(snapshot.holdings)
    rows = [(name, _what(parts), shown(_sum(parts)), _share(_sum(parts), total)) for name, parts in ordered]
    return [
        Heading("Names", f"{shown(_sum(named))} in {count(len(named), 'storage')} on {_watched(snapshot.watched)}"),
        table(("name", "what", "size", "share"), rows, {2, 3}, [_sum(parts) for _, parts in ordered]),
    ]


def _what(parts: Sequence[Holding]) -> str:
    """For one tensor its type, shape and dtype, and where it is under the name."""
    largest = max(parts, key=lambda part: part.nbytes)
    if len(parts) > 1:
        return f"{count(len(parts), 'storage')}; largest {largest.holder.path}"
    where = "" if largest.holder.path == largest.holder.name else f"; {largest.holder.path}"
    return _tensor_text(largest) + where


def _tensor_text(holding: Holding) -> str:
    """A view says of how much it is a part."""
    if not holding.tensors:
        return "storage without a tensor"
    tensor = max(holding.tensors, key=lambda tensor: tensor.nbytes)
    text = f"{tensor.kind} {_shape(tensor.shape)} {tensor.dtype}"
    if tensor.nbytes < holding.nbytes:
        text += f" ({shown(tensor.nbytes)} view of a {shown(holding.nbytes)} storage)"
    return text + (f", {count(holding.unseen, 'reference')} unseen" if holding.unseen else "")


def _shape(shape: Sequence[int]) -> str:
    return "×".join(map(str, shape)) if shape else "scalar"


def _elsewhere(snapshot: Snapshot) -> list[Block]:
    """What libraries and registries keep: no name of the user's, but in use."""
    held = [h for h in snapshot.holdings if h.holder.cause in (Cause.MODULE, Cause.REGISTRY)]
    if not held:
        return []
    return [Heading("Kept by libraries and registries", shown(_sum(held))), _holding_table(held)]


def dangling(snapshot: Snapshot) -> list[Block]:
    """What no name keeps, by what holds it, with the line that frees it."""
    held = snapshot.dangling
    if not held:
        return [Heading("Dangling", "nothing: a name of yours or a library keeps every storage")]
    found: list[Block] = [Heading("Dangling", f"{shown(_sum(held))} in {count(len(held), 'storage')}")]
    for cause in Cause:
        group = [h for h in held if h.holder.cause is cause]
        if group:
            words, code = CURES[cause]
            if cause is Cause.UNKNOWN and snapshot.partial:
                words = "not explained: the search ran out of time"
            found += [Line(f"{words}: {shown(_sum(group))}", code), _holding_table(group, most=6)]
    return found


CURES = {
    Cause.NAME: ("a name of yours", ""),
    Cause.MODULE: ("a module", ""),
    Cause.REGISTRY: ("a registry", ""),
    Cause.RUNNING: ("held by running code; stop it", ""),
    Cause.LAST_ERROR: ("the last error", "%gpufree"),
    Cause.OUTPUT: ("the output history", "%gpufree"),
    Cause.HIDDEN: ("namespaces of scripts that were run", "%gpufree"),
    Cause.FRAME: ("frames that are over", "%gpufree"),
    Cause.CYCLE: ("dead cycles", "%gpufree"),
    Cause.CACHE: ("caches", "%gpufree"),
    Cause.GRAPH: ("C++ cycle: cannot be collected; a restart gives it back", ""),
    Cause.UNKNOWN: ("held by something that Python cannot see", ""),
}
"""Each cause in words, and the line that frees what it keeps; none for what a clean-up must not or cannot touch."""


def _holding_table(held: Sequence[Holding], most: int = MOST_ROWS) -> Table:
    rows = [(h.holder.path, _tensor_text(h), shown(h.nbytes)) for h in held]
    return table(("held by", "what", "size"), rows, {2}, [h.nbytes for h in held], most)


_FORGET = dict.fromkeys((Step.LAST_ERROR, Step.OUTPUT, Step.HIDDEN), "forget")
_CLEAR = {Step.COLLECT: "collect", Step.CACHE: "clear", Step.EMPTY: "empty cache of"}
_VERBS = {Step.NAME: "delete name", Step.MOVE: "move to host", **_FORGET, **_CLEAR}


@blocks.register
def _plan(plan: Plan) -> list[Block]:
    found: list[Block] = [Heading("Plan (nothing was done)", f"would free {shown(plan.promised)}")]
    return [*found, *_actions(plan, plan.actions), *_held(plan.held, "Would stay")]


def _actions(plan: Plan, done: Sequence[model.Action]) -> list[Block]:
    """The actions with the bytes that each promises. Collecting is left out where it would give nothing."""
    rows = []
    for a in plan.actions:
        if a.step is not Step.COLLECT or a.nbytes != 0 or a not in done:
            note = "; ".join(word for word in ("" if a in done else "NOT DONE", a.note) if word)
            rows.append((f"{_VERBS[a.step]} {a.target}", "unknown" if a.nbytes is None else shown(a.nbytes), note))
    found: list[Block] = [table(("action", "gives back", "note"), rows, {1}, None, 30)] if rows else []
    return [*(found or [Line("nothing to do")]), *(Line(note, warn=True) for note in plan.notes)]


@blocks.register
def _report(report: model.Report) -> list[Block]:
    pools = [(old.reserved, new.reserved) for old, new in pairs(report.before, report.after) if old and new]
    returned = [old - new for old, new in pools if old is not None and new is not None]
    figure = f"{shown(report.freed)} of {shown(report.plan.promised)} planned"
    if returned:
        figure += f", {shown(max(0, sum(returned)))} back to the driver"
    found: list[Block] = [Heading("Freed", figure), *_actions(report.plan, report.done)]
    short = report.plan.promised - report.freed
    found += [Line(f"{shown(short)} less than planned", warn=True)] if short > 0 else []
    found += _held(report.left, "Still held")
    return [*found, *(Line(f"jupyter_gpumem: {fault}", warn=True) for fault in report.faults)]


def _held(held: Sequence[Holding], title: str) -> list[Block]:
    return [Heading(title, shown(_sum(held))), _holding_table(held)] if held else []


@blocks.register
def _cell(use: model.CellUse) -> list[Block]:
    if use.brief:
        return [Line(brief(use), warn=use.failed)]
    changes = _changes(use)
    figure = changes[0] if len(changes) == 1 else "" if changes else "no device in use"
    found: list[Block] = [Heading(use.title + (" (failed)" if use.failed else ""), figure)]
    found += [Line(change) for change in changes] if len(changes) > 1 else []
    found += [Line(f"peak made by {use.peak_line}")] if use.peak_line else []
    plan = use.report.plan if use.report is not None else use.plan
    told = {a.target for a in plan.actions if a.step in (Step.NAME, Step.MOVE)} if plan is not None else set()
    made = [u for u in use.made if u.name not in told]
    if made:
        found.append(_uses("new or rebound", made, MOST_ROWS))
    found += _plan(use.plan) if use.plan is not None else []
    if use.report is not None:
        left = [f"{a.device} {shown(a.allocated)}" for a in use.report.after if a.allocated]
        found += [*_report(use.report), *([Line(f"now allocated: {', '.join(left)}")] if left else [])]
    return [*found, *(Line(note) for note in use.notes)]


def brief(use: model.CellUse) -> str:
    """A cell in one line."""
    text = f"gpumem {use.title}{' (failed)' if use.failed else ''}: " + ("; ".join(_changes(use)) or "no device in use")
    if use.made:
        text += ", new: " + ", ".join(f"{u.name} {shown(u.nbytes)}" for u in use.made[:4])
        text += f" and {len(use.made) - 4} more" if len(use.made) > 4 else ""
    return text + (f"; peak made by {use.peak_line}" if use.peak_line else "")


def pairs(before: Iterable[Allocator], after: Iterable[Allocator]) -> list[tuple[Allocator | None, Allocator | None]]:
    """The allocators before and after, matched: two frameworks may share a device."""
    old, new = ({(a.framework, a.device): a for a in side} for side in (before, after))
    return [(old.get(key), new.get(key)) for key in {**new, **old}]


def _changes(use: model.CellUse) -> list[str]:
    """``cuda:0 1.2 GiB → 1.5 GiB (+300.0 MiB), peak 2.1 GiB`` for each allocator with anything to say."""
    found = []
    both = pairs(use.before, use.after)
    shared = len({a.device for pair in both for a in pair if a}) < len(both)
    for old, new in both:
        one = new or old
        start = old.allocated if old else 0  # an allocator that was not there had given out nothing
        if one is None or (new and not (start or new.allocated or new.peak) and len(both) > 1):
            continue
        text = f"{one.framework} {one.device}" if shared else one.device
        text += f" {shown(start)} → {shown(new.allocated if new else None)}"
        if new is not None:
            text += f" ({signed(new.allocated - start)})" if new.allocated != start else " (unchanged)"
            text += f", peak {shown(new.peak)}" if new.peak is not None else ""
        found.append(text)
    return found


def _uses(title: str, uses: Sequence[NameUse], most: int) -> Table:
    rows = [(use.name, use_text(use), shown(use.nbytes)) for use in uses]
    return table((title, "what", "size"), rows, {2}, [use.nbytes for use in uses], most)


def use_text(use: NameUse) -> str:
    """A tensor's type, shape and dtype; for anything else its type and its number of storages."""
    if use.shape is not None:
        return f"{use.kind} {_shape(use.shape)} {use.dtype or ''}".rstrip()
    return f"{use.kind}, {count(use.storages, 'storage')}"


@blocks.register
def _notice(notice: model.Notice) -> list[Block]:
    return [Line(notice.text, warn=notice.fault)]


def table(
    columns: Sequence[str],
    rows: Sequence[tuple[str, ...]],
    right: Iterable[int],
    sizes: Sequence[int] | None,
    most: int = MOST_ROWS,
) -> Table:
    """A table, cut after ``most`` rows with a count of the rest."""
    cut = ""
    if len(rows) > most:
        rest = f", {shown(sum(sizes[most:]))}" if sizes is not None else ""
        cut = f"… and {len(rows) - most} more{rest}"
    return Table(tuple(columns), tuple(rows[:most]), frozenset(right), cut)


def _sum(holdings: Iterable[Holding]) -> int:
    return sum(holding.nbytes for holding in holdings)


def _share(part: int, whole: int) -> str:
    """Per cent; a part that is there is never said to be none of it."""
    return "" if not whole else "<1%" if 0 < part * 200 < whole else f"{100 * part / whole:.0f}%"


def count(number: int, word: str) -> str:
    """``1 storage``, ``2 storages``."""
    return f"{number} {word}{'' if number == 1 else 's'}"


def _watched(watched: Sequence[str]) -> str:
    return "host memory (cpu)" if tuple(watched) == ("cpu",) else ", ".join(watched) or "any device"
