"""Blocks of what an error of a device means: three lines, and the evidence behind them.

To be imported wherever blocks are made: importing it registers them.
"""
from __future__ import annotations

from jupyter_gpumem.model import DeviceFault, Diagnosis, Fact, Tensor
from jupyter_gpumem.pictures.blocks import Block, Fold, Line, blocks, table
from jupyter_gpumem.units import shown


@blocks.register
def _diagnosis(found: Diagnosis) -> list[Block]:
    """What was asked where, the cause, the cure; then the evidence, folded in."""
    lines: list[Block] = [
        Line(f"gpumem: {asked(found)}", warn=True),
        Line(f"cause: {found.cause}"),
        Line(f"cure: {found.cure}", found.code),
    ]
    return [*lines, Fold("Evidence", tuple(_evidence(found)), found.full)]


def asked(found: Diagnosis) -> str:
    """What was asked for and where: ``out of memory on cuda:0: 2.0 GiB asked, 1.1 GiB free; cell [3], line 2``."""
    error, origin = found.error, found.origin
    about = "about " if error.rounding > 8 << 20 else ""
    on = f" on {error.device}" if error.device is not None else ""
    what = f"{about}{shown(error.asked)} asked" if error.asked is not None else "asked for an untold size"
    free = f", {about}{shown(error.free)} free" if error.free is not None else ""
    where = f"; {origin.place}" if origin.place else ""
    code = f": {origin.code}" if origin.place and origin.code else ""
    tensors = ", ".join(f"{name} {_tensor(tensor)}" for name, tensor in origin.tensors)
    return f"out of memory{on}: {what}{free}{where}{code}" + (f" ({tensors})" if tensors else "")


def _tensor(tensor: Tensor) -> str:
    return f"{'×'.join(map(str, tensor.shape)) or 'scalar'} {tensor.dtype}"


def _evidence(found: Diagnosis) -> list[Block]:
    rows = [(fact.text, _figure(fact)) for fact in found.facts]
    also: list[Block] = [Line(f"also: {words}") for _, words in found.contributing]
    said: list[Block] = [Line(f"the error says: {found.error.text}")] if found.error.text else []
    return [table(("evidence", "bytes"), rows, {1}, None, len(rows)), *also, *said]


def _figure(fact: Fact) -> str:
    return "unknown" if fact.nbytes is None else shown(fact.nbytes)


@blocks.register
def _fault(fault: DeviceFault) -> list[Block]:
    """Two lines: what it is, and what helps."""
    return [
        Line(f"gpumem: not out of memory, but {fault.fault.value}: {fault.text}", warn=True),
        Line(fault.help),
    ]
