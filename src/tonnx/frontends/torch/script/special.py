"""Operators with forms of their own: on lists that grow, on axes that are cut at run time, and recurrent layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from tonnx.errors import LoweringError, UnsupportedArgument
from tonnx.frontends.torch.script import lists
from tonnx.frontends.torch.script.store import link
from tonnx.frontends.torch.script.values import Grown, List, Tensor
from tonnx.lowering.rules import rule_for

if TYPE_CHECKING:
    from tonnx.frontends.torch.script.operators import Operator
    from tonnx.frontends.torch.script.walk import Walk


RECURRENT = frozenset(("lstm", "gru", "rnn_tanh", "rnn_relu"))


# Operators with forms of their own


def parts_at_run_time(walk: Walk, operator: Operator, arguments: list[Any]) -> List | None:
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
        made = List(Grown(stacked, value.dtype, [d for i, d in enumerate(dims) if i != axis], True))
    elif isinstance(arguments[1], int):
        size = op.constant(arguments[1], ir.DataType.INT64)
        (parts,) = op.node("SplitToSequence", [value, size], [ir.AttrInt64("axis", axis)], [(value.dtype, None)])
        parts.type = ir.SequenceType(ir.TensorType(value.dtype))
        dims[axis] = ir.SymbolicDim(None)
        made = List(Grown(parts, value.dtype, dims, False))
    else:
        return None
    link(made, arguments[0].root)
    return made


def is_grown(walk: Walk, thing: Any) -> bool:
    return isinstance(thing, List) and isinstance(walk.store.elements(thing), Grown)


def joined(walk: Walk, name: str, grown: Grown, dim: int) -> ir.Value:
    """torch.stack and torch.cat of a list that grew."""
    op = walk.op
    if grown.dims is None:
        raise LoweringError(f"torch.{name} of a list of numbers")
    rank = len(grown.dims) + (name == "stack")
    axis = dim % max(rank, 1)
    if not grown.stacked:
        attributes = [ir.AttrInt64("axis", axis), ir.AttrInt64("new_axis", int(name == "stack"))]
        unknown = [ir.SymbolicDim(None)] * rank
        (made,) = op.node("ConcatFromSequence", [grown.value], attributes, [(grown.dtype, unknown)])
        return made
    value = grown.value
    order = list(range(1, len(grown.dims) + 1))
    order.insert(axis, 0)
    if order != sorted(order):
        value = op.Transpose(value, perm=order)
    if name == "stack":
        return value
    sizes = op.sizes(value)
    return op.reshape(value, [*sizes[:axis], op.product(sizes[axis : axis + 2]), *sizes[axis + 2 :]])


def recurrent(walk: Walk, operator: Operator, arguments: list[Any]) -> list[Any]:
    x, hx, params, has_biases, num_layers, _, train, bidirectional, batch_first = arguments
    rule = rule_for("tonnx", operator.name, "")
    assert rule is not None

    def values(thing: Any) -> list[ir.Value]:
        items = [thing] if isinstance(thing, Tensor) else lists.elements_of(walk, thing, "its state")
        return [walk.store.read(walk.op, item) for item in items]

    if train is True and walk.settings.training != "EVAL":
        raise UnsupportedArgument("a recurrent layer in training is not supported")
    made = rule.function(
        walk.op,
        walk.store.read(walk.op, x),
        hx=values(hx),
        params=values(params),
        has_biases=has_biases,
        num_layers=num_layers,
        bidirectional=bidirectional,
        batch_first=batch_first,
    )
    return [Tensor(value) for value in made]
