"""Blocks of advice: what was seen, how the bytes follow from it, and the line that does it.

To be imported wherever blocks are made: importing it registers them.
"""
from __future__ import annotations

from jupyter_gpumem.model import Advice, Checkup
from jupyter_gpumem.pictures.blocks import Block, Heading, Line, blocks
from jupyter_gpumem.units import shown


@blocks.register
def _checkup(checkup: Checkup) -> list[Block]:
    found: list[Block] = [block for advice in checkup.found for block in _advice(advice)]
    if not found:
        found.append(Heading("Nothing to advise"))
    found.append(Line(f"looked at on {', '.join(checkup.watched) or 'no device'}: {', '.join(checkup.looked_at)}"))
    return [*found, *(Line(note, warn=checkup.partial) for note in checkup.notes)]


@blocks.register
def _advice(advice: Advice) -> list[Block]:
    of = "host memory" if advice.device == "cpu" else advice.device
    gain = "" if advice.expected is None else shown(advice.expected) + (f" of {of}" if of else "")
    found: list[Block] = [Heading(advice.title, gain), *(Line(sentence) for sentence in advice.evidence)]
    return [*found, Line(advice.arithmetic or "how many bytes that gives cannot be told beforehand", advice.code)]
