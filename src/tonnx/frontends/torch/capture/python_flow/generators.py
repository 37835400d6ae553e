"""Generator functions that loop, written as functions that fill a list: the rewriter knows those.

    for i in range(n):          →   tonnx_yielded = []
        yield x[i]                  for i in range(n):
                                        tonnx_yielded.append(x[i])
                                    return tonnx_control.yielded(tonnx_yielded)

All that it gives is computed before the first is used. So it has to end by itself (no ``while``), nothing may wait for
its end (no ``with``, no ``try``, no decorator that makes a context of it), and nothing may come back from ``yield``.
"""

from __future__ import annotations

import ast

from tonnx.frontends.torch.capture.python_flow.single_exit import own
from tonnx.frontends.torch.capture.python_flow.syntax import CONTROL, flat, parse

_YIELDED = "tonnx_yielded"


def gives_a_list(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a generator function can be written so."""
    if isinstance(function, ast.AsyncFunctionDef) or function.decorator_list:
        return False
    if any(isinstance(node, ast.Return) for node in ast.walk(function)):
        return False
    return all(isinstance(each, ast.For) and _only_yields(each) for each in function.body if _yields(each))


def as_list(function: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    """Write it so, in place; what is no generator stays."""
    if not any(map(_yields, function.body)):
        return
    body = flat(_Appends().visit(statement) for statement in function.body)
    start = int(ast.get_docstring(function, clean=False) is not None)
    first, last = parse(f"{_YIELDED} = []", body[start]), parse(f"return {CONTROL}.yielded({_YIELDED})", body[-1])
    function.body = [*body[:start], *first, *body[start:], *last]


def _yields(node: ast.AST) -> bool:
    return any(isinstance(one, (ast.Yield, ast.YieldFrom, ast.Await)) for one in own([node]))


def _only_yields(statement: ast.stmt) -> bool:
    """Whether every ``yield`` in a statement is one by itself, in loops and branches only."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Yield):
        return statement.value.value is not None and not _yields(statement.value.value)
    if isinstance(statement, (ast.For, ast.If)):
        header = statement.iter if isinstance(statement, ast.For) else statement.test
        return not _yields(header) and all(map(_only_yields, [*statement.body, *statement.orelse]))
    return not _yields(statement)


class _Appends(ast.NodeTransformer):
    """Of the function itself: what is defined inside of it stays."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        if not isinstance(node.value, ast.Yield):
            return node
        (append,) = parse(f"{_YIELDED}.append(_)", node)
        append.value.args[0] = node.value.value  # type: ignore[attr-defined]
        return append
