"""Shapes and dtypes that the builder infers, beside those that onnx infers and those that ONNX Runtime gives.

Every row is one node. Its inputs have sizes, names of sizes, or values. What is inferred must be true at every size
that the names may have, and must not say less than onnx does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from tonnx.ir import infer
from tonnx.ir.infer.table import _SHAPES
from tonnx.ir.schema import signature

OPSET = 21
SIZES = ({"a": 2, "b": 3, "c": 4, "d": 5}, {"a": 3, "b": 7, "c": 1, "d": 6})


@dataclass
class Row:
    """An operator, its inputs (dims, or the values of a constant), its attributes and the number of its outputs."""

    op_type: str
    inputs: Sequence[Any]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1
    dtypes: Mapping[int, Any] = field(default_factory=dict)
    """Of inputs; float32 where nothing is said."""
    opset: int = OPSET
    says_less: bool = False
    """Whether onnx infers more of it; there is no need for it."""

    @property
    def name(self) -> str:
        parts = [str(x.tolist()) if isinstance(x, np.ndarray) else str(x) for x in self.inputs]
        return f"{self.op_type} {' '.join(parts)} {dict(self.attributes) or ''}".replace("'", "").strip()


def i(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def f(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


I64, BOOL = np.int64, np.bool_
ELEMENTWISE = [
    *(Row(name, [("a", 3, "b")]) for name in "Relu Softmax Identity Erf Trilu Hardmax LogSoftmax Elu Softplus".split()),
    Row("Not", [("a",)], dtypes={0: BOOL}),
    Row("IsNaN", [("a", 2)]),
    Row("Cast", [("a", 2)], {"to": onnx.TensorProto.INT64}),
    Row("CastLike", [("a", 2), (3,)], dtypes={1: I64}),
    Row("Clip", [("a", 2), f(0)[0], None]),
    Row("CumSum", [("a", "b"), np.array(1)]),
    Row("Dropout", [("a", "b")]),
    Row("Dropout", [("a", "b")], outputs=2),
    Row("PRelu", [("a", 3, "b"), (3, 1)]),
    Row("LayerNormalization", [("a", 4), (4,)]),
    Row("InstanceNormalization", [("a", 3, "b"), (3,), (3,)]),
    Row("BatchNormalization", [("a", 3, "b"), (3,), (3,), (3,), (3,)]),
    Row("QuantizeLinear", [("a", 3), f(0.5)[0], np.uint8(3)]),
    Row("DequantizeLinear", [("a", 3), f(0.5)[0]], dtypes={0: np.uint8}),
    Row("ScatterElements", [("a", 4), (1, 2), (1, 2)], dtypes={1: I64}),
    Row("ScatterND", [(4, "b"), i(1, 2).reshape(2, 1), (2, "b")]),
    Row("EyeLike", [(3, 4)]),
    Row("ReverseSequence", [(4, 2, "b"), i(3, 4)]),
]
BROADCAST = [
    Row("Add", [("a", 1, 3), ("b", 3)]),
    Row("Add", [("a",), ("a",)]),
    Row("Mul", [("a", "b"), (1, 1)]),
    Row("Mul", [("a", "b"), ()]),
    Row("Sub", [(1, "b"), ("a", 1)]),
    Row("Pow", [(2, 3), (3,)]),
    Row("Less", [("a", 3), (3,)]),
    Row("Equal", [(1, 3), ("a", 1)], dtypes={0: I64, 1: I64}),
    Row("And", [("a", 1), (4,)], dtypes={0: BOOL, 1: BOOL}),
    Row("Where", [("a", 1), (1, 3), ()], dtypes={0: BOOL}),
    Row("Max", [("a", 1), (3,), (1, 1)]),
    Row("Sum", [("a", 1), (3,), ("a", 3)]),
    Row("BitShift", [(2, 1), (3,)], {"direction": "LEFT"}, dtypes={0: np.uint8, 1: np.uint8}),
]
REDUCED = [
    Row("ReduceSum", [("a", 3, "b"), i(1)]),
    Row("ReduceSum", [("a", 3, "b"), i(-1, 0)], {"keepdims": 0}),
    Row("ReduceSum", [("a", 3, "b")]),
    Row("ReduceSum", [("a", 3, "b")], {"keepdims": 0}),
    Row("ReduceSum", [("a", 3, "b"), i()], {"noop_with_empty_axes": 1}),
    Row("ReduceMean", [("a", 3), i(0)], {"keepdims": 0}),
    Row("ReduceMax", [("a", 3), i(-2)]),
    Row("ReduceL2", [(), i()], {"keepdims": 0}),
    Row("ArgMax", [("a", 3, "b")], {"axis": 1, "keepdims": 0}),
    Row("ArgMin", [("a", 3, "b")], {"axis": -1}),
    Row("TopK", [("a", 6), i(2)], outputs=2),
    Row("TopK", [("a", 6), i(2)], {"axis": -1, "largest": 0}, outputs=2),
]
MOVED = [
    Row("Transpose", [("a", 3, "b")], {"perm": [2, 0, 1]}),
    Row("Transpose", [("a", 3, "b")]),
    Row("Reshape", [("a", 4), i(-1, 2)]),
    Row("Reshape", [("a", 4), i(0, 2, 2)]),
    Row("Reshape", [("a", 4, "b"), i(0, -1)]),
    Row("Reshape", [("a", 4, "b"), i(0, 2, 2, -1)]),
    Row("Reshape", [(2, 3), i(3, 2)]),
    Row("Reshape", [(1, 1), i()]),
    Row("Reshape", [(0, 4), i(4, 0)], {"allowzero": 1}),
    Row("Reshape", [("a", "b"), i(-1)]),
    Row("Squeeze", [(1, "a", 1), i(0)]),
    Row("Squeeze", [(1, "a", 1), i(-1, 0)]),
    Row("Squeeze", [(1, 3, 1)]),
    Row("Unsqueeze", [("a", 3), i(0, -1)]),
    Row("Unsqueeze", [("a", 3), i(3, 1)]),
    Row("Expand", [("a", 1), i(1, 4)]),
    Row("Expand", [(3, 1), i(2, 1, 4)]),
    Row("Expand", [("a", 3), i(1)]),
    Row("Tile", [("a", 3), i(1, 2)]),
    Row("Tile", [("a", 3), i(2, 1)]),
    Row("Flatten", [("a", 3, 2)]),
    Row("Flatten", [("a", 3, "b")], {"axis": 2}),
    Row("Flatten", [(2, 3, 4)], {"axis": -1}),
    Row("Flatten", [(2, 3, 4)], {"axis": 0}),
    Row("DepthToSpace", [("a", 8, 3, "b")], {"blocksize": 2}),
    Row("SpaceToDepth", [("a", 2, 4, 6)], {"blocksize": 2}),
]
PARTS = [
    Row("Slice", [("a", 6), i(1), i(4), i(1)]),
    Row("Slice", [("a", 6), i(-3), i(100), i(-1)]),
    Row("Slice", [("a", 6), i(4), i(0), i(1), i(-2)]),
    Row("Slice", [("a", 6), i(4), i(-100), i(1), i(-3)]),
    Row("Slice", [("a", 6), i(0, 1), i(2**62, 5), i(0, 1), i(1, 2)]),
    Row("Slice", [("a", 6), i(1), i(1), i(1)]),
    Row("Slice", [("a", 6), i(0), i(-1), i(0)]),
    Row("Slice", [(6, "b"), i(5), i(2)]),
    Row("Split", [("a", 6), i(1, 2, 3)], {"axis": 1}, 3),
    Row("Split", [("a", 7)], {"axis": -1, "num_outputs": 3}, 3),
    Row("Split", [(6, "b")], {"num_outputs": 2}, 2),
    Row("Concat", [("a", 3), ("a", 2)], {"axis": 1}),
    Row("Concat", [("a", 3), ("b", 3)], {"axis": 0}),
    Row("Concat", [("a", 3), (2, 3)], {"axis": -2}),
    Row("Gather", [("a", 6), i(1, 2)], {"axis": 1}),
    Row("Gather", [("a", 6), np.array(1)], {"axis": 1}),
    Row("Gather", [(6, "b"), (3, "a")], {"axis": 0}, dtypes={1: I64}),
    Row("GatherElements", [("a", 6), ("a", 2)], {"axis": 1}, dtypes={1: I64}),
    Row("GatherND", [(4, 3, "b"), i(1, 2, 0, 1).reshape(2, 2)]),
    Row("GatherND", [("a", 3, "b"), ("a", 2, 1)], {"batch_dims": 1}, dtypes={1: I64}),
    Row("Compress", [("a", 3), np.array([True, False, True])], {"axis": 1}),
    Row("Compress", [(2, 3), np.array([True, False, True])]),
    Row("NonZero", [("a", 3)]),
    Row("Pad", [("a", 3), i(0, 1, 0, 2)]),
    Row("Pad", [("a", 3, "b"), i(1, 2), None, i(1)]),
    Row("Pad", [("a", 6), i(0, -2, 0, -1)]),
    Row("Pad", [("a", 3), i(1, 1), f(2)[0], i(-1)]),
    Row("OneHot", [("a", 3), np.array(5), f(0, 1)], {"axis": -1}, dtypes={0: I64}),
    Row("OneHot", [("a", 3), i(5), f(0, 1)], {"axis": 1}, dtypes={0: I64}),
]
MADE = [
    Row("Shape", [("a", 3, "b")]),
    Row("Shape", [("a", 3, "b")], {"start": 1}),
    Row("Shape", [("a", 3, "b")], {"start": -2, "end": -1}),
    Row("Size", [("a", 3)]),
    Row("ConstantOfShape", [i(2, 0, 3)]),
    Row("ConstantOfShape", [i()]),
    Row("Range", [np.array(0), np.array(7), np.array(2)]),
    Row("Range", [np.array(5), np.array(-4), np.array(-3)]),
    Row("Range", [np.array(5), np.array(1), np.array(1)]),
]
LAYERS = [
    Row("MatMul", [("a", 3), (3, "b")]),
    Row("MatMul", [("a", "b", 3), (3, 4)]),
    Row("MatMul", [(1, "a", 2, 3), ("c", 1, 3, 5)]),
    Row("MatMul", [(3,), (3, "b")]),
    Row("MatMul", [("a", 3), (3,)]),
    Row("MatMul", [(3,), (3,)]),
    Row("MatMul", [(3,), ("a", 3, 2)]),
    Row("MatMulInteger", [("a", 3), (3, 2)], dtypes={0: np.uint8, 1: np.uint8}),
    Row("Gemm", [("a", 3), (3, 4), (4,)]),
    Row("Einsum", [("a", 3), (3, "b")], {"equation": "ij,jk->ki"}),
    Row("Einsum", [(1, 3), ("a", 3)], {"equation": "ij, ij -> ij"}),
    Row("Einsum", [("a", 3, 3)], {"equation": "bii->b"}),
    Row("Einsum", [("a", 2, 3), (3, 4)], {"equation": "...ij,jk->...ik"}, says_less=True),
    Row("Gemm", [(3, "a"), (4, 3)], {"transA": 1, "transB": 1}),
    Row("Conv", [("a", 3, 8, "d"), (5, 3, 3, 3)]),
    Row("Conv", [("a", 3, 9, 8), (5, 3, 3, 2)], {"strides": [2, 3], "pads": [1, 0, 2, 1], "dilations": [1, 2]}),
    Row("Conv", [("a", 4, 8), (6, 2, 3)], {"group": 2}),
    Row("Conv", [("a", 3, 9, 8), (5, 3, 3, 3)], {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    Row("Conv", [("a", 3, 9, 8), (5, 3, 3, 3)], {"auto_pad": "VALID", "strides": [2, 2]}),
    Row("ConvTranspose", [("a", 3, 4, 5), (3, 6, 3, 3)], {"strides": [2, 2]}, says_less=True),
    Row("MaxPool", [("a", 3, 8, 9)], {"kernel_shape": [3, 2]}),
    Row("MaxPool", [("a", 3, 8, 9)], {"kernel_shape": [3, 2], "strides": [2, 3], "ceil_mode": 1}),
    Row("MaxPool", [("a", 3, 8, 9)], {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}, 2),
    Row("AveragePool", [("a", 3, 8, 9)], {"kernel_shape": [3, 2], "strides": [2, 2], "auto_pad": "SAME_LOWER"}),
    Row("AveragePool", [("a", 3, 7)], {"kernel_shape": [2], "strides": [3], "ceil_mode": 1, "pads": [1, 1]}),
    Row("GlobalAveragePool", [("a", 3, 8, "b")]),
    Row("Resize", [("a", 3, 4, "b"), None, f(1, 1, 2, 2)]),
    Row("Resize", [("a", 3, 4, 6), None, f(1, 1, 1.5, 0.3)]),
    Row("Resize", [("a", 3, 4, "b"), None, None, i(8, 5)], {"axes": [2, 3]}),
    Row("Resize", [(2, 3, 4, "b"), None, None, i(2, 3, 8, 5)]),
    Row("Resize", [("a", 3, 4, 6), None, None, i(2, 3)], {"axes": [3, 2], "keep_aspect_ratio_policy": "not_larger"},
        says_less=True),
    Row("Resize", [(4, 6), None, f(2, 2)], {"mode": "linear"}),
    Row("Upsample", [("a", 3, 4, 6), f(1, 1, 2, 3)], opset=9),
    Row("Upsample", [("a", 3, 4, 6)], {"scales": [1.0, 1.0, 2.0, 3.0]}, opset=7),
    Row("GridSample", [("a", 3, 4, 5), ("a", 6, 7, 2)]),
    Row("LSTM", [("a", "b", 3), (1, 16, 3), (1, 16, 4)], {"hidden_size": 4}, 3),
    Row("GRU", [("a", "b", 3), (2, 12, 3), (2, 12, 4)], {"hidden_size": 4, "direction": "bidirectional"}, 2),
    Row("RNN", [("a", 2, 3), (1, 4, 3), (1, 4, 4)], {"hidden_size": 4}, 2),
]
ROWS = [*ELEMENTWISE, *BROADCAST, *REDUCED, *MOVED, *PARTS, *MADE, *LAYERS]


def dtype_of(row: Row, place: int) -> np.dtype:
    spec = row.inputs[place]
    return spec.dtype if isinstance(spec, (np.ndarray, np.generic)) else np.dtype(row.dtypes.get(place, np.float32))


def inferred(row: Row) -> tuple[list[Any], list[Any]]:
    """What tonnx infers: the dims and the dtypes of the outputs."""
    values: list[ir.Value | None] = []
    for place, spec in enumerate(row.inputs):
        if spec is None:
            values.append(None)
            continue
        dims = list(np.shape(spec)) if isinstance(spec, (np.ndarray, np.generic)) else spec
        dtype = ir.DataType.from_numpy(dtype_of(row, place))
        shape = ir.Shape([ir.SymbolicDim(dim) if isinstance(dim, str) else dim for dim in dims])
        values.append(ir.Value(name=f"in{place}", type=ir.TensorType(dtype), shape=shape))
        if isinstance(spec, (np.ndarray, np.generic)):
            values[-1].const_value = ir.tensor(np.asarray(spec))  # type: ignore[union-attr]
    schema = signature(row.op_type, row.opset)
    assert schema is not None
    dims = infer.shapes(row.op_type, values, row.attributes, row.outputs)
    return dims, infer.dtypes(schema, values, row.attributes, row.outputs)


def model_of(row: Row) -> onnx.ModelProto:
    inputs, weights, names = [], [], []
    for place, spec in enumerate(row.inputs):
        names.append("" if spec is None else f"in{place}")
        if isinstance(spec, (np.ndarray, np.generic)):
            weights.append(numpy_helper.from_array(np.asarray(spec), f"in{place}"))
        elif spec is not None:
            kind = helper.np_dtype_to_tensor_dtype(dtype_of(row, place))
            inputs.append(helper.make_tensor_value_info(f"in{place}", kind, spec))
    outputs = [f"out{n}" for n in range(row.outputs)]
    node = helper.make_node(row.op_type, names, outputs, **row.attributes)
    graph = helper.make_graph([node], "one", inputs, [helper.make_empty_tensor_value_info(o) for o in outputs], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", row.opset)], ir_version=10)


def by_onnx(model: onnx.ModelProto) -> list[list[Any] | None]:
    """The dims that onnx infers: numbers, names, or None."""
    dims: list[list[Any] | None] = []
    for value in onnx.shape_inference.infer_shapes(model, data_prop=True).graph.output:
        kind = value.type.tensor_type
        told = [d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in kind.shape.dim]
        dims.append([None if isinstance(d, str) and d.startswith("unk__") else d for d in told]
                    if kind.HasField("shape") else None)  # fmt: skip
    return dims


def by_running(model: onnx.ModelProto, sizes: Mapping[str, int], row: Row) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    feeds = {}
    for place, spec in enumerate(row.inputs):
        if isinstance(spec, tuple):
            shape = [sizes[dim] if isinstance(dim, str) else dim for dim in spec]
            high = 1 if row.op_type.startswith("Gather") else 2
            feeds[f"in{place}"] = np.asarray(random.integers(0, high, shape)).astype(dtype_of(row, place))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, feeds)


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_as_it_really_is(row: Row) -> None:
    shapes, dtypes = inferred(row)
    model = model_of(row)
    for sizes in SIZES if any(isinstance(d, str) for s in row.inputs if isinstance(s, tuple) for d in s) else SIZES[:1]:
        for dims, dtype, result in zip(shapes, dtypes, by_running(model, sizes, row), strict=True):
            assert dtype is None or dtype.numpy() == result.dtype
            if dims is None:
                continue
            assert len(dims) == result.ndim, f"{dims} is not {result.shape}"
            for dim, size in zip(dims, result.shape, strict=True):
                known = dim if isinstance(dim, int) else sizes.get(dim.value or "")
                assert known is None or known == size, f"{dims} is not {result.shape} where {sizes}"


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_no_less_than_onnx(row: Row) -> None:
    shapes, dtypes = inferred(row)
    for dims, dtype, told in zip(shapes, dtypes, by_onnx(model_of(row)), strict=True):
        assert dtype is not None
        if row.says_less or told is None:
            continue
        assert dims is not None, f"onnx says {told}"
        ours = [dim if isinstance(dim, int) else dim.value for dim in dims]
        # Of numbers, the other test says who is right: onnx counts windows that begin in the padding.
        assert all(theirs is None or mine is not None for mine, theirs in zip(ours, told, strict=True)), (ours, told)


def test_most_shape_functions_are_looked_at() -> None:
    functions = {id(_SHAPES[row.op_type]) for row in ROWS}
    unseen = {name for name, function in _SHAPES.items() if id(function) not in functions}
    assert unseen <= {"SequenceLength", "OptionalHasElement"}, unseen
