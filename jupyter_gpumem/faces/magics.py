"""``%gpumem``, ``%%gpumem``, ``%gpufree``, ``%%gpufree``, ``%gpurestore``.

Each parses, calls one function and shows its record.

The functions are imported when they are first called, so that loading the extension stays cheap.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, magics_class

from jupyter_gpumem import session
from jupyter_gpumem.errors import InputError
from jupyter_gpumem.faces import grammar
from jupyter_gpumem.faces.settings import GPUMem
from jupyter_gpumem.faces.showing import progress, show, show_dangling


@magics_class
class GPUMemMagics(Magics):  # type: ignore[misc]  # IPython's classes are untyped for mypy
    """The magics of one shell."""

    def __init__(self, shell: session.Shell, settings: GPUMem, cells: Sequence[object] = ()) -> None:
        """``cells`` are the records of the cells that have been watched."""
        super().__init__(shell)
        self._settings = settings
        self._cells = cells
        self._marks: dict[str, Any] = {}
        self.live: Any = None
        """What takes samples for a kernel's pages and widgets; None in a shell without a kernel."""
        self._view: Any = None
        for kind, parsers in (("line", grammar.LINES), ("cell", grammar.CELLS)):
            for word, parser in parsers.items():
                self.magics[kind][word] = _with_usage(getattr(self, f"_{kind}_{word}"), parser())

    # -------------------------------------------------------- line magics
    def _line_gpumem(self, line: str) -> None:
        options = grammar.line_gpumem().read(line)
        api: Any = import_module("jupyter_gpumem.faces.api")
        device = options.device or self._settings.device or None
        question = grammar.question(options)
        if question == "mark":
            self._marks[options.mark] = api.mark(options.mark, device)
        elif question == "html":
            show(api.report(options.html, device))
        elif question == "live":
            self._follow(device)
        elif question == "json_schema":
            print(api.json_schema())  # noqa: T201 - asked for, to be piped on
        elif question == "plot":
            self._plot(options.plot, options.name, device)
        elif question == "record":
            show(import_module("jupyter_gpumem.actions.recording").record(options.record))
        elif question == "limit":
            show(api.limit(options.limit, device))
        elif question == "switch":
            self._settings.every_cell = options.name == "on"
        elif options.json:
            print(api.as_json(self._seen(api, question, options, device)))  # noqa: T201 - asked for, to be piped on
        elif question == "account":
            for account in api.account(device):
                show(account)
        elif question == "dangling":
            show_dangling(api.snapshot(device))
        else:
            show(self._seen(api, question, options, device))

    def _seen(self, api: Any, question: str, options: Any, device: str | None) -> object:
        """The record that was asked for."""
        if question == "forecast":
            return self._forecast(options.forecast, device)
        if question == "why":
            return api.why(self._value(options.why), options.why)
        if question == "diff":
            return self._changes(api, options.diff)
        if question == "name":
            return api.describe(options.name, self._value(options.name), device)
        if question == "account":
            return api.accounts(device)
        if question == "dangling":
            return api.only_dangling(device)
        if question == "advise":
            return api.advise(device)
        return api.snapshot(device)

    def _follow(self, device: str | None) -> None:
        """Show the widget, in place of an earlier one."""
        if self.live is None:
            raise InputError("--live needs a notebook's kernel, and this shell has none; %gpumem shows the moment")
        try:
            widgets: Any = import_module("jupyter_gpumem.faces.widgets")
        except ImportError as missing:
            raise InputError(f"--live needs ipywidgets: pip install ipywidgets ({missing})") from None
        view = widgets.LiveView(self.live, device)
        self.close()
        self._view = view
        view.open()

    def close(self) -> None:
        """End the widget, if there is one."""
        if self._view is not None:
            self._view.close()
            self._view = None

    def _forecast(self, words: str, device: str | None) -> object:
        call = import_module("jupyter_gpumem.faces.calls").read(words, self._value)
        take = import_module("jupyter_gpumem.analysis.forecast").take
        return take(self.shell, call.words, call.function, call.args, call.kwargs, device)

    def _changes(self, api: Any, marks: Sequence[str]) -> object:
        if len(marks) > 2:
            raise InputError(f"--diff takes one mark or two; not {len(marks)}")
        before, after = (*marks, None)[:2]
        return api.diff(self._marked(str(before)), self._marked(after) if after else None)

    def _marked(self, name: str) -> Any:
        if name not in self._marks:
            known = ", ".join(self._marks) or "none; %gpumem --mark A makes one"
            raise InputError(f"no mark {name!r}{_guess(name, self._marks)}; there is: {known}")
        return self._marks[name]

    def _plot(self, kind: str, name: str | None, device: str | None) -> None:
        if (kind == "graph") != (name is not None):
            raise InputError("--plot graph takes a name: %gpumem --plot graph loss; the other kinds take none")
        value = self._value(name) if name is not None else None
        import_module("jupyter_gpumem.faces.plotting").show_plot(kind, name, value, device, self._cells)

    def _line_gpufree(self, line: str) -> None:
        options = grammar.line_gpufree().read(line)
        if options.to_host:
            self._park(options)
            return
        api: Any = import_module("jupyter_gpumem.faces.api")
        act: Callable[..., object] = api.plan if options.dry_run else api.free
        show(
            act(
                *options.names,
                device=options.device or self._settings.device or None,
                keep_output=options.keep_output,
                keep_traceback=options.keep_traceback,
            )
        )

    def _park(self, options: Any) -> None:
        if options.names or options.keep_output or options.keep_traceback:
            raise InputError("--to-host moves and deletes nothing: give it --device and --dry-run alone")
        parking = import_module("jupyter_gpumem.actions.parking")
        objects = parking.values(self.shell, options.to_host)
        device = options.device or self._settings.device or None
        if options.dry_run:
            show(parking.plan_park(self.shell, objects, device))
        else:
            show(parking.park(self.shell, objects, device, progress("to host memory")))

    def _line_gpurestore(self, line: str) -> None:
        options = grammar.line_gpurestore().read(line)
        parking = import_module("jupyter_gpumem.actions.parking")
        names = [name for word in options.names for name in word.split(",") if name]
        objects = parking.values(self.shell, names) if names else None
        if options.dry_run:
            show(parking.plan_restore(self.shell, objects))
        else:
            show(parking.restore(self.shell, objects, progress("back to the device")))

    # -------------------------------------------------------- cell magics
    def _cell_gpumem(self, line: str, cell: str) -> None:
        self._run("gpumem", line, cell)

    def _cell_gpufree(self, line: str, cell: str) -> None:
        self._run("gpufree", line, cell)

    def _run(self, word: str, line: str, cell: str) -> None:
        """Called by name, or for a first line that is wrong: a right one has been taken away by the transformer."""
        import_module("jupyter_gpumem.faces.directives").check(self.shell, word, line, cell)
        if not cell.strip():
            raise InputError(f"the cell below %%{word} is empty")
        self.shell.run_cell(f"%%{word} {line}\n{cell}", store_history=False)

    def _value(self, name: str) -> object:
        """The object of a name of the notebook."""
        names = session.user_names(self.shell)
        if name in names:
            return names[name]
        if not name.isidentifier():
            raise InputError(f"{name!r} is not a name; give a name of this notebook")
        raise InputError(f"no name {name!r} in this notebook{_guess(name, names)}")


def _guess(name: str, known: Iterable[str]) -> str:
    import difflib  # a slip is the only need for it

    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _with_usage(method: Callable[..., None], parser: Any) -> Callable[..., None]:
    """The magic with its parser's help as its docstring; what the user did wrong is shown in one line."""

    def magic(*args: str) -> None:
        try:
            method(*args)
        except InputError as refusal:
            raise UsageError(str(refusal)) from None

    magic.__name__ = parser.prog.strip("%")
    magic.__doc__ = parser.format_help()
    return magic
