"""Sizes that are known only at run time: their names, and the arithmetic that models do with them.

A symbolic number is a value of shape [1] (so that sizes concatenate to a shape as they are), int64, double or bool.
"""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import onnx_ir as ir
import sympy
import torch

from tonnx.errors import LoweringError
from tonnx.frontends.torch.operators.fast_lengths import fast_length, fast_lengths
from tonnx.ir import facts
from tonnx.ir.build import Builder, T
from tonnx.ir.infer import Dim
from tonnx.ir.size_expressions import derived_sizes
from tonnx.lowering.ops.special import logarithm

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
"""A number that is known only at run time."""


class DimNames:
    """The names of dimensions: the user's for those that were asked for, PyTorch's symbols for the rest."""

    def __init__(self, names: Mapping[sympy.Symbol, str]) -> None:
        own = {name: sympy.Symbol(name, integer=True) for name in names.values()}
        derived = {name: expression.of(own) for name, expression in derived_sizes(list(own)).items()}
        self._names = {symbol: derived.get(name, own[name]) for symbol, name in names.items()}
        self._texts: dict[Any, str] = {}

    def text(self, size: torch.SymInt | torch.SymFloat | torch.SymBool) -> str:
        """The name of a symbolic number, an expression in the names of the dimensions that it depends on."""
        expression = size.node.expr
        text = self._texts.get(expression)
        if text is None:
            renamed = expression.xreplace(self._names) if isinstance(expression, sympy.Basic) else expression
            text = self._texts[expression] = str(renamed)
        return text

    def of_tensor(self, tensor: torch.Tensor) -> list[Dim]:
        return [self.of_size(size) for size in tensor.shape]

    def of_size(self, size: int | torch.SymInt) -> Dim:
        if isinstance(size, int):
            return size
        constant = size.node.maybe_as_int()
        return ir.SymbolicDim(self.text(size)) if constant is None else constant


def named(op: Builder, dims: DimNames, value: Any, meta: Any) -> Any:
    """Remember which dimension a computed size is; reuse the value that already holds it."""
    if not isinstance(value, ir.Value):
        return value
    if not isinstance(meta, torch.SymInt):
        facts.NUMBER.add(value)
        return value
    constant = meta.node.maybe_as_int()
    if constant is not None:
        return constant
    text = dims.text(meta)
    if (existing := op.known_size(text)) is not None:
        return existing
    if op.rank(value) == 0:
        value = op.Unsqueeze(value, [0])
    op.name_size(value, text)
    return value


def _rounded(op: Builder, x: Any, digits: int | None = None) -> ir.Value:
    if digits is None:
        return _int(op, op.Round(_double(op, x)))
    return op.Div(op.Round(op.Mul(_double(op, x), 10.0**digits)), 10.0**digits)


def _floordiv(op: Builder, a: Any, b: Any) -> ir.Value:
    if _has_fraction(a, b):
        return op.Floor(_truediv(op, a, b))
    # Sizes are not negative, but differences of sizes are: ONNX divides towards zero, Python towards minus infinity.
    quotient = op.Div(a, b)
    remainder = op.Sub(a, op.Mul(quotient, b))
    wrong = op.And(op.Not(op.Equal(remainder, 0)), op.Less(op.Mul(remainder, b), 0))
    return op.Sub(quotient, op.cast(wrong, T.INT64)) if _may_be_negative(a, b) else quotient


def _mod(op: Builder, a: Any, b: Any) -> ir.Value:
    if _has_fraction(a, b):  # ONNX's Mod of floats has the sign of the dividend
        return op.Sub(_double(op, a), op.Mul(_floordiv(op, a, b), _double(op, b)))
    return op.Mod(a, b)


def _has_fraction(*operands: Any) -> bool:
    return any(x.dtype == T.DOUBLE if isinstance(x, ir.Value) else isinstance(x, float) for x in operands)


def _may_be_negative(*operands: Any) -> bool:
    for operand in operands:
        if isinstance(operand, ir.Value):
            if "-" in (facts.DIM.get(operand) or "-"):
                return True
        elif operand < 0:
            return True
    return False


def _truediv(op: Builder, a: Any, b: Any) -> ir.Value:
    return op.Div(_double(op, a), _double(op, b))


def _double(op: Builder, x: Any) -> ir.Value:
    return op.cast(x, T.DOUBLE) if isinstance(x, ir.Value) else op.constant(x, T.DOUBLE)


def _int(op: Builder, x: ir.Value) -> ir.Value:
    return op.cast(x, T.INT64)


def _fast_length(op: Builder, least: Any, prime: int) -> ir.Value:
    lengths = op.constant(fast_lengths(prime), T.INT64)
    return op.Gather(lengths, op.ReduceSum(op.cast(op.Less(lengths, least), T.INT64), [0], keepdims=1))


def _sum(op: Builder, *terms: Any) -> Any:
    """Of terms, or of one list of them: newer PyTorch takes either."""
    return reduce(op.Add, terms[0] if len(terms) == 1 and isinstance(terms[0], (list, tuple)) else terms)


def _binary(op_type: str) -> Callable[..., ir.Value]:
    def compute(op: Builder, a: Any, b: Any) -> ir.Value:
        a, b = _same_dtype(op, a, b)
        return getattr(op, op_type)(a, b)

    return compute


def _same_dtype(op: Builder, a: Any, b: Any) -> tuple[Any, Any]:
    return (_double(op, a), _double(op, b)) if _has_fraction(a, b) else (a, b)


_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    operator.add: _binary("Add"),
    operator.sub: _binary("Sub"),
    operator.mul: _binary("Mul"),
    operator.floordiv: _floordiv,
    operator.truediv: _truediv,
    operator.mod: _mod,
    operator.pow: _binary("Pow"),
    operator.neg: lambda op, a: op.Neg(a),
    operator.pos: lambda op, a: a,
    operator.abs: lambda op, a: op.Abs(a),
    operator.eq: _binary("Equal"),
    operator.ne: lambda op, a, b: op.Not(op.Equal(*_same_dtype(op, a, b))),
    operator.lt: _binary("Less"),
    operator.le: _binary("LessOrEqual"),
    operator.gt: _binary("Greater"),
    operator.ge: _binary("GreaterOrEqual"),
    operator.and_: _binary("And"),
    operator.or_: _binary("Or"),
    torch.sym_not: lambda op, a: op.Not(a),
    torch.sym_max: _binary("Max"),
    torch.sym_min: _binary("Min"),
    torch.sym_float: _double,
    torch.sym_int: _int,
    torch.sym_ite: lambda op, condition, a, b: op.Where(condition, a, b),
    torch.sym_sum: _sum,
    torch.sym_sqrt: lambda op, a: op.Sqrt(_double(op, a)),
    torch._sym_log2: lambda op, a: logarithm(op, _double(op, a), 2),  # type: ignore[attr-defined]
    fast_length: _fast_length,
    math.floor: lambda op, x: op.cast(op.Floor(x), T.INT64),
    math.ceil: lambda op, x: op.cast(op.Ceil(x), T.INT64),
    math.trunc: _int,
    math.sqrt: lambda op, a: op.Sqrt(_double(op, a)),
    math.pow: lambda op, a, b: op.Pow(_double(op, a), _double(op, b)),
    builtins.round: _rounded,
    builtins.max: _binary("Max"),
    builtins.min: _binary("Min"),
}


def compute(op: Builder, function: Any, arguments: Sequence[Any]) -> Any:
    """A Python function on sizes. On plain numbers it is simply called."""
    if not any(isinstance(x, ir.Value) for a in arguments for x in (a if isinstance(a, (list, tuple)) else [a])):
        return function(*arguments)
    rule = _FUNCTIONS.get(function)
    if rule is None:
        raise LoweringError(f"the function {getattr(function, '__name__', function)} on a dynamic size has no rule")
    return rule(op, *arguments)


FUNCTION_OF: dict[str, tuple[Any, bool]] = {
    "Add": (operator.add, True),
    "Mul": (operator.mul, True),
    "Max": (torch.sym_max, True),
    "Min": (torch.sym_min, True),
    "And": (operator.and_, True),
    "Or": (operator.or_, True),
    "Not": (torch.sym_not, False),
    "FloorDiv": (operator.floordiv, False),
    "CleanDiv": (operator.floordiv, False),
    "Mod": (operator.mod, False),
    "PythonMod": (operator.mod, False),
    "Pow": (operator.pow, False),
    "PowByNatural": (operator.pow, False),
    "FloatPow": (operator.pow, False),
    "FloatTrueDiv": (operator.truediv, False),
    "IntTrueDiv": (operator.truediv, False),
    "ToFloat": (torch.sym_float, False),
    "FloorToInt": (math.floor, False),
    "CeilToInt": (math.ceil, False),
    "TruncToInt": (math.trunc, False),
    "RoundToInt": (round, False),
    "OpaqueUnaryFn_sqrt": (torch.sym_sqrt, False),
    "OpaqueUnaryFn_log2": (torch._sym_log2, False),  # type: ignore[attr-defined]
    "FastLength": (fast_length, False),
    "Equality": (operator.eq, False),
    "Unequality": (operator.ne, False),
    "StrictLessThan": (operator.lt, False),
    "LessThan": (operator.le, False),
    "StrictGreaterThan": (operator.gt, False),
    "GreaterThan": (operator.ge, False),
}
"""By the class of an expression of sizes: the function that it is, and whether that takes two of many arguments."""


def held(op: Builder, dims: DimNames, size: Any) -> Any:
    """A size that is a constant after all, or that a value holds already; None for others, and for other numbers."""
    if not isinstance(size, torch.SymInt):
        return None
    constant = size.node.maybe_as_int()
    return op.known_size(dims.text(size)) if constant is None else constant


def materialise(op: Builder, dims: DimNames, size: Any) -> Any:
    """A symbolic number that stands in the graph as an expression instead of as a node."""
    existing = held(op, dims, size)
    return _expression(op, dims, size.node.expr) if existing is None else existing


def _expression(op: Builder, dims: DimNames, expression: Any) -> Any:
    if expression.is_Integer:
        return int(expression)
    if expression.is_Float or expression.is_Rational:
        return float(expression)
    text = str(expression.xreplace(dims._names))
    if (existing := op.known_size(text)) is not None:
        return existing
    if expression.is_Symbol and (bearer := op.input_with(text)) is not None:
        return op.size(*bearer)
    if expression.is_Symbol:
        raise LoweringError(f"the size {text} is used before it is known")
    name = type(expression).__name__
    if name not in FUNCTION_OF:
        raise LoweringError(f"the size expression {text} ({name}) has no rule")
    function, folds = FUNCTION_OF[name]
    parts = [_expression(op, dims, part) for part in expression.args]
    if name == "Mul":
        return op.product(parts)
    return reduce(lambda a, b: compute(op, function, [a, b]), parts) if folds else compute(op, function, parts)
