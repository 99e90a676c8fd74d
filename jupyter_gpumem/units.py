"""Bytes to text and back: the only place where a size becomes a string."""
from __future__ import annotations

import re
from collections.abc import Sequence

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_SHARE = re.compile(r"(\d*\.?\d+)\s*(%)?")
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:([KMGTP])(?:i?B)?|B)?\s*", re.IGNORECASE)


def shown(nbytes: int | None) -> str:
    """``1536`` → ``1.5 KiB``; None → ``N/A``. The unit is always printed and is a power of 1024."""
    if nbytes is None:
        return "N/A"
    size = float(abs(nbytes))
    unit = _UNITS[0]
    for unit in _UNITS:
        # 1023.95 would be printed as 1024.0: go one unit up instead
        if size < 1023.95 or unit == _UNITS[-1]:
            break
        size /= 1024
    number = f"{size:.0f}" if unit == "B" else f"{size:.1f}"
    return f"{'-' if nbytes < 0 else ''}{number} {unit}"


def signed(nbytes: int | None) -> str:
    """As :func:`shown`, with a plus sign for growth."""
    return f"+{shown(nbytes)}" if nbytes is not None and nbytes > 0 else shown(nbytes)


def series(sizes: Sequence[int], last: int = 3) -> str:
    """``0 → 4.0 MiB → 8.0 MiB``; of more than ``last + 2`` sizes the first and the last ones."""
    words = [shown(size) if size else "0" for size in sizes]
    return " → ".join(words if len(words) <= last + 2 else [words[0], "…", *words[-last:]])


def parse(text: str) -> int:
    """``8GiB``, ``512 MB``, ``1.5k`` → bytes. All prefixes are powers of 1024, as the GPU tools mean them.

    Raises ValueError for anything else.
    """
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a size; write for example 512MiB or 8GiB")
    power = " KMGTP".index((match.group(2) or " ").upper())
    return int(float(match.group(1)) * 1024**power)


def amount(size: str | float, whole: int) -> int:
    """A size as :func:`parse` takes it, a number of bytes, or a share of ``whole``: ``50%``, ``0.5``, 0.5 → bytes.

    Raises ValueError for anything else, and for less than one byte.
    """
    text = str(size).strip()
    share = _SHARE.fullmatch(text)
    if share is not None and (share.group(2) or float(share.group(1)) <= 1):
        found = int(whole * float(share.group(1)) / (100 if share.group(2) else 1))
    else:
        found = parse(text.removesuffix(".0"))
    if found < 1 or isinstance(size, bool):
        raise ValueError(f"{size!r} is not a size; write for example 512MiB, 8GiB or 50%")
    return found
