"""A cell that may be run again, without being run by us: its statements are put into a loop before they are compiled.

The cell stays one cell: one entry in the history, one result, its own line numbers, its own ``await``. What it shows
last is shown inside the loop, as IPython would have shown it.
"""
from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator, Sequence

from jupyter_gpumem import session
from jupyter_gpumem.actions.retry import Tries
from jupyter_gpumem.actions.rewind import Bindings, Start
from jupyter_gpumem.actions.watcher import Directive
from jupyter_gpumem.errors import InputError
from jupyter_gpumem.model import Notice

NAME = "__gpumem_tries__"
"""Under which the cell finds its tries, while it runs."""
_ERROR = "__gpumem_error__"
_LOOP = f"""
while {NAME}.again():
    try:
        pass
    except BaseException as {_ERROR}:
        if not {NAME}.failed({_ERROR}):
            raise
    else:
        {NAME}.done()
"""
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, *_COMPREHENSIONS)


class Armed:
    """An AST transformer of the shell for the one cell that is about to run. :meth:`close` takes it away."""

    def __init__(
        self,
        shell: session.Shell,
        directive: Directive,
        watched: Sequence[str],
        show: Callable[[object], object],
        below: int = 0,
    ) -> None:
        """``below`` so many other cell magics stands the directive: each transforms a text of its own first."""
        self._shell = shell
        self._directive = directive
        self._watched = watched
        self._show = show
        self._skip = below
        shell.ast_transformers.append(self)

    def visit(self, tree: ast.AST) -> ast.AST:
        """Called by IPython with the cell, before it is compiled. Never raises: IPython would drop the cell."""
        if self._skip:
            self._skip -= 1
            return tree
        self._take_away()
        if not isinstance(tree, ast.Module):
            return tree
        directive = self._directive
        try:
            found, halved = bindings(tree), frozenset(directive.halve)  # a size is bound by us
            start = Start(self._shell, Bindings(found.bound | halved, found.needed | halved))
            self._shell.user_ns[NAME] = Tries(
                start,
                halved=directive.halve,
                most=directive.retry,
                floor=directive.floor,
                watched=self._watched,
                say=self._show,
                shell=self._shell,
            )
            return in_a_loop(tree, directive.halve, self._shell.ast_node_interactivity)
        except Exception as fault:
            why = f"{type(fault).__name__}: {fault}"
            self._show(Notice(f"jupyter_gpumem: this cell cannot be tried again: {why}", fault=True))
            return tree

    def close(self) -> None:
        """The cell has ended."""
        self._take_away()
        for name in (NAME, _ERROR):
            self._shell.user_ns.pop(name, None)

    def _take_away(self) -> None:
        transformers = self._shell.ast_transformers
        transformers[:] = [transformer for transformer in transformers if transformer is not self]


def in_a_loop(tree: ast.Module, halved: Collection[str], interactivity: str) -> ast.Module:
    """The statements of a cell inside the loop of its tries. ``interactivity`` is ``shell.ast_node_interactivity``."""
    future = [node for node in tree.body if _is_future(node)]
    body = [node for node in tree.body if not _is_future(node)]
    if not body:
        return tree
    attempted = _Halving(halved).visit(ast.Module(_showing(body, interactivity), []))
    assert isinstance(attempted, ast.Module)
    loop = ast.parse(_LOOP).body[0]
    for node in ast.walk(loop):  # errors point to the cell's first line, not to ours
        if "lineno" in node._attributes:
            ast.copy_location(node, body[0])
    assert isinstance(loop, ast.While)
    attempt = loop.body[0]
    assert isinstance(attempt, ast.Try)
    attempt.body = attempted.body
    tree.body = [*future, loop]
    return ast.fix_missing_locations(tree)


def bindings(tree: ast.AST) -> Bindings:
    """The names that a cell binds at its top level, and those of them that it reads first."""
    bound: set[str] = set()
    needed: set[str] = set()
    for name, is_read in _in_order(tree):
        if is_read and name not in bound:
            needed.add(name)
        elif not is_read:
            bound.add(name)
    return Bindings(frozenset(bound), frozenset(needed & bound))


def check_halved(halved: Collection[str], body: str, known: Collection[str]) -> None:
    """Raise InputError for a name that cannot be halved in a cell: nobody binds it, or the cell does it in a way that
    cannot be changed.
    """
    try:
        tree = ast.parse(body)
    except SyntaxError:  # magics, or an error that the cell itself will show
        return
    simple = {id(target) for node in ast.walk(tree) for target in _simple_targets(node)}
    stores = [node for node in _outside_scopes(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    for name in halved:
        mine = [store for store in stores if store.id == name]
        if any(id(store) not in simple for store in mine):
            raise InputError(f"--halve {name}: the cell binds it together with others; give it a line: {name} = 64")
        if not mine and name not in known:
            raise InputError(f"--halve {name}: there is no such name, and the cell makes none; as: {name} = 64")


def _showing(body: list[ast.stmt], interactivity: str) -> list[ast.stmt]:
    """The statements, where those whose value IPython would show hand it to be shown."""
    shown = list(body)
    last = body[-1]
    if interactivity == "last_expr_or_assign":
        targets = [target for target in _simple_targets(last) if isinstance(target, ast.Name)]
        if targets:
            name = ast.copy_location(ast.Name(targets[0].id, ast.Load()), last)
            return [*body, _shown(ast.copy_location(ast.Expr(name), last))]
        interactivity = "last_expr"
    for index, node in enumerate(body):
        if isinstance(node, ast.Expr) and (
            interactivity == "all" or (node is last and interactivity in ("last", "last_expr"))
        ):
            shown[index] = _shown(node)
    return shown


def _shown(node: ast.Expr) -> ast.Expr:
    display = ast.Attribute(ast.Name(NAME, ast.Load()), "show", ast.Load())
    call = ast.Call(display, [node.value], [])
    return ast.copy_location(ast.Expr(ast.copy_location(call, node)), node)


class _Halving(ast.NodeTransformer):
    """``batch_size = 64`` at the top level becomes ``batch_size = tries.size('batch_size', 64)``."""

    def __init__(self, halved: Collection[str]) -> None:
        self._halved = halved

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, _SCOPES):
            return node
        names = [t.id for t in _simple_targets(node) if isinstance(t, ast.Name) and t.id in self._halved]
        if names and isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            size = ast.Attribute(ast.Name(NAME, ast.Load()), "size", ast.Load())
            node.value = ast.copy_location(ast.Call(size, [ast.Constant(names[0]), node.value], []), node.value)
            return node
        visited: ast.AST = self.generic_visit(node)
        return visited


def _simple_targets(node: ast.AST) -> list[ast.expr]:
    """The targets of an assignment that binds each to the whole value."""
    if isinstance(node, ast.Assign):
        return [target for target in node.targets if isinstance(target, ast.Name)]
    if isinstance(node, ast.AnnAssign) and node.value is not None and isinstance(node.target, ast.Name):
        return [node.target]
    return []


def _is_future(node: ast.AST) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _outside_scopes(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, _SCOPES):
            yield node
            yield from _outside_scopes(node)


def _in_order(node: ast.AST) -> Iterator[tuple[str, bool]]:
    """Names in the order in which they are read (True) and bound or deleted (False), as far as the text tells it.

    The body of a function counts where the function stands: it may be called from there on.
    """
    if isinstance(node, ast.Name):
        yield node.id, isinstance(node.ctx, ast.Load)
        return
    if isinstance(node, ast.AugAssign):
        yield from _in_order(node.value)
        if isinstance(node.target, ast.Name):
            yield node.target.id, True
        yield from _in_order(node.target)
        return
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from (((alias.asname or alias.name).partition(".")[0], False) for alias in node.names)
        return
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        inside = [pair for child in ast.iter_child_nodes(node) for pair in _in_order(child)]
        yield from ((name, True) for name, is_read in inside if is_read)
        yield node.name, False
        return
    if isinstance(node, _COMPREHENSIONS):
        inside = [pair for child in ast.iter_child_nodes(node) for pair in _in_order(child)]
        own = {name for name, is_read in inside if not is_read}
        yield from ((name, True) for name, is_read in inside if is_read and name not in own)
        return
    parts = ("value", "iter", "context_expr")
    first = [getattr(node, part) for part in parts if isinstance(getattr(node, part, None), ast.AST)]
    for child in [*first, *(c for c in ast.iter_child_nodes(node) if c not in first)]:
        yield from _in_order(child)
    name = getattr(node, "name", None)
    if isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and isinstance(name, str):
        yield name, False
