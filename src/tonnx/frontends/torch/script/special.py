"""Operators with forms of their own: on lists that grow, on axes that are cut at run time, recurrent layers, Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import onnx_ir as ir
import torch

from tonnx.errors import LoweringError, UnsupportedArgument
from tonnx.frontends.torch.capture import script_graphs as graphs
from tonnx.frontends.torch.capture.patches.autograd import has_symbolic, lower_function
from tonnx.frontends.torch.operators.bind import to_onnx_dtype
from tonnx.frontends.torch.script import lists
from tonnx.frontends.torch.script.store import link
from tonnx.frontends.torch.script.values import List, Tensor
from tonnx.lowering.regions.lists import DynamicList, sequence
from tonnx.lowering.rules import rule_for

if TYPE_CHECKING:
    from tonnx.frontends.torch.script.operators import Operator
    from tonnx.frontends.torch.script.walk import ScriptWalk


RECURRENT = frozenset(("lstm", "gru", "rnn_tanh", "rnn_relu"))


# Operators with forms of their own


def parts_at_run_time(walk: ScriptWalk, operator: Operator, arguments: list[Any]) -> List | None:
    """A tensor cut along an axis whose size is known only at run time: a list of as many parts as there are then."""
    if operator.name not in ("unbind", "split") or walk.unpacked is not None:
        return None
    op, value = walk.op, walk.store.read(walk.op, arguments[0])
    dim = arguments[-1]
    axis = dim % max(op.rank(value), 1)
    if isinstance(op.size(value, axis), int) or value.dtype is None:
        return None
    dims = list(value.shape.dims)  # type: ignore[union-attr]
    if operator.name == "unbind":
        order = [axis, *(i for i in range(len(dims)) if i != axis)]
        stacked = op.Transpose(value, perm=order) if axis else value
        parts_list = List(DynamicList(stacked, value.dtype, tuple(d for i, d in enumerate(dims) if i != axis)))
    elif isinstance(arguments[1], int):
        size = op.constant(arguments[1], ir.DataType.INT64)
        parts = sequence(op.SplitToSequence(value, size, axis=axis), value.dtype)
        dims[axis] = ir.SymbolicDim(None)
        parts_list = List(DynamicList(parts, value.dtype, tuple(dims), stacked=False))
    else:
        return None
    link(parts_list, arguments[0].root)
    return parts_list


def is_grown(walk: ScriptWalk, thing: Any) -> bool:
    return isinstance(thing, List) and isinstance(walk.store.content(thing), DynamicList)


def joined(walk: ScriptWalk, name: str, grown: DynamicList, dim: int) -> ir.Value:
    """torch.stack and torch.cat of a list that grew."""
    if grown.numbers:
        raise LoweringError(f"torch.{name} of a list of numbers")
    return grown.joined(walk.op, dim, stack=name == "stack")


def recurrent(walk: ScriptWalk, operator: Operator, arguments: list[Any]) -> list[Any]:
    x, hx, params, has_biases, num_layers, _, train, bidirectional, batch_first = arguments
    rule = rule_for("tonnx", operator.name, "")
    assert rule is not None

    def values(thing: Any) -> list[ir.Value]:
        items = [thing] if isinstance(thing, Tensor) else lists.elements_of(walk, thing, "its state")
        return [walk.store.read(walk.op, item) for item in items]

    if train is True and walk.settings.training != "EVAL":
        raise UnsupportedArgument("a recurrent layer in training is not supported")
    outputs = rule.function(
        walk.op,
        walk.store.read(walk.op, x),
        hx=values(hx),
        params=values(params),
        has_biases=has_biases,
        num_layers=num_layers,
        bidirectional=bidirectional,
        batch_first=batch_first,
    )
    return [Tensor(value) for value in outputs]


# Calls of Python in a trace: ``torch.autograd.Function`` classes, by their ``symbolic`` or looked through


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
