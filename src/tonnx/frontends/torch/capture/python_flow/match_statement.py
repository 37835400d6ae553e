"""``match`` on numbers and constants, written as ``if`` and ``elif``: the rewriter knows those."""

from __future__ import annotations

import ast

from tonnx.frontends.torch.capture.python_flow.syntax import copy_of, name_of, parse

_SUBJECT = "tonnx_subject"


class AsBranches(ast.NodeTransformer):
    """Takes ``match`` statements out of a parsed file, in place. Patterns that take a value apart stay as they are."""

    def __init__(self) -> None:
        self._count = 0

    def visit_Match(self, node: ast.Match) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        self._count += 1
        subject = f"{_SUBJECT}_{self._count}"
        rest: list[ast.stmt] = []
        for case in reversed(node.cases):
            test = _test(case.pattern, subject)
            name = case.pattern.name if isinstance(case.pattern, ast.MatchAs) else None
            if test is None:
                return node
            if case.guard is not None:
                guard = _Renamed(name, subject).visit(case.guard) if name is not None else case.guard
                test = ast.copy_location(ast.BoolOp(ast.And(), [test, guard]), case.guard)
            body = [*(parse(f"{name} = {subject}", case.pattern) if name else []), *case.body]
            (branch,) = parse("if _:\n  pass", case.pattern)
            branch.test, branch.body, branch.orelse = test, body, rest  # type: ignore[attr-defined]
            rest = [branch]
        (first,) = parse(f"{subject} = _", node.subject)
        first.value = copy_of(node.subject)  # type: ignore[attr-defined]
        return [first, *rest]


class _Renamed(ast.NodeTransformer):
    """A guard reads the name that its pattern binds."""

    def __init__(self, name: str, instead: str) -> None:
        self._name, self._instead = name, instead

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return name_of(self._instead, node) if node.id == self._name else node


def _test(pattern: ast.pattern, subject: str) -> ast.expr | None:
    """Whether a value fits a pattern; None if that is not for us to say."""
    if isinstance(pattern, ast.MatchAs) and pattern.pattern is None:
        return ast.copy_location(ast.Constant(True), pattern)
    if isinstance(pattern, ast.MatchOr):
        parts = [_test(part, subject) for part in pattern.patterns]
        tests = [part for part in parts if part is not None]
        return ast.copy_location(ast.BoolOp(ast.Or(), tests), pattern) if len(tests) == len(parts) else None
    if isinstance(pattern, ast.MatchValue):
        return _compared(subject, ast.Eq(), pattern.value, pattern)
    if isinstance(pattern, ast.MatchSingleton):
        return _compared(subject, ast.Is(), ast.copy_location(ast.Constant(pattern.value), pattern), pattern)
    return None


def _compared(subject: str, sign: ast.cmpop, value: ast.expr, at: ast.pattern) -> ast.expr:
    return ast.copy_location(ast.Compare(name_of(subject, at), [sign], [value]), at)
