"""Rules about what is kept where: types, copies, outputs, caches, devices, host memory. Evidence → advice, or None.

Each is a pure function. It speaks only if the session shows the thing now, and tells how the bytes follow from that.
"""
from __future__ import annotations

from jupyter_gpumem.analysis.advice.evidence import Copy, Evidence, Kept, Key, Model, listed, main_device
from jupyter_gpumem.model import Advice
from jupyter_gpumem.units import shown

_HOST = "cpu"
_MANY = 8
"""Tensors alike in one container from which on they are a collection."""
_LOWER = ("float32", "bfloat16", "float16")


# ---------------------------------------------------------------- tensors
def double_precision(evidence: Evidence) -> Advice | None:
    """Tensors in float64 beside a model in lower precision: they come from NumPy, whose numbers are float64."""
    kept = {key: one for key, one in evidence.kept.items() if key[0] != _HOST and one.floating}
    double = {key: one for key, one in kept.items() if one.dtype == "float64"}
    plain = {key: one for key, one in double.items() if not one.role and not one.saved and one.name is not None}
    weights = {one.dtype for one in kept.values() if one.role == "parameter"}
    device = main_device(evidence.by_device(plain))
    mine = [one for key, one in plain.items() if key[0] == device]
    nbytes, floating = sum(one.nbytes for one in mine), evidence.by_device(kept).get(device, 0)
    deliberate = evidence.default_float == "float64" or not weights or not weights <= set(_LOWER)
    if deliberate or nbytes < evidence.least(device) or nbytes * 20 < floating:
        return None
    largest = max(mine, key=lambda one: one.nbytes)
    return Advice(
        rule="double precision",
        title="Tensors are in float64, the model is not",
        evidence=(
            f"{listed([one.path for one in mine])}: {shown(nbytes)} in float64 on {device}.",
            f"The parameters there are {', '.join(sorted(weights))}, and new tensors are {evidence.default_float}.",
        ),
        arithmetic=f"half of {shown(nbytes)}",
        expected=nbytes // 2,
        code=f"{largest.path} = {largest.path}.float()",
        names=_names(mine),
        device=device,
    )


def _names(kept: list[Kept]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one.name for one in kept if one.name is not None))


def collected_outputs(evidence: Evidence) -> Advice | None:
    """Outputs of a model that pile up on the device, in a list and without graphs."""
    widths = {width for model in evidence.models if (width := _width(model)) is not None}
    weights = {weight.shape for model in evidence.models for weight in model.weights}
    groups: dict[tuple[str, str, tuple[int, ...]], dict[Key, Kept]] = {}
    for key, one in evidence.kept.items():
        plain = key[0] != _HOST and not one.role and not one.saved and not one.trains and one.container
        if plain and one.name is not None and one.shape not in weights and _is_output(one.shape, widths):
            # the last batch may be shorter
            groups.setdefault((key[0], one.pattern, one.shape[1:]), {})[key] = one
    largest = max(groups, key=lambda group: evidence.nbytes(groups[group]), default=None)
    if largest is None or len(groups[largest]) < _MANY:
        return None
    device, path, shape = largest
    keys = groups[largest]
    nbytes = evidence.nbytes(keys)
    if nbytes < evidence.least(device):
        return None
    names = _names(list(keys.values()))
    return Advice(
        rule="collected outputs",
        title="Outputs are collected on the device",
        evidence=(
            f"{path} holds {len(keys)} tensors of {'×'.join(['n', *map(str, shape)])}, without graphs, on {device}.",
            "That is the shape of a model's outputs; what is only kept for later does not need the device.",
        ),
        arithmetic=f"{len(keys)} tensors: {shown(nbytes)}",
        expected=nbytes,
        code=f"{names[0]}.append(out.cpu())",
        names=names,
        device=device,
    )


def _width(model: Model) -> int | None:
    """Features of the model's output: the first size of its last parameter."""
    shapes = [weight.shape for weight in model.weights if not weight.buffer and weight.shape]
    return shapes[-1][0] if shapes else None


def _is_output(shape: tuple[int, ...], widths: set[int]) -> bool:
    return len(shape) > 1 and bool(widths & {shape[1], shape[-1]})


# ---------------------------------------------------------------- copies of a model
def checkpoint_left(evidence: Evidence) -> Advice | None:
    """A dictionary with the weights of a model that is there too, on the same device."""
    found: dict[frozenset[Key], list[tuple[Copy, Model]]] = {}
    for copy in evidence.copies:
        model = next((model for model in evidence.models if _is_of(copy, model)), None)
        if model is not None:
            found.setdefault(copy.keys, []).append((copy, model))
    in_use = _in_use(evidence)
    rest = {keys: evidence.nbytes(keys - in_use) for keys in found}
    largest = max(rest, key=lambda keys: rest[keys], default=None)
    if largest is None:
        return None
    device = main_device(evidence.by_device(largest - in_use))
    if rest[largest] < evidence.least(device):
        return None
    names = tuple(dict.fromkeys(copy.name for copy, _ in found[largest]))
    copy, model = found[largest][0]
    return Advice(
        rule="checkpoint left",
        title="A checkpoint is still on the device beside its model",
        evidence=(
            f"{copy.path} has {len(copy.entries)} tensors with the names and shapes of {model.path}'s, and storages "
            "of its own.",
        ),
        arithmetic=f"{shown(evidence.nbytes(largest))} in {listed(names)}, less what the model and its optimizer "
        f"use: {shown(rest[largest])}",
        expected=rest[largest],
        code=f"del {', '.join(names)}" + ("" if device == _HOST else '  # load it with map_location="cpu"'),
        names=names,
        device=device,
    )


def _is_of(copy: Copy, model: Model) -> bool:
    """Whether the names and shapes are those of the model's parameters, and the storages others, on the same device."""
    weights = {weight.path: weight for weight in model.weights if not weight.buffer and weight.key is not None}
    entries = {path.removeprefix("module."): entry for path, entry in copy.entries.items()}
    if not weights or not weights.keys() <= entries.keys():
        return False
    pairs = [(weight.shape, weight.key, *entries[path]) for path, weight in weights.items()]
    return all(a == b and key is not None and key != at and key[0] == at[0] for a, key, b, at in pairs)


def _in_use(evidence: Evidence) -> frozenset[Key]:
    models = (model.keys() for model in evidence.models)
    states = (state.keys for one in evidence.optimizers for state in one.states)
    return frozenset().union(*models, *states)


def copied_model(evidence: Evidence) -> Advice | None:
    """A second model of the same make that takes part in nothing: a copy, an average of the weights."""
    active = frozenset().union(*(one.tensors for one in evidence.optimizers), *(f.leaves for f in evidence.forwards))
    best: tuple[int, Model, Model, str] | None = None
    for copy in evidence.models:
        device = main_device(evidence.by_device(copy.keys()))
        original = next((m for m in evidence.models if m.parameters & active and _is_twin(copy, m, device)), None)
        idle = not copy.parameters & active and not any(weight.graded for weight in copy.weights)
        nbytes = evidence.by_device(copy.keys()).get(device, 0)
        if original is not None and idle and device not in ("", _HOST) and nbytes >= evidence.least(device):
            best = max(best, (nbytes, copy, original, device), key=lambda one: one[0]) if best else (
                nbytes, copy, original, device
            )
    if best is None:
        return None
    nbytes, copy, original, device = best
    return Advice(
        rule="copied model",
        title="A copy of a model is on the device",
        evidence=(
            f"{copy.path} has the type and the shapes of {original.path}, with storages of its own on {device}.",
            f"No optimizer knows it, no graph goes through it and it has no gradient. If {copy.path} is a backup or an "
            "average, host memory is enough; a target that every step computes with has to stay.",
        ),
        arithmetic=f"{len(copy.weights)} parameters and buffers: {shown(nbytes)}",
        expected=nbytes,
        code=f'{copy.path}.to("cpu")',
        names=(copy.name,),
        device=device,
    )


def _is_twin(copy: Model, model: Model, device: str) -> bool:
    alike = copy.kind == model.kind and [w.shape for w in copy.weights] == [w.shape for w in model.weights]
    return alike and bool(copy.weights) and not copy.keys() & model.keys() and bool(model.keys(device))


# ---------------------------------------------------------------- devices
def cached_memory(evidence: Evidence) -> Advice | None:
    """Memory that the allocator keeps, no tensor uses, and others on the device cannot have."""
    for place in sorted(evidence.places, key=lambda place: -(place.cached or 0)):
        cached, total = place.cached or 0, place.total
        if total and place.others and cached * 5 >= total and cached >= evidence.least(place.device):
            others = [f"pid {pid} ({shown(used)})" for pid, used in place.others]
            return Advice(
                rule="cached memory",
                title="Memory is reserved that no tensor uses",
                evidence=(
                    f"{place.device}: {shown(place.reserved)} reserved, {shown(place.allocated)} allocated; "
                    f"{shown(cached)} lie in segments without a tensor, {100 * cached // total}% of the device.",
                    f"Other processes on the device cannot use it: {listed(others)}.",
                ),
                arithmetic=f"the segments without a tensor: {shown(cached)}",
                expected=cached,
                code="%gpufree",
                device=place.device,
            )
    return None


def fragments(evidence: Evidence) -> Advice | None:
    """Free memory that cannot go back, for something lies beside it in the same segment."""
    for place in sorted(evidence.places, key=lambda place: -sum(place.fragments)):
        nbytes = sum(place.fragments)
        if not place.reserved or nbytes * 5 < place.reserved or nbytes < evidence.least(place.device):
            continue
        # one large piece is room for what comes next
        if not place.total or nbytes * 20 < place.total or place.largest * 4 > nbytes or evidence.expands:
            continue
        pins = f"They are pinned by {listed(place.pins)}." if place.pins else "%gpumem --account tells what pins them."
        return Advice(
            rule="fragments",
            title="Free memory is in fragments that cannot go back",
            evidence=(
                f"{place.device}: {len(place.fragments)} segments are in use in part. {shown(nbytes)} of them are "
                f"free, no piece larger than {shown(place.largest)}; {shown(place.reserved)} are reserved.",
                pins,
            ),
            arithmetic=f"free in {len(place.fragments)} segments: {shown(nbytes)}, at most; pages in use in part stay",
            expected=nbytes,
            code='%env PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True  # before the first use of the GPU; '
            "or max_split_size_mb:128",
            device=place.device,
        )
    return None


def unused_devices(evidence: Evidence) -> Advice | None:
    """One device is full and others are empty."""
    known = [place for place in evidence.places if place.total and place.used is not None]
    full = [p for p in known if (p.used or 0) * 5 >= (p.total or 0) * 4 and p.allocated * 2 >= (p.total or 0)]
    empty = [p for p in known if (p.used or 0) * 20 <= (p.total or 0) and not p.allocated and not p.others]
    if not full or not empty or evidence.collective is not None:
        return None
    one, other = full[0], empty[0]
    free = sum((place.total or 0) - (place.used or 0) for place in empty)
    kept = [kept for key, kept in evidence.kept.items() if key[0] == one.device and kept.name is not None]
    sizes: dict[str, int] = {}
    for held in kept:
        sizes[held.name or ""] = sizes.get(held.name or "", 0) + held.nbytes
    largest = sorted(sizes, key=lambda name: -sizes[name])[:4]
    return Advice(
        rule="unused devices",
        title="One GPU is full, others are empty",
        evidence=(
            f"{one.device}: {shown(one.used)} of {shown(one.total)} used, "
            f"{shown(one.allocated)} of them allocated here, most by {listed(largest) or 'no name'}.",
            f"{listed([place.device for place in empty])}: {shown(free)} free, used by nobody.",
        ),
        arithmetic="",
        expected=None,
        code=f'{largest[0] if largest else "part"}.to("{other.device}")  # a part of the model, or another task',
        names=tuple(largest),
        device=one.device,
    )


# ---------------------------------------------------------------- host memory
def pinned_memory(evidence: Evidence) -> Advice | None:
    """A large share of host memory is page-locked."""
    pinned, total = evidence.pinned, evidence.host_total
    if not pinned or not total or pinned * 10 < total:
        return None
    said = f"torch keeps {shown(pinned)} of page-locked host memory, {100 * pinned // total}% of {shown(total)}."
    return Advice(
        rule="pinned memory",
        title="Much of the host's memory is page-locked",
        evidence=(
            said,
            f"In it lie {listed(evidence.pinned_names)}." if evidence.pinned_names else "No large tensor lies in it.",
            "The system can neither swap it out nor give it to others; torch keeps it when its tensors go.",
        ),
        arithmetic=f"all of it: {shown(pinned)}, once its tensors are gone",
        expected=pinned,
        code=f"{f'del {listed(_tops(evidence.pinned_names))}; ' if evidence.pinned_names else ''}"
        "torch.accelerator.empty_host_cache()",
        names=_tops(evidence.pinned_names),
        device=_HOST,
    )


def _tops(paths: tuple[str, ...]) -> tuple[str, ...]:
    """The names at the beginning of some paths."""
    return tuple(dict.fromkeys(path.partition(".")[0].partition("[")[0] for path in paths))


def loader_workers(evidence: Evidence) -> Advice | None:
    """More processes load batches than there are processors."""
    for one in sorted(evidence.workers, key=lambda one: -one.wanted):
        if one.wanted <= evidence.cpus:
            continue
        spare = one.wanted - evidence.cpus
        mean = sum(one.sizes) // len(one.sizes) if one.sizes else None
        said = [f"{one.path} has {one.wanted} workers for {evidence.cpus} processors."]
        said += [f"The {len(one.sizes)} that live keep {shown(sum(one.sizes))} of host memory."] if one.sizes else []
        if one.prefetch:
            said.append(f"Up to {one.wanted} × {one.prefetch} = {one.wanted * one.prefetch} batches are kept ready.")
        return Advice(
            rule="loader workers",
            title="More workers load batches than there are processors",
            evidence=tuple(said),
            arithmetic=f"{spare} workers × {shown(mean)}" if mean else "",
            expected=spare * mean if mean else None,
            code=f"DataLoader(…, num_workers={evidence.cpus})",
            names=(one.name,),
            device=_HOST,
        )
    return None


RULES = (
    double_precision,
    collected_outputs,
    checkpoint_left,
    copied_model,
    cached_memory,
    fragments,
    unused_devices,
    pinned_memory,
    loader_workers,
)
