"""The link of one kernel with the pages that show it: a comm with a fixed id that nobody opens.

A page sends requests as ``comm_msg`` on the shell channel, where they wait for the running cell as every request does,
or on the control channel, which ipykernel serves in a thread of its own, also while a cell runs. It hears the comm by
its id, so it may come late, reload, or be one of several. Each request is answered once.
"""
from __future__ import annotations

import socket
import threading
import uuid
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from jupyter_gpumem import session
from jupyter_gpumem.errors import InputError
from jupyter_gpumem.faces import wire
from jupyter_gpumem.faces.live import Live
from jupyter_gpumem.faces.settings import GPUMem
from jupyter_gpumem.faces.verdicts import Verdicts

_CONTROL = "comm_info_request"
"""The control channel has no message for extensions, but ipykernel answers this type there, and neither the server nor
the page takes it for activity: it changes no busy mark, and a kernel that only gets these can be culled."""
_KEY = "jupyter_gpumem"
"""Where our message lies in that request and its reply."""
_MOST = 512

Send = Callable[[Mapping[str, Any]], None]


class Link:
    """The comm of one shell, its control handler, and the requests that are answered.

    Requests on shell are handled in the thread that runs cells, those on control in the control thread; samples come
    from a thread of their own. ``_lock`` guards the count of messages and the ids; it is held for no call.
    """

    def __init__(self, shell: session.Shell, settings: GPUMem) -> None:
        self._shell = shell
        self._settings = settings
        self._kernel = shell.kernel
        self._boot = uuid.uuid4().hex
        self._lock = threading.Lock()
        self._sent = 0
        self._begun: dict[str, None] = {}
        self._cancelled: dict[str, None] = {}
        self._requests: Any = None
        self._cells = threading.get_ident()
        self._usual: Any = None
        self._comm = _made_comm(shell.kernel)
        self.live = Live(self.send)
        self.verdicts = Verdicts(self.send, self.live)

    def open(self) -> None:
        """Be heard. Sends nothing: a kernel that nobody watches is silent."""
        self._comm.on_msg(self._on_shell)
        self._kernel.comm_manager.register_comm(self._comm)
        handlers = self._control_handlers()
        self._usual = handlers.get(_CONTROL)
        if self._usual is not None:
            handlers[_CONTROL] = self._on_control

    def close(self) -> None:
        """Say good-bye and take everything back."""
        # deaf first: a lease that came in behind the good-bye would start the thread again
        handlers = self._control_handlers()
        if handlers.get(_CONTROL) == self._on_control:
            handlers[_CONTROL] = self._usual
        self._comm.on_msg(None)
        watched = self.live.watched
        self.live.stop()
        if watched:
            self.send(wire.bye())
        self._kernel.comm_manager.comms.pop(wire.COMM, None)

    def _control_handlers(self) -> dict[str, Any]:
        handlers = getattr(self._kernel, "control_handlers", None)
        return handlers if isinstance(handlers, dict) else {}

    def send(self, message: Mapping[str, Any]) -> None:
        """Tell all pages, from any thread."""
        with self._lock:
            self._sent += 1
            count = self._sent
        self._comm.send(self._stamped(message, count))

    def _stamped(self, message: Mapping[str, Any], count: int | None) -> dict[str, Any]:
        return {"v": wire.VERSION, "boot": self._boot, "n": count, **message}

    # -------------------------------------------------------- requests
    def _on_shell(self, message: Mapping[str, Any]) -> None:
        on_main = threading.get_ident() == self._cells
        answer = self._answer(message["content"].get("data"), self._between_cells if on_main else self._elsewhere)
        if answer is not None:
            self.send(answer)

    def _on_control(self, stream: Any, ident: Any, parent: Mapping[str, Any]) -> Any:
        content = parent["content"]
        if _KEY not in content:
            return self._usual(stream, ident, parent)
        answer = self._answer(content[_KEY], self._at_once)
        if answer is not None:
            reply = {"status": "ok", "comms": {}, _KEY: self._stamped(answer, None)}
            self._kernel.session.send(stream, "comm_info_reply", reply, parent, ident)
        return None

    def _answer(self, data: object, handle: Callable[[wire.Message], object]) -> dict[str, Any] | None:
        """The one answer, or None for what is no request of ours or has been answered."""
        try:
            message = wire.read(data)
        except wire.WireError as error:
            if error.id is None or not self._is_first(error.id):
                return None
            return wire.refusal(error.id, None, "input", str(error))
        if not self._is_first(message.id):
            return None
        if message.id in self._cancelled:
            return wire.refusal(message.id, message.verb, "cancelled", "cancelled before it was begun")
        try:
            return wire.reply(message.id, message.verb, handle(message))
        except _BusyError as busy:
            return wire.refusal(message.id, message.verb, "busy", str(busy))
        except InputError as error:
            return wire.refusal(message.id, message.verb, "input", str(error))
        except (Exception, KeyboardInterrupt) as error:
            return wire.refusal(message.id, message.verb, "fault", f"{type(error).__name__}: {error}")

    def _is_first(self, id: str) -> bool:
        with self._lock:
            return _add(self._begun, id)

    # -------------------------------------------------------- by the thread that they come in
    def _at_once(self, message: wire.Message) -> object:
        """In the control thread: nothing that touches a tensor."""
        if message.verb not in wire.AT_ONCE:
            raise InputError(f"{message.verb} is answered between cells: ask on the shell channel")
        return self._watching(message, renewable=True)

    def _between_cells(self, message: wire.Message) -> object:
        if message.verb in wire.AT_ONCE:
            return self._watching(message, renewable=False)
        if self.live.running:
            raise _BusyError("a cell is running")
        if self._requests is None:
            self._requests = import_module("jupyter_gpumem.faces.requests").Requests(self._shell, self._settings)
        result = self._requests.answer(message)
        if message.verb in ("free", "move"):
            self.live.nudge()
        return result

    def _elsewhere(self, message: wire.Message) -> object:
        """In the thread of a subshell: tensors are not its own."""
        if message.verb not in wire.AT_ONCE:
            raise _BusyError("asked on a subshell, while tensors belong to the main one")
        return self._watching(message, renewable=True)

    def _watching(self, message: wire.Message, renewable: bool) -> object:
        args = message.args
        if message.verb == "watch":
            granted = self.live.watch(message.page, args["interval"], args["lease"], renewable)
            where = {"host": socket.gethostname(), "remote": _is_remote(self._kernel)}
            return {**granted, **where, "verdict": self.verdicts.now}
        if message.verb == "unwatch":
            return self.live.unwatch(message.page)
        if message.verb == "sample":
            return self.live.sample()
        if message.verb == "dismiss":
            return {"dismissed": self.verdicts.dismiss(args["verdict"])}
        with self._lock:
            in_time = args["target"] not in self._begun
            if in_time:
                _add(self._cancelled, args["target"])
        return {"cancelled": in_time}


class _BusyError(Exception):
    """The request cannot be met now."""


def _add(ids: dict[str, None], id: str) -> bool:
    """Add an id to those known; the oldest are forgotten. Whether it is new."""
    if id in ids:
        return False
    while len(ids) >= _MOST:
        del ids[next(iter(ids))]
    ids[id] = None
    return True


def _made_comm(kernel: Any) -> Any:
    """Our comm, not opened and so unknown to every page that does not look for it."""
    options = {"target_name": wire.COMM, "comm_id": wire.COMM, "primary": False}
    if import_module("ipykernel").version_info >= (6, 18):
        return import_module("comm").create_comm(**options)
    # before 6.18 the package comm, if it is there, makes comms that reach no kernel
    return import_module("ipykernel.comm").Comm(kernel=kernel, **options)


def _is_remote(kernel: Any) -> bool:
    """Whether the server that started the kernel talks with it over a network: then this is another machine."""
    app = getattr(kernel, "parent", None)
    address = str(getattr(app, "ip", "") or "127.0.0.1")
    return getattr(app, "transport", "tcp") == "tcp" and not address.startswith(("127.", "localhost", "::1"))


def open_link(shell: session.Shell, settings: GPUMem) -> Link | None:
    """The link of a shell that a kernel runs; None for any other."""
    kernel = getattr(shell, "kernel", None)
    if kernel is None or getattr(kernel, "comm_manager", None) is None:
        return None
    link = Link(shell, settings)
    link.open()
    return link
