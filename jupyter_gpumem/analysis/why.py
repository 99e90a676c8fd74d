"""Why an object's memory is there: every holder, whether letting go of it alone would free the memory, and if none
would, the smallest set of references that has to go.
"""
from __future__ import annotations

import types
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from jupyter_gpumem import frameworks, session
from jupyter_gpumem.analysis import cuts, paths, roots
from jupyter_gpumem.analysis.ancestors import Ancestors, Way
from jupyter_gpumem.analysis.holders import Look, look
from jupyter_gpumem.analysis.inventory import Stored, frozen_notes
from jupyter_gpumem.analysis.references import Root, walk
from jupyter_gpumem.errors import InputError
from jupyter_gpumem.introspect import frame_locals
from jupyter_gpumem.model import Cause, Holder, Why
from jupyter_gpumem.units import shown

_INSIDE = 10_000
"""What it costs to end at a tensor of the object instead of at the object itself."""
_SURE = (Cause.CYCLE, Cause.FRAME)
"""What the collector gives back without anybody's doing."""
_FIRST = (Cause.NAME, Cause.RUNNING, Cause.REGISTRY, Cause.MODULE)


def why(
    shell: session.Shell | None,
    obj: object,
    name: str = "",
    most: int = 12,
    seconds: float = 2.0,
    at: tuple[str, int] | None = None,
) -> Why:
    """All holders of an object's storages, names first, shortest path first: one path for each root that reaches them.

    ``at`` is the ``(device, address)`` of one storage, instead of an object. ``seconds`` limits the search; a partial
    answer says so.
    Raises InputError if the object holds no tensor, or the storage does not exist.
    """
    with look(shell, None, of=obj, at=at, seconds=seconds, exhaustive=True, every_edge=True) as seen:
        if not seen.stored and at is not None:
            raise InputError("this tensor is not there any more")
        if not seen.stored:
            raise InputError(f"{name or 'this object'} holds no tensor of an imported framework")
        ancestors = Ancestors(seen.walk, _targets(seen, obj, is_asked_for=at is None))
        seen.references += 1  # the ancestors have the tensors too
        seen.ours |= {id(ancestors), id(vars(ancestors)), *map(id, vars(ancestors).values())}
        try:
            return _answer(seen, ancestors, obj, name, most)
        finally:
            ancestors.clear()


def _targets(seen: Look, obj: object, is_asked_for: bool) -> Iterator[tuple[object, int]]:
    """One by one: a list of them would be one more holder."""
    if is_asked_for:
        yield obj, 0
    for stored in seen.stored:
        yield from ((tensor, _INSIDE) for tensor in stored.tensors if tensor is not obj)


def _answer(seen: Look, ancestors: Ancestors, obj: object, name: str, most: int) -> Why:
    unreached = [] if ancestors.partial else _unreached(seen, obj)
    held = list(dict.fromkeys(holder for _, holder in unreached))
    unseen = sum(stored.framework.unseen(stored.tensors) or 0 for stored in seen.stored)
    reached = _holders(seen, ancestors)
    partial = ancestors.partial or seen.walk.partial
    places = {(root.cause, root.label) for root, _ in ancestors.roots}
    is_alone = len(places) == 1 and not any(holder.cause not in _SURE for holder in held)
    judged = [replace(holder, frees=_frees(holder, is_alone, partial, unseen)) for holder in reached]
    judged += [replace(holder, frees=None if partial else holder.cause in _SURE and not reached) for holder in held]
    judged.sort(key=lambda holder: bool(name) and holder.name != name)
    ends = {id(tensor) for stored in seen.stored for tensor in stored.tensors}
    found = cuts.smallest(ancestors, ends) if len(places) > 1 and not unseen else None
    texts = tuple(dict.fromkeys(_cut_text(seen, cut) for cut in found)) if found else ()
    found = None
    blocked = {address for address, holder in unreached if holder.cause not in _SURE}
    alone = None if partial else _gives_back(seen, ancestors, obj, blocked)
    return Why(
        name=name,
        nbytes=sum(stored.part.nbytes for stored in seen.stored),
        holders=tuple(judged[:most]) or (Holder("no name found in the time allowed", Cause.UNKNOWN),),
        notes=(
            *_alone_note(seen, ancestors, obj, name, alone),
            *_inside(seen, ancestors, obj),
            *_notes(seen, unseen if reached else 0, bool(reached)),
            *frozen_notes(),
        ),
        cuts=texts,
        more=max(0, len(judged) - most),
        partial=partial,
        gives_back=alone,
    )


def _frees(holder: Holder, is_alone: bool, partial: bool, unseen: int) -> bool | None:
    if partial or (is_alone and unseen):
        return None
    return is_alone and holder.cause is not Cause.RUNNING


def _holders(seen: Look, ancestors: Ancestors) -> list[Holder]:
    """One holder for each root, in the words of its best way; several roots may have the same words."""
    ways = sorted(ancestors.ways(), key=lambda way: (_rank(way.root), way.cost))
    return list(dict.fromkeys(_with_locals(seen, way) for way in ways))


def _rank(root: Root) -> int:
    return 0 if root.cause is Cause.NAME else 1 if root.cause in _FIRST else 2


def _with_locals(seen: Look, way: Way) -> Holder:
    """A way in words; and where its end is a local variable, the others of the same frame that hold it too.

    A loop's variable is the nearest holder of an item, but what the loop goes over is what keeps it.
    """
    holder = paths.along(seen.walk, way.root, way.objects)
    if len(way.objects) < 2 or type(way.objects[-2]) is not types.FrameType:
        return holder
    best, also = way.objects[-1], []
    for name, value in frame_locals(way.objects[-2]).items():
        if value is not best:
            inner = walk([[Root(f"local '{name}'", Cause.NAME, value)]], [[best]], roots.barriers(seen.shell), 0.2)
            other = paths.holder(inner, best)
            also += [other.path] if other is not None else []
            inner.clear()
    return replace(holder, path=f"{holder.path} (also {', '.join(also)})") if also else holder


def _unreached(seen: Look, obj: object) -> list[tuple[int, Holder]]:
    """The holders of the tensors that no root reaches, with the addresses of their storages. A tensor that was only
    made to ask is its asker's.
    """
    found: list[tuple[int, Holder]] = []
    for stored in seen.stored:
        count = sum(not seen.walk.reaches(tensor) for tensor in stored.tensors)
        if count == len(stored.tensors):
            found.append((stored.part.address, seen.holder(stored)))
        elif count:
            for place, holder in seen.unreached_holders(stored, but=obj):
                # the base of a view that a root reaches has no other holder than the view, in C++
                if holder.cause is not Cause.UNKNOWN or not _is_base(stored, place):
                    found.append((stored.part.address, holder))
    return found


def _is_base(stored: Stored, place: int) -> bool:
    return stored.framework.is_base(stored.tensors[place], stored.tensors)


def _gives_back(seen: Look, ancestors: Ancestors, obj: object, blocked: Collection[int]) -> int | None:
    """Bytes of the storages that no root reaches but through the object. ``blocked`` are addresses of storages that
    something holds which no root reaches. None if the object is none of the holders.
    """
    if id(obj) not in ancestors.objects:
        return None
    onward: dict[int, list[int]] = {}
    for holder, held in ancestors.edges:
        onward.setdefault(id(holder), []).append(id(held))
    reached = _reach((id(value) for _, value in ancestors.roots), onward, without=id(obj))
    return sum(
        stored.part.nbytes
        for stored in seen.stored
        if not any(id(tensor) in reached for tensor in stored.tensors)
        and stored.part.address not in blocked
        and not stored.framework.unseen(stored.tensors)
    )


def _reach(starts: Iterable[int], onward: Mapping[int, Sequence[int]], without: int | None = None) -> set[int]:
    """The ids that can be reached, ``without`` passing through one of them."""
    reached: set[int] = set()
    todo = list(starts)
    while todo:
        one = todo.pop()
        if one != without and one not in reached:
            reached.add(one)
            todo += onward.get(one, ())
    return reached


def _alone_note(seen: Look, ancestors: Ancestors, obj: object, name: str, alone: int | None) -> list[str]:
    """Said only where the object shares storages: else all of them go with it."""
    whole = sum(stored.part.nbytes for stored in seen.stored)
    if alone is None or alone == whole:
        return []
    upward: dict[int, list[int]] = {}
    for holder, held in ancestors.edges:
        upward.setdefault(id(held), []).append(id(holder))
    above = _reach([id(obj)], upward)
    places = {(root.cause, root.label) for root, value in ancestors.roots if id(value) in above}
    how = "alone" if len(places) == 1 else "alone, wherever it is held,"
    return [f"letting go of {name or 'this object'} {how} gives back {shown(alone)} of these {shown(whole)}"]


def _cut_text(seen: Look, cut: cuts.Cut) -> str:
    if cut.root is not None:
        return cut.root.label
    found = seen.walk.path(cut.holder)
    if found is None:
        return "a reference that has changed meanwhile"
    text = paths.along(seen.walk, found[0], [*found[1], cut.held]).path
    return f"{text} (place {cut.place + 1})" if cut.place else text


def _notes(seen: Look, unseen: int, is_reached: bool) -> list[str]:
    notes = []
    if unseen:
        many = "1 reference" if unseen == 1 else f"{unseen} references"
        notes.append(f"{many} more in C++ that no Python object shows: what they hold cannot be promised")
    if not is_reached:
        caches = [cache for framework in frameworks.loaded() for cache in framework.held_caches()]
        notes += [f"perhaps: {cache} (it cannot be read, %gpufree clears it)" for cache in caches]
    return [*notes, *_view_note(seen, seen.stored[0])]


def _inside(seen: Look, ancestors: Ancestors, obj: object) -> list[str]:
    """Of an object that is no tensor itself, where the largest storage is whose best path leads through it."""
    if id(obj) not in ancestors.objects:
        return []
    for stored in seen.stored:
        best = seen.best(stored)
        found = seen.walk.path(best) if best is not None and best is not obj else None
        if found is not None and any(step is obj for step in found[1]):
            return [f"largest inside: {seen.holder(stored).path}, {shown(stored.part.nbytes)}"]
    return []


def _view_note(seen: Look, stored: Stored) -> list[str]:
    """A small view keeps its whole storage."""
    reached = [stored.framework.describe(t).nbytes for t in stored.tensors if seen.walk.reaches(t)]
    largest, whole = max(reached, default=stored.part.nbytes), stored.part.nbytes
    return [f"a view: {shown(largest)} of a {shown(whole)} storage, kept whole"] if 2 * largest < whole else []
