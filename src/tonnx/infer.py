"""Dtype and shape of what the builder makes, from the operator's schema and a few dozen shape functions.

Front ends stamp the framework's own shapes on the results of a rule; this fills in the values between. A dimension is
an int, a `ir.SymbolicDim` with a name, or one without (unknown). A shape of None means that not even the rank is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from tonnx.infer_windows import slid
from tonnx.schema import Signature

Dim = int | ir.SymbolicDim
Dims = list[Dim]
UNKNOWN = ir.SymbolicDim(None)


def dims_of(value: ir.Value | None) -> Dims | None:
    """The dimensions of a value, or None when its rank is unknown."""
    if value is None or value.shape is None:
        return None
    return list(value.shape.dims)


def same_dim(a: object, b: object) -> bool:
    """Whether two dimensions are known to be equal."""
    if isinstance(a, int) or isinstance(b, int):
        return a == b
    return isinstance(a, ir.SymbolicDim) and isinstance(b, ir.SymbolicDim) and a.value == b.value is not None


def constant(value: ir.Value | None) -> np.ndarray | None:
    """The contents of a value that is known before run time."""
    if value is None or value.const_value is None:
        return None
    return value.const_value.numpy()


DIM = "tonnx.dim"
"""Key in ``Value.meta`` of a size: the name of the symbolic dimension that it holds."""


def sizes_in(value: ir.Value | None, depth: int = 8) -> Dims | None:
    """The numbers in a vector of sizes, each fixed, named or unknown; None if not even how many is known."""
    if value is None:
        return None
    if (known := constant(value)) is not None:
        return [int(v) for v in known.reshape(-1)]
    if (name := value.meta.get(DIM)) is not None:
        return [ir.SymbolicDim(name)]
    found = _sizes_from(value.producer(), depth) if depth else None
    if found is not None:
        return found
    dims = dims_of(value)
    if dims is None or len(dims) > 1 or not all(isinstance(d, int) for d in dims):
        return None
    return [UNKNOWN] * (dims[0] if dims else 1)  # type: ignore[operator, return-value]


def _sizes_from(node: ir.Node | None, depth: int) -> Dims | None:
    if node is None or node.domain != "" or not node.inputs:
        return None
    if node.op_type == "Shape":
        dims = dims_of(node.inputs[0])
        bounds = [None if (a := node.attributes.get(name)) is None else a.as_int() for name in ("start", "end")]
        return None if dims is None else dims[slice(*bounds)]
    if node.op_type == "Concat":
        parts = [sizes_in(x, depth - 1) for x in node.inputs]
        return None if None in parts else [size for part in parts for size in part or ()]
    if node.op_type in ("Identity", "Cast"):
        return sizes_in(node.inputs[0], depth - 1)
    if node.op_type == "Gather":
        sizes, at = sizes_in(node.inputs[0], depth - 1), constant(node.inputs[1])
        inside = sizes is not None and at is not None and all(-len(sizes) <= i < len(sizes) for i in at.reshape(-1))
        return [sizes[int(i)] for i in at.reshape(-1)] if inside else None  # type: ignore[index, union-attr]
    return None


def _ints(value: ir.Value | None) -> list[int] | None:
    array = constant(value)
    return None if array is None else [int(v) for v in array.reshape(-1)]


class Call:
    """What a shape function sees of the node to be."""

    __slots__ = ("attributes", "inputs", "outputs")

    def __init__(self, inputs: Sequence[ir.Value | None], attributes: Mapping[str, Any], outputs: int) -> None:
        self.inputs, self.attributes, self.outputs = inputs, attributes, outputs

    def dims(self, index: int) -> Dims | None:
        return dims_of(self.inputs[index]) if index < len(self.inputs) else None

    def ints(self, index: int, attribute: str = "") -> list[int] | None:
        """A list of integers: an input, or the attribute that it was in older versions."""
        if attribute in self.attributes:
            value = self.attributes[attribute]
            return [int(v) for v in value] if isinstance(value, (list, tuple)) else [int(value)]
        return _ints(self.inputs[index]) if index < len(self.inputs) else None

    def present(self, index: int, attribute: str = "") -> bool:
        if attribute in self.attributes:
            return True
        return index < len(self.inputs) and self.inputs[index] is not None


Inferred = Sequence[Dim] | Sequence[Sequence[Dim] | None] | None
"""The shape of the only output, or those of all outputs."""
ShapeFunction = Callable[[Call], Inferred]
_SHAPES: dict[str, ShapeFunction] = {}


def _shape_of(*op_types: str) -> Callable[[ShapeFunction], ShapeFunction]:
    def enter(function: ShapeFunction) -> ShapeFunction:
        for op_type in op_types:
            _SHAPES[op_type] = function
        return function

    return enter


def broadcast(shapes: Sequence[Dims | None]) -> Dims | None:
    """Multidirectional broadcasting; a pair of unequal unknown dims gives an unknown one."""
    if None in shapes:
        return None
    known = [shape for shape in shapes if shape is not None]
    rank = max((len(shape) for shape in known), default=0)
    result: Dims = []
    for i in range(rank):
        dim: Dim = 1
        for shape in known:
            at = i - rank + len(shape)
            if at < 0:
                continue
            other = shape[at]
            if isinstance(other, int):
                if other != 1:  # a fixed size other than 1 wins: the others must be 1 or the same
                    dim = other
            elif isinstance(dim, int):
                if dim == 1:
                    dim = other
            elif not same_dim(dim, other):
                dim = UNKNOWN
        result.append(dim)
    return result


_SAME_AS_FIRST = (
    "Abs Acos Acosh Asin Asinh Atan Atanh BitShift BitwiseNot Cast Ceil Celu Clip Cos Cosh CumSum DequantizeLinear "
    "Dropout Elu Erf Exp Floor Gelu GroupNormalization HardSigmoid HardSwish Hardmax Identity InstanceNormalization "
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


@_shape_of(*_SAME_AS_FIRST.split())
def _same_as_first(call: Call) -> Inferred:
    return call.dims(0)


BROADCASTING = frozenset(_BROADCASTING.split())
"""Operators whose inputs are all broadcast to one shape."""


@_shape_of(*BROADCASTING)
def _broadcasting(call: Call) -> Inferred:
    return broadcast([dims_of(x) for x in call.inputs])


def _reduced(dims: Dims | None, axes: Sequence[int] | None, keepdims: bool) -> Dims | None:
    if dims is None:
        return None
    gone = {a % len(dims) for a in axes} if axes and dims else set(range(len(dims)))
    if keepdims:
        return [1 if i in gone else d for i, d in enumerate(dims)]
    return [d for i, d in enumerate(dims) if i not in gone]


@_shape_of(*_REDUCTIONS.split())
def _reduction(call: Call) -> Inferred:
    axes = call.ints(1, "axes") if call.present(1, "axes") else []
    keepdims = bool(call.attributes.get("keepdims", 1))
    dims = call.dims(0)
    if not axes and call.attributes.get("noop_with_empty_axes", 0):
        return dims
    if axes is None:
        return [UNKNOWN] * len(dims) if keepdims and dims is not None else None
    return _reduced(dims, axes, keepdims)


@_shape_of("ArgMax", "ArgMin")
def _arg(call: Call) -> Inferred:
    return _reduced(call.dims(0), [call.attributes.get("axis", 0)], bool(call.attributes.get("keepdims", 1)))


@_shape_of("Shape")
def _shape(call: Call) -> Inferred:
    dims = call.dims(0)
    if dims is None:
        return [UNKNOWN]
    return [len(dims[slice(call.attributes.get("start", 0), call.attributes.get("end"))])]


@_shape_of("Size")
def _size(call: Call) -> Inferred:
    return []


@_shape_of("Concat")
def _concat(call: Call) -> Inferred:
    shapes = [dims_of(x) for x in call.inputs]
    known = [shape for shape in shapes if shape is not None]
    if not known:
        return None
    axis = call.attributes["axis"] % max(len(known[0]), 1)
    result = list(known[0])
    along = [shape[axis] if shape is not None else UNKNOWN for shape in shapes]
    result[axis] = sum(d for d in along if isinstance(d, int)) if all(isinstance(d, int) for d in along) else UNKNOWN
    for i in range(len(result)):
        if i != axis:
            result[i] = next((s[i] for s in known if isinstance(s[i], int)), result[i])
    return result


@_shape_of("Reshape")
def _reshape(call: Call) -> Inferred:
    target, dims = call.ints(1, "shape"), call.dims(0)
    if target is None:
        sizes = sizes_in(call.inputs[1]) if len(call.inputs) > 1 else None
        if sizes is None or any(isinstance(size, int) and size <= 0 for size in sizes):
            return None if sizes is None else [UNKNOWN] * len(sizes)
        return sizes
    result: Dims = []
    for i, size in enumerate(target):
        if size == 0 and not call.attributes.get("allowzero", 0):
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


@_shape_of("Squeeze")
def _squeeze(call: Call) -> Inferred:
    dims, axes = call.dims(0), call.ints(1, "axes")
    if dims is None:
        return None
    if not call.present(1, "axes"):
        return [d for d in dims if d != 1] if all(isinstance(d, int) for d in dims) else None
    return _reduced(dims, axes, keepdims=False) if axes else (dims if axes == [] else None)


@_shape_of("Unsqueeze")
def _unsqueeze(call: Call) -> Inferred:
    dims, axes = call.dims(0), call.ints(1, "axes")
    if dims is None or axes is None:
        return None
    rank = len(dims) + len(axes)
    new = {a % rank for a in axes}
    rest = iter(dims)
    return [1 if i in new else next(rest) for i in range(rank)]


@_shape_of("Transpose")
def _transpose(call: Call) -> Inferred:
    dims = call.dims(0)
    if dims is None:
        return None
    perm = call.attributes.get("perm") or range(len(dims) - 1, -1, -1)
    return [dims[p] for p in perm]


@_shape_of("Expand")
def _expand(call: Call) -> Inferred:
    target, dims = call.ints(1), call.dims(0)
    if target is not None:
        return broadcast([dims, list(target)])
    sizes = sizes_in(call.inputs[1]) if len(call.inputs) > 1 else None
    if dims is None or sizes is None:
        return None
    return broadcast([dims, sizes])


@_shape_of("Slice")
def _slice(call: Call) -> Inferred:
    dims, starts, ends = call.dims(0), call.ints(1, "starts"), call.ints(2, "ends")
    if dims is None:
        return None
    axes = (
        call.ints(3, "axes") if call.present(3, "axes") else (list(range(len(starts))) if starts is not None else None)
    )
    steps = call.ints(4) if call.present(4) else None
    result = list(dims)
    if axes is None:
        return [UNKNOWN] * len(dims)
    for i, axis in enumerate(axes):
        size = dims[axis]
        if starts is None or ends is None or not isinstance(size, int) or (call.present(4) and steps is None):
            result[axis] = UNKNOWN
            continue
        step = steps[i] if steps else 1
        stop = None if step < 0 and ends[i] < -size else ends[i]
        result[axis] = len(range(*slice(starts[i], stop, step).indices(size)))
    return result


@_shape_of("Split")
def _split(call: Call) -> Inferred:
    dims = call.dims(0)
    if dims is None:
        return None
    axis = call.attributes.get("axis", 0) % len(dims)
    sizes = call.ints(1, "split") if call.present(1, "split") else None
    if sizes is None and isinstance(dims[axis], int) and not call.present(1, "split"):
        chunk = -(-dims[axis] // call.outputs)  # type: ignore[operator]
        sizes = [min(chunk, dims[axis] - chunk * i) for i in range(call.outputs)]  # type: ignore[operator]
    parts: list[Dims | None] = []
    for i in range(call.outputs):
        parts.append([*dims[:axis], sizes[i] if sizes else UNKNOWN, *dims[axis + 1 :]])
    return parts


@_shape_of("Gather")
def _gather(call: Call) -> Inferred:
    dims, indices = call.dims(0), call.dims(1)
    if dims is None or indices is None:
        return None
    axis = call.attributes.get("axis", 0) % len(dims)
    return [*dims[:axis], *indices, *dims[axis + 1 :]]


@_shape_of("GatherElements")
def _gather_elements(call: Call) -> Inferred:
    return call.dims(1)


@_shape_of("GatherND")
def _gather_nd(call: Call) -> Inferred:
    dims, indices = call.dims(0), call.dims(1)
    if dims is None or not indices or not isinstance(indices[-1], int):
        return None
    return [*indices[:-1], *dims[call.attributes.get("batch_dims", 0) + indices[-1] :]]


@_shape_of("MatMul", "MatMulInteger")
def _matmul(call: Call) -> Inferred:
    a, b = call.dims(0), call.dims(1)
    if a is None or b is None or not a or not b:
        return None
    batch = broadcast([a[:-2], b[:-2]])
    assert batch is not None
    return [*batch, *(a[-2:-1] if len(a) > 1 else []), *(b[-1:] if len(b) > 1 else [])]


@_shape_of("Gemm")
def _gemm(call: Call) -> Inferred:
    a, b = call.dims(0), call.dims(1)
    if a is None or b is None:
        return None
    return [a[1 if call.attributes.get("transA", 0) else 0], b[0 if call.attributes.get("transB", 0) else 1]]


@_shape_of("ConstantOfShape")
def _constant_of_shape(call: Call) -> Inferred:
    return sizes_in(call.inputs[0])


@_shape_of("Range")
def _range(call: Call) -> Inferred:
    return [UNKNOWN]


@_shape_of("NonZero")
def _nonzero(call: Call) -> Inferred:
    dims = call.dims(0)
    return [len(dims) if dims is not None else UNKNOWN, UNKNOWN]


@_shape_of("Compress")
def _compress(call: Call) -> Inferred:
    dims, axis = call.dims(0), call.attributes.get("axis")
    if axis is None:
        return [UNKNOWN]
    return None if dims is None else [UNKNOWN if i == axis % len(dims) else dim for i, dim in enumerate(dims)]


@_shape_of("Tile")
def _tile(call: Call) -> Inferred:
    dims, repeats = call.dims(0), call.ints(1)
    if dims is None:
        return None
    if repeats is None:
        return [UNKNOWN] * len(dims)
    return [d * r if isinstance(d, int) else (d if r == 1 else UNKNOWN) for d, r in zip(dims, repeats, strict=True)]


@_shape_of("Pad")
def _pad(call: Call) -> Inferred:
    dims, pads = call.dims(0), call.ints(1, "pads")
    if dims is None:
        return None
    if pads is None or call.present(3):
        return [UNKNOWN] * len(dims)
    rank = len(dims)
    totals = [pads[i] + pads[rank + i] for i in range(rank)]
    return [d + t if isinstance(d, int) else (d if t == 0 else UNKNOWN) for d, t in zip(dims, totals, strict=True)]


@_shape_of("TopK")
def _topk(call: Call) -> Inferred:
    dims, k = call.dims(0), call.ints(1, "k")
    if dims is None:
        return None
    result = list(dims)
    result[call.attributes.get("axis", -1)] = k[0] if k else UNKNOWN
    return [result, result]


@_shape_of("Flatten")
def _flatten(call: Call) -> Inferred:
    return [UNKNOWN, UNKNOWN]


@_shape_of("OneHot")
def _one_hot(call: Call) -> Inferred:
    dims, depth = call.dims(0), call.ints(1)
    if dims is None:
        return None
    axis = call.attributes.get("axis", -1) % (len(dims) + 1)
    return [*dims[:axis], depth[0] if depth else UNKNOWN, *dims[axis:]]


@_shape_of("Einsum")
def _einsum(call: Call) -> Inferred:
    equation = call.attributes["equation"].replace(" ", "")
    if "..." in equation or "->" not in equation:
        return None
    terms, result = equation.split("->")
    sizes: dict[str, Dim] = {}
    for term, value in zip(terms.split(","), call.inputs, strict=True):
        for letter, dim in zip(term, dims_of(value) or [UNKNOWN] * len(term), strict=True):
            if not isinstance(sizes.get(letter), int):
                sizes[letter] = dim
    return [sizes[letter] for letter in result]


@_shape_of("ConvTranspose", "ConvInteger", "QLinearConv", "DeformConv")
def _like_conv(call: Call) -> Inferred:
    dims = call.dims(0)
    return None if dims is None else [dims[0], *[UNKNOWN] * (len(dims) - 1)]


@_shape_of("Conv")
def _conv(call: Call) -> Inferred:
    dims, weight = call.dims(0), call.dims(1)
    if dims is None or weight is None:
        return None if dims is None else [dims[0], *[UNKNOWN] * (len(dims) - 1)]
    return [dims[0], weight[0], *slid(dims[2:], weight[2:], call.attributes)]


@_shape_of("MaxPool", "AveragePool", "LpPool")
def _pool(call: Call) -> Inferred:
    dims = call.dims(0)
    if dims is None:
        return None
    shape = [*dims[:2], *slid(dims[2:], call.attributes.get("kernel_shape"), call.attributes)]
    return [shape] * call.outputs


@_shape_of("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def _global_pool(call: Call) -> Inferred:
    dims = call.dims(0)
    return None if dims is None else [*dims[:2], *[1] * (len(dims) - 2)]


@_shape_of("Resize", "GridSample", "Upsample")
def _resize(call: Call) -> Inferred:
    dims = call.dims(0)
    return None if dims is None else [*dims[:2], *[UNKNOWN] * (len(dims) - 2)]


@_shape_of("DepthToSpace")
def _depth_to_space(call: Call) -> Inferred:
    dims, size = call.dims(0), call.attributes.get("blocksize", 1)
    return None if dims is None else [dims[0], *_scaled(dims[1:2], 1, size * size), *_scaled(dims[2:], size, 1)]


@_shape_of("SpaceToDepth")
def _space_to_depth(call: Call) -> Inferred:
    dims, size = call.dims(0), call.attributes.get("blocksize", 1)
    return None if dims is None else [dims[0], *_scaled(dims[1:2], size * size, 1), *_scaled(dims[2:], 1, size)]


def _scaled(dims: Dims, factor: int, divisor: int) -> Dims:
    return [d * factor // divisor if isinstance(d, int) else UNKNOWN for d in dims]


@_shape_of("LSTM", "GRU", "RNN")
def _recurrent(call: Call) -> Inferred:
    dims = call.dims(0)
    if dims is None:
        return None
    directions = 2 if call.attributes.get("direction") == "bidirectional" else 1
    hidden = call.attributes.get("hidden_size", UNKNOWN)
    if call.attributes.get("layout", 0):
        batch_first: Dims = [dims[0], directions, hidden]
        return [[dims[0], dims[1], directions, hidden], batch_first, batch_first]
    state: Dims = [directions, dims[1], hidden]
    return [[dims[0], directions, dims[1], hidden], state, state]


@_shape_of("SequenceLength", "OptionalHasElement")
def _scalar(call: Call) -> Inferred:
    return []


def shapes(
    op_type: str, inputs: Sequence[ir.Value | None], attributes: Mapping[str, Any], outputs: int
) -> list[Dims | None]:
    """The shapes of all outputs, as far as they follow from what is known of the inputs."""
    function = _SHAPES.get(op_type)
    if function is None:
        return [None] * outputs
    result: Any = function(Call(inputs, attributes, outputs))
    if result and isinstance(result[0], (list, type(None))):
        return [*result, *[None] * outputs][:outputs]
    return [result, *[None] * (outputs - 1)]


# Outputs whose dtype is named by an attribute: the attribute, and the dtype when it is absent.
_DTYPE_ATTRIBUTE = {
    "Cast": ("to", None),
    "BitCast": ("to", None),
    "EyeLike": ("dtype", None),
    "RandomNormal": ("dtype", ir.DataType.FLOAT),
    "RandomUniform": ("dtype", ir.DataType.FLOAT),
    "RandomNormalLike": ("dtype", None),
    "RandomUniformLike": ("dtype", None),
    "Bernoulli": ("dtype", None),
    "Multinomial": ("dtype", ir.DataType.INT32),
    "HannWindow": ("output_datatype", ir.DataType.FLOAT),
    "HammingWindow": ("output_datatype", ir.DataType.FLOAT),
    "BlackmanWindow": ("output_datatype", ir.DataType.FLOAT),
    "MelWeightMatrix": ("output_datatype", ir.DataType.FLOAT),
}


def dtypes(
    signature: Signature, inputs: Sequence[ir.Value | None], attributes: Mapping[str, Any], outputs: int
) -> list[ir.DataType | None]:
    """The element types of all outputs: bound by the schema's type variables, or named by an attribute."""
    if signature.op_type in _DTYPE_ATTRIBUTE:
        name, default = _DTYPE_ATTRIBUTE[signature.op_type]
        if name in attributes:
            given = attributes[name]
            return [ir.DataType[given] if isinstance(given, str) else ir.DataType(given)] * outputs
        first = inputs[0].dtype if inputs and inputs[0] is not None else None
        return [default if default is not None else first] * outputs
    if signature.op_type == "ConstantOfShape":
        value = attributes.get("value")
        return [value.dtype if value is not None else ir.DataType.FLOAT]
    if signature.op_type in ("QuantizeLinear", "DequantizeLinear") and attributes.get("output_dtype"):
        return [ir.DataType(attributes["output_dtype"])] * outputs
    bound: dict[str, ir.DataType] = {}
    for i, value in enumerate(inputs):
        if value is not None and value.dtype is not None:
            bound.setdefault(signature.input(i).type_str, value.dtype)
    result: list[ir.DataType | None] = []
    for i in range(outputs):
        formal = signature.output(i)
        dtype = bound.get(formal.type_str) or formal.fixed
        if dtype is None and signature.op_type == "QuantizeLinear":
            dtype = ir.DataType.UINT8
        if dtype is None and signature.op_type == "DequantizeLinear" and inputs[1] is not None:
            dtype = inputs[1].dtype
        result.append(dtype)
    return result
