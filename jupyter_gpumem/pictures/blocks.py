"""Records to blocks: the headings, bars, tables and lines of which the text and the HTML are both made.

So the console and the notebook say the same, and a renderer knows nothing of memory.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from jupyter_gpumem.model import (
    Allocator,
    Cause,
    CellUse,
    Device,
    Holding,
    NameUse,
    Notice,
    ObjectUse,
    Plan,
    Report,
    Snapshot,
    Step,
    Why,
)
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
    nbytes: int


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


Block = Heading | Bar | Table | Line


def blocks(record: object) -> list[Block]:
    """The blocks of a record. Raises TypeError for anything else."""
    for kind, make in _MAKERS:
        if type(record) is kind:
            return make(record)
    raise TypeError(f"there is no picture of a {type(record).__name__}")


# ---------------------------------------------------------------- devices
def device_blocks(device: Device, allocators: Sequence[Allocator]) -> list[Block]:
    """A device: name and sums, the bar, the figures one by one."""
    mine = [a for a in allocators if device.alias is not None and a.device == device.alias]
    indent = "MIG " if device.kind == "mig" else ""
    alias = f"{device.alias}  " if device.alias else ""
    used = f"{shown(device.used)} of {shown(device.total)} used"
    found: list[Block] = [Heading(f"{alias}{indent}{device.name}", used)]
    segments = _segments(device, mine)
    if device.total and segments:
        found.append(Bar(device.alias or device.name, device.total, segments))
    if device.kind != "host":
        found.append(Line(_figures(device)))
    found += [Line(note) for note in device.notes]
    return found


def _figures(device: Device) -> str:
    load = "N/A" if device.utilization is None else f"{device.utilization}%"
    heat = "N/A" if device.temperature is None else f"{device.temperature} °C"
    power = "N/A" if device.power is None else f"{device.power / 1000:.0f} W"
    return f"utilisation {load}, temperature {heat}, power {power}"


def _segments(device: Device, mine: Sequence[Allocator]) -> tuple[Segment, ...]:
    """This process, others, what nobody answers for, the driver's reserve, and what is free."""
    allocated = sum(a.allocated for a in mine)
    cached = sum(a.cached or 0 for a in mine)
    own = [p.used for p in device.processes or () if p.own and p.used is not None]
    others = [p.used for p in device.processes or () if not p.own and p.used is not None]
    rest = max(0, sum(own) - allocated - cached) if own else 0
    claimed = allocated + cached + rest + sum(others)
    unattributed = max(0, device.used - claimed) if device.used is not None else 0
    host = device.kind == "host"
    parts = [
        Segment("allocated", "tensors" if host else "allocated", allocated),
        Segment("cached", "cached", cached),
        Segment("context", "rest of this process" if host else "context and libraries", rest),
        Segment("others", "other processes", sum(others) + (unattributed if host else 0)),
        Segment("unattributed", "unattributed", 0 if host else unattributed),
        Segment("reserved", "driver", device.reserved or 0),
        Segment("free", "free", device.free or 0),
    ]
    return tuple(part for part in parts if part.nbytes)


def _allocator_lines(snapshot: Snapshot) -> list[Block]:
    """Allocators of devices that no driver has described."""
    known = {device.alias for device in snapshot.devices}
    return [
        Line(f"{a.device}: allocated {shown(a.allocated)}, cached {shown(a.cached)}, peak {shown(a.peak)}")
        for a in snapshot.allocators
        if a.device not in known
    ]


# ---------------------------------------------------------------- snapshot
def _snapshot(snapshot: Snapshot) -> list[Block]:
    found: list[Block] = []
    watched_host = "cpu" in snapshot.watched
    accelerators = [device for device in snapshot.devices if device.kind != "host"]
    for device in snapshot.devices:
        if device.kind != "host" or watched_host or not accelerators:
            found += device_blocks(device, snapshot.allocators)
    found += _allocator_lines(snapshot)
    found += [Line(note, warn=snapshot.partial) for note in snapshot.notes]
    found += _names(snapshot)
    found += _elsewhere(snapshot)
    return [*found, *dangling(snapshot)]


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
        Heading("Names", f"{shown(_sum(named))} in {_count(len(named), 'storage')} on {_watched(snapshot.watched)}"),
        _table(("name", "what", "size", "share"), rows, {2, 3}, [_sum(parts) for _, parts in ordered]),
    ]


def _what(parts: Sequence[Holding]) -> str:
    """For one tensor its type, shape and dtype; a view says of how much it is a part."""
    if len(parts) > 1:
        largest = max(parts, key=lambda part: part.nbytes)
        return f"{_count(len(parts), 'storage')}; largest {largest.holder.path}"
    return _tensor_text(parts[0])


def _tensor_text(holding: Holding) -> str:
    if not holding.tensors:
        return ""
    tensor = holding.tensors[0]
    text = f"{tensor.kind} {_shape(tensor.shape)} {tensor.dtype}"
    if tensor.nbytes < holding.nbytes:
        text += f" ({shown(tensor.nbytes)} view of a {shown(holding.nbytes)} storage)"
    return text


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
    found: list[Block] = [Heading("Dangling", f"{shown(_sum(held))} in {_count(len(held), 'storage')}")]
    for cause in Cause:
        group = [h for h in held if h.holder.cause is cause]
        if group:
            words, code = _CURES[cause]
            found.append(Line(f"{words}: {shown(_sum(group))}", code))
            found.append(_holding_table(group))
    return found


_CURES = {
    Cause.RUNNING: ("held by running code, until it ends", ""),
    Cause.LAST_ERROR: ("the last error", "%gpufree"),
    Cause.OUTPUT: ("the output history", "%gpufree"),
    Cause.HIDDEN: ("namespaces of scripts that were run", "%gpufree"),
    Cause.FRAME: ("frames that are over", "%gpufree"),
    Cause.CYCLE: ("dead cycles", "%gpufree"),
    Cause.CACHE: ("caches", "%gpufree"),
    Cause.GRAPH: ("cycles through C++, which no collector can free", ""),
    Cause.UNKNOWN: ("held by something that Python cannot see", ""),
}


def _holding_table(held: Sequence[Holding]) -> Table:
    rows = [(h.holder.path, _tensor_text(h) + _unseen(h), shown(h.nbytes)) for h in held]
    return _table(("held by", "what", "size"), rows, {2}, [h.nbytes for h in held])


def _unseen(holding: Holding) -> str:
    return f", {_count(holding.unseen, 'reference')} unseen" if holding.unseen else ""


# ---------------------------------------------------------------- clean-ups
_VERBS = {
    Step.NAME: "delete name",
    Step.MOVE: "move to host",
    Step.LAST_ERROR: "forget",
    Step.OUTPUT: "forget",
    Step.HIDDEN: "forget",
    Step.COLLECT: "collect",
    Step.CACHE: "clear",
    Step.EMPTY: "empty cache of",
}


def _plan(plan: Plan) -> list[Block]:
    found: list[Block] = [Heading("Plan (nothing was done)", f"would free {shown(plan.promised)}")]
    found += _actions(plan)
    return [*found, *_held(plan.held, "Would stay")]


def _actions(plan: Plan) -> list[Block]:
    shown_actions = [a for a in plan.actions if a.step is not Step.COLLECT or a.nbytes != 0]
    rows = [(f"{_VERBS[a.step]} {a.target}", _amount(a.nbytes), a.note) for a in shown_actions]
    found: list[Block] = [_table(("action", "gives back", "note"), rows, {1}, None)] if rows else []
    if not rows:
        found.append(Line("nothing to do"))
    return [*found, *(Line(note, warn=True) for note in plan.notes)]


def _amount(nbytes: int | None) -> str:
    return "unknown" if nbytes is None else shown(nbytes)


def _report(report: Report) -> list[Block]:
    returned = sum((a.reserved or 0) for a in report.before) - sum((a.reserved or 0) for a in report.after)
    figure = shown(report.freed)
    if any(a.reserved is not None for a in report.after):
        figure += f", {shown(max(0, returned))} back to the driver"
    found: list[Block] = [Heading("Freed", figure), *_actions(report.plan)]
    short = report.plan.promised - report.freed
    if short > 0:
        found.append(Line(f"{shown(short)} less than planned", warn=True))
    found += _held(report.left, "Still held")
    return [*found, *(Line(f"jupyter_gpumem: {fault}", warn=True) for fault in report.faults)]


def _held(held: Sequence[Holding], title: str) -> list[Block]:
    return [Heading(title, shown(_sum(held))), _holding_table(held)] if held else []


# ---------------------------------------------------------------- cells and objects
def _cell(use: CellUse) -> list[Block]:
    if use.brief:
        return [Line(brief(use))]
    failed = " (failed)" if use.failed else ""
    found: list[Block] = [Heading(f"{use.title}{failed}", "; ".join(_changes(use)) or "no device in use")]
    if use.made and use.report is None and use.plan is None:
        rows = [(u.name, _use_text(u), shown(u.nbytes)) for u in use.made]
        found.append(_table(("new or rebound", "what", "size"), rows, {2}, [u.nbytes for u in use.made]))
    if use.plan is not None:
        found += _plan(use.plan)
    if use.report is not None:
        found += _report(use.report)
        left = [f"{a.device} {shown(a.allocated)}" for a in use.report.after if a.allocated]
        found += [Line(f"now allocated: {', '.join(left)}")] if left else []
    return [*found, *(Line(note) for note in use.notes)]


def brief(use: CellUse) -> str:
    """A cell in one line."""
    text = f"gpumem {use.title}: " + ("; ".join(_changes(use)) or "no device in use")
    if use.made:
        text += ", new: " + ", ".join(f"{u.name} {shown(u.nbytes)}" for u in use.made[:4])
        text += f" and {len(use.made) - 4} more" if len(use.made) > 4 else ""
    return text


def _changes(use: CellUse) -> list[str]:
    """``cuda:0 1.2 GiB → 1.5 GiB (+300.0 MiB), peak 2.1 GiB`` for each device with anything to say."""
    before = {a.device: a.allocated for a in use.before}
    found = []
    for after in use.after:
        start = before.get(after.device, 0)
        if not (start or after.allocated or after.peak) and len(use.after) > 1:
            continue
        change = after.allocated - start
        text = f"{after.device} {shown(start)} → {shown(after.allocated)}"
        text += f" ({signed(change)})" if change else " (unchanged)"
        found.append(text + (f", peak {shown(after.peak)}" if after.peak is not None else ""))
    return found


def _object(use: ObjectUse) -> list[Block]:
    rows = [(part.name, _use_text(part), shown(part.nbytes)) for part in use.parts]
    found: list[Block] = [Heading(f"{use.name}  {use.kind}", shown(use.nbytes))]
    if rows:
        found.append(_table(("part", "what", "size"), rows, {2}, [part.nbytes for part in use.parts], most=30))
    else:
        found.append(Line("it holds no memory of an imported framework"))
    return found


def _use_text(use: NameUse) -> str:
    if use.shape is not None:
        return f"{use.kind} {_shape(use.shape)} {use.dtype or ''}".rstrip()
    return f"{use.kind}, {_count(use.storages, 'storage')}"


def _why(why: Why) -> list[Block]:
    found: list[Block] = [Heading(f"Why {why.name or 'this'} is alive", shown(why.nbytes))]
    found += [Line(holder.path) for holder in why.holders] or [Line("no holder found")]
    return [*found, *(Line(note) for note in why.notes)]


def _notice(notice: Notice) -> list[Block]:
    return [Line(notice.text, warn=notice.fault)]


# ---------------------------------------------------------------- small things
def _table(
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
    return f"{100 * part / whole:.0f}%" if whole else ""


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _watched(watched: Sequence[str]) -> str:
    return "host memory (cpu)" if tuple(watched) == ("cpu",) else ", ".join(watched)


_MAKERS: tuple[tuple[type, Callable[[Any], list[Block]]], ...] = (
    (Snapshot, _snapshot),
    (CellUse, _cell),
    (Plan, _plan),
    (Report, _report),
    (ObjectUse, _object),
    (Why, _why),
    (Notice, _notice),
)
