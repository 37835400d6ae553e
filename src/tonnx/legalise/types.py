"""The one type rule: older schemas accept fewer dtypes; cast around the node where that loses nothing."""

from __future__ import annotations

import onnx_ir as ir

from tonnx.build import Builder
from tonnx.legalise.call import Blocked
from tonnx.schema import Signature, signature
from tonnx.target import CANON

T = ir.DataType

# What a dtype can be computed in without losing a value, in order of preference.
_WIDER = {
    T.BOOL: (T.INT32, T.INT64, T.FLOAT),
    T.INT8: (T.INT32, T.INT64, T.FLOAT),
    T.UINT8: (T.INT32, T.INT64, T.FLOAT),
    T.INT16: (T.INT32, T.INT64, T.FLOAT),
    T.UINT16: (T.INT32, T.INT64, T.FLOAT),
    T.INT32: (T.INT64, T.DOUBLE),
    T.UINT32: (T.INT64, T.DOUBLE),
    T.INT64: (T.DOUBLE,),
    T.UINT64: (),
    T.BFLOAT16: (T.FLOAT, T.DOUBLE),
    T.FLOAT16: (T.FLOAT, T.DOUBLE),
    T.FLOAT: (T.DOUBLE,),
}


def fit(op: Builder, node: ir.Node, schema: Signature) -> bool:
    """Make the dtypes of a node acceptable to ``schema``; True if something was cast."""
    wanted: dict[str, ir.DataType] = {}
    for i, value in enumerate(node.inputs):
        if value is None or value.dtype is None:
            continue
        formal = schema.input(i)
        if formal.dtypes and value.dtype not in formal.dtypes and formal.type_str not in wanted:
            wanted[formal.type_str] = _wider(node, value.dtype, formal.dtypes)
    if not wanted:
        return False
    for i, value in enumerate(node.inputs):
        if value is not None and (dtype := wanted.get(schema.input(i).type_str)) is not None:
            node.replace_input_with(i, op.cast(value, dtype))
    for i, output in enumerate(node.outputs):
        dtype = wanted.get(schema.output(i).type_str)
        if dtype is not None and output.dtype is not None and output.dtype != dtype:
            _cast_back(node, output, dtype)
    return True


def _wider(node: ir.Node, dtype: ir.DataType, allowed: frozenset[ir.DataType]) -> ir.DataType:
    for candidate in _WIDER.get(dtype, ()):
        if candidate in allowed:
            return candidate
    raise Blocked(f"{node.op_type} does not take {dtype.name.lower()} there")


def _cast_back(node: ir.Node, output: ir.Value, dtype: ir.DataType) -> None:
    """The node now computes ``dtype``; its readers still get what they had."""
    graph = node.graph
    assert graph is not None and output.dtype is not None
    original = output.dtype
    cast = ir.Node("", "Cast", [output], [ir.AttrInt64("to", int(original))], num_outputs=1, name=f"{node.name}/Cast")
    result = cast.outputs[0]
    graph.insert_after(node, cast)
    result.type, result.shape = ir.TensorType(original), output.shape
    for user, index in tuple(output.uses()):
        if user is not cast:
            user.replace_input_with(index, result)
    if output.is_graph_output():
        name = output.name
        output.name = f"{name}__{dtype.name.lower()}"
        result.name = name
        for i, value in enumerate(graph.outputs):
            if value is output:
                graph.outputs[i] = result
    output.type = ir.TensorType(dtype)


def lowest_opset(node: ir.Node, above: int) -> int | None:
    """The lowest opset from which the operator takes the dtypes of this node."""
    for opset in range(above + 1, CANON + 1):
        schema = signature(node.op_type, opset)
        if schema is not None and all(
            v is None or v.dtype is None or not schema.input(i).dtypes or v.dtype in schema.input(i).dtypes
            for i, v in enumerate(node.inputs)
        ):
            return opset
    return None
