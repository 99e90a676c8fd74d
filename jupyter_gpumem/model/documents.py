"""What ``%gpumem --json`` prints: a record with the version of its form, and the JSON Schema of all of them.

The schema is made from the records themselves, so that the two cannot part. Within one version fields may be added,
but none is taken away and none changes its meaning: a reader should pass over fields that it does not know.
"""
from __future__ import annotations

import ast
import dataclasses
import enum
import functools
import inspect
import sys
import types
import typing
from dataclasses import dataclass
from typing import Any

from jupyter_gpumem.model.account import Account
from jupyter_gpumem.model.advice import Checkup
from jupyter_gpumem.model.forecast import Forecast
from jupyter_gpumem.model.growth import Growth
from jupyter_gpumem.model.holdings import Holding, ObjectUse, Snapshot, Why
from jupyter_gpumem.model.plain import to_json

VERSION = "jupyter_gpumem/1"


@dataclass(frozen=True)
class Accounts:
    """The account of each watched device."""

    accounts: tuple[Account, ...]


@dataclass(frozen=True)
class Dangling:
    """The storages that no name of the user's and no library keeps."""

    time: float
    """Seconds since the epoch."""
    watched: tuple[str, ...]
    """The devices whose storages were looked at."""
    holdings: tuple[Holding, ...]
    """Largest first."""
    partial: bool = False
    """The search for holders ran out of time: some are ``unknown`` only for that reason."""


DOCUMENTS: tuple[type, ...] = (Snapshot, Dangling, Accounts, Why, Growth, ObjectUse, Checkup, Forecast)
_WORDS: dict[object, str] = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}


def document(record: object) -> dict[str, Any]:
    """A record as plain values, with ``schema`` (the version) and ``record`` (the kind) before its own fields.

    Raises TypeError for a record that is not one of ``DOCUMENTS``.
    """
    if type(record) not in DOCUMENTS:
        raise TypeError(f"a {type(record).__name__} is no document")
    return {"schema": VERSION, "record": type(record).__name__, **to_json(record)}


def schema(*records: type) -> dict[str, Any]:
    """The JSON Schema (2020-12) of what :func:`document` makes of these records; without any, of all that there are.

    Sizes are bytes. ``null`` means "not available here", which is never the same as 0.
    """
    defs: dict[str, Any] = {}
    for record in records or DOCUMENTS:
        _define(record, defs)
    tops = [_document_schema(record) for record in records or DOCUMENTS]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:jupyter-gpumem:{VERSION.rpartition('/')[2]}",
        "title": "What %gpumem --json prints",
        "description": "Sizes are bytes. null means: not available here, which is not 0. Pass over unknown fields.",
        **(tops[0] if len(tops) == 1 else {"oneOf": tops}),
        "$defs": dict(sorted(defs.items())),
    }


def _document_schema(record: type) -> dict[str, Any]:
    kind = {"schema": {"const": VERSION}, "record": {"const": record.__name__}}
    return {"type": "object", "properties": kind, "required": [*kind], "$ref": f"#/$defs/{record.__name__}"}


def _define(record: type, defs: dict[str, Any]) -> None:
    """The schema of a record and of those in it."""
    if record.__name__ in defs:
        return
    found: dict[str, Any] = {"type": "object", "description": _words(record.__doc__)}
    defs[record.__name__] = found  # before its fields: a record may hold others of its kind
    notes = _field_notes(record)
    properties = {}
    for name, hint in typing.get_type_hints(record).items():
        properties[name] = {**_type(hint, defs), **({"description": notes[name]} if name in notes else {})}
    found |= {"properties": properties, "required": [*properties]}


def _type(hint: Any, defs: dict[str, Any]) -> dict[str, Any]:
    """The schema of one type. Raises TypeError for one that records do not use."""
    if hint in _WORDS:
        return {"type": _WORDS[hint]}
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        kinds = [_type(one, defs) for one in inner]
        simple = all(set(kind) == {"type"} for kind in kinds)
        return {"type": [kind["type"] for kind in kinds]} if simple else {"anyOf": kinds}
    if origin is tuple and inner[1:] == (...,):
        return {"type": "array", "items": _type(inner[0], defs)}
    if origin is tuple:
        items = [_type(one, defs) for one in inner]
        return {"type": "array", "prefixItems": items, "items": False, "minItems": len(items)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _type(inner[1], defs)}
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return {"enum": [member.value for member in hint]}
    if isinstance(hint, type) and (dataclasses.is_dataclass(hint) or hasattr(hint, "_fields")):
        _define(hint, defs)
        return {"$ref": f"#/$defs/{hint.__name__}"}
    raise TypeError(f"no JSON for {hint!r}")


def _words(text: str | None) -> str:
    return " ".join((text or "").split())


def _field_notes(record: type) -> dict[str, str]:
    """The words below each field in the source; none where the source is not at hand."""
    return _notes(record.__module__).get(record.__name__, {})


@functools.cache
def _notes(module: str) -> dict[str, dict[str, str]]:
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except OSError:
        return {}
    found: dict[str, dict[str, str]] = {}
    for record in tree.body:
        if isinstance(record, ast.ClassDef):
            pairs = zip(record.body, record.body[1:], strict=False)
            found[record.name] = {
                field.target.id: _words(note.value.value)
                for field, note in pairs
                if isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(note, ast.Expr)
                and isinstance(note.value, ast.Constant)
                and isinstance(note.value.value, str)
            }
    return found
