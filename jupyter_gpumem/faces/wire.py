"""The messages between kernel and page: what may come in, what goes out. ``tests/protocol`` has examples of both.

What comes in is not trusted: it may be of any type, depth and size. Nothing of it is evaluated; names are looked up.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jupyter_gpumem.model import CellRun, Device, Sample, Shares

VERSION = 1
COMM = "jupyter_gpumem"
"""Id and target of the comm. It is fixed and never opened, so that a page may come, go and reload while a cell runs."""
LONGEST_TEXT = 512
MOST_NAMES = 1000
MOST_ROWS = 20_000
SHORTEST_INTERVAL, LONGEST_INTERVAL = 50, 60_000
"""Milliseconds."""
LONGEST_LEASE = 120
"""Seconds."""
_LARGEST = 2**53
"""Integers beyond this are not exact in a page."""


class WireError(Exception):
    """A message that is not one of ours. ``id`` is that of the request, if it has a right one."""

    def __init__(self, text: str, id: str | None = None) -> None:
        super().__init__(text)
        self.id = id


@dataclass(frozen=True)
class Message:
    """A request of a page, with arguments of the right types."""

    id: str
    verb: str
    page: str
    """Which page asks; a page is a browser tab's panel."""
    args: dict[str, Any]


# ---------------------------------------------------------------- what comes in
def _text(value: object) -> str:
    if type(value) is not str or not 0 < len(value) <= LONGEST_TEXT:
        raise WireError(f"a text of 1 to {LONGEST_TEXT} characters is needed")
    return value


def _optional_text(value: object) -> str | None:
    return None if value is None else _text(value)


def _integer(least: int, most: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        if type(value) is not int or not least <= value <= most:
            raise WireError(f"an integer from {least} to {most} is needed")
        return value

    return read


def _flag(value: object) -> bool:
    if type(value) is not bool:
        raise WireError("true or false is needed")
    return value


def _names(value: object) -> tuple[str, ...]:
    if type(value) is not list or len(value) > MOST_NAMES:
        raise WireError(f"a list of at most {MOST_NAMES} names is needed")
    return tuple([_text(name) for name in value])


_Reader = Callable[[object], Any]
_OPTIONAL = frozenset({"name", "device", "storage"})
_VERBS: dict[str, dict[str, _Reader]] = {
    "watch": {
        "interval": _integer(SHORTEST_INTERVAL, LONGEST_INTERVAL),
        "lease": _integer(1, LONGEST_LEASE),
    },
    "unwatch": {},
    "sample": {},
    "cancel": {"target": _text},
    "dismiss": {"verdict": _integer(0, _LARGEST)},
    "names": {},
    "why": {"name": _optional_text, "device": _optional_text, "storage": _integer(0, _LARGEST)},
    "plan": {"names": _names, "dangling": _flag, "empty": _flag},
    "free": {"token": _text},
    "park": {"names": _names},
    "restore": {"names": _names},
    "move": {"token": _text},
    "account": {},
}
VERBS = tuple(_VERBS)
AT_ONCE = frozenset({"watch", "unwatch", "sample", "cancel", "dismiss"})
"""Verbs that need no tensors: answered beside a running cell where the kernel has a control thread."""


def read(data: object) -> Message:
    """A message as it came. Raises WireError."""
    if type(data) is not dict:
        raise WireError("an object is needed")
    id = _text(data.get("id"))
    try:
        if data.get("v") != VERSION or type(data["v"]) is not int:
            raise WireError(f"version {VERSION} of the messages is spoken here; update the other side")
        verb, page = _text(data.get("verb")), _text(data.get("page"))
        if verb not in _VERBS:
            raise WireError(f"no such request; there is: {', '.join(_VERBS)}")
        args = data.get("args")
        if type(args) is not dict or not set(args) <= set(_VERBS[verb]):
            raise WireError(f"the arguments of {verb} are: {', '.join(_VERBS[verb]) or 'none'}")
        return Message(id, verb, page, _arguments(verb, args))
    except WireError as error:
        error.id = id
        raise


def _arguments(verb: str, args: Mapping[str, object]) -> dict[str, Any]:
    read: dict[str, Any] = {}
    for name, reader in _VERBS[verb].items():
        if name not in args and name not in _OPTIONAL:
            raise WireError(f"{verb} needs {name}")
        if name not in args or (args[name] is None and name in _OPTIONAL):
            read[name] = None
            continue
        try:
            read[name] = reader(args[name])
        except WireError as error:
            raise WireError(f"{name}: {error}") from None
    return read


# ---------------------------------------------------------------- what goes out
def reply(id: str, verb: str, result: object) -> dict[str, Any]:
    """The one answer to a request."""
    return {"kind": "reply", "id": id, "verb": verb, "ok": True, "result": _json(result)}


def refusal(id: str, verb: str | None, code: str, text: str) -> dict[str, Any]:
    """The one answer to a request that cannot be met. ``code``: ``input``, ``cancelled``, ``busy`` or ``fault``."""
    return {"kind": "reply", "id": id, "verb": verb, "ok": False, "error": {"code": code, "text": text}}


def sample(taken: Sample, interval: int) -> dict[str, Any]:
    """A sample, complete in itself: a page that has just been loaded can show it."""
    record = _json(replace(taken, devices=(), shares=()))
    del record["shares"]
    record["devices"] = [_device(*pair) for pair in zip(taken.devices, taken.shares, strict=True)]
    return {"kind": "sample", "interval": interval, **record}


def _device(device: Device, shares: Shares) -> dict[str, Any]:
    """Processes as pairs: there are hundreds of them in a sample."""
    processes = None if device.processes is None else [[p.pid, p.used] for p in device.processes]
    row: dict[str, Any] = _json(replace(device, processes=None))
    return {**row, "processes": processes, "shares": shares._asdict()}


def cell(run: CellRun) -> dict[str, Any]:
    """A cell has ended."""
    return {"kind": "cell", "run": _json(run)}


def verdict(now: Mapping[str, Any] | None) -> dict[str, Any]:
    """The last verdict of the kernel, as ``verdicts`` makes it; None: it does not stand any more."""
    return {"kind": "verdict", "verdict": now}


def bye() -> dict[str, Any]:
    """The extension is being unloaded."""
    return {"kind": "bye"}


def fault(text: str) -> dict[str, Any]:
    """Sampling itself has failed."""
    return {"kind": "fault", "text": text}


def _json(record: object) -> Any:
    return _plain(import_module("jupyter_gpumem.model").to_json(record))


def _plain(value: Any) -> Any:
    """Without what JSON has no word for: NaN and infinities are not available."""
    if type(value) is float and not math.isfinite(value):
        return None
    if type(value) is dict:
        return {key: _plain(item) for key, item in value.items()}
    if type(value) is list:
        return [_plain(item) for item in value]
    return value
