"""Activations that a network rounds with operators of its own: Round, Clip and Cast in the place of QuantizeLinear.

Some libraries quantise as they go, with a scale for each row, which ONNX's operators do not say. Without rounding, the
integers between Round and the Cast back to floats are floats.
"""

from __future__ import annotations

import onnx

_INTEGERS = frozenset((onnx.TensorProto.INT8, onnx.TensorProto.UINT8, onnx.TensorProto.INT32, onnx.TensorProto.INT64))
_ANY_TYPE = frozenset("Add Sub Mul Clip Min Max Reshape Transpose Unsqueeze Squeeze Expand Concat Identity".split())
"""Operators that compute the same with floats; of the others, none is known to stand in between."""
_SHAPED = {"Reshape": 1, "Unsqueeze": 1, "Squeeze": 1, "Expand": 1}
"""Which input says a shape, and stays an integer."""


def rounds(graph: onnx.GraphProto) -> bool:
    """Whether rounded numbers become integers somewhere."""
    return any(node.op_type == "Round" for node in graph.node) and any(
        node.op_type == "Cast" and _to(node) in (onnx.TensorProto.INT8, onnx.TensorProto.UINT8) for node in graph.node
    )


def unround(graph: onnx.GraphProto) -> bool:
    """Change the main graph so that nothing is rounded; False where it has operators that are for integers only."""
    from_rounded: set[str] = set()
    floats: set[str] = set()  # what was integers
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        if node.op_type == "Round":
            node.op_type = "Identity"
            from_rounded.add(node.output[0])
        elif node.op_type == "Cast" and _to(node) in _INTEGERS and node.input[0] in (from_rounded | floats):
            node.op_type = "Identity"
            del node.attribute[:]
            floats.add(node.output[0])
        elif node.op_type == "MatMulInteger" and node.input[0] in floats:
            nodes += _product(node)
            floats.add(node.output[0])
            continue
        elif node.op_type in _ANY_TYPE and not floats.isdisjoint(node.input):
            nodes += _operands(node, floats)
            floats.update(node.output)
        elif node.op_type in _ANY_TYPE and not from_rounded.isdisjoint(node.input):
            from_rounded.update(node.output)
        elif node.op_type != "Cast" and not floats.isdisjoint(node.input):
            return False
        nodes.append(node)
    kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:], graph.value_info[:]  # types that hold no longer
    graph.node.extend(kept)
    return bool(floats)


def _to(node: onnx.NodeProto) -> int:
    return next((attribute.i for attribute in node.attribute if attribute.name == "to"), 0)


def _operands(node: onnx.NodeProto, floats: set[str]) -> list[onnx.NodeProto]:
    """Casts of those inputs that are integers still."""
    casts = []
    for index, name in enumerate(node.input):
        if name and name not in floats and index != _SHAPED.get(node.op_type):
            node.input[index] = f"{node.output[0]}.{index}"
            casts.append(_cast(name, node.input[index]))
    return casts


def _product(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """MatMulInteger with floats: zero points are taken off both."""
    result = node.output[0]
    factors, before = [], []
    for index in (0, 1):
        factor, zero, difference = (f"{result}.{index}{part}" for part in ("", ".zero", ".difference"))
        before.append(_cast(node.input[index], factor))
        if len(node.input) > index + 2 and node.input[index + 2]:
            before.append(_cast(node.input[index + 2], zero))
            before.append(onnx.helper.make_node("Sub", [factor, zero], [difference]))
            factor = difference
        factors.append(factor)
    return [*before, onnx.helper.make_node("MatMul", factors, [result])]


def _cast(name: str, result: str) -> onnx.NodeProto:
    return onnx.helper.make_node("Cast", [name], [result], to=onnx.TensorProto.FLOAT)
