"""A caching allocator, played through on paper: what it would hand out and keep for a sequence of allocations.

The rules are those of torch's CUDA allocator (c10/cuda/CUDACachingAllocator.cpp): sizes are rounded up to 512 bytes;
blocks up to 1 MiB come from segments of 2 MiB, larger ones from segments of 20 MiB, and from 10 MiB on from segments
of their own, rounded up to 2 MiB; the smallest free block that fits is taken, and split if enough is left; neighbours
that are free are joined; what is wholly free goes back to the driver when nothing more is to be had.
"""
from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass

from jupyter_gpumem.model import Segment

ROUND = 512
_SMALL = 1 << 20
_SMALL_SEGMENT = 2 << 20
_LARGE_SEGMENT = 20 << 20
_OWN_SEGMENT = 10 << 20


def rounded(nbytes: int, to: int = ROUND) -> int:
    """A size as the allocator counts it."""
    return -(-nbytes // to) * to


@dataclass(eq=False)
class Piece:
    """A block of a segment, with its neighbours."""

    address: int
    nbytes: int
    small: bool
    used: bool
    before: Piece | None = None
    after: Piece | None = None


class Pool:
    """The allocator of one device, from a moment on."""

    def __init__(self, segments: Sequence[Segment], limit: int | None, grows: bool = False) -> None:
        """``limit``: the most that it can have from the driver, bytes. ``grows``: its segments do (expandable ones),
        and it splits what it can.
        """
        self._limit = limit
        self._grows = grows
        self._free: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
        self._pieces: dict[int, Piece] = {}
        self._next = 1 + max((segment.address + segment.nbytes for segment in segments), default=0)
        self.allocated = 0
        self.reserved = sum(segment.nbytes for segment in segments)
        self.failed = False
        """Whether an allocation did not fit. It was made nevertheless, so that the peak can be told."""
        for segment in segments:
            if segment.private:
                self.allocated += sum(block.nbytes for block in segment.blocks if block.state == "allocated")
            else:
                self._adopt(segment)

    def _adopt(self, segment: Segment) -> None:
        last: Piece | None = None
        for block in segment.blocks:
            piece = Piece(block.address, block.nbytes, segment.pool == "small", block.state != "free", last)
            if last is not None:
                last.after = piece
            self.allocated += block.nbytes if block.state == "allocated" else 0
            self._pieces[piece.address] = last = piece
            if not piece.used:
                self._put(piece)

    def at(self, address: int | None) -> Piece | None:
        """The block that begins at an address, if it is in use."""
        piece = self._pieces.get(address or 0)
        return piece if piece is not None and piece.used else None

    def take(self, nbytes: int) -> Piece:
        """Allocate."""
        size = rounded(nbytes)
        small = size <= _SMALL
        free = self._free[small]
        place = bisect_left(free, (size, 0))
        piece = self._pieces[free.pop(place)[1]] if place < len(free) else self._segment(size, small)
        left = piece.nbytes - size
        if left >= ROUND if small or self._grows else left > _SMALL:
            rest = Piece(piece.address + size, left, small, False, piece, piece.after)
            if piece.after is not None:
                piece.after.before = rest
            piece.after, piece.nbytes = rest, size
            self._pieces[rest.address] = rest
            self._put(rest)
        piece.used = True
        self.allocated += piece.nbytes
        return piece

    def give(self, piece: Piece) -> None:
        """Free."""
        self.allocated -= piece.nbytes
        piece.used = False
        if piece.after is not None and not piece.after.used:
            self._drop(piece.after)
            self._join(piece, piece.after)
        if piece.before is not None and not piece.before.used:
            self._drop(piece.before)
            self._join(piece.before, piece)
            piece = piece.before
        self._put(piece)

    def _put(self, piece: Piece) -> None:
        insort(self._free[piece.small], (piece.nbytes, piece.address))

    def _drop(self, piece: Piece) -> None:
        free = self._free[piece.small]
        del free[bisect_left(free, (piece.nbytes, piece.address))]

    def _join(self, first: Piece, second: Piece) -> None:
        first.nbytes += second.nbytes
        first.after = second.after
        if second.after is not None:
            second.after.before = first
        del self._pieces[second.address]

    def _segment(self, size: int, small: bool) -> Piece:
        """A new segment that is one block, not in use."""
        large = _LARGE_SEGMENT if size < _OWN_SEGMENT else rounded(size, _SMALL_SEGMENT)
        nbytes = _SMALL_SEGMENT if small else large
        if self._limit is not None and self.reserved + nbytes > self._limit:
            self._release()
            self.failed |= self.reserved + nbytes > self._limit
        piece = Piece(self._next, nbytes, small, False)
        self._next += nbytes
        self._pieces[piece.address] = piece
        self.reserved += nbytes
        return piece

    def _release(self) -> None:
        for free in self._free.values():
            for entry in list(free):
                piece = self._pieces[entry[1]]
                if piece.before is None and piece.after is None:
                    free.remove(entry)
                    del self._pieces[piece.address]
                    self.reserved -= piece.nbytes
