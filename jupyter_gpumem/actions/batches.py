"""Batches that fit: cut into parts, and made as large as the device allows."""
from __future__ import annotations

import copy
import dataclasses
import enum
import gc
import numbers
import operator
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any, TypeVar

from jupyter_gpumem import frameworks, session
from jupyter_gpumem.actions.rewind import Start
from jupyter_gpumem.analysis import forecast
from jupyter_gpumem.analysis.snapshot import HOST, watched_devices
from jupyter_gpumem.analysis.verdict import failures
from jupyter_gpumem.errors import InputError
from jupyter_gpumem.frameworks import Batches
from jupyter_gpumem.model import Notice, OutOfMemory
from jupyter_gpumem.units import shown

_B = TypeVar("_B")
_MOST = 1 << 20
"""The largest size that is tried where the caller sets no bound: a step that ignores its argument always fits."""


def whole(number: object, what: str) -> int:
    """A whole number from 1 on. Raises InputError for anything else."""
    try:
        found = operator.index(number)  # type: ignore[arg-type]  # what has no index is refused
    except TypeError:
        found = 0
    if found < 1 or number is True:
        raise InputError(f"{what} is a whole number from 1 on; not {number!r}")
    return found


# ---------------------------------------------------------------- parts of a batch
def micro_batches(batch: _B, n: int) -> Iterator[tuple[_B, float]]:
    """A batch in ``n`` parts of nearly equal size, each with its share of the samples::

        for part, share in micro_batches(batch, 4):
            (loss_of(part) * share).backward()
        optimizer.step()

    A batch is a tensor or array, or tuples, lists, dictionaries and dataclasses of them, nested; all are cut along
    their first dimension, into views. None, numbers, text and tensors without a dimension go to every part as they
    are; a list of one text for each sample is cut too. Of fewer than ``n`` samples each is a part.

    The gradients are those of the whole batch where the loss is a mean over samples. They are not where samples meet:
    batch norm takes its statistics from each part, a contrastive loss has fewer pairs; dropout draws other masks. A
    mean over something else takes that in place of ``share``, for tokens
    ``(labels_of(part) != -100).sum() / (labels_of(batch) != -100).sum()``.

    Raises InputError if first dimensions differ, or there is nothing to cut.
    """
    n = whole(n, "the number of parts")
    lengths: dict[int, str] = {}
    _note_lengths(batch, "batch", lengths)
    if not lengths:
        raise InputError("there is nothing to cut: the batch has no tensor and no array with a first dimension")
    if len(lengths) > 1:
        (one, here), (other, there) = list(lengths.items())[:2]
        raise InputError(f"the first dimensions differ: {here} has {one}, {there} has {other}")
    length = next(iter(lengths))
    if length == 0:
        raise InputError("there is nothing to cut: the first dimension of the batch is 0")
    return _parts(batch, length, min(n, length))


def _parts(batch: _B, length: int, n: int) -> Iterator[tuple[_B, float]]:
    size, more = divmod(length, n)
    begin = 0
    for number in range(n):
        end = begin + size + (number < more)
        part: Any = _cut(batch, slice(begin, end), length)
        yield part, (end - begin) / length
        begin = end


def _is_array(value: Any) -> bool:
    """What is cut: it has a shape of one dimension or more, as the arrays of all frameworks have."""
    if isinstance(value, type):
        return False
    shape = getattr(value, "shape", None)
    return shape is not None and not callable(shape) and hasattr(type(value), "__getitem__") and len(shape) > 0


def _is_plain(value: object) -> bool:
    """What each part gets as it is: None, numbers, text, and arrays without a dimension."""
    simple = (str, bytes, numbers.Number, enum.Enum)
    return value is None or isinstance(value, simple) or getattr(value, "shape", None) == ()


def _is_texts(value: object, length: int) -> bool:
    """A list of one text for each sample, as ``default_collate`` leaves it."""
    return isinstance(value, (list, tuple)) and len(value) == length and all(isinstance(v, (str, bytes)) for v in value)


def _items(value: Any) -> list[tuple[Any, Any]] | None:
    """Keys and values of a container, None for anything else."""
    if isinstance(value, MutableMapping):
        return list(value.items())
    if isinstance(value, (list, tuple)):
        return list(enumerate(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    return None


def _note_lengths(value: Any, path: str, lengths: dict[int, str]) -> None:
    """First dimension → the path of the first array that has it. Raises InputError for what cannot be cut."""
    if _is_array(value):
        lengths.setdefault(int(value.shape[0]), path)
        return
    items = None if _is_plain(value) else _items(value)
    if items is not None:
        attribute = not isinstance(value, (MutableMapping, list, tuple))
        for key, item in items:
            _note_lengths(item, f"{path}.{key}" if attribute else f"{path}[{key!r}]", lengths)
    elif not _is_plain(value):
        raise InputError(
            f"{path} is of type {type(value).__name__}, which cannot be cut; a batch is made of tensors and arrays,"
            " and of tuples, lists, dictionaries and dataclasses of them"
        )


def _cut(value: Any, where: slice, length: int) -> Any:
    if _is_array(value) or _is_texts(value, length):
        return value[where]
    items = None if _is_plain(value) else _items(value)
    if items is None:
        return value
    cut = [(key, _cut(item, where, length)) for key, item in items]
    if all(new is old for (_, new), (_, old) in zip(cut, items, strict=True)):
        return value
    if isinstance(value, tuple):
        new = [item for _, item in cut]
        return type(value)(*new) if hasattr(value, "_fields") else type(value)(new)
    part = copy.copy(value)
    for key, item in cut:
        if isinstance(value, (MutableMapping, list)):
            part[key] = item
        else:
            object.__setattr__(part, key, item)  # a frozen dataclass too; no __init__ runs again
    return part


# ---------------------------------------------------------------- a loader
def resizable(loader: object) -> Batches:
    """The batches of a torch DataLoader, in sizes that may change in the middle of an epoch::

        batches = resizable(loader)
        for batch in batches:
            try:
                step(batch)
            except torch.OutOfMemoryError:
                batches.resize(batches.batch_size // 2, again=True)

    ``resize(n)`` makes the batches from the next one on of ``n`` samples; with ``again`` the samples of the last batch
    come once more, first. The epoch has the samples of the plain loader in its order, and a resize draws no random
    number; the loader itself is left as it was, and its other options hold. Workers end at a resize, and start anew.
    With ``drop_last`` a last batch is dropped that is smaller than the size of that moment. ``len()`` counts the
    batches of the epoch.

    Raises InputError for an IterableDataset, a ``batch_sampler`` of one's own, and ``batch_size=None``.
    """
    for framework in frameworks.loaded():
        if framework.hints.is_loader(type(loader)):
            return framework.resizable(loader)
    raise InputError(f"resizable takes a torch.utils.data.DataLoader; not {type(loader).__name__}")


# ---------------------------------------------------------------- the largest size
def largest(fits: Callable[[int], bool], guess: int, stride: int, most: int) -> int:
    """The largest n up to ``most`` for which ``fits(n)``, where that is true up to some number; 0 if for none.

    In doubling strides from a guess, then by halves.
    """
    low, high = 0, most + 1
    number = min(guess, most)
    if fits(number):
        low = number
        while low + 1 < high:
            number = min(low + stride, high - 1)
            if not fits(number):
                high = number
                break
            low, stride = number, stride * 2
    else:
        high = number
        while high - stride > 0:
            number = high - stride
            if fits(number):
                low = number
                break
            high, stride = number, stride * 2
    while low + 1 < high:
        number = (low + high) // 2
        low, high = (number, high) if fits(number) else (low, number)
    return low


def find_batch_size(
    step: Callable[[int], object],
    start: int,
    most: int | None,
    device: str | None,
    show: Callable[[Notice], object],
    foreseen: Callable[[int], bool | None] | None = None,
) -> int:
    """The largest n with which a step runs; see ``jupyter_gpumem.find_batch_size``.

    ``foreseen(n)`` says whether it will fit without trying, None if that cannot be told. The tries then begin there.
    """
    start = whole(start, "start")
    bound = _MOST if most is None else whole(most, "most")
    if start > bound:
        raise InputError(f"start is {start} and most is {bound}: start with less")
    if most is None and watched_devices(device) == (HOST,):
        raise InputError("give most=: where host memory is used, too much of it ends the process without an error")
    tries = _Tries(step, show)
    try:
        guess = _guess(foreseen, start, bound, tries.back) if foreseen is not None else None
        if guess is not None:
            tries.say(f"by forecast {guess} is the largest")
        first, stride = (start, start) if not guess else (guess, 1)
        found = largest(tries.fits, first, stride, bound)
    finally:
        tries.end()
    if not found:
        tries.say("not even 1 fits")
    elif found == bound and most is None:
        tries.say(f"{found} fits, and more is not tried: give most= to go on")
    else:
        tries.say(f"{found} is the largest that fits" + (", and the most that was allowed" if found == most else ""))
    return found


def by_forecast(step: Callable[[int], object], device: str | None) -> Callable[[int], bool | None]:
    """Whether a step will fit, by rehearsing it; None where it cannot be rehearsed, or the room is not known."""

    def fits(number: int) -> bool | None:
        try:
            seen = forecast.take(None, "step", step, (number,), device=device, batches=False)
        except InputError:
            return None
        told = [one.fits for one in seen.devices]
        return None if None in told or not told else all(told)

    return fits


def _guess(
    foreseen: Callable[[int], bool | None], start: int, bound: int, back: Callable[[], None]
) -> int | None:
    """The largest size that should fit; None where one of them cannot be told."""
    unknown = False

    def fits(number: int) -> bool:
        nonlocal unknown
        said = None if unknown else foreseen(number)
        back()
        unknown = said is None
        return bool(said)

    found = largest(fits, start, start, bound)
    return None if unknown else found


class _Tries:
    """True tries of a step, each from the same start."""

    def __init__(self, step: Callable[[int], object], show: Callable[[Notice], object]) -> None:
        self._step = step
        self._show = show
        self._start = Start(session.current())
        self._known: dict[int, bool] = {}

    def say(self, text: str) -> None:
        self._show(Notice(f"gpumem: {text}"))

    def back(self) -> None:
        """To the start."""
        self._start.put_back()

    def fits(self, number: int) -> bool:
        """Try, unless it has been tried, and clean up."""
        if number not in self._known:
            self._known[number] = self._try(number)
        return self._known[number]

    def _try(self, number: int) -> bool:
        windows = [framework.open_window() for framework in frameworks.loaded()]
        missing: OutOfMemory | None = None
        try:
            self._step(number)
        except Exception as error:
            read = failures.read(error)
            if not isinstance(read, OutOfMemory):
                raise
            missing = read
        finally:
            peaks = [peak for window in windows for peak in window.close().values()]
        # only now: while an error is handled, it holds the frames of the try and their tensors
        _clean()
        self.back()
        if missing is None:
            self.say(f"{number} fits" + (f", peak {shown(max(peaks))}" if any(peaks) else ""))
        else:
            asked = f": {shown(missing.asked)} asked" if missing.asked is not None else ""
            free = f", {shown(missing.free)} free" if asked and missing.free is not None else ""
            self.say(f"{number} does not fit{asked}{free}")
        return missing is None

    def end(self) -> None:
        """Back to the start; what cannot go back is said."""
        self.back()
        changed = self._start.refusal()
        if changed is not None:
            self.say(f"{changed.partition(',')[0]} by the tries")


def _clean() -> None:
    gc.collect()
    for framework in frameworks.loaded():
        framework.empty_cache()
