"""Sizes that grow from layer to layer, each with a symbol of its own once it is long.

A network of windows pads, divides and merges in every stage: the sizes of the last one are expressions of all those
before, and PyTorch reasons about each of them at every operator. A quotient, remainder or limit that is long becomes
a symbol whose definition is that expression; what is computed of it starts short again.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import sympy
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.utils._sympy.functions import FloorDiv
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges

from tonnx.frontends.patching import Patch
from tonnx.frontends.torch.versions import example_of, example_sizes

_SYM_NODE = "torch.fx.experimental.sym_node.SymNode"
_SHAPE_ENV = "torch.fx.experimental.symbolic_shapes.ShapeEnv"
_CONSTRAINTS = "torch.fx.experimental.symbolic_shapes.DimConstraints"
Definitions = dict[sympy.Symbol, sympy.Expr]
_DEFINITIONS: WeakKeyDictionary[ShapeEnv, Definitions] = WeakKeyDictionary()
_SYMBOLS: WeakKeyDictionary[ShapeEnv, dict[sympy.Expr, sympy.Symbol]] = WeakKeyDictionary()


def short_sizes() -> Iterator[Patch]:
    reason = "torch's reasoning about sizes takes time that grows with their length"
    for name in ("floordiv", "int_floordiv", "add", "sub"):
        yield Patch(_SYM_NODE, name, _computed, reason, optional=True)
    known: dict[Any, Any] = {}
    for name in ("add", "sub", "mul", "eq", "ne", "ge", "gt", "le", "lt", "sym_max", "sym_min"):
        yield Patch(_SYM_NODE, name, partial(_known, known, name), "torch asks of every tensor what it asked of others")
    yield Patch(_SYM_NODE, "expect_true", _expected, "that true is true needs no reasoning")
    yield Patch(_SHAPE_ENV, "_maybe_guard_rel", _learned, "a size with a definition is not to be replaced")
    yield Patch(_CONSTRAINTS, "add", _constrained, "torch.export asks which input such a size is of")


def definitions(env: ShapeEnv) -> Definitions:
    """The symbols that stand for expressions; those may contain others."""
    return _DEFINITIONS.setdefault(env, {})


def define(env: ShapeEnv, symbol: sympy.Symbol, expression: sympy.Expr) -> None:
    definitions(env)[symbol] = expression


def roots(defined: Definitions, expression: Any) -> set[Any]:
    """The symbols without a definition that an expression depends on."""
    left, seen = set(expression.free_symbols), set[Any]()
    while left:
        seen.add(symbol := left.pop())
        left |= defined[symbol].free_symbols - seen if symbol in defined else set()
    return seen - defined.keys()


def evaluated(defined: Definitions, expression: Any, numbers: dict[Any, Any]) -> Any:
    """An expression at some sizes: step by step, since written out it may be too long to work with.

    NaN where it divides by a size that is 0 there: the parts of nothing.
    """
    numbers = dict(numbers)

    def number(symbol: Any) -> Any:
        if symbol not in numbers and symbol in defined:
            numbers[symbol] = at(defined[symbol])
        return numbers.get(symbol, symbol)

    def at(expression: Any) -> Any:
        return expression.xreplace({symbol: number(symbol) for symbol in expression.free_symbols})

    try:
        return at(expression)
    except ZeroDivisionError:
        return sympy.nan


_LONG = 60  # operations in an expression that is still worth reading


def written_out(defined: Definitions, expression: Any) -> Any:
    """An expression of the sizes of inputs, for people; as far as it stays readable."""
    while expression.free_symbols & defined.keys():
        longer = expression.xreplace(defined)
        if longer.count_ops() > _LONG:
            break
        expression = longer
    return expression


def _known(known: dict[Any, Any], name: str, original: Any, node: Any, other: Any) -> Any:
    """What has been computed of the same expressions before; a proxy is told of every time."""
    if get_proxy_mode() is not None:
        return original(node, other)
    key = name, node.shape_env, node.expr, other.expr, node.pytype, other.pytype
    result = known.get(key)
    if result is None:
        result = known[key] = original(node, other)
    return result


def _expected(original: Any, node: Any, file: str, line: int) -> Any:
    return True if node.expr is sympy.true else original(node, file, line)


def _computed(original: Any, node: Any, *others: Any) -> Any:
    number = original(node, *others)
    expression = number.expr
    if number.pytype is not int or expression.is_Symbol or expression.is_Integer:
        return number
    short = _shortened(number.shape_env, expression)
    if short is expression:
        return number
    return type(number)(short, number.shape_env, int, number._hint, number.constant, number.fx_node)


def _shortened(env: ShapeEnv, expression: sympy.Expr) -> sympy.Expr:
    """The same size with symbols in the place of quotients of sizes that have quotients in them."""
    nested = {part: symbol for part in expression.atoms(FloorDiv) if (symbol := _symbol(env, part)) is not None}
    return expression.xreplace(nested) if nested else expression


def _symbol(env: ShapeEnv, quotient: Any) -> sympy.Symbol | None:
    """The symbol of a quotient that is long, positive in the example, and has a value there."""
    symbols = _SYMBOLS.setdefault(env, {})
    if quotient in symbols:
        return symbols[quotient]
    if not quotient.args[0].has(FloorDiv) and not quotient.free_symbols & definitions(env).keys():
        return None
    value = quotient.xreplace(example_sizes(env))
    if not value.is_Integer or value < 1:
        return None
    return _defined(env, quotient, int(value))


def _defined(env: ShapeEnv, expression: sympy.Expr, value: int) -> sympy.Symbol:
    """The symbol of an expression that is positive."""
    symbols = _SYMBOLS.setdefault(env, {})
    if expression in symbols:
        return symbols[expression]
    from torch._dynamo.source import ConstantSource

    source = ConstantSource(f"__size_{len(symbols)}")
    symbol: Any = env.create_symbol(value, source, DimDynamic.DYNAMIC, None, do_not_specialize_zero_one=True)
    env.var_to_range[symbol] = ValueRanges(1, int_oo)
    symbols[expression] = symbol
    define(env, symbol, expression)
    return symbol


def defined_size(env: ShapeEnv, expression: sympy.Expr) -> Any:
    """A positive size that only its definition tells more of."""
    return env.create_symintnode(_defined(env, expression, int(example_of(env, expression) or 1)), hint=None)


def _learned(original: Any, env: Any, relation: Any) -> Any:
    defined = definitions(env)
    return None if defined and relation.free_symbols & defined.keys() else original(env, relation)


def _constrained(original: Any, constraints: Any, relation: Any) -> Any:
    sources = constraints._dcp.symbol_to_source
    if any(not sources.get(symbol) for symbol in relation.free_symbols):
        return True
    try:
        return original(constraints, relation)
    except ValueError:  # of numbers that sympy does not compare nothing is learned; the program is there already
        return True
