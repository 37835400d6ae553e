"""Reductions: sums, products, extremes, truth, moments, norms; and running ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.ir.build import Builder, Size, T
from tonnx.lowering import sizes
from tonnx.lowering.ops.create import triangle_indices
from tonnx.lowering.ops.math import sub
from tonnx.lowering.ops.parts import diagonal
from tonnx.lowering.ops.special import log_add_exp
from tonnx.lowering.rules import lower
from tonnx.lowering.values import axes_of, axis_of, is_float, opmath, promote, to_float

Dims = Sequence[int] | int | None


def reduce(op: Builder, op_type: str, x: ir.Value, dim: Dims, keepdim: bool = False) -> ir.Value:
    """One of ONNX's reductions over torch's axes: None and an empty list are all of them."""
    axes = axes_of(op, x, dim)
    everything = len(axes) >= op.rank(x)
    return getattr(op, op_type)(x, None if everything else axes, keepdims=int(keepdim))


def count(op: Builder, x: ir.Value, dim: Dims) -> Size:
    """How many elements a reduction sees."""
    return op.product([op.size(x, axis) for axis in axes_of(op, x, dim)]) if op.rank(x) else 1


def summed(op: Builder, x: ir.Value, dtype: ir.DataType | None) -> ir.Value:
    """As torch sums it: in the dtype asked for, integers and bools in int64."""
    return op.cast(x, dtype or (x.dtype if is_float(x.dtype) else T.INT64))


# Sums and products

trace = lower("aten.trace")(lambda op, x: sum_(op, diagonal(op, x)))


@lower("aten.sum")
@lower("aten.prod", op_type="ReduceProd")
def sum_(
    op: Builder,
    x: ir.Value,
    dim: Dims = None,
    keepdim: bool = False,
    dtype: ir.DataType | None = None,
    *,
    op_type: str = "ReduceSum",
) -> ir.Value:
    return reduce(op, op_type, summed(op, x, dtype), dim, keepdim)


@lower("aten.nansum")
def nansum(
    op: Builder, x: ir.Value, dim: Dims = None, keepdim: bool = False, dtype: ir.DataType | None = None
) -> ir.Value:
    return sum_(op, op.Where(op.IsNaN(x), 0.0, x) if is_float(x.dtype) else x, dim, keepdim, dtype)


@lower("aten.mean")
def mean(
    op: Builder, x: ir.Value, dim: Dims = None, keepdim: bool = False, dtype: ir.DataType | None = None
) -> ir.Value:
    x = op.cast(x, dtype or x.dtype)
    if count(op, x, dim) == 0:  # the runtime calls the mean of nothing 0
        return op.Div(reduce(op, "ReduceSum", x, dim, keepdim), 0)
    return reduce(op, "ReduceMean", x, dim, keepdim)


@lower("aten.nanmean")
def nanmean(
    op: Builder, x: ir.Value, dim: Dims = None, keepdim: bool = False, dtype: ir.DataType | None = None
) -> ir.Value:
    x = op.cast(x, dtype or x.dtype)
    numbers = op.cast(op.Not(op.IsNaN(x)), x.dtype)
    return op.Div(nansum(op, x, dim, keepdim), reduce(op, "ReduceSum", numbers, dim, keepdim))


@lower("aten.count_nonzero")
def count_nonzero(op: Builder, x: ir.Value, dim: Dims = None) -> ir.Value:
    return reduce(op, "ReduceSum", op.cast(op.cast(x, T.BOOL), T.INT64), dim)


@lower("aten.logsumexp", "aten.special_logsumexp")
def logsumexp(op: Builder, x: ir.Value, dim: Dims, keepdim: bool = False) -> ir.Value:
    return reduce(op, "ReduceLogSumExp", to_float(op, x), dim, keepdim)


# Truth. An integer larger than 0 tells it even of nothing, whose largest is the smallest integer there is.


@lower("aten.any", "aten._is_any_true", op_type="ReduceMax")
@lower("aten.all", "aten._is_all_true", op_type="ReduceMin")
def truth(op: Builder, x: ir.Value, dim: Dims = None, keepdim: bool = False, *, op_type: str) -> ir.Value:
    x = op.cast(x, T.BOOL)
    if dim == [] or not op.rank(x):
        return x
    return op.Greater(reduce(op, op_type, op.cast(x, T.INT32), dim, keepdim), 0)


# Extremes


@lower("aten.amax", "aten.max.default", kind="Max")
@lower("aten.amin", "aten.min.default", kind="Min")
def extreme(op: Builder, x: ir.Value, dim: Dims = None, keepdim: bool = False, *, kind: str) -> ir.Value:
    return reduce(op, f"Reduce{kind}", x, dim, keepdim)


@lower("aten.max.dim", kind="Max")
@lower("aten.min.dim", kind="Min")
def extreme_and_place(op: Builder, x: ir.Value, dim: int, keepdim: bool = False, *, kind: str) -> list[ir.Value]:
    return [extreme(op, x, dim, keepdim, kind=kind), place_of_extreme(op, x, dim, keepdim, kind=kind)]


@lower("aten.aminmax", "aten._aminmax")
def aminmax(op: Builder, x: ir.Value, dim: int | None = None, keepdim: bool = False) -> list[ir.Value]:
    return [extreme(op, x, dim, keepdim, kind=kind) for kind in ("Min", "Max")]


@lower("aten.argmax", kind="Max")
@lower("aten.argmin", kind="Min")
def place_of_extreme(op: Builder, x: ir.Value, dim: int | None = None, keepdim: bool = False, *, kind: str) -> ir.Value:
    rank, find = op.rank(x), getattr(op, f"Arg{kind}")
    if dim is not None and rank:
        return find(x, axis=axis_of(op, x, dim), keepdims=int(keepdim))
    place = find(x if rank == 1 else op.Reshape(x, [-1]), axis=0, keepdims=0)
    return op.Reshape(place, [1] * rank) if keepdim and rank else place


# Moments


def variance_and_mean(
    op: Builder, x: ir.Value, dim: Dims, correction: float, keepdim: bool
) -> tuple[ir.Value, ir.Value]:
    """The variance over the count less ``correction``, and the mean."""
    x = opmath(op, x)
    middle = mean(op, x, dim, keepdim=True)
    from_middle = op.Sub(x, middle)
    total = count(op, x, dim)
    if correction == 0:
        variance = mean(op, op.Mul(from_middle, from_middle), dim, keepdim)
    else:
        squares = reduce(op, "ReduceSumSquare", from_middle, dim, keepdim)
        if isinstance(total, ir.Value):
            rest = op.Max(op.Sub(op.cast(op.scalar(total), x.dtype), correction), 0)
            variance = op.Div(squares, rest)
        else:
            variance = op.Div(squares, max(total - correction, 0))
    if keepdim:
        return variance, middle
    return variance, op.Squeeze(middle, axes_of(op, x, dim)) if op.rank(x) else middle


@lower("aten.var")
@lower("aten.std", root=True)
@lower("aten.var_mean", with_mean=True)
@lower("aten.std_mean", root=True, with_mean=True)
def var(
    op: Builder,
    x: ir.Value,
    dim: Dims = None,
    unbiased: bool = True,
    correction: float | None = None,
    keepdim: bool = False,
    *,
    root: bool = False,
    with_mean: bool = False,
) -> ir.Value | list[ir.Value]:
    variance, middle = variance_and_mean(op, x, dim, int(unbiased) if correction is None else correction, keepdim)
    spread = op.Sqrt(variance) if root else variance
    return [spread, middle] if with_mean else spread


# Norms

dist = lower("aten.dist")(lambda op, x, other, p=2: vector_norm(op, sub(op, x, other), p))


@lower("aten.norm")
@lower("aten.frobenius_norm", p=2)
def norm(
    op: Builder,
    x: ir.Value,
    p: float | None = 2,
    dim: Dims = None,
    keepdim: bool = False,
    dtype: ir.DataType | None = None,
) -> ir.Value:
    return vector_norm(op, x, 2 if p is None else p, dim, keepdim, dtype)


@lower("aten.linalg_vector_norm")
def vector_norm(
    op: Builder, x: ir.Value, ord: float = 2, dim: Dims = None, keepdim: bool = False, dtype: ir.DataType | None = None
) -> ir.Value:
    if x.dtype in (T.COMPLEX64, T.COMPLEX128):
        raise UnsupportedArgument("complex numbers have no arithmetic in ONNX")
    x = to_float(op, x) if dtype is None else op.cast(x, dtype)
    if ord == 2:
        return reduce(op, "ReduceL2", x, dim, keepdim)
    if ord == 1:
        return reduce(op, "ReduceL1", x, dim, keepdim)
    if ord == math.inf:
        return reduce(op, "ReduceMax", op.Abs(x), dim, keepdim)
    if ord == -math.inf:
        return reduce(op, "ReduceMin", op.Abs(x), dim, keepdim)
    if ord == 0:
        return reduce(op, "ReduceSum", op.cast(op.cast(x, T.BOOL), x.dtype), dim, keepdim)
    x = opmath(op, x)
    powers = op.Pow(op.Abs(x), op.constant(ord, x.dtype))
    return op.Pow(reduce(op, "ReduceSum", powers, dim, keepdim), op.constant(1 / ord, x.dtype))


@lower("aten.renorm")
def renorm(op: Builder, x: ir.Value, p: float, dim: int, maxnorm: float) -> ir.Value:
    """Every slice along ``dim`` whose norm is too large is scaled down to the largest allowed."""
    axis, x = axis_of(op, x, dim), opmath(op, x)
    size = vector_norm(op, x, p, [i for i in range(op.rank(x)) if i != axis], keepdim=True)
    return op.Mul(x, op.Where(op.Greater(size, maxnorm), op.Div(maxnorm, op.Add(size, 1e-7)), 1.0))


@lower("aten.cdist", "aten._cdist_forward", unused="compute_mode")
def cdist(op: Builder, x1: ir.Value, x2: ir.Value, p: float = 2.0) -> ir.Value:
    a, b = promote(op, x1, x2)
    # Every row of the one with every row of the other. Through a product of matrices it would be faster, but rows that
    # nearly agree would come out at a distance that is all rounding error.
    return vector_norm(op, op.Sub(op.Unsqueeze(a, [-2]), op.Unsqueeze(b, [-3])), p, -1)


@lower("aten.pdist", "aten._pdist_forward")
def pdist(op: Builder, x: ir.Value, p: float = 2.0) -> ir.Value:
    rows = op.size(x, 0)
    pairs = triangle_indices(op, rows, rows, 1, upper=True)
    one, other = (op.Gather(x, op.Gather(pairs, i, axis=0), axis=0) for i in (0, 1))
    return vector_norm(op, op.Sub(one, other), p, -1)


# Softmax


@lower("aten.softmax", "aten._softmax", "aten.special_softmax", op_type="Softmax")
@lower("aten.log_softmax", "aten._log_softmax", "aten.special_log_softmax", op_type="LogSoftmax")
def softmax(
    op: Builder,
    x: ir.Value,
    dim: int,
    dtype: ir.DataType | None = None,
    half_to_float: bool = False,
    *,
    op_type: str = "Softmax",
) -> ir.Value:
    dtype = T.FLOAT if half_to_float else dtype
    x = to_float(op, x) if dtype is None else op.cast(x, dtype)
    if op.rank(x) == 0:
        return op.Squeeze(getattr(op, op_type)(op.Unsqueeze(x, [0]), axis=0), [0])
    return getattr(op, op_type)(x, axis=axis_of(op, x, dim))


@lower("aten._safe_softmax")
def safe_softmax(op: Builder, x: ir.Value, dim: int, dtype: ir.DataType | None = None) -> ir.Value:
    """0 instead of NaN where all is -inf: what is masked entirely."""
    nothing = op.Equal(op.ReduceMax(x, [dim]), -math.inf) if op.rank(x) else op.Equal(x, -math.inf)
    return op.Where(nothing, 0.0, softmax(op, x, dim, dtype))


@lower("aten.softmin")
def softmin(op: Builder, x: ir.Value, dim: int, dtype: ir.DataType | None = None) -> ir.Value:
    x = to_float(op, x) if dtype is None else op.cast(x, dtype)
    return softmax(op, op.Neg(x), dim)


# Segments


@lower("aten.segment_reduce", unused="unsafe indices")
def segment_reduce(
    op: Builder,
    x: ir.Value,
    reduce: str,
    lengths: ir.Value | None = None,
    offsets: ir.Value | None = None,
    axis: int = 0,
    initial: float | None = None,
) -> ir.Value:
    """Every segment of the first axis by itself; an empty one gives ``initial``, or what its kind starts from.

    Segments of each row would be no harder, but PyTorch's kernel for them dies at lengths that a trial may invent.
    """
    if axis != 0 or (lengths is not None and op.rank(lengths) > 1) or (offsets is not None and op.rank(offsets) > 1):
        raise UnsupportedArgument("segment_reduce of segments that differ from row to row")
    if offsets is None:
        assert lengths is not None
        ends = op.CumSum(op.cast(lengths, T.INT64), op.constant(axis, T.INT64))
        starts = op.Sub(ends, op.cast(lengths, T.INT64))
    else:
        places = op.cast(offsets, T.INT64)
        starts, ends = op.Slice(places, [0], [-1], [axis]), op.Slice(places, [1], [1 << 62], [axis])
    item = sizes.arange(op, op.size(x, axis))
    inside = op.And(
        op.GreaterOrEqual(item, op.Unsqueeze(starts, [-1])), op.Less(item, op.Unsqueeze(ends, [-1]))
    )  # (…, segments, items)
    after = list(range(axis + 2, op.rank(x) + 1))
    inside = op.Unsqueeze(inside, after) if after else inside
    start, kind = _SEGMENTS[reduce]
    first = start if initial is None else initial
    filled = op.Where(inside, op.Unsqueeze(x, [axis]), op.constant(start, x.dtype))
    result = getattr(op, kind)(filled, [axis + 1], keepdims=0)
    if reduce == "mean":
        count = op.ReduceSum(op.cast(inside, x.dtype), [axis + 1], keepdims=0)
        empty = op.constant(math.nan if initial is None else initial, x.dtype)
        return op.Where(op.Equal(count, 0), empty, (result if initial is None else result + initial) / count)
    combine = {"ReduceSum": "Add", "ReduceProd": "Mul", "ReduceMax": "Max", "ReduceMin": "Min"}[kind]
    return result if first == start else getattr(op, combine)(result, op.constant(first, x.dtype))


_SEGMENTS = {
    "sum": (0.0, "ReduceSum"), "mean": (0.0, "ReduceSum"), "prod": (1.0, "ReduceProd"),
    "max": (-math.inf, "ReduceMax"), "min": (math.inf, "ReduceMin"),
}  # fmt: skip
"""The reduction of each kind, and what it starts from."""


# Running sums, products and extremes along an axis


Step = Callable[[Builder, list[ir.Value], ir.Value], list[ir.Value]]


@lower("aten.cumsum")
def cumsum(op: Builder, x: ir.Value, dim: int, dtype: ir.DataType | None = None) -> ir.Value:
    x = summed(op, x, dtype)
    return op.CumSum(x, op.constant(axis_of(op, x, dim), T.INT64)) if op.rank(x) else x


@lower("aten.cumprod")
def cumprod(op: Builder, x: ir.Value, dim: int, dtype: ir.DataType | None = None) -> ir.Value:
    x = summed(op, x, dtype)
    if op.rank(x) == 0 or op.size(x, dim) == 0:  # below opset 26 it is a Scan, and those do not run on nothing
        return x
    return op.CumProd(x, op.constant(axis_of(op, x, dim), T.INT64))


@lower("aten.logcumsumexp", "aten._logcumsumexp")
def logcumsumexp(op: Builder, x: ir.Value, dim: int) -> ir.Value:
    if op.rank(x) == 0:
        return x
    x = opmath(op, x)
    nothing = op.Expand(op.constant(-math.inf, x.dtype), op.Shape(_first(op, x, dim)))
    (result,) = _scan(op, x, dim, [nothing], lambda op, state, item: [log_add_exp(op, state[0], item)])
    return result


@lower("aten.cummax", better="GreaterOrEqual")
@lower("aten.cummin", better="LessOrEqual")
def running_extreme(op: Builder, x: ir.Value, dim: int, *, better: str) -> list[ir.Value]:
    """The extreme so far and where it was met last."""
    if op.rank(x) == 0:
        return [x, op.constant(0, T.INT64)]

    def step(op: Builder, state: list[ir.Value], item: ir.Value) -> list[ir.Value]:
        extreme, place, now = state
        is_better = getattr(op, better)(item, extreme)
        if is_float(item.dtype):  # once met, no number is the extreme for good
            is_better = op.Or(op.IsNaN(item), op.And(is_better, op.Not(op.IsNaN(extreme))))
        return [op.Where(is_better, item, extreme), op.Where(is_better, now, place), op.Add(now, 1)]

    first = _first(op, x, dim)
    zero = op.Expand(op.constant(0, T.INT64), op.Shape(first))
    values, places, _ = _scan(op, x, dim, [first, zero, op.constant(0, T.INT64)], step)
    return [values, places]


def _first(op: Builder, x: ir.Value, dim: int) -> ir.Value:
    return op.Gather(x, 0, axis=axis_of(op, x, dim))


def _scan(op: Builder, x: ir.Value, dim: int, initial: list[ir.Value], step: Step) -> list[ir.Value]:
    """The states after every item along an axis."""
    axis = axis_of(op, x, dim)
    assert x.shape is not None
    item_dims = [d for i, d in enumerate(x.shape.dims) if i != axis]
    dims = [item_dims if op.rank(state) else [] for state in initial]
    kinds = [("state", state.dtype, d) for state, d in zip(initial, dims, strict=True)]
    body = op.inner("scan", [*kinds, ("item", x.dtype, item_dims)])  # type: ignore[list-item]
    *states, item = body.graph.inputs
    results = step(body, states, item)
    traces = [body.Identity(result) for result in results]  # an output has one name, and each is needed twice
    body.graph.outputs.extend([*results, *traces])
    stacked = [[*d[:axis], x.shape[axis], *d[axis:]] for d in dims]
    outputs = op.node(
        "Scan",
        [*initial, x],
        [
            ir.AttrGraph("body", body.graph),
            ir.AttrInt64("num_scan_inputs", 1),
            ir.AttrInt64s("scan_input_axes", [axis]),
            ir.AttrInt64s("scan_output_axes", [axis if d else 0 for d in dims]),
        ],
        [(state.dtype, d) for state, d in zip([*initial, *initial], [*dims, *stacked], strict=True)],
    )
    return list(outputs[len(initial) :])
