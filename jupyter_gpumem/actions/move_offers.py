"""A move to host memory or back that somebody is to agree to before it is done.

An offer holds names and figures, no object. When it is taken up the plan is made anew, and only done if it still says
the same: a move loses nothing, so equal figures are enough. Owned by the thread that runs the cells.
"""
from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import NamedTuple

from jupyter_gpumem import session
from jupyter_gpumem.actions import parking
from jupyter_gpumem.errors import InputError
from jupyter_gpumem.model import Direction, Moved, Parking

_MOST = 16


@dataclass(frozen=True)
class MoveOffer:
    """A plan under a token that stands for agreeing to it."""

    token: str
    parking: Parking


class _Asked(NamedTuple):
    direction: Direction
    names: tuple[str, ...]
    device: str | None


class MoveOffers:
    """The moves offered to the pages of one shell; the oldest are forgotten."""

    def __init__(self, shell: session.Shell | None) -> None:
        self._shell = shell
        self._made: dict[str, tuple[_Asked, tuple[Moved, ...]]] = {}

    def make(self, direction: Direction, names: tuple[str, ...], device: str | None = None) -> MoveOffer:
        """Plan, and change nothing. ``device`` is what is watched, None for the accelerators.

        Raises InputError for names that hold nothing to be moved.
        """
        if not names:
            raise InputError("nothing to move: give names")
        asked = _Asked(direction, names, device)
        return self._offer(asked, self._planned(asked))

    def take_up(self, token: str) -> Parking | MoveOffer:
        """Do what was offered under the token, once; or, if that is not what would happen now, a new offer.

        Raises InputError for a token that is unknown, too old, or used up, and if the move fails; then nothing moved.
        """
        asked, agreed = self._made.pop(token, (None, ()))
        if asked is None:
            raise InputError("this plan is too old, or has been carried out; nothing is done")
        planned = self._planned(asked)
        if planned.obstacles or planned.moved != agreed:
            return self._offer(asked, planned)
        if asked.direction is Direction.PARK:
            return parking.park(self._shell, parking.values(self._shell, asked.names), asked.device)
        return parking.restore(self._shell, only=parking.parked_under(asked.names))

    def _planned(self, asked: _Asked) -> Parking:
        if asked.direction is Direction.PARK:
            return parking.plan_park(self._shell, parking.values(self._shell, asked.names), asked.device)
        return parking.plan_restore(self._shell, only=parking.parked_under(asked.names))

    def _offer(self, asked: _Asked, planned: Parking) -> MoveOffer:
        token = uuid.uuid4().hex
        while len(self._made) >= _MOST:
            del self._made[next(iter(self._made))]
        self._made[token] = (asked, planned.moved)
        return MoveOffer(token, planned)
