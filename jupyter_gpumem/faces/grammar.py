"""What may be typed behind ``%gpumem`` and ``%gpufree``: the parsers, their help, and the words for a slip."""
from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Sequence
from typing import Any, NoReturn

from jupyter_gpumem.errors import InputError


class _Parser(argparse.ArgumentParser):
    """A parser that raises InputError, in one line, and guesses what an unknown flag was to be."""

    rest: str | None = None
    """The flag that takes all that is behind it, as it is written."""

    def __init__(self, prog: str, description: str) -> None:
        super().__init__(
            prog=prog,
            description=description,
            add_help=False,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    def error(self, message: str) -> NoReturn:
        if "invalid choice" in message:
            message = _with_guess(message, self._actions)
        raise InputError(f"{message}; {self.usage_line()}")

    def usage_line(self) -> str:
        """The usage on one line."""
        return " ".join(self.format_usage().split())

    def flags(self) -> list[str]:
        """All flags, for completion and for guessing."""
        return [flag for action in self._actions for flag in action.option_strings]

    def read(self, line: str) -> argparse.Namespace:
        """Parse one line. Raises InputError."""
        line, flag, rest = self._cut(line)
        try:
            words = shlex.split(line)
        except ValueError as error:
            raise InputError(f"{error} in {line!r}; {self.usage_line()}") from None
        options, unknown = self.parse_known_args(words)
        if unknown:
            import difflib  # a slip is the only need for it

            near = difflib.get_close_matches(unknown[0], self.flags(), n=1)
            hint = f", did you mean {near[0]}?" if near else ""
            self.error(f"unknown: {unknown[0]}{hint}")
        if flag:
            setattr(options, flag.lstrip("-").replace("-", "_"), rest)
        return options

    def _cut(self, line: str) -> tuple[str, str, str]:
        """What is in front of the flag that takes the rest, the flag if it is there, and the rest."""
        found = re.search(rf"(?:^|\s){self.rest}(?:[\s=]|$)", line) if self.rest else None
        if found is None or self.rest is None:
            return line, "", ""
        rest = line[found.end() :].strip()
        if not rest:
            self.error(f"{self.rest} takes all that is behind it, and there is nothing")
        return line[: found.start()], self.rest, rest


def _with_guess(message: str, actions: Sequence[argparse.Action]) -> str:
    """argparse's words for a wrong choice, with the nearest right one."""
    import difflib  # a slip is the only need for it

    wrong = message.partition("invalid choice: ")[2].partition(" ")[0].strip("'")
    near = difflib.get_close_matches(wrong, [str(c) for action in actions for c in action.choices or ()], n=1)
    return f"{message}, did you mean {near[0]}?" if near else message


class _Names(argparse.Action):
    """``a,b`` or repeated: a tuple of Python names."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        found = [name.strip() for name in str(values).split(",") if name.strip()]
        wrong = [name for name in found if not name.isidentifier()]
        if wrong or not found:
            parser.error(f"{option_string} takes names of Python, as {option_string} model,optimizer; not {values!r}")
        setattr(namespace, self.dest, (*getattr(namespace, self.dest), *found))


def _count(text: str) -> int:
    """A whole number from 1 on."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"takes a whole number from 1 on; not {text!r}")
    return int(text)


def _device(parser: _Parser) -> None:
    parser.add_argument("--device", metavar="D", help="watch this device: cuda:1, cuda, cpu; several with commas")


PLOTS = ("treemap", "timeline", "segments", "graph")


def line_gpumem() -> _Parser:
    """``%gpumem``."""
    parser = _Parser("%gpumem", "Show where device memory went: devices, the largest names, what dangles.")
    parser.add_argument("name", nargs="?", help="show one object by its parts; on and off: a line after every cell")
    parser.add_argument("--why", metavar="NAME", help="every holder of this object's memory, and what would free it")
    parser.add_argument("--dangling", action="store_true", help="only what no name of yours keeps, by what holds it")
    parser.add_argument("--account", action="store_true", help="the sums that close: allocated, reserved, the device")
    parser.add_argument("--advise", action="store_true", help="what could take less memory, from what is seen now")
    parser.add_argument("--mark", metavar="A", help="remember this moment under a name")
    parser.add_argument("--diff", metavar=("A", "B"), nargs="+", help="what changed from mark A to mark B, or to now")
    parser.add_argument("--plot", metavar="KIND", choices=PLOTS, help=f"{', '.join(PLOTS)} (of NAME)")
    parser.add_argument("--live", action="store_true", help="a widget that goes on while cells run; needs ipywidgets")
    parser.add_argument("--html", metavar="FILE", help="write a report: one page, without script or network")
    parser.add_argument("--json", action="store_true", help="print as JSON: the snapshot, or what is asked")
    parser.add_argument("--json-schema", action="store_true", help="print the JSON Schema of what --json prints")
    parser.add_argument("--record", metavar="on|off|FILE", help="torch's recording of CUDA allocations; FILE: write it")
    parser.add_argument("--limit", metavar="SIZE|off", help="the most that this process reserves: 8GiB, 50%%")
    parser.add_argument("--forecast", metavar="CALL", help="the peak of a call before it is made; last in the line")
    parser.rest = "--forecast"
    _device(parser)
    return parser


_AS_JSON = ("forecast", "why", "dangling", "account", "advise", "diff", "name", "snapshot")
_QUESTIONS = (*_AS_JSON[:-2], "mark", "plot", "live", "html", "json_schema", "record", "limit", "name")


def question(options: argparse.Namespace) -> str:
    """What ``%gpumem`` is asked: ``snapshot`` without a flag, ``switch`` for on and off, else the flag or ``name``.

    Raises InputError for two questions at once, and for JSON of what has no record.
    """
    asked = [name for name in _QUESTIONS if getattr(options, name)]
    if len(asked) > 1 and asked != ["plot", "name"]:
        raise InputError(f"one question at a time: {' and '.join(map(_flag, asked))} are two")
    found = asked[0] if asked else "snapshot"
    if found == "name" and options.name in ("on", "off"):
        found = "switch"
    if options.json and found not in _AS_JSON:
        what = options.name if found == "switch" else _flag(found)
        flags = ", ".join(map(_flag, _AS_JSON[:-1]))
        raise InputError(f"--json goes alone, or with {flags}; not with {what}")
    return found


def _flag(name: str) -> str:
    return "NAME" if name == "name" else f"--{name.replace('_', '-')}"


def cell_gpumem() -> _Parser:
    """``%%gpumem``."""
    parser = _Parser("%%gpumem", "Run the cell and show what it did to device memory. Changes nothing.")
    parser.add_argument("--leak", action="store_true", help="judge what grows each time that you run this cell")
    parser.add_argument("--keep-traceback", action="store_true", help="leave an error's frames alone, for %%debug")
    _device(parser)
    return parser


def line_gpufree() -> _Parser:
    """``%gpufree``."""
    parser = _Parser(
        "%gpufree",
        "Free what dangles: the last error, outputs, dead cycles, caches. No name of yours is touched.\n"
        "With names: delete these, also from Out and _, and say who holds the rest.",
    )
    parser.add_argument("names", nargs="*", help="names to delete")
    parser.add_argument("--dry-run", action="store_true", help="show the plan, do nothing")
    parser.add_argument("--to-host", metavar="a,b", action=_Names, default=(), help="move these to host memory instead")
    parser.add_argument("--keep-output", action="store_true", help="leave Out, _, __ and ___ alone")
    parser.add_argument("--keep-traceback", action="store_true", help="leave the last error alone, for %%debug")
    _device(parser)
    return parser


def line_gpurestore() -> _Parser:
    """``%gpurestore``."""
    parser = _Parser(
        "%gpurestore",
        "Bring back to the device what %gpufree --to-host has moved to host memory; without names all of it.",
    )
    parser.add_argument("names", nargs="*", help="names to bring back, as a b or a,b")
    parser.add_argument("--dry-run", action="store_true", help="show the plan, do nothing")
    return parser


def cell_gpufree() -> _Parser:
    """``%%gpufree``."""
    parser = _Parser(
        "%%gpufree",
        "Run the cell, then free what it left on the device: the names that it created, and what dangles since.\n"
        "Names that existed before stay, and so do values without device memory.",
    )
    parser.add_argument("--keep", metavar="a,b", action=_Names, default=(), help="names of the cell that stay")
    parser.add_argument("--to-host", metavar="a,b", action=_Names, default=(), help="these stay, in host memory")
    parser.add_argument("--dry-run", action="store_true", help="show the plan, free nothing")
    parser.add_argument("--keep-traceback", action="store_true", help="leave an error's frames alone, for %%debug")
    parser.add_argument("--retry", metavar="N", type=_count, help="run again after out of memory, at most N times")
    parser.add_argument("--halve", metavar="a,b", action=_Names, default=(), help="sizes that each retry halves")
    parser.add_argument("--floor", metavar="N", type=_count, default=1, help="halve no further than this")
    _device(parser)
    return parser


CELLS = {"gpumem": cell_gpumem, "gpufree": cell_gpufree}
LINES = {"gpumem": line_gpumem, "gpufree": line_gpufree, "gpurestore": line_gpurestore}
