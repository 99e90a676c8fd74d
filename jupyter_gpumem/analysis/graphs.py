"""The autograd graph behind a tensor, node by node, with what each node keeps."""
from __future__ import annotations

from collections.abc import Iterable

from jupyter_gpumem import frameworks, session
from jupyter_gpumem.analysis.holders import names_of
from jupyter_gpumem.analysis.objects import kind_of, parts_of
from jupyter_gpumem.analysis.operations import Operations
from jupyter_gpumem.errors import InputError
from jupyter_gpumem.frameworks.records import Part
from jupyter_gpumem.introspect import type_name
from jupyter_gpumem.model import Graph, GraphNode

_MOST = 400
"""Nodes in the record: a picture of more tells nothing."""


def graph(shell: session.Shell | None, name: str, tensor: object, most: int = _MOST) -> Graph:
    """The graph from a tensor downwards, nearest nodes first. Nothing is unpacked and no hook is run.

    Raises InputError for what is no tensor or has no graph.
    """
    known = kind_of(tensor)
    if known is None or known[1] != "tensor":
        raise InputError(f"{name} is a {type_name(tensor)}; a graph hangs on a tensor")
    if not any(framework.graph(tensor) for framework in frameworks.loaded()):
        raise InputError(f"{name} has no graph: it is a leaf, or was made without one")
    found = Operations(tensor)
    listed = found.order[:most]
    number = {id(node): index for index, node in enumerate(listed)}
    leaves = names_of(shell, [saved for node in listed for saved in found.saved[id(node)]])
    counted = set(parts_of([tensor], None))
    nodes = []
    for index, node in enumerate(listed):
        saved = found.saved[id(node)]
        parts = parts_of(saved, None) - counted
        counted |= parts
        is_leaf = type_name(node) == "AccumulateGrad"
        names = [leaves[id(tensor)] for tensor in saved if is_leaf and id(tensor) in leaves]
        label = names[0] if names else "leaf" if is_leaf else type_name(node)
        nodes.append(GraphNode(index, label, _sum(parts), tuple(map(_text, saved)), is_leaf))
    edges = tuple((number[a], number[b]) for a, b in found.edges if a in number and b in number)
    everything = parts_of([saved for several in found.saved.values() for saved in several], None)
    left_out = len(found.order) - len(listed)
    found.clear()
    return Graph(name, _sum(everything - parts_of([tensor], None)), tuple(nodes), edges, left_out)


def _sum(parts: Iterable[Part]) -> int:
    return sum(part.nbytes for part in parts)


def _text(tensor: object) -> str:
    known = kind_of(tensor)
    if known is None:
        return type_name(tensor)
    told = known[0].describe(tensor)
    return f"{told.dtype} {'×'.join(map(str, told.shape)) or 'scalar'}"
