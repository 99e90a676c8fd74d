"""A budget of device memory: a limit for this process, and memory that is taken before others can take it."""
from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from jupyter_gpumem import frameworks
from jupyter_gpumem.analysis.inventory import is_watched
from jupyter_gpumem.analysis.snapshot import HOST, watched_devices
from jupyter_gpumem.errors import InputError
from jupyter_gpumem.frameworks import Framework
from jupyter_gpumem.model import Notice
from jupyter_gpumem.units import amount, shown

_P = ParamSpec("_P")
_R = TypeVar("_R")
OFF = "off"


# ---------------------------------------------------------------- which devices
def _chosen(device: str | None) -> list[tuple[Framework, str]]:
    """The devices that were named, or the current one. Raises InputError for one of which nothing is in use yet."""
    watched = watched_devices(device)
    if any(one.partition(":")[0] == HOST for one in watched):
        raise InputError("host memory has no budget: name an accelerator, and make a first tensor on it before")
    if device is None:
        current = [(one, name) for one in frameworks.loaded() if (name := one.current_device()) is not None]
        found = current[:1]
    else:
        found = [(one, name) for one in frameworks.loaded() for name in one.devices() if is_watched(name, watched)]
        if ":" not in device:
            found = [(one, name) for one, name in found if one.in_use(name)]
    unused = [name for one, name in found if not one.in_use(name)]
    if unused or not found:
        what = unused[0] if unused else device or watched[0]
        raise InputError(f"{what} is not in use yet, and this would start it: make a first tensor on it before")
    return found


def _reserved(framework: Framework, device: str) -> int:
    return sum(one.reserved or 0 for one in framework.allocators() if one.device == device)


def _asked(size: str | float, framework: Framework, device: str) -> tuple[int, int]:
    """Bytes that were asked for, and those of the device."""
    whole = framework.total(device)
    if whole is None:
        raise InputError(f"{framework.name} does not tell how large {device} is")
    try:
        return amount(size, whole), whole
    except ValueError as error:
        raise InputError(str(error)) from None


# ---------------------------------------------------------------- the limit
def limit(size: str | float, device: str | None = None) -> Notice:
    """Limit what this process reserves, or with ``off`` end that; see ``jupyter_gpumem.limit``."""
    chosen = _chosen(device)
    if size == OFF:
        return Notice("\n".join(_ended(framework, name) for framework, name in chosen))
    asked = [_asked(size, framework, name) for framework, name in chosen]
    for (_, name), (nbytes, whole) in zip(chosen, asked, strict=True):
        if nbytes > whole:  # before any of them is changed
            raise InputError(f"{shown(nbytes)} is more than {name} has: {shown(whole)}")
    lines = []
    for (framework, name), (nbytes, whole) in zip(chosen, asked, strict=True):
        framework.set_limit(name, nbytes)
        lines.append(_told(name, nbytes, whole, _reserved(framework, name)))
    return Notice("\n".join(lines))


def _told(device: str, nbytes: int, whole: int, reserved: int) -> str:
    line = f"gpumem: this process reserves at most {shown(nbytes)} of {device}, which has {shown(whole)}"
    if reserved <= nbytes:
        return f"{line}; {shown(reserved)} now"
    return (
        f"{line}. It has {shown(reserved)} already: nothing is taken away, and nothing more is got before that is below"
        " the limit; %gpufree gives the cache back"
    )


def _ended(framework: Framework, device: str) -> str:
    if framework.end_limit(device):
        return f"gpumem: the limit on {device} is off"
    return f"gpumem: no limit was set on {device} by %gpumem --limit, or it was changed since: left as it is"


# ---------------------------------------------------------------- taken beforehand
class Preallocated:
    """Memory that the allocator has while a block runs. See ``jupyter_gpumem.preallocated``."""

    def __init__(self, size: str | float, device: str | None) -> None:
        self._size = size
        self._device = device
        self._taken: list[tuple[Framework, str]] = []

    def __enter__(self) -> Preallocated:
        chosen = _chosen(self._device)
        asked = [_asked(self._size, framework, name)[0] for framework, name in chosen]
        for (framework, name), nbytes in zip(chosen, asked, strict=True):
            _require_room(framework, name, nbytes)
        self._taken = chosen
        try:
            for (framework, name), nbytes in zip(chosen, asked, strict=True):
                framework.reserve(name, nbytes)
        except InputError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for framework in {framework.name: framework for framework, _ in self._taken}.values():
            framework.empty_cache()
        self._taken = []

    def __call__(self, function: Callable[_P, _R]) -> Callable[_P, _R]:
        """As a decorator: around every call."""

        @wraps(function)
        def inside(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            with Preallocated(self._size, self._device):
                return function(*args, **kwargs)

        decorated: Any = inside
        return decorated  # type: ignore[no-any-return]


def _require_room(framework: Framework, device: str, nbytes: int) -> None:
    """Refuse what cannot be, before the allocator empties its cache to find room."""
    free = framework.free_bytes(device)
    cached = _reserved(framework, device) - sum(a.allocated for a in framework.allocators() if a.device == device)
    if free is not None and nbytes > free + cached:
        raise InputError(
            f"{shown(nbytes)} of {device} cannot be taken: {shown(free)} are free on it, and {shown(cached)} in this"
            " process's cache; %gpumem shows who has the rest"
        )
