"""The errors that users see: what they asked for cannot be done, or does not hold."""
from __future__ import annotations


class InputError(ValueError):
    """What the user asked for cannot be done: the message says what was wrong and what is accepted. Nothing changed."""


class LeakError(AssertionError):
    """Memory leaked where it was asserted that none does. The message says which path grew, and what would free it."""
