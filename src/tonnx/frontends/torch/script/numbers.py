"""Python's arithmetic on numbers: done at once where they are known, as nodes where they are not.

A number at run time has shape [1]: int64, double or bool. Sizes keep the name of the dimension that they are, also
through arithmetic, so that shapes stay known by name.
"""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import onnx_ir as ir

from tonnx.errors import LoweringError
from tonnx.frontends.torch.operators import symbolic_sizes
from tonnx.ir import facts
from tonnx.ir.build import Builder, T
from tonnx.ir.infer import as_constant as as_constant
from tonnx.lowering.regions.forms import is_number
from tonnx.lowering.rules import rule_for


def _pow(a: Any, b: Any) -> Any:
    return float(a) ** float(b) if isinstance(a, float) or isinstance(b, float) or b < 0 else a**b


_OPERATORS = "add sub mul floordiv neg abs eq ne lt le gt ge __and__ __or__ __xor__ __lshift__ __rshift__ __not__"
_MATH = """fmod floor ceil trunc sqrt exp log log2 log10 log1p sin cos tan tanh sinh cosh asin acos atan asinh acosh
    atanh atan2 expm1 erf erfc fabs isnan isinf isfinite gcd factorial copysign degrees radians"""

# What a TorchScript operator is in Python.
_PYTHON: dict[str, Callable[..., Any]] = {
    **{f"aten::{name}": getattr(operator, name) for name in _OPERATORS.split()},
    **{f"aten::{name}": getattr(math, name) for name in _MATH.split()},
    "aten::div": operator.truediv,
    "aten::remainder": operator.mod,
    "aten::pow": _pow,
    "prim::abs": operator.abs,
    "aten::bitwise_not": operator.invert,
    "aten::round": lambda a: float(builtins.round(a)),
    "prim::max": builtins.max,
    "prim::min": builtins.min,
    "aten::Int": int,
    "aten::Float": float,
    "aten::Bool": bool,
    "aten::__range_length": lambda low, high, step: len(range(low, high, step)),
    "aten::__derive_index": lambda index, start, step: start + index * step,
    "aten::divmod": divmod,
    "aten::__round_to_zero_floordiv": lambda a, b: int(a / b),
}


def compute(op: Builder, kind: str, arguments: Sequence[Any]) -> Any:
    """The operator ``kind`` on numbers; NotImplemented if it is not one of those, or these are not all numbers."""
    function = _PYTHON.get(kind)
    if function is None or not all(map(is_number, arguments)):
        return NotImplemented
    arguments = list(map(as_constant, arguments))
    if not any(isinstance(argument, ir.Value) for argument in arguments):
        return _at_once(kind, function, arguments)
    result = _at_run_time(op, kind, function, arguments)
    return tuple(map(_number, result)) if isinstance(result, tuple) else _named(op, kind, arguments, result)


def _at_once(kind: str, function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    try:
        return function(*arguments)
    except (ArithmeticError, ValueError) as error:
        raise LoweringError(
            f"{kind.removeprefix('aten::')}({', '.join(map(str, arguments))}) fails: {error}",
            why="the numbers are constants of the model and the example",
        ) from error


def _number(result: Any) -> Any:
    if isinstance(result, ir.Value) and result not in facts.DIM:
        facts.NUMBER.add(result)
    return result


# An expression of named dimensions is a name: it stands for one size in the whole file.
_SIGNS = {"aten::add": "+", "aten::sub": "-", "aten::mul": "*", "aten::floordiv": "//"}


def _named(op: Builder, kind: str, arguments: Sequence[Any], result: Any) -> Any:
    if not isinstance(result, ir.Value) or result in facts.DIM:
        return result
    if kind in _SIGNS and result.dtype == T.INT64 and len(arguments) == 2:
        texts = [facts.DIM.get(a) if isinstance(a, ir.Value) else str(a) for a in arguments]
        if None not in texts:
            texts = [text if str(text).isidentifier() or str(text).isdigit() else f"({text})" for text in texts]
            name = f" {_SIGNS[kind]} ".join(map(str, texts))
            known_size = op.known_size(name)
            if known_size is not None:
                return known_size
            op.name_size(result, name)
            return result
    return _number(result)


def _at_run_time(op: Builder, kind: str, function: Callable[..., Any], arguments: list[Any]) -> Any:
    special = _NODES.get(kind)
    if special is not None:
        return special(op, *arguments)
    rule = rule_for("aten", kind.removeprefix("aten::"), "") if kind in _REAL else None
    if rule is not None:  # of the function on tensors, which has the same name
        return rule.function(op, *(_double(op, argument) for argument in arguments))
    return _counted(op, function, *arguments)


def _counted(op: Builder, function: Callable[..., Any], *arguments: Any) -> Any:
    """A function of Python's on numbers, where True counts as 1."""
    return symbolic_sizes.compute(op, function, [_int64(op, a) if _is_bool(a) else a for a in arguments])


_REAL = frozenset(
    f"aten::{name}"
    for name in (
        "sqrt exp log log2 log10 log1p expm1 sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh atan2 "
        "erf erfc copysign isnan isinf isfinite"
    ).split()
)
"""Functions of real numbers."""


def _double(op: Builder, x: Any) -> ir.Value:
    return op.cast(x, T.DOUBLE) if isinstance(x, ir.Value) else op.constant([x], T.DOUBLE)


def _int64(op: Builder, x: Any) -> ir.Value:
    return op.cast(x, T.INT64) if isinstance(x, ir.Value) else op.constant([int(x)], T.INT64)


def _is_real(x: Any) -> bool:
    return x.dtype == T.DOUBLE if isinstance(x, ir.Value) else isinstance(x, float)


def _is_bool(x: Any) -> bool:
    return x.dtype == T.BOOL if isinstance(x, ir.Value) else isinstance(x, bool)


def _bool(op: Builder, x: Any) -> ir.Value:
    if not isinstance(x, ir.Value):
        return op.constant([bool(x)], T.BOOL)
    return x if x.dtype == T.BOOL else op.Not(op.Equal(x, 0))


def _logical(op_type: str, bitwise: str) -> Callable[..., ir.Value]:
    def emit(op: Builder, a: Any, b: Any) -> Any:
        if _is_bool(a) and _is_bool(b):
            for one, other in ((a, b), (b, a)):  # `True and x` is x, `False and x` is False
                if isinstance(one, bool) and op_type != "Xor":
                    return other if one is (op_type == "And") else one
            return getattr(op, op_type)(_bool(op, a), _bool(op, b))
        return getattr(op, bitwise)(_int64(op, a), _int64(op, b))

    return emit


def _range_length_nodes(op: Builder, low: Any, high: Any, step: Any) -> Any:
    """max(0, ceil((high - low) / step))."""
    if low == 0 and step == 1 and isinstance(high, ir.Value) and high in facts.DIM:
        return high  # a size is not negative
    if not isinstance(step, int):
        raise LoweringError("range() has a step that is known only at run time")
    span = op.Sub(_int64(op, high), _int64(op, low))
    if step != 1:
        span = symbolic_sizes.compute(op, operator.floordiv, [op.Add(span, step - 1 if step > 0 else step + 1), step])
    return op.Max(span, op.constant([0], T.INT64))


def _derive_index_nodes(op: Builder, index: Any, start: Any, step: Any) -> Any:
    if start == 0 and step == 1:
        return index
    scaled = index if step == 1 else op.Mul(_int64(op, index), _int64(op, step))
    place = scaled if start == 0 else op.Add(_int64(op, scaled), _int64(op, start))
    counts_up = isinstance(start, int) and isinstance(step, int) and start >= 0 and step >= 0
    if counts_up and isinstance(index, ir.Value) and index in facts.NONNEGATIVE:
        facts.NONNEGATIVE.add(place)
    return place


def _power(op: Builder, a: Any, b: Any) -> ir.Value:
    if not _is_real(a) and not _is_real(b) and isinstance(b, int) and b >= 0:
        return op.Pow(_int64(op, a), _int64(op, b))
    return op.Pow(_double(op, a), _double(op, b))


def _shifted(to_the_left: bool) -> Callable[..., Any]:
    def emit(op: Builder, a: Any, b: Any) -> ir.Value:
        power = op.constant([1 << b], T.INT64) if isinstance(b, int) else op.Pow(op.constant([2], T.INT64), b)
        return _counted(op, operator.mul if to_the_left else operator.floordiv, a, power)

    return emit


def _least(op: Builder, *numbers: Any) -> Any:
    # enumerate(x) and zip(...) ask for the least of a length and the largest int there is.
    rest = [n for n in numbers if not (isinstance(n, int) and n >= (1 << 62))]
    return reduce(partial(_counted, op, min), rest)


_NODES: dict[str, Callable[..., Any]] = {
    "aten::fmod": lambda op, a, b: op.Mod(_double(op, a), _double(op, b), fmod=1),
    "aten::pow": _power,
    "aten::__and__": _logical("And", "BitwiseAnd"),
    "aten::__or__": _logical("Or", "BitwiseOr"),
    "aten::__xor__": _logical("Xor", "BitwiseXor"),
    "aten::__not__": lambda op, a: op.Not(_bool(op, a)),
    "aten::__lshift__": _shifted(to_the_left=True),
    "aten::__rshift__": _shifted(to_the_left=False),
    "prim::max": lambda op, *numbers: reduce(partial(_counted, op, max), numbers),
    "prim::min": _least,
    "aten::Int": lambda op, a: a if isinstance(a, ir.Value) and a.dtype == T.INT64 else _int64(op, a),  # towards zero
    "aten::Float": _double,
    "aten::Bool": _bool,
    "aten::floor": lambda op, a: op.cast(op.Floor(_double(op, a)), T.INT64),
    "aten::ceil": lambda op, a: op.cast(op.Ceil(_double(op, a)), T.INT64),
    "aten::round": lambda op, a: op.Round(_double(op, a)),
    "aten::__range_length": _range_length_nodes,
    "aten::__derive_index": _derive_index_nodes,
    "aten::fabs": lambda op, a: op.Abs(_double(op, a)),
    "aten::degrees": lambda op, a: op.Mul(_double(op, a), 180 / math.pi),
    "aten::radians": lambda op, a: op.Mul(_double(op, a), math.pi / 180),
    "aten::bitwise_not": lambda op, a: op.Sub(op.Neg(_int64(op, a)), 1),
    "aten::divmod": lambda op, a, b: (_counted(op, operator.floordiv, a, b), _counted(op, operator.mod, a, b)),
}
