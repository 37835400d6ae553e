"""Normalisations."""

from __future__ import annotations

import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.frontends.paddle.lower.rules import Ints, Value, direct, lower
from tonnx.ir.build import Builder, T
from tonnx.lowering.ops import norm as like_torch

_FEW = 16
"""Elements of a group up to which the way to compute the variance decides the result."""

direct("instance_norm(x, scale=None, bias=None, *, epsilon: float = 1e-5)", like_torch.instance_norm)


@lower("batch_norm", "sync_batch_norm", layout="data_format")
def batch_norm(
    op: Builder,
    x: Value,
    mean: Value,
    variance: Value,
    scale: Value | None = None,
    bias: Value | None = None,
    *,
    is_test: bool = False,
    momentum: float = 0.9,
    epsilon: float = 1e-5,
    use_global_stats: bool = False,
    trainable_statistics: bool = False,
) -> ir.Value:
    training = not (is_test or use_global_stats) or trainable_statistics
    return like_torch.batch_norm(op, x, scale, bias, mean, variance, training, momentum, epsilon)


@lower("layer_norm")
def layer_norm(
    op: Builder,
    x: Value,
    scale: Value | None = None,
    bias: Value | None = None,
    *,
    epsilon: float = 1e-5,
    begin_norm_axis: int = 1,
) -> ir.Value:
    axis = begin_norm_axis % op.rank(x)
    sizes = op.sizes(x)[axis:]
    if len(sizes) > 1:  # the weights are flat, whatever they span
        scale, bias = (None if weight is None else op.reshape(weight, sizes) for weight in (scale, bias))
    return like_torch.layer_norm(op, x, sizes, scale, bias, epsilon)


@lower("group_norm", layout="data_format")
def group_norm(
    op: Builder,
    x: Value,
    scale: Value | None = None,
    bias: Value | None = None,
    *,
    epsilon: float = 1e-5,
    groups: int = -1,
) -> ir.Value:
    members = op.product(op.sizes(x)[1:])
    if isinstance(members, int) and members <= _FEW * groups and x.dtype == T.FLOAT:
        return _of_moments(op, x, groups, scale, bias, epsilon)
    return like_torch.group_norm(op, x, groups, scale, bias, epsilon)


def _of_moments(
    op: Builder, x: ir.Value, groups: int, scale: ir.Value | None, bias: ir.Value | None, epsilon: float
) -> ir.Value:
    """With the variance as the mean of x² less the squared mean, as Paddle has it: of a few numbers, that shows."""
    rows = op.reshape(x, [op.size(x, 0), groups, -1])
    mean = op.ReduceMean(rows, [2])
    variance = op.Sub(op.ReduceMean(op.Mul(rows, rows), [2]), op.Mul(mean, mean))
    y = op.Mul(op.Sub(rows, mean), op.Reciprocal(op.Sqrt(op.Add(variance, epsilon))))
    y = op.reshape(y, op.sizes(x))
    behind = [1] * (op.rank(x) - 2)
    for values, apply in ((scale, op.Mul), (bias, op.Add)):
        if values is not None:
            y = apply(y, op.reshape(values, [op.size(x, 1), *behind]))
    return y


@lower("rms_norm", "fast_rms_norm", "fused_rms_norm_ext")
def rms_norm(
    op: Builder, x: Value, scale: Value | None = None, *, normalized_shape: Ints = (), epsilon: float = 1e-5
) -> tuple[ir.Value, ir.Value]:
    """Divided by √(mean of x² + ε) over the last axes; and one by that root."""
    axes = list(range(op.rank(x) - max(len(normalized_shape), 1), op.rank(x)))
    y = like_torch.rms_norm(op, x, op.sizes(x)[axes[0] :], scale, epsilon)
    root = op.Sqrt(op.Add(op.ReduceMean(op.Mul(x, x), axes, keepdims=0), epsilon))
    return y, op.Reciprocal(root)


@lower("spectral_norm")
def spectral_norm(
    op: Builder, weight: Value, u: Value, v: Value, *, dim: int = 0, power_iters: int = 1, eps: float = 1e-12
) -> ir.Value:
    """Divided by the largest singular value, which some steps of power iteration find."""
    rank = op.rank(weight)
    order = [dim, *(i for i in range(rank) if i != dim)]
    turned = weight if dim == 0 else op.Transpose(weight, perm=order)
    matrix = op.reshape(turned, [op.size(weight, dim), -1])
    left, right = op.reshape(u, [-1, 1]), op.reshape(v, [-1, 1])
    for _ in range(power_iters):
        right = op.MatMul(op.Transpose(matrix, perm=[1, 0]), left)
        right = op.Div(right, op.Add(op.ReduceL2(right), eps))
        left = op.MatMul(matrix, right)
        left = op.Div(left, op.Add(op.ReduceL2(left), eps))
    largest = op.ReduceSum(op.Mul(left, op.MatMul(matrix, right)), keepdims=0)
    return op.Div(weight, largest)


@lower("norm")
def norm(op: Builder, x: Value, *, axis: int, epsilon: float = 1e-10) -> tuple[ir.Value, ir.Value]:
    """Divided by √(Σx² + ε) along an axis."""
    length = op.Sqrt(op.ReduceSumSquare(x, [axis % op.rank(x)]) + epsilon)
    return x / length, length


@lower("affine_channel", layout="data_layout")
def affine_channel(op: Builder, x: Value, scale: Value, bias: Value) -> ir.Value:
    shape = [-1] + [1] * (op.rank(x) - 2)
    return x * op.Reshape(scale, shape) + op.Reshape(bias, shape)


@lower("lrn", layout="data_format")
def lrn(op: Builder, x: Value, *, n: int = 5, k: float = 2.0, alpha: float = 1e-4, beta: float = 0.75) -> ir.Value:
    if n % 2 == 0:
        raise UnsupportedArgument("local response normalisation over an even number of channels")
    # ONNX divides alpha by the number of channels; Paddle does not.
    return op.LRN(x, size=n, bias=k, alpha=alpha * n, beta=beta)
