"""What loops and branches do with the names of their function: which of them hand something on."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

NESTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
STOP = "tonnx_stop"
"""The attribute of a ``for`` with the name of the variable that ends it."""
Function = ast.FunctionDef | ast.AsyncFunctionDef
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Unsuitable(BaseException):  # a model's own `except Exception` must not catch it
    """Control flow cannot be recorded; the text is the reason, in the user's terms.

    ``branch``: the file and line of a branch whose sides leave something too different.
    """

    def __init__(self, reason: str, branch: tuple[str, int] | None = None) -> None:
        super().__init__(reason)
        self.branch = branch


@dataclass(frozen=True)
class Names:
    """The names that the body of a loop, or the sides of a branch, change."""

    assigned: frozenset[str]
    """Bound anew, or changed through ``x[i] = …``."""
    bound: frozenset[str]
    """Bound anew."""
    carried: frozenset[str]
    """The assigned ones that a pass may read before it assigns them, or may not assign at all."""
    kept: frozenset[str]
    """The assigned ones that are read outside of the loop or branch."""
    inplace: frozenset[str]
    """The assigned ones that are only changed by ``x += …`` and ``x[i] = …``: a tensor stays the same object."""
    grown: frozenset[str]
    """Lists that the body appends to."""
    read: frozenset[str]
    """The grown ones that the body uses for something else, too, or puts something in front of."""

    def literal(self) -> str:
        """The keyword arguments of `runtime.for_` and `runtime.while_`."""
        names = ("assigned", "carried", "kept", "inplace", "grown", "read")
        return ", ".join(f"{name}={tuple(sorted(getattr(self, name)))!r}" for name in names)


def analyse(loop: ast.For | ast.While, function: Function) -> Names:
    rebound = {name for part in _parts(loop) for name in stored(part, augmented=False)}
    grows = list(growths(loop))
    # A list that the body itself makes is another one in each pass.
    led = set(_led(loop))
    grown = ({name for name, _ in grows} | led) - rebound
    bound = {name for part in _parts(loop) for name in stored(part)} - grown
    written = {n.value.id for n in _subscripts(loop) if isinstance(n.value, ast.Name)}
    assigned = (bound | written) - grown
    targets = set(stored(loop.target)) if isinstance(loop, ast.For) else set()
    carried = {name for name in assigned - targets if first_use(loop.body, name) != "assigned"}
    outer = {name for n in ast.walk(function) if isinstance(n, ast.Nonlocal) for name in n.names}
    mentions = [n.id for n in ast.walk(loop) if isinstance(n, ast.Name)]
    return Names(
        assigned=frozenset(assigned),
        bound=frozenset(bound),
        carried=frozenset(carried),
        kept=frozenset(carried | (assigned & (_loads_outside(loop.body, function) | outer))),
        inplace=frozenset(assigned - rebound),
        grown=frozenset(grown),
        read=frozenset(n for n in grown if n in led or mentions.count(n) > sum(name == n for name, _ in grows)),
    )


def analyse_branch(branch: ast.If, function: Function) -> frozenset[str]:
    """The names that a side of a branch binds and that somebody may read afterwards."""
    sides = (branch.body, branch.orelse)
    bound = {name for side in sides for statement in side for name in stored(statement)}
    outer = {name for n in ast.walk(function) if isinstance(n, ast.Nonlocal) for name in n.names}
    again: set[str] = set()
    elsewhere = {id(node) for side in sides for statement in side for node in ast.walk(statement)}
    if any(branch in ast.walk(node) for node in ast.walk(function) if isinstance(node, (ast.For, ast.While))):
        # The next pass may read what a side of this one has left.
        again = {name for name in bound if any(first_use(side, name) == "read" for side in sides)}
    else:
        elsewhere |= {id(node) for statement in _other_sides(branch, function) for node in ast.walk(statement)}
        elsewhere |= {id(node) for part in _over(branch, function) for node in _at_once(part)}
    return frozenset(bound & (_loads(node for node in ast.walk(function) if id(node) not in elsewhere) | again | outer))


def _other_sides(branch: ast.If, function: Function) -> list[ast.stmt]:
    """The sides of the branches around one that it is not in: who goes through one does not come by the other."""
    statements: list[ast.stmt] = []
    for node in ast.walk(function):
        if isinstance(node, ast.If) and node is not branch:
            inside = [any(branch in ast.walk(statement) for statement in side) for side in (node.body, node.orelse)]
            if any(inside):
                statements += node.orelse if inside[0] else node.body
    return statements


def _over(branch: ast.If, function: Function) -> Iterator[ast.AST]:
    """What has run when a branch is reached, and does not run again: statements before it, and what they are in."""
    yield branch.test
    block: Sequence[ast.stmt] = function.body
    while block:
        around = next(statement for statement in block if branch in ast.walk(statement))
        yield from block[: block.index(around)]
        if around is branch or not isinstance(around, (ast.If, ast.With)):
            return
        yield from [around.test] if isinstance(around, ast.If) else around.items
        others = around.orelse if isinstance(around, ast.If) else []
        block = others if any(branch in ast.walk(statement) for statement in others) else around.body


def _at_once(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of what runs where it stands, not when somebody calls it."""
    if not isinstance(node, (*NESTED, ast.GeneratorExp)):
        yield node
        for child in ast.iter_child_nodes(node):
            yield from _at_once(child)


def _parts(loop: ast.For | ast.While) -> Iterator[ast.AST]:
    yield loop.target if isinstance(loop, ast.For) else loop.test
    yield from loop.body


def stored(node: ast.AST, augmented: bool = True) -> Iterator[str]:
    """The names that a statement binds in its own scope; ``augmented``: also by ``x += …``."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
        yield node.id
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
        return
    elif isinstance(node, ast.alias):
        yield (node.asname or node.name).split(".")[0]
    elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
        yield node.name
    elif isinstance(node, (ast.Lambda, *_COMPREHENSIONS)):
        # Their own variables are theirs alone; only := reaches out.
        yield from (n.target.id for n in ast.walk(node) if isinstance(n, ast.NamedExpr))
        return
    for child in ast.iter_child_nodes(node):
        if augmented or not (isinstance(node, ast.AugAssign) and child is node.target):
            yield from stored(child, augmented)


def growths(loop: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """``name.append(…)`` and ``name += […]``."""
    for node in ast.walk(loop):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "append":
            if isinstance(node.func.value, ast.Name):
                yield node.func.value.id, node
        elif isinstance(node, ast.AugAssign) and isinstance(node.value, ast.List) and isinstance(node.target, ast.Name):
            yield node.target.id, node


def _led(loop: ast.AST) -> Iterator[str]:
    """``name.insert(0, …)``."""
    for node in ast.walk(loop):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "insert":
            at = node.args[0] if node.args else None
            if isinstance(node.func.value, ast.Name) and isinstance(at, ast.Constant) and at.value == 0:
                yield node.func.value.id


def _subscripts(loop: ast.AST) -> Iterator[ast.Subscript]:
    for node in ast.walk(loop):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            yield node


def _loads_outside(body: Sequence[ast.stmt], function: ast.AST) -> set[str]:
    inside = {id(node) for statement in body for node in ast.walk(statement)}
    return _loads(node for node in ast.walk(function) if id(node) not in inside)


def _loads(nodes: Iterable[ast.AST]) -> set[str]:
    nodes = list(nodes)
    stops = {getattr(node, STOP) for node in nodes if hasattr(node, STOP)}
    return stops | {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def first_use(body: Sequence[ast.stmt], name: str) -> str | None:
    """Whether running the statements is sure to assign ``name`` before it may be read: "assigned", "read" or None."""
    for statement in body:
        use = _statement(statement, name)
        if use is not None:
            return use
    return None


def _statement(node: ast.stmt, name: str) -> str | None:
    if isinstance(node, ast.If):
        if _reads(node.test, name):
            return "read"
        uses = {first_use(node.body, name), first_use(node.orelse, name)}
        return "read" if "read" in uses else "assigned" if uses == {"assigned"} else None
    if isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
        head = node.test if isinstance(node, ast.While) else node.iter
        targets = set() if isinstance(node, ast.While) else set(stored(node.target))
        if _reads(head, name) or first_use(node.orelse, name) == "read":
            return "read"
        # It may run no pass at all, so what it assigns is not sure to be assigned.
        return "read" if name not in targets and first_use(node.body, name) == "read" else None
    if isinstance(node, (ast.With, ast.AsyncWith)):
        if any(_reads(item.context_expr, name) for item in node.items):
            return "read"
        if any(item.optional_vars is not None and name in stored(item.optional_vars) for item in node.items):
            return "assigned"
        return first_use(node.body, name)
    if _reads(node, name) or (isinstance(node, ast.AugAssign) and name in stored(node.target)):
        return "read"
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)):
        if isinstance(node, ast.AnnAssign) and node.value is None:
            return None
        return "assigned" if name in stored(node) else None
    return None


def _reads(node: ast.AST, name: str) -> bool:
    return any(isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and n.id == name for n in ast.walk(node))
