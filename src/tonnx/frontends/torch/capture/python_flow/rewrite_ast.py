"""Control flow in the user's source, rewritten so that it can be recorded.

    for i in range(n): BODY         →   def tonnx_body_12(tonnx_item):
                                            nonlocal i, h                           # what BODY assigns
                                            i = tonnx_item
                                            BODY
                                        tonnx_control.for_(items(call(range, n)), tonnx_body_12, <names>)

    if TEST: A                      →   def tonnx_body_15(): nonlocal y; A
    else: B                             def tonnx_body_16(): nonlocal y; B
                                        tonnx_control.branch(TEST, tonnx_body_15, tonnx_body_16, kept=("y",))

    a if t else b                   →   tonnx_control.chosen(t, lambda: a, lambda: b)

Bodies stay closures over the function's own variables, which are read and set through the cells. Where a loop's length
or a condition is known while capturing, `runtime` does what Python does. Nothing moves to another line: errors and
the graph's source metadata point to the user's own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tonnx.frontends.torch.capture.python_flow.generators import as_list
from tonnx.frontends.torch.capture.python_flow.scope_analysis import (
    STOP,
    Function,
    Names,
    analyse,
    analyse_branch,
    stored,
)
from tonnx.frontends.torch.capture.python_flow.single_exit import own, raises, single_exit
from tonnx.frontends.torch.capture.python_flow.sites import (
    HEADER,
    asks,
    binds,
    called,
    calls_on,
    harmless,
    picks,
    repeats,
)
from tonnx.frontends.torch.capture.python_flow.syntax import (
    CONTROL,
    THUNK,
    Place,
    as_appends,
    as_index,
    copy_of,
    flat,
    name_of,
    parse,
    place,
    statement_of,
    thunk,
)

Comprehension = ast.ListComp | ast.GeneratorExp

BODY = "tonnx_body_"  # names of the functions that bodies become begin so
_SIGNS = {"eq": "eq", "noteq": "ne", "lt": "lt", "lte": "le", "gt": "gt", "gte": "ge"}


@dataclass
class _Scope:
    """A function that is rewritten."""

    function: Function | None = None
    loops: dict[int, Names] = field(default_factory=dict)
    kept: dict[int, frozenset[str]] = field(default_factory=dict)
    outer: set[str] = field(default_factory=set)
    """Names of the module."""
    declared: set[str] = field(default_factory=set)
    """Names that bodies assign."""
    depth: int = 0
    """How many bodies are around."""


class Rewriter(ast.NodeTransformer):
    """Rewrites the given functions of a parsed file, in place; of comprehensions that count, those on ``lines``."""

    def __init__(self, functions: set[Place], lambdas: set[Place], lines: set[int]) -> None:
        self._functions, self._lambdas, self._lines = functions, lambdas, lines
        self._scopes: list[_Scope | None] = [None]
        self._count = 0

    @property
    def _scope(self) -> _Scope | None:
        return self._scopes[-1]

    # Functions

    def _function(self, node: Function) -> Function:
        if place(node) not in self._functions:
            self._scopes.append(None)
            self.generic_visit(node)
            self._scopes.pop()
            return node
        as_list(node)
        single_exit(node)
        scope = _Scope(node)
        for inner in ast.walk(node):
            if isinstance(inner, (ast.For, ast.While)):
                scope.loops[id(inner)] = analyse(inner, node)
            elif isinstance(inner, ast.If):
                scope.kept[id(inner)] = analyse_branch(inner, node)
        statements = list(own(node.body))
        scope.outer = {name for n in statements if isinstance(n, ast.Global) for name in n.names}
        nonlocals = {name for n in statements if isinstance(n, ast.Nonlocal) for name in n.names}
        self._scopes.append(scope)
        body = self._block(node.body)
        self._scopes.pop()
        start = int(ast.get_docstring(node, clean=False) is not None)
        first = parse(f"from {__package__}.runtime import control as {CONTROL}", node.body[0])
        if names := sorted(scope.declared - nonlocals):  # so that they are the function's own, as before
            first += parse("if False: " + " = ".join(names) + " = None", node.body[0])
        node.body = [*body[:start], *first, *body[start:]]
        return node

    visit_FunctionDef = _function
    visit_AsyncFunctionDef = _function

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        if place(node) not in self._lambdas:
            return self.generic_visit(node)
        self._scopes.append(_Scope())
        node.body = self.visit(node.body)
        self._scopes.pop()
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self._scopes.append(None)
        self.generic_visit(node)
        self._scopes.pop()
        return node

    def _block(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        return flat(self.visit(statement) for statement in statements)

    def _body(
        self, statements: Sequence[ast.stmt], bound: Iterable[str], at: ast.stmt, item: ast.expr | None
    ) -> ast.stmt:
        assert self._scope is not None
        self._count += 1
        scope, names = self._scope, set(bound)
        text = f"def {BODY}{self._count}({'tonnx_item' if item is not None else ''}):\n"
        for keyword, declared in (("global", names & scope.outer), ("nonlocal", names - scope.outer)):
            if declared:
                text += f"  {keyword} {', '.join(sorted(declared))}\n"
        scope.declared |= names - scope.outer
        (definition,) = parse(text + "  _ = tonnx_item\n", at)
        define: Any = definition
        if item is None:
            define.body.pop()
        else:
            define.body[-1].targets = [item]
        scope.depth += 1
        define.body += self._block(statements) or [parse("pass", at)[0]]
        scope.depth -= 1
        return definition

    # Statements

    def visit_For(self, node: ast.For) -> ast.AST | list[ast.stmt]:
        names = self._scope.loops.get(id(node)) if self._scope is not None else None
        if names is None:
            return self.generic_visit(node)
        body = self._body(as_appends(node.body), names.bound, node, node.target)
        stop = getattr(node, STOP, None)
        options = f", stopped=lambda *, {THUNK}=None: {stop}" if stop is not None else ""
        (run,) = parse(f"{CONTROL}.for_({CONTROL}.items(_), {body.name}{options}, {names.literal()})", node)  # type: ignore[attr-defined]
        run.value.args[0].args[0] = self._lazy(self.visit(node.iter))  # type: ignore[attr-defined]
        return [body, run]

    def visit_While(self, node: ast.While) -> ast.AST | list[ast.stmt]:
        names = self._scope.loops.get(id(node)) if self._scope is not None else None
        if names is None:
            return self.generic_visit(node)
        test = self._body([], stored(node.test), node, None)
        body = self._body(as_appends(node.body), names.bound, node, None)
        (answer,) = parse("return _", node.test)
        answer.value = self.visit(node.test)  # type: ignore[attr-defined]
        test.body[-1] = answer  # type: ignore[attr-defined]
        return [test, body, *parse(f"{CONTROL}.while_({test.name}, {body.name}, {names.literal()})", node)]  # type: ignore[attr-defined]

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        kept = self._scope.kept.get(id(node)) if self._scope is not None else None
        if kept is None:
            return self.generic_visit(node)
        checks = raises(node.body), bool(node.orelse) and raises(node.orelse)
        if any(checks):
            test, node.test = self._assumed(node.test, checks[1], node), name_of("None", node)
            self.generic_visit(node)
            node.test = test
            return node
        sides = []
        for side in (node.body, node.orelse):
            sides.append(self._body(side, {name for statement in side for name in stored(statement)}, node, None))
        names = ", ".join(side.name for side in sides)  # type: ignore[attr-defined]
        (run,) = parse(f"{CONTROL}.branch(_, {names}, kept={tuple(sorted(kept))!r})", node)
        run.value.args[0] = self.visit(node.test)  # type: ignore[attr-defined]
        return [*sides, run]

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        if self._scope is not None:
            node.test = self._assumed(node.test, True, node)
        return node

    def _assumed(self, test: ast.expr, expected: bool, at: ast.stmt) -> ast.expr:
        return self._call("assumed", at, self.visit(test), expected, at.lineno)

    # Writes

    def visit_Assign(self, node: ast.Assign) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        if self._scope is None:
            return node
        puts: list[ast.stmt] = []

        def hold(target: ast.expr) -> ast.expr:
            if isinstance(target, (ast.Subscript, ast.Attribute)):
                name = f"tonnx_value_{len(puts)}"
                puts.append(self._put(target, name_of(name, target)))
                return ast.copy_location(ast.Name(name, ast.Store()), target)
            if isinstance(target, (ast.Tuple, ast.List)):
                target.elts = [hold(element) for element in target.elts]
            return target

        node.targets = [hold(target) for target in node.targets]
        return [node, *puts] if puts else node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | list[ast.stmt]:
        """Without the annotation, which Python evaluates for attributes only, and does not allow beside nonlocal."""
        if self._scope is None:
            return self.generic_visit(node)
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        return self.visit_Assign(ast.copy_location(ast.Assign([node.target], node.value), node))

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        if self._scope is None or isinstance(node.target, ast.Name):
            return node
        first, second = parse("tonnx_value = _\ntonnx_value += _", node)
        before = copy_of(node.target)
        before.ctx = ast.Load()  # type: ignore[attr-defined]
        if isinstance(node.target, ast.Subscript):  # of a view, whose place the write below finds again
            value = ast.copy_location(ast.BinOp(before, node.op, node.value), node)
            return self._put(node.target, value)
        first.value, second.value, second.op = before, node.value, node.op  # type: ignore[attr-defined]
        return [first, second, self._put(node.target, name_of("tonnx_value", node))]

    def _put(self, target: ast.Subscript | ast.Attribute, value: ast.expr) -> ast.stmt:
        assert self._scope is not None
        if isinstance(target, ast.Attribute):
            return statement_of(self._call("set_attribute", target, target.value, target.attr, value))
        owned = isinstance(target.value, ast.Name) or not self._scope.depth
        return statement_of(self._call("put", target, target.value, as_index(target.slice), value, owned))

    # Expressions

    def _display(self, node: ast.List | ast.Tuple) -> ast.AST:
        """``[a, *b]``, whose length may be known only at run time."""
        self.generic_visit(node)
        if self._scope is None or not any(isinstance(e, ast.Starred) for e in node.elts):
            return node
        if not isinstance(node.ctx, ast.Load):
            return node
        parts: list[ast.expr] = []
        for element in node.elts:
            if isinstance(element, ast.Starred):
                parts.append(element.value)
            else:
                parts.append(ast.copy_location(ast.List([element], ast.Load()), element))
        return self._call("spread", node, isinstance(node, ast.Tuple), *parts)

    visit_List = _display
    visit_Tuple = _display

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        if self._scope is None or binds(node):
            return node
        return self._call("chosen", node, node.test, thunk(node.body), thunk(node.orelse))

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        safe = all(map(harmless, node.values[1:]))
        self.generic_visit(node)
        if self._scope is None or binds(node):
            return node
        word = "or" if isinstance(node.op, ast.Or) else "and"
        return self._call("joined", node, word, safe, *map(thunk, node.values))

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if self._scope is None or not repeats(node):
            return node
        return self._call("repeated", node, node.left, node.right)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        if self._scope is None or not isinstance(node.op, ast.Not):
            return node
        return self._call("negated", node, node.operand)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        if self._scope is None:
            return self.generic_visit(node)
        if len(node.ops) > 1 and not binds(node):  # a < b < c, whose b is computed once
            operands = [node.left, *node.comparators]
            names = [f"tonnx_{i}" for i in range(len(operands))]
            (statement,) = parse(f"(lambda {', '.join(names)}, *, {THUNK}=None: _)()", node)
            pairs = zip(names, node.ops, names[1:], strict=False)
            parts: list[ast.expr] = [
                ast.copy_location(ast.Compare(name_of(a, node), [o], [name_of(b, node)]), node) for a, o, b in pairs
            ]
            call: ast.Call = statement.value  # type: ignore[attr-defined]
            call.args = [self.visit(operand) for operand in operands]
            call.func.body = self.visit(ast.copy_location(ast.BoolOp(ast.And(), parts), node))  # type: ignore[attr-defined]
            return call
        self.generic_visit(node)
        sign = type(node.ops[0]).__name__.lower()
        if sign in ("eq", "noteq") or (sign in _SIGNS and any(map(_is_bit, (node.left, *node.comparators)))):
            return self._call("compared", node, _SIGNS[sign], node.left, node.comparators[0])
        name = {ast.In: "contained", ast.NotIn: "contained", ast.Is: "same", ast.IsNot: "same"}.get(type(node.ops[0]))
        if name is None:
            return node
        test = self._call(name, node, node.left, node.comparators[0])
        return test if isinstance(node.ops[0], (ast.In, ast.Is)) else self._call("negated", node, test)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        if self._scope is None or not picks(node):
            return node
        return self._call("picked", node, node.value, as_index(node.slice))

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if self._scope is None:
            return node
        function = self._scope.function
        if isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args and function is not None:
            first = [*function.args.posonlyargs, *function.args.args]
            if first:  # in a function of its own it would not know whose method it is in
                node.args = [name_of("__class__", node), name_of(first[0].arg, node)]
            return node
        if isinstance(node.func, ast.Name) and node.func.id == "bool" and len(node.args) == 1:
            return self._call("negated", node, self._call("negated", node, node.args[0]))
        if called(node) == "map" and not node.keywords:
            return self._call("mapped", node, node.func, *node.args)
        return self._lazy_call(node) if asks(node) or calls_on(node, self._lines) else node

    def _comprehension(self, node: Comprehension) -> ast.AST:
        self.generic_visit(node)
        generator = node.generators[0]
        plain = len(node.generators) > 1 or generator.is_async or binds(node)
        if self._scope is None or plain:
            return node
        if isinstance(node, ast.GeneratorExp) and node.generators[0].iter.lineno not in self._lines:
            return node  # somebody may take only the first of what it generates
        call = self._call("listed", node, self._call("items", node, self._lazy(generator.iter)))
        tests = (
            [ast.copy_location(ast.BoolOp(ast.And(), generator.ifs), node)] if len(generator.ifs) > 1 else generator.ifs
        )
        for value in (node.elt, *tests):
            (statement,) = parse(f"lambda tonnx_item, {THUNK}=None: [_ for _ in (tonnx_item,)][0]", node)
            one = statement.value.body.value  # type: ignore[attr-defined]
            one.elt, one.generators[0].target = value, copy_of(generator.target)
            call.args.append(statement.value)  # type: ignore[attr-defined]
        return call

    visit_ListComp = _comprehension
    visit_GeneratorExp = _comprehension

    def _lazy(self, iterable: ast.expr) -> ast.expr:
        """What a loop runs over, with the functions that would count it replaced by ours."""
        if not isinstance(iterable, ast.Call) or called(iterable) not in HEADER:
            return iterable
        return self._lazy_call(iterable)

    def _lazy_call(self, node: ast.Call) -> ast.Call:
        call = self._call("call", node, node.func, *(self._lazy(argument) for argument in node.args))
        call.keywords = node.keywords
        return call

    def _call(self, function: str, at: ast.AST, *arguments: Any) -> ast.Call:
        assert self._scope is not None
        text = CONTROL
        if self._scope.function is None:  # a lambda, which cannot import
            text = f"__import__('{__package__}.runtime', fromlist=['runtime']).control"
        (statement,) = parse(f"{text}.{function}()", at)
        call: ast.Call = statement.value  # type: ignore[attr-defined]
        for argument in arguments:
            is_tree = isinstance(argument, ast.AST)
            call.args.append(argument if is_tree else parse(repr(argument), at)[0].value)  # type: ignore[attr-defined, arg-type]
        return call


def _is_bit(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value in (0, 1)
