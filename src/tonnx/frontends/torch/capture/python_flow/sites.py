"""What decides something in a parsed file: loops, branches, conditions, and functions that ask for a plain number."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from tonnx.frontends.torch.capture.python_flow.generators import gives_a_list
from tonnx.frontends.torch.capture.python_flow.scope_analysis import Function, Unsuitable
from tonnx.frontends.torch.capture.python_flow.single_exit import own

ITERATES = (ast.For, ast.ListComp, ast.GeneratorExp)
HEADER = frozenset(("range", "enumerate", "zip", "reversed", "product"))
_COUNTS = frozenset("len sum tuple list map unbind split chunk".split())
_NUMBERS = frozenset("bool int float round max min any all".split())
_OF_MODULES = frozenset("floor ceil trunc sqrt exp log log2 log10".split())
_OF_MODULES |= frozenset("tensor as_tensor _assert Tensor FloatTensor LongTensor".split())
_METHODS = frozenset("unbind split chunk equal allclose is_nonzero numel tolist".split())
"""Functions that would ask for a plain number."""
_OF_THE_CALLER = frozenset("locals globals vars dir eval exec super _getframe currentframe stack".split())


def sites_at(tree: ast.AST, line: int) -> list[ast.AST]:
    """What decides something on a line: loops, branches, conditions, and calls that count.

    Where there is nothing of the kind, calls: the function may be held by a variable, such as ``self.compare(a, b)``.
    """
    sites = [node for node in ast.walk(tree) for first, last in _extents(node) if first <= line <= last]
    return sites or [node for node in ast.walk(tree) if isinstance(node, ast.Call) and calls_on(node, [line])]


def calls_on(call: ast.Call, lines: Iterable[int]) -> bool:
    """Whether something is called on one of the lines that does not ask who calls it."""
    return called(call) not in _OF_THE_CALLER and any(call.lineno <= line <= (call.end_lineno or 0) for line in lines)


def _extents(node: ast.AST) -> list[tuple[int, int]]:
    if isinstance(node, (ast.For, ast.While, ast.If)):
        head = node.iter if isinstance(node, ast.For) else node.test
        return [(node.lineno, head.end_lineno or 0)]
    if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
        return [(n.lineno, n.end_lineno or 0) for g in node.generators for n in (g.iter, *g.ifs)]
    decides = isinstance(node, (ast.IfExp, ast.BoolOp, ast.Assert))
    decides |= isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    decides |= isinstance(node, ast.Compare) and (len(node.ops) > 1 or isinstance(node.ops[0], (ast.In, ast.NotIn)))
    decides |= isinstance(node, ast.Call) and (asks(node) or called(node) in HEADER)
    decides |= isinstance(node, ast.Subscript) and picks(node)
    decides |= isinstance(node, ast.BinOp) and repeats(node)
    return [(node.lineno, node.end_lineno or 0)] if decides else []  # type: ignore[attr-defined]


def function_at(tree: ast.AST, line: int) -> list[Function]:
    """The functions around a line, outermost first."""
    functions: list[Function] = []

    def visit(node: ast.AST) -> None:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.lineno <= line <= (node.end_lineno or 0):
            functions.append(node)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(tree)
    return functions


def lambdas_at(tree: ast.AST, line: int) -> list[ast.Lambda]:
    lambdas = [node for node in ast.walk(tree) if isinstance(node, ast.Lambda)]
    return [node for node in lambdas if node.lineno <= line <= (node.end_lineno or 0)]


def check(function: Function) -> None:
    """Raise `Unsuitable` with the reason if a function cannot be rewritten."""
    for node in own(function.body):
        if isinstance(node, ast.Yield) and gives_a_list(function):
            continue
        if isinstance(node, (ast.Yield, ast.YieldFrom, ast.Await, ast.AsyncFor, ast.AsyncWith)):
            raise Unsuitable(f"{function.name} is a generator or a coroutine (line {getattr(node, 'lineno', 0)})")


def picks(node: ast.Subscript) -> bool:
    """Whether one element is read, at a place that may be known only at run time."""
    return isinstance(node.ctx, ast.Load) and not _is_fixed(node.slice)


def repeats(node: ast.BinOp) -> bool:
    """``[0] * n``."""
    return isinstance(node.op, ast.Mult) and any(isinstance(side, ast.List) for side in (node.left, node.right))


def _is_fixed(index: ast.expr | None) -> bool:
    if isinstance(index, ast.Slice):
        return all(map(_is_fixed, (index.lower, index.upper, index.step)))
    if isinstance(index, (ast.Tuple, ast.List)):
        return all(map(_is_fixed, index.elts))
    return index is None or isinstance(index, (ast.Constant, ast.UnaryOp))


def called(call: ast.Call) -> str:
    return str(getattr(call.func, "id", getattr(call.func, "attr", "")))


def asks(call: ast.Call) -> bool:
    """Whether a function that is called asks for a plain number."""
    if isinstance(call.func, ast.Attribute):
        module = getattr(call.func.value, "id", "")
        return called(call) in _METHODS or (module in ("math", "torch") and called(call) in _OF_MODULES)
    return called(call) in _COUNTS | _NUMBERS | _OF_MODULES


_REDUCTIONS = frozenset("sum mean any all abs item numel size dim norm float int bool len isnan isinf".split())


def harmless(node: ast.AST) -> bool:
    """Whether an expression can be computed at any time: nothing in it can fail."""
    if isinstance(node, ast.Subscript):
        fixed = isinstance(node.slice, (ast.Constant, ast.UnaryOp))
        return fixed and isinstance(node.value, ast.Attribute) and node.value.attr == "shape"
    if isinstance(node, ast.Call):
        inner = node.func.value if isinstance(node.func, ast.Attribute) else node.func
        return called(node) in _REDUCTIONS and not node.keywords and all(map(harmless, [inner, *node.args]))
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.MatMult)):
        return False
    plain = (ast.Name, ast.Constant, ast.Attribute, ast.UnaryOp, ast.BoolOp, ast.BinOp, ast.Compare)
    if isinstance(node, (ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context)):
        return True
    return isinstance(node, plain) and all(map(harmless, ast.iter_child_nodes(node)))


def binds(node: ast.AST) -> bool:
    """Whether an expression has a ``:=``, or something else that does not mean the same in a function of its own."""
    return any(isinstance(n, (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)) for n in ast.walk(node))
