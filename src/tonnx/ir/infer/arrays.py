"""Shapes of what computes element by element, reduces, multiplies, or moves elements about."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tonnx.ir.infer.dims import UNKNOWN, Dim, Dims, broadcast, constant, dims_of, same_dim, sizes_in
from tonnx.ir.infer.table import Inferred, PlannedNode, shape_from, shape_of

_SAME_AS_FIRST = (
    "Abs Acos Acosh Asin Asinh Atan Atanh BitShift BitwiseNot Cast Ceil Celu Clip Cos Cosh CumSum DequantizeLinear "
    "Elu Erf Exp Floor Gelu GroupNormalization HardSigmoid HardSwish Hardmax Identity InstanceNormalization "
    "IsInf IsNaN LRN LayerNormalization LeakyRelu Log LogSoftmax LpNormalization Mish Neg Not PRelu QuantizeLinear "
    "RMSNormalization Reciprocal Relu Round Scatter ScatterElements ScatterND Selu Shrink Sigmoid Sign Sin Sinh "
    "Softmax Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu Trilu CastLike RotaryEmbedding Bernoulli "
    "RandomNormalLike RandomUniformLike MeanVarianceNormalization EyeLike ReverseSequence BatchNormalization "
    "BitCast CumProd"
)
_BROADCASTING = (
    "Add Sub Mul Div Mod Pow And Or Xor Equal Less LessOrEqual Greater GreaterOrEqual Where Max Min Mean Sum "
    "BitwiseAnd BitwiseOr BitwiseXor BitShift"
)
_REDUCTIONS = (
    "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare"
)


shape_of(*_SAME_AS_FIRST.split())(lambda node: node.dims(0))
shape_of("Size")(lambda node: [])
shape_of("Dropout")(lambda node: [node.dims(0)] * node.outputs)
shape_of("GatherElements")(lambda node: node.dims(1))
shape_of("ConstantOfShape")(lambda node: sizes_in(node.inputs[0]))
shape_from("Transpose")(lambda node, dims: [dims[p] for p in node.attributes.get("perm") or range(len(dims))[::-1]])

BROADCASTING = frozenset(_BROADCASTING.split())
"""Operators whose inputs are all broadcast to one shape."""


shape_of(*BROADCASTING)(lambda node: broadcast([dims_of(x) for x in node.inputs]))


def _reduced(dims: Dims | None, axes: Sequence[int] | None, keepdims: bool) -> Dims | None:
    if dims is None:
        return None
    gone = {a % len(dims) for a in axes} if axes and dims else set(range(len(dims)))
    if keepdims:
        return [1 if i in gone else d for i, d in enumerate(dims)]
    return [d for i, d in enumerate(dims) if i not in gone]


@shape_of(*_REDUCTIONS.split())
def _reduction(node: PlannedNode) -> Inferred:
    axes = node.ints(1, "axes") if node.present(1, "axes") else []
    keepdims = bool(node.attributes.get("keepdims", 1))
    dims = node.dims(0)
    if not axes and node.attributes.get("noop_with_empty_axes", 0):
        return dims
    if axes is None:
        return [UNKNOWN] * len(dims) if keepdims and dims is not None else None
    return _reduced(dims, axes, keepdims)


@shape_of("ArgMax", "ArgMin")
def _arg(node: PlannedNode) -> Inferred:
    return _reduced(node.dims(0), [node.attributes.get("axis", 0)], bool(node.attributes.get("keepdims", 1)))


@shape_of("Shape")
def _shape(node: PlannedNode) -> Inferred:
    dims = node.dims(0)
    if dims is None:
        return [UNKNOWN]
    return [len(dims[slice(node.attributes.get("start", 0), node.attributes.get("end"))])]


@shape_of("Concat")
def _concat(node: PlannedNode) -> Inferred:
    shapes = [dims_of(x) for x in node.inputs]
    shapes_known = [shape for shape in shapes if shape is not None]
    if not shapes_known:
        return None
    axis = node.attributes["axis"] % max(len(shapes_known[0]), 1)
    result = list(shapes_known[0])
    along = [shape[axis] if shape is not None else UNKNOWN for shape in shapes]
    result[axis] = sum(d for d in along if isinstance(d, int)) if all(isinstance(d, int) for d in along) else UNKNOWN
    for i in range(len(result)):
        if i != axis:
            result[i] = next((s[i] for s in shapes_known if isinstance(s[i], int)), result[i])
    return result


@shape_of("Reshape")
def _reshape(node: PlannedNode) -> Inferred:
    target, dims = node.ints(1, "shape"), node.dims(0)
    if target is None:
        sizes = sizes_in(node.inputs[1]) if len(node.inputs) > 1 else None
        if sizes is None or any(isinstance(size, int) and size <= 0 for size in sizes):
            return None if sizes is None else [UNKNOWN] * len(sizes)
        return sizes
    result: Dims = []
    for i, size in enumerate(target):
        if size == 0 and not node.attributes.get("allowzero", 0):
            result.append(dims[i] if dims is not None and i < len(dims) else UNKNOWN)
        else:
            result.append(UNKNOWN if size == -1 else size)
    if target.count(-1) == 1 and dims is not None:
        result[target.index(-1)] = _remaining(dims, [d for i, d in enumerate(result) if target[i] != -1])
    return result


def _remaining(total: Dims, others: Dims) -> Dim:
    """What is left of ``total`` elements after ``others``: exact when the symbolic parts cancel."""
    left = list(total)
    fixed = 1
    for dim in others:
        if isinstance(dim, int):
            fixed *= dim
        else:
            match = next((i for i, d in enumerate(left) if same_dim(d, dim)), None)
            if match is None:
                return UNKNOWN
            left.pop(match)
    symbolic = [d for d in left if not isinstance(d, int)]
    product = int(np.prod([d for d in left if isinstance(d, int)], dtype=np.int64))
    if not symbolic and fixed:
        return product // fixed
    if len(symbolic) == 1 and product == fixed:
        return symbolic[0]
    return UNKNOWN


@shape_from("Squeeze")
def _squeeze(node: PlannedNode, dims: Dims) -> Inferred:
    axes = node.ints(1, "axes")
    if not node.present(1, "axes"):
        return [d for d in dims if d != 1] if all(isinstance(d, int) for d in dims) else None
    return _reduced(dims, axes, keepdims=False) if axes else (dims if axes == [] else None)


@shape_from("Unsqueeze")
def _unsqueeze(node: PlannedNode, dims: Dims) -> Inferred:
    axes = node.ints(1, "axes")
    if axes is None:
        return None
    rank = len(dims) + len(axes)
    new = {a % rank for a in axes}
    rest = iter(dims)
    return [1 if i in new else next(rest) for i in range(rank)]


@shape_from("Expand")
def _expand(node: PlannedNode, dims: Dims) -> Inferred:
    target = node.ints(1)
    if target is not None:
        return broadcast([dims, list(target)])
    sizes = sizes_in(node.inputs[1]) if len(node.inputs) > 1 else None
    return None if sizes is None else broadcast([dims, sizes])


@shape_from("Slice")
def _slice(node: PlannedNode, dims: Dims) -> Inferred:
    starts, ends = node.ints(1, "starts"), node.ints(2, "ends")
    axes = (
        node.ints(3, "axes") if node.present(3, "axes") else (list(range(len(starts))) if starts is not None else None)
    )
    steps = node.ints(4) if node.present(4) else None
    result = list(dims)
    if axes is None:
        return [UNKNOWN] * len(dims)
    for i, axis in enumerate(axes):
        size = dims[axis]
        if starts is None or ends is None or not isinstance(size, int) or (node.present(4) and steps is None):
            result[axis] = UNKNOWN
            continue
        step = steps[i] if steps else 1
        stop = None if step < 0 and ends[i] < -size else ends[i]
        result[axis] = len(range(*slice(starts[i], stop, step).indices(size)))
    return result


@shape_from("Split")
def _split(node: PlannedNode, dims: Dims) -> Inferred:
    axis = node.attributes.get("axis", 0) % len(dims)
    sizes = node.ints(1, "split") if node.present(1, "split") else None
    if sizes is None and isinstance(dims[axis], int) and not node.present(1, "split"):
        chunk = -(-dims[axis] // node.outputs)  # type: ignore[operator]
        sizes = [min(chunk, dims[axis] - chunk * i) for i in range(node.outputs)]  # type: ignore[operator]
    parts: list[Dims | None] = []
    for i in range(node.outputs):
        parts.append([*dims[:axis], sizes[i] if sizes else UNKNOWN, *dims[axis + 1 :]])
    return parts


@shape_from("Gather")
def _gather(node: PlannedNode, dims: Dims) -> Inferred:
    indices, axis = node.dims(1), node.attributes.get("axis", 0) % len(dims)
    return None if indices is None else [*dims[:axis], *indices, *dims[axis + 1 :]]


@shape_from("GatherND")
def _gather_nd(node: PlannedNode, dims: Dims) -> Inferred:
    indices = node.dims(1)
    if not indices or not isinstance(indices[-1], int):
        return None
    return [*indices[:-1], *dims[node.attributes.get("batch_dims", 0) + indices[-1] :]]


@shape_of("MatMul", "MatMulInteger")
def _matmul(node: PlannedNode) -> Inferred:
    a, b = node.dims(0), node.dims(1)
    if a is None or b is None or not a or not b:
        return None
    batch = broadcast([a[:-2], b[:-2]])
    assert batch is not None
    return [*batch, *(a[-2:-1] if len(a) > 1 else []), *(b[-1:] if len(b) > 1 else [])]


@shape_of("Gemm")
def _gemm(node: PlannedNode) -> Inferred:
    a, b = node.dims(0), node.dims(1)
    if a is None or b is None:
        return None
    return [a[1 if node.attributes.get("transA", 0) else 0], b[0 if node.attributes.get("transB", 0) else 1]]


@shape_of("Range")
def _range(node: PlannedNode) -> Inferred:
    ends = [constant(value) for value in node.inputs]
    if any(end is None for end in ends):
        return [UNKNOWN]
    return [np.arange(*(end.item() for end in ends if end is not None)).size]


@shape_from("Flatten")
def _flatten(node: PlannedNode, dims: Dims) -> Inferred:
    axis = node.attributes.get("axis", 1)
    axis += len(dims) if axis < 0 else 0
    return [_remaining(dims[:axis], []), _remaining(dims[axis:], [])]


@shape_of("NonZero")
def _nonzero(node: PlannedNode) -> Inferred:
    dims = node.dims(0)
    return [len(dims) if dims is not None else UNKNOWN, UNKNOWN]


@shape_of("Compress")
def _compress(node: PlannedNode) -> Inferred:
    dims, axis = node.dims(0), node.attributes.get("axis")
    if axis is None:
        return [UNKNOWN]
    return None if dims is None else [UNKNOWN if i == axis % len(dims) else dim for i, dim in enumerate(dims)]


@shape_from("Tile")
def _tile(node: PlannedNode, dims: Dims) -> Inferred:
    repeats = node.ints(1)
    if repeats is None:
        return [UNKNOWN] * len(dims)
    return [d * r if isinstance(d, int) else (d if r == 1 else UNKNOWN) for d, r in zip(dims, repeats, strict=True)]


@shape_from("Pad")
def _pad(node: PlannedNode, dims: Dims) -> Inferred:
    pads = node.ints(1, "pads")
    axes = node.ints(3) if node.present(3) else list(range(len(dims)))
    if axes is None:
        return [UNKNOWN] * len(dims)
    if pads is None:
        touched = {axis % len(dims) for axis in axes}
        return [UNKNOWN if i in touched else dim for i, dim in enumerate(dims)]
    totals = [0] * len(dims)
    for i, axis in enumerate(axes):
        totals[axis] = pads[i] + pads[len(axes) + i]
    return [d + t if isinstance(d, int) else (d if t == 0 else UNKNOWN) for d, t in zip(dims, totals, strict=True)]


@shape_from("TopK")
def _topk(node: PlannedNode, dims: Dims) -> Inferred:
    k = node.ints(1, "k")
    result = list(dims)
    result[node.attributes.get("axis", -1)] = k[0] if k else UNKNOWN
    return [result, result]


@shape_from("OneHot")
def _one_hot(node: PlannedNode, dims: Dims) -> Inferred:
    depth = node.ints(1)
    axis = node.attributes.get("axis", -1) % (len(dims) + 1)
    return [*dims[:axis], depth[0] if depth else UNKNOWN, *dims[axis:]]


@shape_of("Einsum")
def _einsum(node: PlannedNode) -> Inferred:
    equation = node.attributes["equation"].replace(" ", "")
    if "..." in equation or "->" not in equation:
        return None
    terms, result = equation.split("->")
    sizes: dict[str, Dim] = {}
    for term, value in zip(terms.split(","), node.inputs, strict=True):
        for letter, dim in zip(term, dims_of(value) or [UNKNOWN] * len(term), strict=True):
            if not isinstance(sizes.get(letter), int) or sizes[letter] == 1:  # which is broadcast
                sizes[letter] = dim
    return [sizes[letter] for letter in result]
