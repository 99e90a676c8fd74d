"""What the driver's refusals mean to a person, a sentence each, with what to do."""
from __future__ import annotations

from jupyter_gpumem.model import Device

UNIFIED = "Unified memory: this GPU shares the host's memory."
NUMA = "This GPU's memory is a NUMA node of the host: pages may stay in use after their process has ended."
MIG_PARENT_HIDDEN = "No permission to read the whole GPU; its MIG instances are listed below."

_INIT = {
    4: "No permission to use NVML; ask for access to /dev/nvidiactl.",
    9: "The NVIDIA driver is not loaded.",
    12: "No NVIDIA driver on this machine (libnvidia-ml.so.1 was not found).",
    13: "The NVIDIA driver's library is broken or too old (it lacks functions of NVML).",
    18: "The NVIDIA driver was updated while the old one is still running: reboot, or reload the driver.",
    28: "The NVIDIA driver is loaded but lists no GPU.",
    999: "This container lost its GPUs (NVML: unknown error): restart it.",
}
_DEVICE = {
    4: "No permission to read this GPU.",
    15: "This GPU is lost: it has fallen off the bus. Reboot; others go on.",
    16: "This GPU must be reset.",
}


def init_problem(code: int) -> str:
    """Why NVML cannot be used at all."""
    return _INIT.get(code, f"The NVIDIA driver refuses to be read (NVML error {code}).")


def lost(index: int, code: int) -> Device:
    """The row of a GPU that does not even say its name."""
    note = _DEVICE.get(code, f"This GPU cannot be read (NVML error {code}).")
    return Device(uuid=f"GPU at index {index}", kind="gpu", index=index, name=f"GPU {index}", notes=(note,))
