"""Rules about gradients, graphs, optimizers and activations: evidence → advice, or None where it shows nothing.

Each is a pure function. It speaks only if the session shows the thing now, and tells how the bytes follow from that.
"""
from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from jupyter_gpumem.analysis.advice.evidence import (
    Evidence,
    Forward,
    Gradients,
    Key,
    Model,
    Row,
    independent,
    listed,
    main_device,
)
from jupyter_gpumem.model import Advice
from jupyter_gpumem.units import shown

_SEVERAL = 3
"""Graphs over the same parameters from which on they are a habit and not a pair that is compared."""
_BEHIND = 10
"""Updates by which a parameter's state must be behind the others'."""


# ---------------------------------------------------------------- gradients and optimizers
def zero_gradients(evidence: Evidence) -> Advice | None:
    """Gradients that are all zero between two steps: kept, and filled, by ``zero_grad(set_to_none=False)``."""
    found = [one for one in evidence.gradients if one.zero and one.keys]
    keys = frozenset().union(*(one.keys for one in found))
    nbytes, device = evidence.nbytes(keys), main_device(evidence.by_device(keys))
    if not found or nbytes < evidence.least(device):
        return None
    first = max(found, key=lambda one: evidence.nbytes(one.keys))
    number = sum(one.number for one in found)
    return Advice(
        rule="zero gradients",
        title="Gradients are kept as zeros",
        evidence=(
            f"All {number} gradients of {listed([one.owner for one in found])} are zero: {_how_read(found)}.",
            "Set to None they take nothing between a step and the next backward, and need not be filled.",
        ),
        arithmetic=f"{number} gradients: {shown(nbytes)}",
        expected=nbytes,
        code=f"{first.optimizer or first.owner}.zero_grad(set_to_none=True)",
        names=tuple(one.name for one in found),
        device=device,
    )


def _how_read(found: Sequence[Gradients]) -> str:
    read, whole = sum(one.read for one in found), sum(one.whole for one in found)
    return "every value was read" if read >= whole else f"{shown(read)} of {shown(whole)} were read, at equal distances"


def frozen_states(evidence: Evidence) -> Advice | None:
    """What an optimizer keeps for parameters that are frozen, or have not been updated for a long time."""
    best: Advice | None = None
    for optimizer in evidence.optimizers:
        steps = [state.step for state in optimizer.states if state.step is not None]
        ahead = max(steps, default=0.0)
        frozen = [state for state in optimizer.states if not state.trains]
        behind = [
            state
            for state in optimizer.states
            if state.trains and not state.graded and state.step is not None and ahead - state.step >= _BEHIND
        ]
        keys = frozenset().union(*(state.keys for state in (*frozen, *behind)))
        nbytes, device = evidence.nbytes(keys), main_device(evidence.by_device(keys))
        if not keys or nbytes < evidence.least(device) or (best is not None and nbytes <= (best.expected or 0)):
            continue
        said = [f"{len(frozen)} parameters in {optimizer.path} do not require a gradient."] if frozen else []
        said += [f"{len(behind)} were last updated {_BEHIND} steps or more before the others."] if behind else []
        which = "not p.requires_grad" if frozen and not behind else "p.grad is None"
        best = Advice(
            rule="frozen states",
            title="The optimizer keeps states that it does not use",
            evidence=(*said, "Their states are still on the device."),
            arithmetic=f"states of {len(frozen) + len(behind)} of {len(optimizer.states)} parameters: {shown(nbytes)}",
            expected=nbytes,
            code=f"for p in [p for p in {optimizer.path}.state if {which}]: del {optimizer.path}.state[p]",
            names=(optimizer.name,),
            device=device,
        )
    return best


# ---------------------------------------------------------------- graphs that stay
def accumulated_loss(evidence: Evidence) -> Advice | None:
    """Losses that are kept, or summed up, together with their graphs."""
    roots = evidence.roots()
    sums = [one for one in roots if one.terms >= _SEVERAL and not _evaluates(evidence, one)]
    lists = [group for group in _alike(roots) if group[0].scalar and not _evaluates(evidence, group[0])]
    forwards = [*sums, *(one for group in lists for one in group)]
    keys = evidence.alone(forwards)
    nbytes, device = evidence.nbytes(keys), main_device(evidence.by_device(keys))
    if not forwards or nbytes < evidence.least(device):
        return None
    graphs = sum(one.terms for one in sums) + sum(map(len, lists))
    said = [f"{one.path} is a sum of {one.terms} losses, each with its graph." for one in sums]
    said += [f"{group[0].pattern} holds {len(group)} losses, each with its graph." for group in lists]
    by_size = sorted(forwards, key=lambda one: -evidence.nbytes(one.saved))
    name = by_size[0].name
    return Advice(
        rule="accumulated loss",
        title="Losses are kept together with their graphs",
        evidence=(*said, "They go through the same parameters and have no operation in common."),
        arithmetic=f"{graphs} graphs keep {shown(nbytes)} that nothing else holds",
        expected=nbytes,
        code=f"{name} += loss.item()" if by_size[0].terms > 1 else f"{name}.append(loss.item())  # or loss.detach()",
        names=tuple(dict.fromkeys(one.name for one in forwards)),
        device=device,
    )


def unused_graphs(evidence: Evidence) -> Advice | None:
    """Graphs of an evaluation, which nobody will call ``backward`` on."""
    roots = evidence.roots()
    chosen: list[Forward] = []
    said: list[str] = []
    for model in evidence.models:
        mine = [one for one in roots if one.saved and _only_of(model, one) and not model.training]
        if mine and (len(independent(mine)) > 1 or not mine[0].scalar or not _steps(evidence, mine[0].leaves)):
            chosen += mine
            said.append(f"{model.path} is in evaluation mode; {listed([one.path for one in mine])} keep its graph.")
    for group in _alike([one for one in roots if one not in chosen]):
        leaves = group[0].leaves
        if not group[0].scalar and not _steps(evidence, leaves) and not _graded(evidence, leaves):
            chosen += group
            said.append(
                f"{group[0].pattern} holds {len(group)} outputs with graphs over parameters that have no gradient "
                "and that no optimizer knows."
            )
    keys = evidence.alone([*chosen, *_inside(evidence, chosen)])
    nbytes, device = evidence.nbytes(keys), main_device(evidence.by_device(keys))
    if not chosen or nbytes < evidence.least(device):
        return None
    return Advice(
        rule="unused graphs",
        title="Graphs are kept on which nobody calls backward",
        evidence=tuple(said),
        arithmetic=f"{len(independent(chosen))} graphs keep {shown(nbytes)} that nothing else holds",
        expected=nbytes,
        code="with torch.no_grad():  # around the evaluation; or torch.inference_mode()",
        names=tuple(dict.fromkeys(one.name for one in chosen)),
        device=device,
    )


def _alike(roots: Iterable[Forward]) -> list[list[Forward]]:
    """Graphs in one container, over the same leaves and with no operation in common, several of them."""
    groups: dict[tuple[str, frozenset[int], bool], list[Forward]] = {}
    for one in roots:
        if one.leaves and one.pattern != one.path:
            groups.setdefault((one.pattern, one.leaves, one.scalar), []).append(one)
    return [found for group in groups.values() if len(found := independent(group)) >= _SEVERAL]


def _only_of(model: Model, forward: Forward) -> bool:
    """Whether all that could get a gradient are parameters of the model: else somebody may want the others'."""
    return bool(forward.leaves) and forward.leaves <= model.parameters


def _evaluates(evidence: Evidence, forward: Forward) -> bool:
    return any(not model.training and _only_of(model, forward) for model in evidence.models)


def _steps(evidence: Evidence, leaves: frozenset[int]) -> bool:
    """Whether an optimizer updates some of these."""
    return any(one.tensors & leaves for one in evidence.optimizers)


def _graded(evidence: Evidence, leaves: frozenset[int]) -> bool:
    return any(weight.graded for model in evidence.models for weight in model.weights if weight.tensor in leaves)


def _inside(evidence: Evidence, roots: Sequence[Forward]) -> list[Forward]:
    """The graphs that are parts of some others, held by names too: an output, and the loss made of it."""
    nodes = frozenset().union(*(one.nodes for one in roots))
    return [one for one in evidence.forwards if one not in roots and one.nodes <= nodes]


# ---------------------------------------------------------------- activations
def single_precision(evidence: Evidence) -> Advice | None:
    """Activations in float32 on a device that could do with bfloat16."""
    for place in evidence.places:
        forwards = _in_training(evidence)
        keys = _saved_on(place.device, evidence, forwards)
        saved = [evidence.kept[key] for key in keys if evidence.kept[key].floating]
        single = sum(one.nbytes for one in saved if one.dtype == "float32")
        lower = sum(one.nbytes for one in saved if one.dtype in ("bfloat16", "float16"))
        leaves = frozenset().union(*(one.leaves for one in forwards))
        weights = {w.key: w for m in evidence.models for w in m.weights if w.tensor in leaves and w.key is not None}
        all_single = bool(weights) and all(weight.dtype == "float32" for weight in weights.values())
        # weights and batches stay in float32 and are saved in lower precision beside that
        cast = {key for key in weights if key[0] == place.device and len(weights[key].shape) > 1}
        inputs = frozenset().union(*(one.inputs for one in forwards)) - weights.keys()
        copies = evidence.nbytes(cast | {key for key in inputs if _is_single(evidence, place.device, key)}) // 2
        gain = single // 2 - copies
        if not place.bfloat16 or not all_single or lower * 20 > single or single * 2 < place.allocated:
            continue
        if gain >= evidence.least(place.device):
            return Advice(
                rule="single precision",
                title="Activations are kept in float32 on a device that can do bfloat16",
                evidence=(
                    f"{shown(single)} of the {shown(place.allocated)} allocated on {place.device} are float32 "
                    f"activations, saved by the graph of {listed([one.path for one in forwards])}.",
                    f"All {len(weights)} parameters behind it are float32, and nothing in it is in lower precision.",
                ),
                arithmetic=f"about half of {shown(single)}, less {shown(copies)} for copies of weights and inputs: "
                f"{shown(gain)} at most; normalisation and losses stay in float32",
                expected=gain,
                code=f'with torch.autocast("{place.device.partition(":")[0]}", dtype=torch.bfloat16):',
                names=tuple(dict.fromkeys(one.name for one in forwards)),
                device=place.device,
            )
    return None


def _is_single(evidence: Evidence, device: str, key: Key) -> bool:
    return key[0] == device and key in evidence.kept and evidence.kept[key].dtype == "float32"


def checkpointing(evidence: Evidence) -> Advice | None:
    """Blocks alike whose activations are most of what is allocated."""
    for place in evidence.places:
        for model in evidence.models:
            for row in sorted(model.rows, key=lambda row: -row.number):
                found = _of_row(evidence, place.device, place.allocated, row, model)
                if found is not None:
                    return found
    return None


def _of_row(evidence: Evidence, device: str, allocated: int, row: Row, model: Model) -> Advice | None:
    forwards = [one for one in _in_training(evidence) if row.tensors <= one.leaves and not one.checkpointed]
    keys = _saved_on(device, evidence, forwards)
    repeated = _in_equal_parts([evidence.nbytes([key]) for key in keys], row.number)
    segments = max(2, round(math.sqrt(row.number)))
    # the activations of one segment at a time, and the input of each other one, which is no larger than a block's
    stays = repeated // segments + (segments - 1) * (repeated // row.number)
    if repeated * 2 < allocated or repeated - stays < evidence.least(device):
        return None
    call = f"torch.utils.checkpoint.checkpoint_sequential({row.path}, {segments}, x, use_reentrant=False)"
    if row.kind != "Sequential":
        call = "torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)  # around each block's call"
    return Advice(
        rule="checkpointing",
        title="Activations of equal blocks are most of what is allocated",
        evidence=(
            f"{row.path} has {row.number} blocks alike; its graph saved {shown(repeated)} in {row.number} equal parts, "
            f"of {shown(allocated)} allocated on {device}.",
            "Computed again in the backward pass they need not be kept; that costs about a third more time.",
        ),
        arithmetic=f"{shown(repeated)} - {shown(repeated)} / {segments} segments - {segments - 1} inputs of at most "
        f"{shown(repeated // row.number)} = {shown(repeated - stays)}",
        expected=repeated - stays,
        code=call,
        names=(model.name,),
        device=device,
    )


def _in_equal_parts(sizes: Iterable[int], number: int) -> int:
    """Bytes of the sizes that occur once, or several times, for each of some blocks."""
    count: dict[int, int] = {}
    for size in sizes:
        count[size] = count.get(size, 0) + 1
    return sum(size * (several // number) * number for size, several in count.items())


def _in_training(evidence: Evidence) -> list[Forward]:
    """The graphs that wait for their backward pass: no evaluation's, and none of many that were piled up."""
    roots = evidence.roots()
    piled = {id(one) for group in _alike(roots) for one in group}
    return [
        one
        for one in roots
        if one.saved and one.terms < _SEVERAL and id(one) not in piled and not _evaluates(evidence, one)
    ]


def _saved_on(device: str, evidence: Evidence, forwards: Sequence[Forward]) -> frozenset[Key]:
    saved = frozenset().union(*(one.saved for one in forwards))
    return frozenset(key for key in saved if key[0] == device and key in evidence.kept)


RULES = (zero_gradients, accumulated_loss, unused_graphs, frozen_states, single_precision, checkpointing)
