"""Operators with forms of their own: on lists that grow, on axes that are cut at run time, and recurrent layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from tonnx.errors import LoweringError, UnsupportedArgument
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
    return isinstance(thing, List) and isinstance(walk.store.elements(thing), DynamicList)


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
