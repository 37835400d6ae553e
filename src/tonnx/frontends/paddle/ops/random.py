"""Random tensors. A file draws other numbers than Paddle does; only their distribution is the same."""

from __future__ import annotations

import math

import onnx_ir as ir

from tonnx.frontends.paddle.lower.rules import Ints, Number, Sizes, Value, direct, lower
from tonnx.ir.build import Builder, Size, T
from tonnx.lowering.ops import random as like_torch
from tonnx.lowering.values import as_value

direct(
    "gaussian(shape: Sizes, *, mean: float = 0.0, std: float = 1.0, dtype: ir.DataType = None)",
    lambda op, shape, mean, std, dtype: op.cast(_normal(op, list(shape), mean, std), dtype or T.FLOAT),
)
direct(
    "randint(shape: Sizes, *, low: int, high: int, dtype: ir.DataType = None)",
    lambda op, shape, low, high, dtype: op.cast(like_torch.randint(op, high, list(shape), low), dtype or T.INT64),
)
direct(
    "randperm(*, n: int, dtype: ir.DataType = None)",
    lambda op, n, dtype: op.cast(like_torch.randperm(op, n), dtype or T.INT64),
)
direct(
    "gaussian_inplace(x, *, mean: float = 0.0, std: float = 1.0)",
    lambda op, x, mean, std: op.cast(_normal(op, op.sizes(x), mean, std), x.dtype),
)
direct(
    "uniform_inplace(x, *, min: float = -1.0, max: float = 1.0)",
    lambda op, x, low, high: uniform(op, op.sizes(x), low, high, dtype=x.dtype),
    unused="diag_num diag_step diag_val",
)
direct("bernoulli(x, *, p: float = None)", like_torch.bernoulli)
direct("multinomial(x, num_samples: Size = 1, *, replacement: bool = False)", like_torch.multinomial)
direct("exponential(x, *, lam: float = 1.0)", like_torch.exponential)


@lower("uniform", unused="diag_step diag_val")
def uniform(
    op: Builder, shape: Sizes, min: Number = -1.0, max: Number = 1.0, *, dtype: ir.DataType | None = None
) -> ir.Value:
    if isinstance(min, ir.Value) or isinstance(max, ir.Value):
        first, last = (as_value(op, bound, T.FLOAT) for bound in (min, max))
        drawn = op.Add(op.Mul(like_torch.uniform(op, list(shape)), op.Sub(last, first)), first)
    else:
        drawn = like_torch.uniform(op, list(shape), float(min), float(max))
    return op.cast(drawn, dtype or T.FLOAT)


@lower("uniform_random_batch_size_like", unused="diag_step diag_val")
def uniform_random_batch_size_like(
    op: Builder,
    input: Value,
    *,
    shape: Ints,
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    min: float = -1.0,
    max: float = 1.0,
    dtype: ir.DataType | None = None,
) -> ir.Value:
    sizes: list[Size] = list(shape)
    sizes[output_dim_idx] = op.size(input, input_dim_idx)
    return uniform(op, sizes, min, max, dtype=dtype)


def _normal(op: Builder, sizes: list[Size], mean: float, std: float) -> ir.Value:
    drawn = like_torch.normal(op, sizes)
    drawn = drawn if std == 1 else drawn * std
    return drawn if mean == 0 else drawn + mean


@lower("truncated_gaussian_random")
def truncated_gaussian_random(
    op: Builder,
    *,
    shape: Ints,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    dtype: ir.DataType | None = None,
) -> ir.Value:
    """Through the inverse of the distribution, so that nothing has to be drawn again."""
    low, high = (0.5 * (1 + math.erf(bound / math.sqrt(2))) for bound in (a, b))
    from tonnx.lowering.ops.special import erfinv

    share = like_torch.uniform(op, list(shape), 2 * low - 1, 2 * high - 1)
    drawn = op.Clip(erfinv(op, share) * math.sqrt(2), a, b)
    return op.cast(drawn * std + mean, dtype or T.FLOAT)


@lower("gumbel_softmax")
def gumbel_softmax(op: Builder, x: Value, *, temperature: float = 1.0, hard: bool = False, axis: int = -1) -> ir.Value:
    """Softmax of (x + noise) / temperature; hard: 1 where it is largest."""
    chance = like_torch.uniform(op, op.sizes(x), 1e-9, 1.0)
    noise = op.Neg(op.Log(op.Neg(op.Log(op.Min(chance, 1 - 1e-7)))))
    soft = op.Softmax(op.Div(op.Add(x, op.cast(noise, x.dtype)), temperature), axis=axis)
    if not hard:
        return soft
    return op.cast(op.Equal(soft, op.ReduceMax(soft, [axis % op.rank(x)])), x.dtype)
