"""The evidence for advice: one look at the storages, models, optimizers, graphs, loaders and devices.

Everything live stays inside the look. Values of tensors are read only of gradients, a bounded part of them, and only
in pieces that are copied to the host.
"""
from __future__ import annotations

import collections
import gc
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jupyter_gpumem import devices, frameworks, session
from jupyter_gpumem.analysis import holders, paths
from jupyter_gpumem.analysis.advice import forwards
from jupyter_gpumem.analysis.advice.evidence import (
    Copy,
    Evidence,
    Gradients,
    Kept,
    Key,
    Model,
    Optimizer,
    Row,
    State,
    Weight,
    Workers,
)
from jupyter_gpumem.analysis.advice.places import places
from jupyter_gpumem.analysis.growth import pattern
from jupyter_gpumem.analysis.holders import Look
from jupyter_gpumem.analysis.inventory import Stored, frozen_notes
from jupyter_gpumem.analysis.objects import kind_of
from jupyter_gpumem.analysis.references import Root
from jupyter_gpumem.frameworks import Framework
from jupyter_gpumem.introspect import instance_dict, is_a, type_name
from jupyter_gpumem.model import Cause

MOST_READ = 256 << 20
"""Bytes of gradients that are read."""
_LEAST_PINNED = 16 << 20
"""Bytes of host memory from which on a tensor is asked whether they are page-locked."""
_REPEATED = 4
"""Submodules alike from which on they are a row."""
_DEPTH = 4
"""Of containers in a dictionary that may be a checkpoint."""
_MOST_ENTRIES = 100_000


def gather(shell: session.Shell | None, watched: Sequence[str], seconds: float = 10.0) -> Evidence:
    """The evidence of this moment. Nothing is initialised, collected or freed for it.

    To be called in the thread that runs the cells, between them.
    """
    objects = _objects()
    with holders.look(shell, watched, also=objects, seconds=seconds) as seen:
        owned = [found for obj in objects if (found := _named(seen, obj)) is not None]
        models = [_model(seen, path, name, obj) for path, name, obj in owned if _kind(obj) == "module"]
        optimizers = [_optimizer(path, name, obj) for path, name, obj in owned if _kind(obj) == "optimizer"]
        workers = [_workers(path, name, obj) for path, name, obj in owned if _is_loader(obj)]
        kept = _kept(seen, models, optimizers)
        graphs, cut = forwards.forwards(seen, kept)
        gradients = _gradients(seen, models, optimizers, kept)
        copies = _copies(shell)
        pinned_names = _pinned_names(seen)
        devices_in_use = places(seen, watched)
        partial = seen.walk.partial
        owned.clear()
    objects.clear()
    loaded = frameworks.loaded()
    pinned = [nbytes for one in loaded if (nbytes := one.hints.pinned_bytes()) is not None]
    notes = ["The search for holders ran out of time; some evidence is missing."] if partial else []
    notes += frozen_notes()
    notes += [f"Graphs of more than {forwards.MOST} operations were not entered."] if cut else []
    return Evidence(
        watched=tuple(watched),
        kept=kept,
        models=tuple(models),
        optimizers=tuple(optimizers),
        gradients=gradients,
        forwards=graphs,
        copies=copies,
        workers=tuple(workers),
        places=devices_in_use,
        pinned=sum(pinned) if pinned else None,
        pinned_names=pinned_names,
        host_total=devices.read_host().total,
        cpus=_cpus(),
        default_float=loaded[0].hints.default_float() if loaded else "float32",
        expands=any(one.hints.expands() for one in loaded),
        collective=next((name for one in loaded if (name := one.hints.collective())), None),
        notes=tuple(notes),
        partial=partial or cut,
    )


# ---------------------------------------------------------------- objects
def _kind(obj: object) -> str | None:
    known = kind_of(obj)
    return known[1] if known is not None else None


def _is_loader(obj: object) -> bool:
    return any(framework.hints.is_loader(type(obj)) for framework in frameworks.loaded())


def _objects() -> list[object]:
    """All modules, optimizers and loaders that live."""
    objects = gc.get_objects()
    wanted = set()
    for cls in set(map(type, objects)):
        for framework in frameworks.loaded():
            if framework.kind(cls) in ("module", "optimizer") or framework.hints.is_loader(cls):
                wanted.add(cls)
    return [obj for obj in objects if type(obj) in wanted]


def _named(seen: Look, obj: object) -> tuple[str, str, object] | None:
    """Path, name and object, if a name of the user's reaches it and it is part of no module."""
    found = seen.walk.path(obj)
    if found is None or found[0].cause is not Cause.NAME or found[0].name is None:
        return None
    if any(_kind(step) == "module" for step in found[1][:-1]):
        return None
    holder = paths.holder(seen.walk, obj)
    return None if holder is None else (holder.path, found[0].name, obj)


def _key(framework: Framework, tensor: object) -> Key | None:
    parts = framework.parts(tensor)
    return (parts[0].device, parts[0].address) if len(parts) == 1 else None


def _model(seen: Look, path: str, name: str, module: object) -> Model:
    framework = _framework(module)
    weights: dict[int, Weight] = {}
    rows: list[Row] = []
    _open(framework, module, "", weights, rows, set())
    training = (instance_dict(module) or {}).get("training") is not False
    rows = [row._replace(path=f"{path}{row.path}") for row in rows]
    return Model(path, name, type_name(module), training, tuple(weights.values()), tuple(rows))


def _framework(obj: object) -> Framework:
    known = kind_of(obj)
    assert known is not None
    return known[0]


def _open(
    framework: Framework, module: object, path: str, weights: dict[int, Weight], rows: list[Row], above: set[int]
) -> tuple[object, ...]:
    """Add a module's parameters and buffers, and the rows below it; what it is: its type and its parameters' shapes."""
    inner = instance_dict(module) or {}
    buffers = set(map(id, (inner.get("_buffers") or {}).values()))
    alike: dict[tuple[object, ...], list[int]] = {}
    own: list[object] = [type(module)]
    before = len(weights)
    for key, value in framework.submodules(module):
        if _kind(value) == "tensor":
            weight = _weight(framework, f"{path}.{key}", value, id(value) in buffers)
            weights.setdefault(id(value), weight)
            own.append(weight.shape)
        elif _kind(value) == "module" and id(value) not in above:
            first = len(weights)
            what = _open(framework, value, f"{path}.{key}", weights, rows, above | {id(module)})
            own.append(what)
            if len(weights) > first:
                alike.setdefault(what, []).append(first)
    tensors = list(weights)
    starts = sorted([start for several in alike.values() for start in several] + [len(tensors)])
    for several in alike.values():
        if len(several) >= _REPEATED:
            ends = [starts[starts.index(start) + 1] for start in several]
            inside = [tensors[at] for start, end in zip(several, ends, strict=True) for at in range(start, end)]
            rows.append(Row(path, type_name(module), len(several), frozenset(inside)))
    return tuple(own) if len(weights) > before else (type(module),)


def _weight(framework: Framework, path: str, tensor: object, buffer: bool) -> Weight:
    told, traits = framework.describe(tensor), framework.hints.traits(tensor)
    trains = traits is not None and traits.trains
    graded = bool(framework.referents(tensor))
    key = _key(framework, tensor)
    return Weight(path.lstrip("."), id(tensor), key, told.shape, told.dtype, trains, buffer, graded)


def _optimizer(path: str, name: str, optimizer: object) -> Optimizer:
    framework = _framework(optimizer)
    inner = instance_dict(optimizer) or {}
    tensors = {
        id(tensor)
        for group in _items(inner.get("param_groups"))
        for tensor in _items(_get(group, "params"))
    }
    states = []
    for tensor, values in _pairs(inner.get("state")):
        if _kind(tensor) == "tensor":
            traits = framework.hints.traits(tensor)
            step = framework.hints.number(_get(values, "step"))
            inside = [value for _, value in _pairs(values) if _kind(value) == "tensor"]
            keys = frozenset(key for value in inside if (key := _key(framework, value)) is not None)
            graded = bool(framework.referents(tensor))
            states.append(State(id(tensor), traits is not None and traits.trains, graded, keys, step))
    return Optimizer(path, name, frozenset(tensors), tuple(states))


def _items(value: Any) -> list[object]:
    return list(value) if type(value) in (list, tuple) else []


def _pairs(value: Any) -> list[tuple[Any, object]]:
    """Keys and values of a dictionary, whatever its class makes of it; none of anything else."""
    return list(dict.items(value)) if is_a(value, dict) else []


def _get(value: Any, key: str) -> object:
    return dict.get(value, key) if is_a(value, dict) else None


def _workers(path: str, name: str, obj: object) -> Workers:
    framework = next(one for one in frameworks.loaded() if one.hints.is_loader(type(obj)))
    told = framework.hints.loader(obj)
    sizes = devices.unshared(told.pids)
    return Workers(path, name, told.workers, told.prefetch, sizes)


def _cpus() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# ---------------------------------------------------------------- storages
def _kept(seen: Look, models: Sequence[Model], optimizers: Sequence[Optimizer]) -> dict[Key, Kept]:
    """Every storage on the watched devices that a root reaches."""
    roles = {key: "state" for one in optimizers for state in one.states for key in state.keys}
    roles |= {w.key: "buffer" if w.buffer else "parameter" for m in models for w in m.weights if w.key is not None}
    known = {tensor for one in optimizers for tensor in one.tensors} | {t for one in models for t in one.parameters}
    found = {}
    for stored in seen.stored:
        best = seen.best(stored)
        path = seen.walk.path(best) if best is not None else None
        if best is not None and path is not None:
            key = (stored.part.device, stored.part.address)
            owner = path[1][-2] if len(path[1]) > 1 else None
            role = roles.get(key) or ("parameter" if id(best) in known else "")
            if not role and owner is not None and _is_gradient(stored.framework, owner, best):
                role = "gradient"
            found[key] = _one(seen, stored, best, path, role)
    return found


def _is_gradient(framework: Framework, owner: object, tensor: object) -> bool:
    return _kind(owner) == "tensor" and any(grad is tensor for grad in framework.referents(owner))


def _one(seen: Look, stored: Stored, best: object, path: tuple[Root, list[object]], role: str) -> Kept:
    framework = stored.framework
    root, objects = path
    saved = any(framework.kind(type(obj)) == "node" for obj in objects)
    # to put the way through a graph into words takes a walk of that graph, for each of its tensors
    words = root.label if saved else seen.holder(stored).path
    traits, told = framework.hints.traits(best), framework.describe(best)
    return Kept(
        nbytes=stored.part.nbytes,
        path=words,
        pattern=pattern(words),
        name=root.name if root.cause is Cause.NAME else None,
        saved=saved,
        role=role,
        shape=told.shape,
        dtype=told.dtype,
        floating=traits is not None and traits.floating,
        trains=traits is not None and traits.trains,
        container=_container(objects[-2]) if len(objects) > 1 else "",
    )


def _container(obj: object) -> str:
    if type(obj) is collections.deque and obj.maxlen is not None:
        return ""
    return type(obj).__name__ if type(obj) in (list, dict, collections.deque) else ""


def _pinned_names(seen: Look) -> tuple[str, ...]:
    """Paths of the largest tensors in page-locked host memory, as far as a root reaches them."""
    large = [s for s in seen.inventory.on(("cpu",)) if s.part.nbytes >= _LEAST_PINNED]
    found = []
    for stored in large:
        best = seen.best(stored)
        holder = paths.holder(seen.walk, best) if best is not None else None
        if holder is not None and stored.framework.hints.pinned(best):
            found.append(holder.path)
    return tuple(found)


# ---------------------------------------------------------------- gradients
def _gradients(
    seen: Look, models: Sequence[Model], optimizers: Sequence[Optimizer], kept: Mapping[Key, Kept]
) -> tuple[Gradients, ...]:
    """The gradients of each model, and whether they are zero. One that is not settles it for all of its model."""
    found: list[Gradients] = []
    taken: set[int] = set()
    groups = [(m.path, m.name, m.parameters) for m in models] + [(o.path, o.name, o.tensors) for o in optimizers]
    alive = {id(tensor): tensor for tensor in list(seen.inventory.tensors.values())}
    left = MOST_READ
    for path, name, tensors in groups:
        grads = [(framework, grad) for framework, grad in _grads_of(alive, tensors - taken)]
        taken |= tensors
        grads = [(f, grad) for f, grad in grads if _key(f, grad) in kept]
        if not grads:
            continue
        grads.sort(key=lambda pair: pair[0].describe(pair[1]).nbytes)
        zero, read, whole = _all_zero(grads, left)
        left = max(0, left - read)
        keys = frozenset(key for f, grad in grads if (key := _alone(seen, f, grad)) is not None)
        steps = next((one.path for one in optimizers if one.tensors & tensors), None)
        found.append(Gradients(path, name, steps, keys, len(grads), zero, read, whole))
    alive.clear()
    return tuple(found)


def _grads_of(alive: Mapping[int, object], tensors: frozenset[int]) -> Iterator[tuple[Framework, object]]:
    for tensor in tensors:
        if tensor in alive:
            framework = _framework(alive[tensor])
            for grad in framework.referents(alive[tensor]):
                yield framework, grad


def _all_zero(grads: Sequence[tuple[Framework, object]], most: int) -> tuple[bool | None, int, int]:
    read, whole, zero = 0, sum(framework.describe(grad).nbytes for framework, grad in grads), True
    for framework, grad in grads:
        share = most if whole <= most else max(1, most // len(grads))
        told = framework.hints.zeros(grad, share)
        read += told.read
        if told.zero is not True:
            return told.zero, read, whole
    return zero, read, whole


def _alone(seen: Look, framework: Framework, grad: object) -> Key | None:
    """The storage of a gradient that nothing unseen uses too: buckets of gradients stay when the gradients go."""
    key = _key(framework, grad)
    stored = seen.inventory.storages.get(key) if key is not None else None
    return key if stored is not None and not framework.unseen(stored.tensors) else None


# ---------------------------------------------------------------- dictionaries of tensors
_Entries = dict[str, tuple[tuple[int, ...], Key]]


def _copies(shell: session.Shell | None) -> tuple[Copy, ...]:
    """The dictionaries from text to tensors under the user's names, down to some depth."""
    found: list[Copy] = []
    for name, value in session.user_names(shell).items():
        if is_a(value, dict) and value is not session.namespace(shell):
            tables: list[tuple[str, _Entries]] = []
            keys = frozenset(_dictionaries(value, name, tables, _DEPTH))
            found += [Copy(path, name, table, keys) for path, table in tables]
    return tuple(found)


def _dictionaries(value: object, path: str, tables: list[tuple[str, _Entries]], depth: int) -> Iterator[Key]:
    """The storages in a container, and the tables of tensors inside it."""
    items: list[tuple[Any, object]] = _pairs(value) if is_a(value, dict) else list(enumerate(_items(value)))
    table: _Entries = {}
    for key, item in items[:_MOST_ENTRIES]:
        if _kind(item) == "tensor":
            framework = _framework(item)
            place = _key(framework, item)
            if place is not None:
                yield place
                if type(key) is str:
                    table[key] = (framework.describe(item).shape, place)
        elif depth and (is_a(item, dict) or type(item) in (list, tuple)):
            below = f"{path}[{key!r}]" if type(key) in (str, int) else f"{path}[…]"
            yield from _dictionaries(item, below, tables, depth - 1)
    if table:
        tables.append((path, table))
