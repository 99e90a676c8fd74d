"""Settings: ``c.GPUMem.… = …`` in ``ipython_config.py``, or ``%config GPUMem.… = …``."""
from __future__ import annotations

from traitlets import Bool, Enum, Float, List, Unicode, validate
from traitlets.config import Configurable


class GPUMem(Configurable):  # the name under which users configure it
    """What jupyter_gpumem watches and keeps."""

    every_cell = Bool(False, help="Say after every cell what it allocated: %gpumem on.").tag(config=True)
    device = Unicode(
        "", help="The device to watch, as cuda:1 or cpu. Empty: the accelerators, or cpu where there is none."
    ).tag(config=True)
    keep = List(Unicode(), help="Names that %%gpufree always keeps.").tag(config=True)
    after_error = Enum(
        ["off", "oom", "any"],
        "oom",
        help="After which failed cells what only their error holds is freed: none, those out of memory, any. "
        "%debug cannot enter frames that were cleared.",
    ).tag(config=True)
    output_share = Float(
        0.03, help="Point out a value that only Out keeps from this share of the device's memory on."
    ).tag(config=True)
    search_seconds = Float(10.0, help="How long a search for holders may take.").tag(config=True)

    @validate("output_share", "search_seconds")
    def _positive(self, proposal: dict[str, float]) -> float:
        if proposal["value"] <= 0:
            from traitlets import TraitError

            raise TraitError("a positive number is needed")
        return proposal["value"]
