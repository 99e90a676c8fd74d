"""``%gpumem --live``: the figures in a widget below the cell, which go on while cells run.

It gets the samples that the sidebar gets (``faces/live.py``), at most one a second and one at the end of a cell, and
sends HTML only when its words have changed. Nobody tells a kernel whether a widget is still looked at, so that it ends
by itself when no cell has run for five minutes, with a button to go on; in a cell that runs for longer than a quarter
of an hour it goes on twice a minute. So an idle kernel can be culled, NVML is closed, and a server that no page
listens to has a few kilobytes to keep for each half minute of a running cell.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import ipywidgets

from jupyter_gpumem.analysis.inventory import is_watched
from jupyter_gpumem.analysis.snapshot import watched_devices
from jupyter_gpumem.faces.live import Live
from jupyter_gpumem.faces.showing import show_bundle
from jupyter_gpumem.model import Sample
from jupyter_gpumem.pictures import html, text
from jupyter_gpumem.pictures.blocks import Block, Line, blocks
from jupyter_gpumem.pictures.moments import SECONDS, Moment, moments, picture

EVERY, IDLE = 1.0, 300.0
"""Seconds: between two samples, and without a cell until it ends."""
_NAME = "widget"
_VIEW = "application/vnd.jupyter.widget-view+json"


class LiveView:
    """One widget. The thread that runs cells makes, resumes and closes it; the sampling thread fills it."""

    def __init__(self, live: Live, device: str | None) -> None:
        """Raises InputError for a device that does not exist."""
        self._live = live
        self._watched: tuple[str, ...] = watched_devices(device) if device else ()
        self._past: dict[str, deque[Moment]] = {}
        self._said: Sequence[Block] = ()
        # a page needs the style sheet once, and not with each message
        style = ipywidgets.HTML(html.STYLE, layout=ipywidgets.Layout(display="none"))
        self._body = ipywidgets.HTML()
        self._resume = ipywidgets.Button(description="Resume", layout=ipywidgets.Layout(display="none", width="auto"))
        self._resume.on_click(self._go_on)
        self._box = ipywidgets.VBox([style, self._body, self._resume])

    def open(self) -> None:
        """Display it, and follow."""
        taken = self._live.take()
        self.show(taken)
        seen = self._of_interest(taken)
        # what stays in a saved notebook where the widget itself is no more
        show_bundle({
            "text/plain": text.render(seen),
            "text/html": html.render(seen),
            _VIEW: {"version_major": 2, "version_minor": 0, "model_id": self._box.model_id},
        })
        self._live.follow(_NAME, self, EVERY, IDLE)

    def close(self) -> None:
        """Take it off the page and out of the kernel."""
        self._live.unwatch(_NAME)
        for widget in (*self._box.children, self._box):
            for part in (widget, widget.layout, getattr(widget, "style", None)):  # a box has no style
                if part is not None:
                    part.close()

    # -------------------------------------------------------- called by the sampling thread
    def show(self, taken: Sample) -> bool:
        """Show a sample, if it says anything new."""
        if self._box.comm is None:
            return False
        seen = self._of_interest(taken)
        for key, moment in moments(seen).items():
            self._past.setdefault(key, deque(maxlen=2 * SECONDS)).append(moment)
        said = blocks(seen)
        if said != self._said:
            self._said = said
            self._body.value = picture(seen, self._past)
        return True

    def ended(self) -> None:
        """Say so, and offer to go on."""
        note = html.fragment([Line(f"paused: no cell has run for {IDLE / 60:.0f} minutes")])
        self._body.value += note
        self._resume.layout.display = None

    # --------------------------------------------------------
    def _go_on(self, button: object) -> None:
        self._resume.layout.display = "none"
        self._said = ()
        self._live.follow(_NAME, self, EVERY, IDLE)

    def _of_interest(self, taken: Sample) -> Sample:
        """Without the devices that are not watched: named ones, else the accelerators, or the host where none is."""
        on_host = taken.allocators == () and all(device.kind == "host" for device in taken.devices)
        pairs = [
            (device, shares)
            for device, shares in zip(taken.devices, taken.shares, strict=True)
            if (self._is_named(device.alias) if self._watched else on_host or device.kind != "host")
        ]
        return replace(
            taken,
            devices=tuple(device for device, _ in pairs),
            shares=tuple(shares for _, shares in pairs),
            allocators=tuple(a for a in taken.allocators if not self._watched or self._is_named(a.device)),
        )

    def _is_named(self, device: str | None) -> bool:
        return device is not None and is_watched(device, self._watched)
