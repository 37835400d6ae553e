"""``return``, ``break`` and ``continue`` taken out of a function: every block runs to its end.

    if a: return x          →   if a: result = x
    rest                        else: rest

    for i in n:             →   stop = False
        if a: break             for i in n:         # and not stop
        rest                        if a: stop = True
                                    else: rest

Sides of a branch and bodies of loops can then be functions of their own. What comes after a statement that may leave
goes into the side that does not; where both sides may, or out of a ``with``, a flag says whether it happened.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tonnx.frontends.torch.capture.python_flow.scope_analysis import NESTED, STOP, Function

T = TypeVar("T", bound=ast.AST)

RESULT, RETURNED = "tonnx_result", "tonnx_returned"


@dataclass(frozen=True)
class _Loop:
    stop: str
    skip: str


def single_exit(function: Function) -> None:
    """Rewrite a function in place. Functions inside it stay as they are."""
    returns = [node for node in own(function.body) if isinstance(node, ast.Return)]
    body, last = function.body, function.body[-1]
    exits = _Exits()
    if not returns:
        function.body = exits.block(body)
    elif returns == [last]:
        function.body = [*exits.block(body[:-1]), last]
    else:
        if falls(body):
            body = [*body, _at(ast.Return(_at(ast.Constant(None), last)), last)]
        start, end = _flag(RETURNED, False, body[0]), _at(ast.Return(_name(RESULT, last)), last)
        docstring = int(ast.get_docstring(function, clean=False) is not None)
        function.body = [*body[:docstring], start, *exits.block(body[docstring:]), end]
    _drop_unused(function)


def own(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The nodes of a body, without those of functions and classes defined in it."""
    for node in body:
        yield node
        if not isinstance(node, NESTED):
            yield from own(ast.iter_child_nodes(node))


class _Exits:
    def __init__(self) -> None:
        self._loops: list[_Loop] = []
        self._count = 0

    def block(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        """Statements that run to their end."""
        done: list[ast.stmt] = []
        for i, statement in enumerate(statements):
            rest = statements[i + 1 :]
            if isinstance(statement, (ast.Return, ast.Break, ast.Continue)):
                return [*done, *self._left(statement)]
            leaves = any(_leaving_body([statement]))
            if isinstance(statement, ast.If) and leaves:
                one, other = falls(statement.body), falls(statement.orelse)
                if not (one and other):
                    statement.body = self._full([*statement.body, *(rest if one else [])], statement)
                    statement.orelse = self.block([*statement.orelse, *(rest if other else [])])
                    return [*done, statement]
            done += self._inside(statement)
            if leaves:
                after = self.block(rest)
                if after:
                    flag = self._loops[-1].skip if self._loops else RETURNED
                    test = _at(ast.UnaryOp(_at(ast.Not(), statement), _name(flag, statement)), statement)
                    done.append(_at(ast.If(test, after, []), statement))
                return done
        return done

    def _full(self, statements: Sequence[ast.stmt], at: ast.stmt) -> list[ast.stmt]:
        return self.block(statements) or [_at(ast.Pass(), at)]

    def _left(self, statement: ast.Return | ast.Break | ast.Continue) -> list[ast.stmt]:
        loops = self._loops if isinstance(statement, ast.Return) else self._loops[-1:]
        names = [loop.skip for loop in loops]
        if not isinstance(statement, ast.Continue):
            names += [loop.stop for loop in loops]
        statements: list[ast.stmt] = []
        if isinstance(statement, ast.Return):
            value = statement.value or _at(ast.Constant(None), statement)
            statements.append(_at(ast.Assign([_name(RESULT, statement, ast.Store())], value), statement))
            names.append(RETURNED)
        return statements + [_flag(name, True, statement) for name in names]

    def _inside(self, statement: ast.stmt) -> list[ast.stmt]:
        if isinstance(statement, (ast.For, ast.While)):
            return self._loop(statement)
        if isinstance(statement, ast.If):
            statement.body = self._full(statement.body, statement)
            statement.orelse = self.block(statement.orelse)
        elif isinstance(statement, (ast.With, ast.AsyncWith)):
            statement.body = self._full(statement.body, statement)
        elif isinstance(statement, ast.Try):
            statement.body = self._full(statement.body, statement)
            for handler in statement.handlers:
                handler.body = self._full(handler.body, statement)
            statement.orelse, statement.finalbody = self.block(statement.orelse), self.block(statement.finalbody)
        return [statement]

    def _loop(self, loop: ast.For | ast.While) -> list[ast.stmt]:
        self._count += 1
        names = _Loop(f"tonnx_stop_{self._count}", f"tonnx_skip_{self._count}")
        stops = any(isinstance(n, (ast.Break, ast.Return)) for n in _leaving_body(loop.body))
        after = loop.orelse
        loop.orelse = []
        self._loops.append(names)
        loop.body = [_flag(names.skip, False, loop.body[0]), *self.block(loop.body)]
        self._loops.pop()
        if not stops:
            return [loop, *self.block(after)]
        go_on = _at(ast.UnaryOp(_at(ast.Not(), loop), _name(names.stop, loop)), loop)
        if isinstance(loop, ast.While):
            always = isinstance(loop.test, ast.Constant) and bool(loop.test.value)
            loop.test = go_on if always else _at(ast.BoolOp(_at(ast.And(), loop), [go_on, loop.test]), loop.test)
        else:
            setattr(loop, STOP, names.stop)
        statements: list[ast.stmt] = [_flag(names.stop, False, loop), loop]
        if after:
            test = _at(ast.UnaryOp(_at(ast.Not(), loop), _name(names.stop, loop)), loop)
            statements.append(_at(ast.If(test, self._full(after, loop), []), loop))
        return statements


def _leaving_body(body: Iterable[ast.AST]) -> Iterator[ast.stmt]:
    for node in body:
        if isinstance(node, (ast.Return, ast.Break, ast.Continue)):
            yield node
        elif isinstance(node, (ast.For, ast.AsyncFor, ast.While)):  # its own breaks stay inside
            yield from (statement for statement in _leaving_body(node.body) if isinstance(statement, ast.Return))
            yield from _leaving_body(node.orelse)
        elif not isinstance(node, NESTED):
            yield from _leaving_body(ast.iter_child_nodes(node))


def falls(body: Sequence[ast.stmt]) -> bool:
    """Whether the end of a block may be reached."""
    for node in body:
        if isinstance(node, (ast.Return, ast.Break, ast.Continue, ast.Raise)):
            return False
        if isinstance(node, ast.If) and not falls(node.body) and not falls(node.orelse):
            return False
        if isinstance(node, (ast.With, ast.AsyncWith)) and not falls(node.body):
            return False
    return True


def raises(body: Sequence[ast.stmt]) -> bool:
    """Whether a block does nothing but to raise an error, or to say something."""
    *before, last = body
    if isinstance(last, ast.If):
        ends = bool(last.orelse) and raises(last.body) and raises(last.orelse)
    else:
        ends = isinstance(last, ast.Raise)
    plain = all(isinstance(node, (ast.Assign, ast.AnnAssign, ast.Expr)) for node in before)
    return (ends and plain) or all(map(_speaks, body))


_SPEAKS = frozenset("print warn warning info debug error log exception".split())


def _speaks(node: ast.stmt) -> bool:
    if isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
        return False
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
        return False
    function = node.value.func
    return str(getattr(function, "attr", getattr(function, "id", ""))) in _SPEAKS


def _drop_unused(function: Function) -> None:
    """Without the flags that nobody asks for."""
    used = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    used |= {getattr(n, STOP) for n in ast.walk(function) if hasattr(n, STOP)}

    class Drop(ast.NodeTransformer):
        def visit_Assign(self, node: ast.Assign) -> ast.AST:
            target = node.targets[0]
            flag = isinstance(target, ast.Name) and target.id.startswith(("tonnx_stop_", "tonnx_skip_", RETURNED))
            return _at(ast.Pass(), node) if flag and target.id not in used else node  # type: ignore[attr-defined]

    Drop().visit(function)


def _flag(name: str, value: bool, at: ast.AST) -> ast.stmt:
    return _at(ast.Assign([_name(name, at, ast.Store())], _at(ast.Constant(value), at)), at)


def _name(name: str, at: ast.AST, context: ast.expr_context | None = None) -> ast.Name:
    return _at(ast.Name(name, context or ast.Load()), at)


def _at(node: T, at: ast.AST) -> T:
    placed = ast.copy_location(node, at)
    if isinstance(placed, (ast.expr, ast.stmt)):
        placed.end_lineno, placed.end_col_offset = placed.lineno, placed.col_offset  # `at` may be a block
    return placed
