"""Loops in the user's source, rewritten so that a loop over a dynamic size can be recorded instead of unrolled.

``for i in range(n): BODY`` becomes ::

    tonnx_items_12 = tonnx_loops.items(tonnx_loops.call(range, n))
    if not tonnx_loops.is_dynamic(tonnx_items_12):
        for i in tonnx_items_12: BODY               # exactly as it was
    else:
        def tonnx_body_12(tonnx_item):
            nonlocal i, h                           # what BODY assigns
            i = tonnx_item
            BODY
        tonnx_loops.run(tonnx_items_12, tonnx_body_12, <what happens to which name>)

The body stays a closure over the function's own variables, so `loops.run` reads and sets them through its cells.
Nothing moves to another line: errors and the graph's source metadata point to the user's own.
"""

from __future__ import annotations

import ast
import copy
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tonnx.frontends.torch.loop_names import NESTED, Unsuitable, analyse, growths, stored

Function = ast.FunctionDef | ast.AsyncFunctionDef
Comprehension = ast.ListComp | ast.GeneratorExp
Loop = ast.For | Comprehension

BODY = "tonnx_body_"  # names of the functions that bodies become begin so
_LOOPS = "tonnx_loops"  # the name under which rewritten functions import `loops`
_HEADER = frozenset(("range", "enumerate", "zip", "reversed"))
_ANYWHERE = frozenset(("len", "sum", "tuple", "list", "unbind", "split"))
"""Functions that would count what has no fixed length: in the headers of loops, and anywhere in their functions."""
_CHANGES = frozenset("extend insert pop remove clear update setdefault popitem appendleft popleft".split())


def sites_at(tree: ast.AST, line: int) -> list[tuple[Loop | ast.Call, list[Function]]]:
    """The loops whose header is on a line, and calls there that count; with the functions around, outermost first."""
    found: list[tuple[Loop | ast.Call, list[Function]]] = []

    def visit(node: ast.AST, around: list[Function]) -> None:
        if around and _first_line(node) <= line <= _last_line(node):
            found.append((node, around))  # type: ignore[arg-type]
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            around = [*around, node]
        for child in ast.iter_child_nodes(node):
            visit(child, around)

    visit(tree, [])
    return found


def _first_line(node: ast.AST) -> float:
    if isinstance(node, ast.For) or (isinstance(node, ast.Call) and _called(node) in _ANYWHERE):
        return node.lineno
    return node.generators[0].iter.lineno if isinstance(node, (ast.ListComp, ast.GeneratorExp)) else math.inf


def _last_line(node: ast.AST) -> int:
    last: Any = node
    if isinstance(node, (ast.For, ast.ListComp, ast.GeneratorExp)):
        last = node.iter if isinstance(node, ast.For) else node.generators[0].iter
    return getattr(last, "end_lineno", None) or 0


def _called(call: ast.Call) -> str:
    return str(getattr(call.func, "id", getattr(call.func, "attr", "")))


def check(loop: Loop | ast.Call, function: Function) -> None:
    """Raise `Unsuitable` with the reason if a loop cannot be recorded."""
    if not isinstance(loop, ast.For):
        generators = [] if isinstance(loop, ast.Call) else loop.generators
        if len(generators) > 1 or any(generator.ifs or generator.is_async for generator in generators):
            raise Unsuitable("the comprehension has a condition or a second loop")
        return
    if loop.orelse:
        raise Unsuitable(f"it has an `else:` (line {loop.orelse[0].lineno})")
    local = set(stored(loop))
    for node in _own(loop.body):
        what = _obstacle(node, local)
        if what is not None:
            raise Unsuitable(f"its body {what} (line {getattr(node, 'lineno', loop.lineno)})")
    for node in _leaving(loop.body):
        raise Unsuitable(f"its body has a `{type(node).__name__.lower()}` (line {node.lineno})")
    for node in ast.walk(function):
        if isinstance(node, ast.Global) and local & set(node.names):
            raise Unsuitable(f"it assigns the global {', '.join(sorted(local & set(node.names)))}")
    for name in analyse(loop, function).grown:
        mentions = sum(isinstance(n, ast.Name) and n.id == name for n in ast.walk(loop))
        if mentions > sum(grown == name for grown, _ in growths(loop)):
            raise Unsuitable(f"its body does more with the list {name} than to append to it")


def _obstacle(node: ast.AST, local: set[str]) -> str | None:
    """What of a statement or expression has an effect that one recorded pass cannot show."""
    if isinstance(node, (ast.Return, ast.Yield, ast.YieldFrom, ast.Await)):
        return f"has a `{type(node).__name__.lower()}`".replace("yieldfrom", "yield from")
    if isinstance(node, (ast.AsyncFor, ast.AsyncWith)):
        return "is asynchronous"
    if isinstance(node, (ast.Global, ast.Nonlocal, ast.Delete)):
        return f"has a `{type(node).__name__.lower().replace('delete', 'del')}`"
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        return f"assigns to an attribute, `{ast.unparse(node)}`"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args:
        return "calls super() without arguments"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        base, method = node.func.value, node.func.attr
        if isinstance(base, ast.Name) and (base.id in local or method == "append"):
            return None
        if method in _CHANGES or method == "append":
            return f"changes an object from outside of it, `{ast.unparse(node.func)}`"
    return None


def _own(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The nodes of a body, without those of functions and classes defined in it."""
    for node in body:
        yield node
        if not isinstance(node, NESTED):
            yield from _own(ast.iter_child_nodes(node))


def _leaving(body: Iterable[ast.AST]) -> Iterator[ast.Break | ast.Continue]:
    """``break`` and ``continue`` of this loop, not of one inside it."""
    for node in body:
        if isinstance(node, (ast.Break, ast.Continue)):
            yield node
        elif not isinstance(node, (ast.For, ast.While, *NESTED)):
            yield from _leaving(ast.iter_child_nodes(node))
        elif isinstance(node, (ast.For, ast.While)):
            yield from _leaving(node.orelse)


class Rewriter(ast.NodeTransformer):
    """Rewrites the given loops of a parsed file, in place."""

    def __init__(self, sites: Sequence[tuple[Loop | ast.Call, list[Function]]]) -> None:
        # Bodies are copied, so a loop is known by its place; and its names are sorted while nothing is changed yet.
        self._names = {_place(loop): analyse(loop, around[-1]) for loop, around in sites if isinstance(loop, ast.For)}
        self._comprehensions = {_place(loop) for loop, _ in sites if isinstance(loop, (ast.ListComp, ast.GeneratorExp))}
        self._functions = {_place(around[-1]) for _, around in sites}
        self._around: list[Function] = []

    def _function(self, node: Function) -> Function:
        self._around.append(node)
        chosen = _place(node) in self._functions
        node = self.generic_visit(node)  # type: ignore[assignment]
        self._around.pop()
        if chosen:
            after_docstring = int(ast.get_docstring(node, clean=False) is not None)
            (imported,) = _parse(f"from tonnx.frontends.torch import loops as {_LOOPS}", node.body[0])
            node.body.insert(after_docstring, imported)
        return node

    visit_FunctionDef = _function
    visit_AsyncFunctionDef = _function

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        chosen = bool(self._around) and _place(self._around[-1]) in self._functions
        return _lazy_call(node) if chosen and _called(node) in _ANYWHERE else node

    def _comprehension(self, node: Comprehension) -> ast.AST:
        self.generic_visit(node)
        if _place(node) not in self._comprehensions:
            return node
        generator = node.generators[0]
        (made,) = _parse(f"{_LOOPS}.listed({_LOOPS}.items(_), lambda tonnx_item: [_ for _ in (tonnx_item,)][0])", node)
        call = made.value  # type: ignore[attr-defined]
        call.args[0].args[0] = _lazy(generator.iter)
        one = call.args[1].body.value
        one.elt, one.generators[0].target = node.elt, generator.target
        return call

    visit_ListComp = _comprehension
    visit_GeneratorExp = _comprehension

    def visit_For(self, node: ast.For) -> ast.AST | list[ast.stmt]:
        names = self._names.get(_place(node))
        if names is None:
            return self.generic_visit(node)
        body = _flat(self.visit(statement) for statement in _as_appends(copy.deepcopy(node.body)))
        plain: ast.For = self.generic_visit(node)  # type: ignore[assignment]
        items, function = f"tonnx_items_{node.lineno}", f"{BODY}{node.lineno}"
        statements = _parse(
            f"{items} = {_LOOPS}.items(_)\n"
            f"if not {_LOOPS}.is_dynamic({items}): pass\n"
            f"else:\n"
            f"  def {function}(tonnx_item):\n"
            f"    nonlocal {', '.join(sorted(names.bound))}\n"
            f"    _ = tonnx_item\n"
            f"  {_LOOPS}.run({items}, {function}, {names.literal()})",
            node,
        )
        assign, choice = statements
        assign.value.args[0] = _lazy(plain.iter)  # type: ignore[attr-defined]
        define = choice.orelse[0]  # type: ignore[attr-defined]
        define.body[-1].targets = [copy.deepcopy(plain.target)]
        define.body += _Puts(names.assigned).statements(body)
        plain.iter = _name(items, plain.iter)
        choice.body = [plain]  # type: ignore[attr-defined]
        return statements


class _Puts(ast.NodeTransformer):
    """``x[i] = v`` of a body as a call: PyTorch's own does not take a symbolic index while it captures."""

    def __init__(self, local: Iterable[str]) -> None:
        self._local = set(local)

    def statements(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        return _flat(self.visit(statement) for statement in body)

    def visit_Assign(self, node: ast.Assign) -> ast.stmt | list[ast.stmt]:
        puts: list[ast.stmt] = []

        def hold(target: ast.expr) -> ast.expr:
            if isinstance(target, ast.Subscript):
                name = f"tonnx_value_{len(puts)}"
                puts.append(self._put(target, _name(name, target)))
                return ast.copy_location(ast.Name(name, ast.Store()), target)
            if isinstance(target, (ast.Tuple, ast.List)):
                target.elts = [hold(element) for element in target.elts]
            return target

        node.targets = [hold(target) for target in node.targets]
        return [node, *puts] if puts else node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        if not isinstance(node.target, ast.Subscript):
            return node
        before = copy.deepcopy(node.target)
        before.ctx = ast.Load()
        value = ast.copy_location(ast.BinOp(before, node.op, node.value), node)
        return self._put(node.target, value)

    def _put(self, target: ast.Subscript, value: ast.expr) -> ast.stmt:
        base = target.value
        owned = isinstance(base, ast.Name) and base.id in self._local
        (statement,) = _parse(f"{_LOOPS}.put(_, _, _, {owned})", target)
        statement.value.args[:3] = [base, _as_index(target.slice), value]  # type: ignore[attr-defined]
        return statement


def _as_index(index: ast.expr) -> ast.expr:
    """The index of a subscript as an expression that stands alone: ``a:b`` is written slice(a, b)."""

    def spelled(part: ast.expr) -> ast.expr:
        if not isinstance(part, ast.Slice):
            return part
        (made,) = _parse("slice(None, None, None)", part)
        given = (part.lower, part.upper, part.step)
        call: ast.Call = made.value  # type: ignore[attr-defined]
        call.args = [bound or nothing for bound, nothing in zip(given, call.args, strict=True)]
        return call

    if isinstance(index, ast.Tuple):
        return ast.copy_location(ast.Tuple([spelled(part) for part in index.elts], ast.Load()), index)
    return spelled(index)


def _as_appends(body: list[ast.stmt]) -> list[ast.stmt]:
    """``outputs += [a]`` says the same as ``outputs.append(a)``."""

    class Appends(ast.NodeTransformer):
        def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt | list[ast.stmt]:
            if not (isinstance(node.target, ast.Name) and isinstance(node.value, ast.List)):
                return node
            made = []
            for element in node.value.elts:
                (statement,) = _parse(f"{node.target.id}.append(_)", node)
                statement.value.args[0] = element  # type: ignore[attr-defined]
                made.append(statement)
            return made

    return _flat(Appends().visit(statement) for statement in body)


def _lazy(iterable: ast.expr) -> ast.expr:
    """What a loop runs over, with the functions that would count it replaced by ours."""
    if not isinstance(iterable, ast.Call) or _called(iterable) not in _HEADER:
        return iterable
    iterable.args = [_lazy(argument) for argument in iterable.args]
    return _lazy_call(iterable)


def _lazy_call(call: ast.Call) -> ast.Call:
    function = ast.copy_location(ast.Attribute(_name(_LOOPS, call), "call", ast.Load()), call)
    return ast.copy_location(ast.Call(function, [call.func, *call.args], call.keywords), call)


def _name(name: str, at: ast.AST) -> ast.Name:
    return ast.copy_location(ast.Name(name, ast.Load()), at)


def _place(node: ast.expr | ast.stmt) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _parse(text: str, at: ast.AST) -> list[ast.stmt]:
    """Statements of our own, all on the line of the user's that they stand for."""
    statements = ast.parse(text).body
    for statement in statements:
        for node in ast.walk(statement):
            if isinstance(node, (ast.expr, ast.stmt, ast.arg)):
                ast.copy_location(node, at)
                # The compiler counts the call of a method to the line where its name ends, and `at` may be a block.
                node.end_lineno, node.end_col_offset = node.lineno, node.col_offset
    return statements


def _flat(statements: Iterable[ast.stmt | list[ast.stmt]]) -> list[ast.stmt]:
    flat: list[ast.stmt] = []
    for statement in statements:
        flat.extend(statement if isinstance(statement, list) else [statement])
    return flat
