"""What comes after a branch, moved into both of its sides: for variables that no value of ONNX could be after it.

    mode = "up" if c else "down"    →   if c:
    rest                                    mode = "up"
                                            rest
                                        else:
                                            mode = "down"
                                            rest

Only the function's own code is moved. A branch inside another takes what comes after that one along; a loop ends it.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tonnx.frontends.torch.capture.python_flow.scope_analysis import NESTED
from tonnx.frontends.torch.capture.python_flow.single_exit import falls
from tonnx.frontends.torch.capture.python_flow.sites import binds

_SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.Expr)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Split(ast.NodeTransformer):
    """Splits the branches on some lines of a parsed file, in place."""

    def __init__(self, lines: set[int]) -> None:
        self._lines = lines
        self.done: set[int] = set()
        """The lines where that changed something."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                setattr(node, name, self._block(block))
        return super().generic_visit(node)

    def _block(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        done: list[ast.stmt] = []
        for i, statement in enumerate(statements):
            branch = self._as_branch(statement)
            rest = list(statements[i + 1 :])
            if branch is None or (branch is statement and not rest):
                done.append(statement)
                continue
            self.done |= self._marked(branch)
            if falls(branch.body):
                branch.body = [*branch.body, *copy.deepcopy(rest)]
            if falls(branch.orelse):
                branch.orelse = [*branch.orelse, *rest]
            return [*done, branch]
        return done

    def _as_branch(self, statement: ast.stmt) -> ast.If | None:
        """A statement that is to be split, as an ``if``."""
        if isinstance(statement, ast.If):
            return statement if self._marked(statement) else None
        if not isinstance(statement, _SIMPLE):
            return None
        choice = next((e for e in _choices(statement) if _lines(e) & self._lines and not binds(e)), None)
        if choice is None:
            return None
        one, other = (_put(statement, choice, instead) for instead in (choice.body, choice.orelse))
        return ast.copy_location(ast.If(choice.test, [one], [other]), choice)

    def _marked(self, branch: ast.If) -> set[int]:
        """The lines of a branch, and of those directly inside it, that are to be split."""
        lines = {branch.lineno} & self._lines
        for statement in (*branch.body, *branch.orelse):
            if isinstance(statement, ast.If):
                lines |= self._marked(statement)
            elif isinstance(statement, _SIMPLE):
                lines |= set().union(*map(_lines, _choices(statement))) & self._lines
        return lines


def _choices(node: ast.AST) -> Iterator[ast.IfExp]:
    """The conditional expressions that a statement computes itself, whatever others decide: none inside their sides."""
    if isinstance(node, (*NESTED, *_COMPREHENSIONS)):
        return
    children: Iterable[ast.AST] = ast.iter_child_nodes(node)
    if isinstance(node, ast.IfExp):
        yield node
        children = [node.test]
    elif isinstance(node, ast.BoolOp):
        children = node.values[:1]  # the others may not be reached
    elif isinstance(node, ast.Compare):
        children = [node.left, *node.comparators[:1]]
    for child in children:
        yield from _choices(child)


def _lines(choice: ast.IfExp) -> set[int]:
    """The lines of a conditional expression, and of those inside its sides."""
    inner = (other for side in (choice.body, choice.orelse) for other in _choices(side))
    return {choice.lineno}.union(*map(_lines, inner))


def _put(statement: ast.stmt, choice: ast.AST, instead: ast.AST) -> ast.stmt:
    """A copy of a statement with one expression in the place of another."""

    class Put(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> Any:
            return instead if node is choice else super().visit(node)

    changed: ast.stmt = Put().visit(copy.deepcopy(statement, {id(choice): choice}))
    return changed
