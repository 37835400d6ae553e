"""Small pieces of syntax trees, for `source`."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable
from typing import Any

Place = tuple[int, int]
CONTROL = "tonnx_control"  # the name under which rewritten functions import `runtime.control`
THUNK = "tonnx_thunk"  # the parameter of our own lambdas


def thunk(value: ast.expr) -> ast.expr:
    (statement,) = parse(f"lambda *, {THUNK}=None: _", value)
    statement.value.body = value  # type: ignore[attr-defined]
    return statement.value  # type: ignore[attr-defined, no-any-return]


def as_index(index: ast.expr) -> ast.expr:
    """The index of a subscript as an expression that stands alone: ``a:b`` is written slice(a, b)."""

    def spelled(part: ast.expr) -> ast.expr:
        if not isinstance(part, ast.Slice):
            return part
        (statement,) = parse("slice(None, None, None)", part)
        bounds = (part.lower, part.upper, part.step)
        call: ast.Call = statement.value  # type: ignore[attr-defined]
        call.args = [bound or nothing for bound, nothing in zip(bounds, call.args, strict=True)]
        return call

    if isinstance(index, ast.Tuple):
        return ast.copy_location(ast.Tuple([spelled(part) for part in index.elts], ast.Load()), index)
    return spelled(index)


def as_appends(body: list[ast.stmt]) -> list[ast.stmt]:
    """``outputs += [a]`` says the same as ``outputs.append(a)``."""

    class Appends(ast.NodeTransformer):
        def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt | list[ast.stmt]:
            if not (isinstance(node.target, ast.Name) and isinstance(node.value, ast.List)):
                return node
            appends = []
            for element in node.value.elts:
                (statement,) = parse(f"{node.target.id}.append(_)", node)
                statement.value.args[0] = element  # type: ignore[attr-defined]
                appends.append(statement)
            return appends

    return flat(Appends().visit(statement) for statement in body)


def copy_of(node: ast.expr) -> ast.expr:
    return copy.deepcopy(node)


def name_of(name: str, at: ast.AST) -> ast.Name:
    return ast.copy_location(ast.Name(name, ast.Load()), at)


def statement_of(value: ast.expr) -> ast.stmt:
    return ast.copy_location(ast.Expr(value), value)


def place(node: ast.expr | ast.stmt) -> Place:
    return node.lineno, node.col_offset


def parse(text: str, at: ast.AST) -> list[ast.stmt]:
    """Statements of our own, all on the line of the user's that they stand for."""
    statements = ast.parse(text).body
    for statement in statements:
        for node in ast.walk(statement):
            if isinstance(node, (ast.expr, ast.stmt, ast.arg)):
                ast.copy_location(node, at)
                # The compiler counts the call of a method to the line where its name ends, and `at` may be a block.
                node.end_lineno, node.end_col_offset = node.lineno, node.col_offset
    return statements


def flat(statements: Iterable[Any]) -> list[ast.stmt]:
    flat: list[ast.stmt] = []
    for statement in statements:
        flat.extend(statement if isinstance(statement, list) else [statement])
    return flat
