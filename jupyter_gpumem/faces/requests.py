"""What a page may ask of the thread that runs the cells: each verb calls one function and answers with its record."""
from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from jupyter_gpumem import session
from jupyter_gpumem.actions import parking
from jupyter_gpumem.actions.move_offers import MoveOffer, MoveOffers
from jupyter_gpumem.actions.offers import Offer, Offers
from jupyter_gpumem.actions.planning import Request
from jupyter_gpumem.analysis import account, names
from jupyter_gpumem.analysis.snapshot import watched_devices
from jupyter_gpumem.analysis.why import why
from jupyter_gpumem.errors import InputError
from jupyter_gpumem.faces import wire
from jupyter_gpumem.faces.settings import GPUMem
from jupyter_gpumem.model import Direction


class Requests:
    """The verbs that look at tensors or move them, for one shell. Owned by the thread that runs its cells."""

    def __init__(self, shell: session.Shell, settings: GPUMem) -> None:
        self._shell = shell
        self._settings = settings
        self._offers = Offers(shell)
        self._moves = MoveOffers(shell)
        self._shown: dict[str, Any] = {}
        """Framework → the storages of the last answer to ``names``, weakly."""

    def answer(self, message: wire.Message) -> object:
        """The record that answers a request. Raises InputError."""
        return getattr(self, f"_{message.verb}")(**message.args)

    def _watched(self) -> tuple[str, ...]:
        return watched_devices(self._settings.device or None)

    def _names(self) -> object:
        begun = time.monotonic()
        seen, self._shown = names.take(self._shell, self._watched(), self._settings.search_seconds)
        most = wire.MOST_ROWS
        return {
            "names": replace(seen, names=seen.names[:most], others=seen.others[:most]),
            "parked": parking.parked_names()[:most],
            "took": round(1000 * (time.monotonic() - begun)),
            "left_out": max(0, len(seen.names) - most) + max(0, len(seen.others) - most),
        }

    def _why(self, name: str | None, device: str | None, storage: int | None) -> object:
        if name is not None:
            values = session.user_names(self._shell)
            if name not in values:
                raise InputError(f"the name {name!r} is not there any more")
            return why(self._shell, values.pop(name), name)
        if device is None or storage is None:
            raise InputError("why needs a name, or a device and a storage")
        if not any(known.knows(storage) for known in self._shown.values()):
            raise InputError("this tensor is not there any more")
        return why(self._shell, None, at=(device, storage))

    def _account(self) -> object:
        found = account.take(self._shell, self._settings.device or None)
        return {"accounts": [replace(one, segments=()) for one in found]}

    def _plan(self, names: tuple[str, ...], dangling: bool, empty: bool) -> object:
        if not (names or dangling or empty):
            raise InputError("nothing to plan: give names, dangling or empty")
        request = Request(watched=self._watched(), names=names, dangling=dangling)
        return self._offers.make(request)

    def _free(self, token: str) -> object:
        done = self._offers.take_up(token)
        return {"changed": done} if isinstance(done, Offer) else {"report": done}

    def _park(self, names: tuple[str, ...]) -> object:
        return self._moves.make(Direction.PARK, names, self._settings.device or None)

    def _restore(self, names: tuple[str, ...]) -> object:
        return self._moves.make(Direction.RESTORE, names)

    def _move(self, token: str) -> object:
        done = self._moves.take_up(token)
        return {"changed": done} if isinstance(done, MoveOffer) else {"done": done}
