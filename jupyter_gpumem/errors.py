"""The one error that users see: what they asked for cannot be done."""
from __future__ import annotations


class InputError(ValueError):
    """What the user asked for cannot be done: the message says what was wrong and what is accepted. Nothing changed."""
