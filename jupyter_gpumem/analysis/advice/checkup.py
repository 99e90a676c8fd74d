"""Advice from what the session shows now: the rules over one look, largest expected gain first."""
from __future__ import annotations

from collections.abc import Collection

from jupyter_gpumem import session
from jupyter_gpumem.analysis.advice import gathering, rules_keeping, rules_training
from jupyter_gpumem.analysis.advice.evidence import Evidence
from jupyter_gpumem.analysis.snapshot import watched_devices
from jupyter_gpumem.model import Checkup

RULES = (*rules_training.RULES, *rules_keeping.RULES)
_COLLECTIVE = (
    "torch.distributed is initialised ({}): its buffers and the buckets of DistributedDataParallel are held by C++; "
    "from Python only torch.distributed.destroy_process_group() frees them."
)


def take(shell: session.Shell | None, device: str | None = None, seconds: float = 10.0) -> Checkup:
    """What could take less memory. Nothing is changed, allocated on a device or initialised for it.

    Of the tensors' values only those of gradients are read, 256 MiB of them at most. To be called in the thread that
    runs the cells, between them. Raises InputError if ``device`` does not exist.
    """
    return judged(gathering.gather(shell, watched_devices(device), seconds))


def judged(evidence: Evidence) -> Checkup:
    """What the rules make of some evidence."""
    found = [advice for rule in RULES if (advice := rule(evidence)) is not None]
    found.sort(key=lambda advice: (advice.expected is None, -(advice.expected or 0), advice.rule))
    notes = list(evidence.notes)
    notes += [_COLLECTIVE.format(evidence.collective)] if evidence.collective is not None else []
    return Checkup(evidence.watched, tuple(found), _looked_at(evidence), tuple(notes), evidence.partial)


def _looked_at(evidence: Evidence) -> tuple[str, ...]:
    return (
        _count(evidence.kept, "storage"),
        _count(evidence.models, "model"),
        _count(evidence.optimizers, "optimizer"),
        f"{sum(one.number for one in evidence.gradients) or 'no'} gradients",
        _count(evidence.forwards, "tensor", " with a graph"),
        _count(evidence.copies, "dictionary", " of tensors", "dictionaries"),
        _count(evidence.workers, "loader"),
        _count(evidence.places, "allocator"),
        "no figure of page-locked memory" if evidence.pinned is None else "page-locked memory",
    )


def _count(found: Collection[object], word: str, rest: str = "", several: str = "") -> str:
    return f"{len(found) or 'no'} {word if len(found) == 1 else several or word + 's'}{rest}"
