"""The operations behind a tensor, live: nodes of its autograd graph, nearest first, with what each saved."""
from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from jupyter_gpumem import frameworks
from jupyter_gpumem.analysis import words


class Operations:
    """The nodes behind a tensor, breadth first. Live: the wrappers of nodes are made anew unless they are kept."""

    def __init__(self, tensor: object, seen: dict[int, object] | None = None) -> None:
        """``seen`` are nodes by id that are passed over, with all behind them; those that are found join them."""
        seen = {} if seen is None else seen
        self.order: list[object] = []
        self.saved: dict[int, list[object]] = {}
        """id of a node → the tensors that it saved; of a leaf's node, the leaf."""
        self.edges: list[tuple[int, int]] = []
        queue = deque(node for node in _nodes(_steps(tensor)) if id(node) not in seen)
        seen.update((id(node), node) for node in queue)
        while queue:
            node = queue.popleft()
            self.order.append(node)
            steps = _steps(node)
            self.saved[id(node)] = [step for step in steps if words.is_tensor(step)]
            for following in _nodes(steps):
                self.edges.append((id(node), id(following)))
                if id(following) not in seen:
                    seen[id(following)] = following
                    queue.append(following)

    def clear(self) -> None:
        """Let go of every live object."""
        self.order.clear()
        self.saved.clear()


def _steps(obj: object) -> list[object]:
    return [step for framework in frameworks.loaded() for step in framework.graph(obj)]


def _nodes(steps: Iterable[object]) -> list[object]:
    return [step for step in steps if words.is_node(step)]
