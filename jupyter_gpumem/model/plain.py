"""Records as plain values, for JSON."""
from __future__ import annotations

import dataclasses
import enum
from typing import Any

from jupyter_gpumem.model.machine import Owner, Process, Shares

_PLAIN = frozenset({bool, int, float, str})


def to_json(record: Any) -> Any:
    """A record as plain dicts, lists, strings, numbers and None; enums by their value."""
    if record is None or type(record) in _PLAIN:
        return record
    if isinstance(record, enum.Enum):
        return record.value
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        return {f.name: to_json(getattr(record, f.name)) for f in dataclasses.fields(record)}
    if isinstance(record, (Process, Owner, Shares)):
        return to_json(record._asdict())
    if isinstance(record, (tuple, list)):
        return [to_json(item) for item in record]
    if isinstance(record, dict):
        return {str(key): to_json(value) for key, value in record.items()}
    return record
