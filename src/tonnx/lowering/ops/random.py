"""Random tensors. A file draws other numbers than the model does; only their distribution is the same."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.ir.build import Builder, Size, T
from tonnx.ir.sizes import size_dim
from tonnx.lowering.rules import RULES, Rule, lower
from tonnx.lowering.values import Operand, as_value, opmath

rand = lower("aten.rand")(lambda op, size, dtype=None: op.cast(uniform(op, size), dtype or T.FLOAT))
rand_like = lower("aten.rand_like")(lambda op, x, dtype=None: uniform(op, op.sizes(x)))
randn = lower("aten.randn")(lambda op, size, dtype=None: op.cast(normal(op, size), dtype or T.FLOAT))
randn_like = lower("aten.randn_like")(lambda op, x, dtype=None: normal(op, op.sizes(x)))
randint = lower("aten.randint")(lambda op, high, size, low=0, dtype=None: _whole(op, size, low, high))
randint_like = lower("aten.randint_like")(lambda op, x, high, low=0, dtype=None: _whole(op, op.sizes(x), low, high))
exponential = lower("aten.exponential")(  # of numbers over (0, 1], whose logarithm is finite
    lambda op, x, lambd=1: op.Div(op.Log(op.Sub(1, uniform(op, op.sizes(x)))), -lambd)
)


def _draw(op: Builder, op_type: str, sizes: Sequence[Size], **parameters: float) -> ir.Value:
    """Floats from a distribution, in a shape that may be known only at run time."""
    fixed = [size for size in sizes if isinstance(size, int)]
    if len(fixed) == len(sizes) and fixed:  # no sizes at all would be an empty attribute, which means nothing
        return getattr(op, op_type)(shape=fixed, _shape=fixed, **parameters)
    shaped = op.ConstantOfShape(op.vector(sizes), _shape=[size_dim(size) for size in sizes])
    return getattr(op, f"{op_type}Like")(shaped, **parameters)


def uniform(op: Builder, sizes: Sequence[Size], low: float = 0.0, high: float = 1.0) -> ir.Value:
    return _draw(op, "RandomUniform", sizes, low=low, high=high)


def normal(op: Builder, sizes: Sequence[Size]) -> ir.Value:
    """Normally distributed around 0 with deviation 1."""
    return _draw(op, "RandomNormal", sizes)


def _whole(op: Builder, sizes: Sequence[Size], low: Size, high: Size) -> ir.Value:
    if isinstance(low, int) and isinstance(high, int):
        return op.cast(op.Floor(uniform(op, sizes, low, high)), T.INT64)
    first, last = (op.cast(op.scalar(bound), T.FLOAT) for bound in (low, high))
    return op.cast(op.Floor(op.Add(op.Mul(uniform(op, sizes), op.Sub(last, first)), first)), T.INT64)


@lower("aten.randperm", unused="dtype")
def randperm(op: Builder, n: Size) -> ir.Value:
    _, order = op.TopK(uniform(op, [n]), op.vector([n]), axis=0)
    return order


@lower("aten.bernoulli")
def bernoulli(op: Builder, x: ir.Value, p: Operand | None = None) -> ir.Value:
    chance = x if p is None else p
    drawn = uniform(op, op.sizes(x))
    return op.cast(op.Less(drawn, as_value(op, chance, T.FLOAT)), x.dtype)


@lower("aten.normal", "aten.normal_functional")
def normal_(op: Builder, x: Operand | None = None, std: Operand = 1.0, mean: Operand | None = None) -> ir.Value:
    # In place, `x` gives only the shape; else there is none, and the mean gives it.
    mean = x if mean is None else mean
    x = mean if x is None else x
    return _around(op, op.sizes(x if isinstance(x, ir.Value) else std), mean, std)  # type: ignore[arg-type]


@lower("aten.normal.float_float")
def normal_numbers(
    op: Builder, mean: float, std: float, size: Sequence[Size], dtype: ir.DataType | None = None
) -> ir.Value:
    return op.cast(_around(op, size, mean, std), dtype or T.FLOAT)


def _around(op: Builder, sizes: Sequence[Size], mean: Operand, std: Operand) -> ir.Value:
    return op.Add(op.Mul(normal(op, sizes), as_value(op, std, T.FLOAT)), as_value(op, mean, T.FLOAT))


def _uniform(op: Builder, x: ir.Value, **bounds: Any) -> ir.Value:
    return uniform(op, op.sizes(x), bounds.get("from", 0.0), bounds.get("to", 1.0))


# The schema calls an argument `from`, which no Python function can: its parameters are entered by hand.
RULES.add("aten.uniform", Rule(_uniform, ("x", "from", "to")))


@lower("aten.multinomial")
def multinomial(op: Builder, x: ir.Value, num_samples: Size, replacement: bool = False) -> ir.Value:
    if not replacement:
        # Gumbel's trick: the k largest of log p - log(-log u) are k draws without putting back.
        chance = op.Log(opmath(op, x))
        noise = op.Log(op.Neg(op.Log(uniform(op, op.sizes(x), low=math.ulp(0.5)))))
        _, drawn = op.TopK(op.Sub(chance, op.cast(noise, chance.dtype)), op.vector([num_samples]), axis=-1)
        return drawn
    if not isinstance(num_samples, int):
        raise UnsupportedArgument("multinomial with replacement takes a fixed number of samples")
    rows = x if op.rank(x) == 2 else op.Unsqueeze(x, [0])
    drawn = op.Multinomial(op.Log(op.cast(rows, T.FLOAT)), sample_size=num_samples, dtype=int(T.INT64))
    return drawn if op.rank(x) == 2 else op.Squeeze(drawn, [0])
