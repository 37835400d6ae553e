"""Element types of what a node makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir

from tonnx.ir.schema import Signature

# Outputs whose dtype is named by an attribute: the attribute, and the dtype when it is absent.
_FLOAT = ir.DataType.FLOAT
_DTYPE_ATTRIBUTE: dict[str, tuple[str, ir.DataType | None]] = {
    **dict.fromkeys(("Cast", "BitCast"), ("to", None)),
    **dict.fromkeys(("EyeLike", "RandomNormalLike", "RandomUniformLike", "Bernoulli"), ("dtype", None)),
    **dict.fromkeys(("RandomNormal", "RandomUniform"), ("dtype", _FLOAT)),
    "Multinomial": ("dtype", ir.DataType.INT32),
    **dict.fromkeys(("HannWindow", "HammingWindow", "BlackmanWindow", "MelWeightMatrix"), ("output_datatype", _FLOAT)),
}


def dtypes(
    signature: Signature, inputs: Sequence[ir.Value | None], attributes: Mapping[str, Any], outputs: int
) -> list[ir.DataType | None]:
    """The element types of all outputs: bound by the schema's type variables, or named by an attribute."""
    if signature.op_type in _DTYPE_ATTRIBUTE:
        name, default = _DTYPE_ATTRIBUTE[signature.op_type]
        if name in attributes:
            named = attributes[name]
            return [ir.DataType[named] if isinstance(named, str) else ir.DataType(named)] * outputs
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
