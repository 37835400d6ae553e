"""Calls of Python in a trace: ``torch.autograd.Function`` classes, by their ``symbolic`` or looked through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import onnx_ir as ir
import torch

from tonnx.errors import LoweringError
from tonnx.frontends.torch.capture import script_graphs as graphs
from tonnx.frontends.torch.capture.patches.autograd import has_symbolic, lower_function
from tonnx.frontends.torch.operators.bind import to_onnx_dtype
from tonnx.frontends.torch.script.values import Tensor

if TYPE_CHECKING:
    from tonnx.frontends.torch.script.walk import ScriptWalk


def python_op(walk: ScriptWalk, node: Any, arguments: list[Any]) -> Any:
    """The results of ``prim::PythonOp``, in the form that the walk wants."""
    owner = node.pyobj()
    function = getattr(owner, "__self__", owner)
    if has_symbolic(function):
        things = [Tensor(value) for value in _by_symbolic(walk, node, function, arguments)]
        return things[0] if node.outputsSize() == 1 else things
    if "Subgraph" in node.attributeNames():
        result = walk.graph(graphs.ready(node.g("Subgraph")), arguments)
        return result if node.outputsSize() == 1 else list(result)
    raise LoweringError(
        f"{node.pyname()} is a Python function that the trace does not look into",
        hint="give the class a static method symbolic(g, …), or export the torch.nn.Module itself",
    )


def _by_symbolic(walk: ScriptWalk, node: Any, function: type, arguments: list[Any]) -> list[ir.Value]:
    tensors, others = iter(arguments), iter(node.scalar_args())
    operands = []
    for kind in node.cconv():  # d: a value of the graph, c: what Python had
        value = next(tensors) if kind == "d" else next(others)
        operands.append(walk.store.read(walk.op, value) if isinstance(value, Tensor) else value)
    results = lower_function(walk.op, function, operands, walk.settings.opset)
    for value, output in zip(results, node.outputs(), strict=True):
        traced = output.type()
        if value.type is None and isinstance(traced, torch._C.TensorType) and traced.dtype() is not None:
            value.type = ir.TensorType(to_onnx_dtype(traced.dtype()))
        if value.shape is None and traced.dim() is not None:
            value.shape = ir.Shape([None] * traced.dim())  # the trace knows the sizes of the example only
    return results
