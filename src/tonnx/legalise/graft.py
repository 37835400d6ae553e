"""Puts a graph that was written at some opset into the graph that is being built, at the builder's own opset.

Symbolic functions and onnxscript functions speak the opset of their author. Their nodes are collected in a graph of
their own, types and shapes are inferred, the legaliser takes them to the builder's opset, and then they move over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx
import onnx_ir as ir

from tonnx.errors import LoweringError, RetargetError, first_words, told_as
from tonnx.io import read
from tonnx.ir.build import Builder
from tonnx.ir.rewrite import inner_graphs, use_instead
from tonnx.ir.target import CANON, OLDEST, Target
from tonnx.legalise.engine import legalise


def stand_in(operand: ir.Value, name: str) -> ir.Value:
    """An input for a graph of its own, of the type and shape of a value outside."""
    shape = None if operand.shape is None else ir.Shape(operand.shape.dims)
    return ir.Value(name=name, type=operand.type, shape=shape)


def graft(
    op: Builder, graph: ir.Graph, operands: Sequence[ir.Value], functions: Sequence[ir.Function] = ()
) -> list[ir.Value]:
    """The outputs of ``graph``, whose inputs are ``operands``, computed in the graph that ``op`` builds."""
    opset = graph.opset_imports.get("", op.opset)
    operand_of = dict(zip(graph.inputs, operands, strict=True))
    if not OLDEST <= opset <= CANON:
        raise LoweringError(f"the function is written for opset {opset}", why=f"tonnx reads {OLDEST} to {CANON}")
    model = ir.Model(graph, ir_version=10, functions=functions)
    _check(model, opset)
    if functions:
        from onnx_ir.passes.common import InlinePass

        InlinePass()(model)
    read.infer(model)
    if opset != op.opset:
        try:
            legalise(model, Target(op.opset))
        except RetargetError as error:
            raise LoweringError(
                f"what the function wrote for opset {opset} cannot be taken along", why=str(error)
            ) from error
    return _moved(op, graph, operand_of)


def _check(model: ir.Model, opset: int) -> None:
    """An author may have written operators as another opset has them."""
    context = onnx.checker.C.CheckerContext()
    context.ir_version = onnx.IR_VERSION
    context.opset_imports = dict(model.opset_imports)
    what = f"the function writes nodes that are not valid at opset {opset}"
    hint = "write them as that opset has them, or ask for the opset that they are written for"
    with told_as(LoweringError, what, why=first_words, hint=hint):
        for node in model.graph:
            if node.domain == "":
                onnx.checker.check_node(ir.to_proto(node), context)


def _moved(op: Builder, graph: ir.Graph, operand_of: Mapping[ir.Value, ir.Value]) -> list[ir.Value]:
    results = list(graph.outputs)
    graph.outputs.clear()
    replaced: dict[ir.Value, ir.Value] = dict(operand_of)
    for value in list(graph.initializers.values()):
        assert value.const_value is not None
        replaced[value] = op.constant(value.const_value.numpy(), value.const_value.dtype)
    for old, new in replaced.items():
        use_instead(old, new)
    for node in list(graph):
        if node.op_type == "Constant" and node.domain == "" and "value" in node.attributes:
            tensor = node.attributes["value"].as_tensor()
            constant = replaced[node.outputs[0]] = op.constant(tensor.numpy(), tensor.dtype)
            use_instead(node.outputs[0], constant)
            graph.remove(node)
            continue
        graph.remove(node)
        _rename(op, node)
        if op.before is None:
            op.graph.append(node)
        else:
            op.graph.insert_before(op.before, node)
            op.new_nodes.append(node)
    return [replaced.get(value, value) for value in results]


def _rename(op: Builder, node: ir.Node) -> None:
    """Names of the model that it comes into, and the source of what is being lowered."""
    node.name = op.names.unique(f"{op.scope}/{node.op_type}")
    node.metadata_props.update(op.source)
    for output in node.outputs:
        output.name = op.names.unique("t")
    for graph in inner_graphs(node):
        for value in graph.inputs:
            value.name = op.names.unique(value.name or "t")
        for inner in graph:
            _rename(op, inner)
