"""Whether process ids here are those that the driver speaks of."""
from __future__ import annotations

import os

_FIRST_PID_NAMESPACE = 4026531836
"""The inode of the first pid namespace is fixed (PROC_PID_INIT_INO in Linux)."""


def in_first_pid_namespace() -> bool | None:
    """Whether process ids here mean what they mean to the driver; None if that cannot be told (not Linux)."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino == _FIRST_PID_NAMESPACE
    except OSError:
        return None
