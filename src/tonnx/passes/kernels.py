"""Nodes of element types that a runtime has no kernel for are computed in others, with casts around them.

float16 is left alone: the runtime widens such nodes by itself, and others have the kernels. float64 turns into float32,
which lowers the precision; everything else is widened, and loses nothing. Only for targets that compute int64 in 32
bits themselves, or have no other integers, int64 turns into int32.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial

import onnx_ir as ir

from tonnx.ir.build import Builder, Names, T
from tonnx.ir.rewrite import all_graphs, cast_around, names_in, use_instead
from tonnx.ir.schema import INSTEAD, instead, signature
from tonnx.targets import Profile

_REDUCTIONS = (
    "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare"
)

# Found with onnxruntime 1.31 by loading a model of one node for each operator and dtype, at opsets 13, 18 and 26.
_MISSING: dict[ir.DataType, frozenset[str]] = {
    dtype: frozenset(names.split())
    for dtype, names in {
        T.DOUBLE: (
            "Acos Acosh Asin Asinh Atan Atanh AveragePool Conv ConvTranspose Cosh Det Elu Erf Gelu "
            "GlobalAveragePool GlobalMaxPool GridSample HardSigmoid HardSwish Hardmax InstanceNormalization "
            "LRN LeakyRelu LpPool Mean MeanVarianceNormalization Mish OneHot PRelu RNN Resize Selu Sinh "
            "Softplus Softsign Tan ThresholdedRelu"
        ),
        T.BFLOAT16: (
            f"{_REDUCTIONS} "
            "Abs Acos Acosh Add ArgMax ArgMin Asin Asinh Atan Atanh Attention AveragePool BatchNormalization "
            "Ceil Clip Conv ConvTranspose Cos Cosh CumProd CumSum DepthToSpace Det Div Dropout Elu Equal Erf "
            "Exp Expand Floor GRU Gelu Gemm GlobalAveragePool GlobalMaxPool Greater GreaterOrEqual GridSample "
            "AffineGrid CenterCropPad GroupNormalization MeanVarianceNormalization "  # of functions, their nodes
            "HardSigmoid HardSwish Hardmax InstanceNormalization IsNaN LRN LSTM LeakyRelu Less LessOrEqual "
            "Log LogSoftmax LpNormalization LpPool MatMul Max MaxPool Mean Min Mish Mod Mul Neg NonZero PRelu "
            "Pad Pow RMSNormalization RNN Reciprocal Relu Resize Round Selu Sigmoid Sin Sinh Size Softmax "
            "Softplus Softsign SpaceToDepth Sqrt Sub Sum Tan Tanh ThresholdedRelu Tile TopK Trilu Where"
        ),
        T.BOOL: "DepthToSpace OneHot Resize SpaceToDepth Unique Where",
        T.INT8: "Einsum NonZero OneHot Trilu",
        T.UINT8: "Einsum OneHot Trilu Unique",
        T.INT16: (
            "ArgMax ArgMin Clip DepthToSpace Einsum Max Min NonZero OneHot Pad Relu Resize SpaceToDepth Trilu "
            "Unique Where"
        ),
        T.UINT16: (
            "ArgMax ArgMin Clip DepthToSpace Einsum Max Min NonZero OneHot Pad Resize SpaceToDepth TopK Trilu "
            "Unique Where"
        ),
        T.INT32: "OneHot Unique",
        T.UINT32: (f"{_REDUCTIONS} ArgMax ArgMin CumSum Einsum NonZero OneHot TopK Trilu Unique"),
    }.items()
}


# At older opsets, found in the same way: the first at which there is a kernel.
_MISSING_BEFORE = {T.DOUBLE: {"Clip": 12, "Max": 8, "MaxPool": 8, "Min": 8, "NonZero": 13}}


def _runs(opset: int, op_type: str, dtype: ir.DataType) -> bool:
    return op_type not in _MISSING.get(dtype, ()) and opset >= _MISSING_BEFORE.get(dtype, {}).get(op_type, 0)


_NARROWED = {**INSTEAD, T.INT64: (T.INT32,)}
_ANY_DTYPE = frozenset(("Cast", "If", "Loop", "Scan", "SequenceMap"))
"""What converts, and what only hands on values of several types."""
_POSITIONS = "Tind"
"""The type variable of Slice's positions, which are constants, and where INT64_MAX says "to the end"."""

Touched = Counter[tuple[str, ir.DataType, ir.DataType]]
"""How many nodes of an operator compute in another dtype: operator, its own dtype, the other."""


def use_ort_kernels(model: ir.Model) -> Touched:
    """For ONNX Runtime's CPU, at any opset; gives what was changed."""
    return _use_present_kernels(model, partial(_runs, model.opset_imports[""]), INSTEAD, {})


def use_kernels_of(model: ir.Model, profile: Profile) -> Touched:
    """For a named target; gives what was changed."""
    borders = narrow_borders(model, outputs=profile.has("Cast")) if profile.int64 == "none" else {}
    return _use_present_kernels(model, partial(_takes, profile), _NARROWED, borders)


def _takes(profile: Profile, op_type: str, dtype: ir.DataType) -> bool:
    return op_type in _ANY_DTYPE or profile.takes(op_type, dtype.name.lower())


def _use_present_kernels(
    model: ir.Model,
    runs: Callable[[str, ir.DataType], bool],
    others: Mapping[ir.DataType, tuple[ir.DataType, ...]],
    own_casts: dict[ir.Value, ir.Value],
) -> Touched:
    touched: Touched = Counter()
    lacking = [
        node
        for graph in all_graphs(model)
        for node in graph
        if node.domain == "" and any(not runs(node.op_type, x.dtype) for x in node.inputs if x is not None and x.dtype)
    ]
    names = Names(names_in(model)) if lacking else Names()
    for node in lacking:
        schema = signature(node.op_type, model.opset_imports[""])
        dtypes = {} if schema is None else instead(schema, node.inputs, runs, others)
        if node.op_type == "Slice":
            dtypes.pop(_POSITIONS, None)
        if schema is None or not dtypes or (T.INT32 in dtypes.values() and not _in_32_bits(node)):
            continue
        graph = node.graph
        assert isinstance(graph, ir.Graph)
        op = Builder(graph, names=names, opset=model.opset_imports[""], before=node)
        op.constants_as_nodes = graph is not model.graph  # a function's body has no initializers
        op.source, op.scope = dict(node.metadata_props), (node.name or "").rsplit("/", 1)[0]
        pairs = {(x.dtype, dtypes.get(schema.input(i).type_str)) for i, x in enumerate(node.inputs) if x is not None}
        touched.update((node.op_type, own, other) for own, other in pairs if own is not None and other is not None)
        own_casts.update(cast_around(op, node, schema, dtypes))
    _drop_round_trips(own_casts)
    return touched


def _drop_round_trips(own_casts: dict[ir.Value, ir.Value]) -> None:
    """To a type that holds all of its numbers, and back, changes nothing; through others they are rounded or wrap."""
    for result, inner in own_casts.items():
        if (inner.dtype, result.dtype) not in ((T.FLOAT, T.DOUBLE), (T.INT32, T.INT64)):
            continue
        for user, _ in tuple(result.uses()):
            back = user.outputs[0]
            if (user.domain, user.op_type, back.dtype) == ("", "Cast", inner.dtype) and not back.is_graph_output():
                use_instead(back, inner)


def _in_32_bits(node: ir.Node) -> bool:
    """Whether the integers that are known of a node's inputs fit int32."""
    for value in node.inputs:
        if value is not None and value.dtype == T.INT64 and value.const_value is not None:
            array = value.const_value.numpy()
            if array.size and (array.min() < -(2**31) or array.max() >= 2**31):
                return False
    return True


def narrow_borders(model: ir.Model, *, outputs: bool = True) -> dict[ir.Value, ir.Value]:
    """Inputs and outputs of the model that are int64 become int32; gives the casts of the inputs and their inputs.

    A cast of an input mostly goes again, with those that narrow what reads it; one of an output stays.
    """
    graph, names = model.graph, Names(names_in(model))
    casts: dict[ir.Value, ir.Value] = {}
    first = next(iter(graph), None)
    for value in graph.inputs:
        if value.dtype == T.INT64 and not value.is_initializer() and first is not None:
            value.type = ir.TensorType(T.INT32)
            op = Builder(graph, names=names, opset=model.opset_imports[""], before=first)
            wide = op.cast(value, T.INT64)
            for user, index in tuple(value.uses()):
                if user is not wide.producer():
                    user.replace_input_with(index, wide)
            casts[wide] = value
    for i, value in enumerate(graph.outputs) if outputs else ():
        if value.dtype == T.INT64:
            op = Builder(graph, names=names, opset=model.opset_imports[""])
            narrow = op.cast(value, T.INT32)
            name = value.name
            value.name = names.unique(f"{name}_int64")
            narrow.name, narrow.shape = name, value.shape
            graph.outputs[i] = narrow
    return casts
