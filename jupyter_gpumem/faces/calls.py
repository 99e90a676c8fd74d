"""A call as it is typed behind ``--forecast``: parsed, and its names looked up. It is not made here.

Only what looks things up is accepted. An expression such as ``x.cuda()`` would allocate the memory that is to be
forecast.
"""
from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, NamedTuple

from jupyter_gpumem.errors import InputError

_ACCEPTED = "names, attributes, items and literals, as in step(model, opt, batch['x'], lr=0.1)"


class Call(NamedTuple):
    """A function, and what it is to be called with."""

    words: str
    """As it was typed, with single spaces."""
    function: Callable[..., object]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def read(text: str, value: Callable[[str], Any]) -> Call:
    """Read a call. ``value`` gives the object of a name, or raises InputError.

    Raises InputError for anything but a call whose function and arguments only look things up.
    """
    wrong = f"--forecast takes a call, as step(model, x), last in the line; not {text.strip()!r}"
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        raise InputError(wrong) from None
    if not isinstance(node, ast.Call):
        raise InputError(wrong)
    function = _value(node.func, value)
    if not callable(function):
        raise InputError(f"{ast.unparse(node.func)} cannot be called")
    if any(keyword.arg is None for keyword in node.keywords):
        raise InputError(f"--forecast takes no **; in the call are accepted: {_ACCEPTED}")
    args = tuple([_value(one, value) for one in node.args])
    kwargs = {str(keyword.arg): _value(keyword.value, value) for keyword in node.keywords}
    return Call(ast.unparse(node), function, args, kwargs)


def _value(node: ast.expr, value: Callable[[str], Any]) -> Any:
    """The object that an expression names."""
    if isinstance(node, ast.Name):
        return value(node.id)
    if isinstance(node, ast.Attribute):
        return _looked_up(node, lambda: getattr(_value(node.value, value), node.attr))
    if isinstance(node, ast.Subscript):
        return _looked_up(node, lambda: _value(node.value, value)[_index(node.slice, value)])
    if isinstance(node, (ast.List, ast.Tuple)):
        items = [_value(item, value) for item in node.elts]
        return items if isinstance(node, ast.List) else tuple(items)
    if isinstance(node, ast.Dict) and None not in node.keys:
        keys = [_value(key, value) for key in node.keys if key is not None]
        return dict(zip(keys, [_value(item, value) for item in node.values], strict=True))
    return _literal(node)


def _index(node: ast.expr, value: Callable[[str], Any]) -> Any:
    """An index that makes a view of a tensor, never a copy: no list, no tensor."""
    if isinstance(node, ast.Slice):
        return slice(*[None if one is None else _index(one, value) for one in (node.lower, node.upper, node.step)])
    if isinstance(node, ast.Tuple):
        return tuple([_index(item, value) for item in node.elts])
    found = value(node.id) if isinstance(node, ast.Name) else _literal(node)
    if type(found) not in (int, str):
        raise InputError(f"an item is asked for by a number, a string or a slice; not by {ast.unparse(node)}")
    return found


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        raise InputError(f"in the call are accepted: {_ACCEPTED}; not {ast.unparse(node)}") from None


def _looked_up(node: ast.expr, look: Callable[[], Any]) -> Any:
    try:
        return look()
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{ast.unparse(node)}: {type(error).__name__}: {error}") from None
