"""Sizes that belong together: ``past + sequence`` where the name of a dimension may stand."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

_OPERATORS: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


@dataclass(frozen=True)
class SizeExpression:
    """A size that is computed of others."""

    text: str
    """As it stands in files: with spaces around the operators."""
    names: frozenset[str]

    def of(self, sizes: Mapping[str, Any]) -> Any:
        """Its value, with these sizes of the names in it: ints, or what Python's operators compute with as well."""
        return _value(_parsed(self.text), sizes)


def size_expression(text: str, names: Collection[str]) -> SizeExpression | None:
    """An expression of these names; None if the text is a name of its own, as ``seq-len`` is without a ``seq``."""
    tree = _parsed(text)
    if tree is None or isinstance(tree, (ast.Name, ast.Constant)):
        return None
    inside = frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
    if not inside or not inside <= set(names):
        return None
    return SizeExpression(ast.unparse(tree), inside)


def is_size(text: str) -> bool:
    """Whether a text is a name, or an expression of names."""
    return _parsed(text) is not None


@lru_cache(maxsize=1024)
def _parsed(text: str) -> ast.expr | None:
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        return None
    return tree if _is_arithmetic(tree) else None


def _is_arithmetic(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return type(node.op) in _OPERATORS and _is_arithmetic(node.left) and _is_arithmetic(node.right)
    return isinstance(node, ast.Name) or (isinstance(node, ast.Constant) and type(node.value) is int)


def _value(node: ast.expr | None, sizes: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.BinOp):
        return _OPERATORS[type(node.op)](_value(node.left, sizes), _value(node.right, sizes))
    return sizes[node.id] if isinstance(node, ast.Name) else node.value  # type: ignore[union-attr]


def derived_sizes(names: Collection[str]) -> dict[str, SizeExpression]:
    plain = [name for name in names if name.isidentifier()]
    expressions = {name: size_expression(name, plain) for name in names}
    return {name: expression for name, expression in expressions.items() if expression is not None}
