"""Element types that ONNX Runtime's CPU kernels lack, and the ones to compute in instead.

The builder asks this for every node that a front end makes, so that rules read like their formulas and never cast for
the runtime's sake. float16 is left alone: the runtime widens such nodes by itself, and others have the kernels.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from tonnx.ir.schema import Signature

T = ir.DataType

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
            "LRN LeakyRelu LpPool Mean Mish OneHot PRelu RNN Resize Selu Sinh Softplus Softsign Tan "
            "ThresholdedRelu"
        ),
        T.BFLOAT16: (
            f"{_REDUCTIONS} "
            "Abs Acos Acosh Add ArgMax ArgMin Asin Asinh Atan Atanh Attention AveragePool BatchNormalization "
            "Ceil Clip Conv ConvTranspose Cos Cosh CumProd CumSum DepthToSpace Det Div Dropout Elu Equal Erf "
            "Exp Expand Floor GRU Gelu Gemm GlobalAveragePool GlobalMaxPool Greater GreaterOrEqual GridSample "
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

# What holds every value of a dtype, in order of preference; only double to float loses digits. An integer never turns
# into a float here: a rule that hands one to a function of real numbers has forgotten to promote it.
_INSTEAD: dict[ir.DataType, tuple[ir.DataType, ...]] = {
    T.BOOL: (T.INT32, T.UINT8, T.INT64),
    T.INT8: (T.INT32, T.INT64),
    T.UINT8: (T.INT32, T.INT64),
    T.INT16: (T.INT32, T.INT64),
    T.UINT16: (T.INT32, T.INT64),
    T.INT32: (T.INT64,),
    T.UINT32: (T.INT64,),
    T.BFLOAT16: (T.FLOAT,),
    T.DOUBLE: (T.FLOAT,),
}


def instead(schema: Signature, inputs: Sequence[ir.Value | None]) -> dict[str, ir.DataType]:
    """The dtype to compute in, for each type variable of a node that the runtime, or ONNX itself, has no kernel for."""
    result: dict[str, ir.DataType] = {}
    for i, value in enumerate(inputs):
        if value is None or value.dtype is None:
            continue
        formal = schema.input(i)
        if formal.type_str in result or not formal.dtypes or _runs(schema.op_type, value.dtype, formal.dtypes):
            continue
        for dtype in _INSTEAD.get(value.dtype, ()):
            if _runs(schema.op_type, dtype, formal.dtypes):
                result[formal.type_str] = dtype
                break
    return result


def _runs(op_type: str, dtype: ir.DataType, allowed: frozenset[ir.DataType]) -> bool:
    return dtype in allowed and op_type not in _MISSING.get(dtype, ())
