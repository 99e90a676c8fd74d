"""What the driver's refusals mean to a person, a sentence each, with what to do."""
from __future__ import annotations

from jupyter_gpumem.model import Device

UNIFIED = "Unified memory: this GPU shares the host's memory; used is the sum over its processes."
PERHAPS_UNIFIED = "As large as the host's memory: if this GPU shares it, used includes what the host itself uses."
NUMA = "This GPU's memory is a NUMA node of the host: pages may stay in use after their process has ended."
MIG_PARENT_HIDDEN = "No permission to read the whole GPU; its MIG instances are listed below."
NO_PERMISSION = "No permission to read this GPU's memory."
FIRST_VERSION = "Used includes what this old driver reserves for itself."

NOT_ANSWERING = "NVML is not answering; the driver may be stuck (see dmesg)."
NO_GPU = "The NVIDIA driver is loaded but lists no GPU."

_INIT = {
    4: "No permission to use NVML; ask for access to /dev/nvidiactl.",
    9: "The NVIDIA driver is not loaded.",
    12: "No NVIDIA driver on this machine (libnvidia-ml.so.1 was not found).",
    13: "The NVIDIA driver's library is broken or too old (it lacks functions of NVML).",
    18: "The NVIDIA driver was updated while the old one is still running: reboot, or reload the driver.",
    28: NO_GPU,
    999: "This container lost its GPUs (NVML: unknown error): restart it.",
}
_DEVICE = {
    4: "No permission to read this GPU.",
    9: "The NVIDIA driver was unloaded meanwhile.",
    15: "This GPU is lost: it has fallen off the bus. Reboot; others go on.",
    16: "This GPU must be reset.",
}


def init_problem(code: int) -> str:
    """Why NVML cannot be used at all."""
    return _INIT.get(code, f"The NVIDIA driver refuses to be read (NVML error {code}).")


def late(seconds: float) -> str:
    """Why there is nothing yet from a driver that was asked this long ago."""
    return f"NVML did not answer within {seconds:g} s; the driver may be stuck (see dmesg)."


def fault(error: Exception) -> str:
    """What went wrong in our reading, or in pynvml, beyond a refusal of the driver."""
    return f"Reading NVML failed: {type(error).__name__}: {error}"


def no_memory(code: int) -> str:
    """Why the memory of a GPU that otherwise answers is not known."""
    return f"The driver does not give the memory of this GPU (NVML error {code})."


def lost(index: int, code: int, uuid: str | None = None, name: str | None = None) -> Device:
    """The row of a GPU that cannot be read, or not any more: without figures, with what is known of its identity."""
    return unread(index, _DEVICE.get(code, f"This GPU cannot be read (NVML error {code})."), uuid, name)


def unread(index: int, note: str, uuid: str | None = None, name: str | None = None) -> Device:
    """The row of a GPU without figures, and why it has none."""
    return Device(
        uuid=uuid or f"GPU at index {index}", kind="gpu", index=index, name=name or f"GPU {index}", notes=(note,)
    )
