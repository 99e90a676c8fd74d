"""A plan that somebody is to agree to before it is done, and what happens if the session has changed meanwhile.

An offer holds no live object: storages are remembered weakly. When it is taken up the plan is made anew, and only done
if it is the plan that was agreed to: the same actions, on storages that were there then.
Owned by the thread that runs the cells.
"""
from __future__ import annotations

import uuid
from dataclasses import dataclass

from jupyter_gpumem import frameworks, session
from jupyter_gpumem.actions import cleaning
from jupyter_gpumem.actions.planning import Prepared, Request, prepare
from jupyter_gpumem.errors import InputError
from jupyter_gpumem.model import Plan, Report

_MOST = 16


@dataclass(frozen=True)
class Offer:
    """A plan under a token that stands for agreeing to it."""

    token: str
    plan: Plan


@dataclass(frozen=True)
class _Made:
    request: Request
    actions: tuple[tuple[str, str], ...]
    storages: frozenset[tuple[str, int]]
    remembered: tuple[frameworks.Remembered, ...]

    def covers(self, prepared: Prepared) -> bool:
        """Whether a plan made now does nothing that this one did not say."""
        return _actions(prepared) == self.actions and all(
            (device, address) in self.storages and any(known.knows(address) for known in self.remembered)
            for device, address in prepared.storages
        )


def _actions(prepared: Prepared) -> tuple[tuple[str, str], ...]:
    return tuple((action.step.value, action.target) for action in prepared.plan.actions)


class Offers:
    """The offers made to the pages of one shell; the oldest are forgotten."""

    def __init__(self, shell: session.Shell | None) -> None:
        self._shell = shell
        self._made: dict[str, _Made] = {}

    def make(self, request: Request) -> Offer:
        """Plan, and change nothing. Raises InputError for names that cannot be deleted."""
        return self._offer(prepare(self._shell, request))

    def take_up(self, token: str) -> Report | Offer:
        """Do what was offered under the token, once; or, if that is not what would happen now, a new offer.

        Raises InputError for a token that is unknown, too old, or used up; nothing has changed then.
        """
        made = self._made.pop(token, None)
        if made is None:
            raise InputError("this plan is too old, or has been carried out; nothing is done")
        prepared = prepare(self._shell, made.request)
        if made.covers(prepared):
            return cleaning.apply(self._shell, prepared)
        return self._offer(prepared)

    def _offer(self, prepared: Prepared) -> Offer:
        token = uuid.uuid4().hex
        while len(self._made) >= _MOST:
            del self._made[next(iter(self._made))]
        self._made[token] = _Made(
            prepared.request, _actions(prepared), prepared.storages, tuple(prepared.promised)
        )
        plan = prepared.plan
        prepared.outputs.clear()
        prepared.errors.clear()
        prepared.frames.clear()
        prepared.moves.clear()
        return Offer(token, plan)
