"""Branches: If, unless it is known now which way they go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import onnx_ir as ir

from tonnx.errors import LoweringError
from tonnx.frontends.paddle.lower.snapshots import (
    PaddleMaker,
    PaddleRules,
    Thing,
    assigned_value,
    contradicts,
    snapshot,
    thing_of,
)
from tonnx.frontends.paddle.read.graph import Op, Type, Value
from tonnx.frontends.paddle.read.liveness import before_of, results_of
from tonnx.ir.build import Builder
from tonnx.ir.infer import known_number
from tonnx.lowering.regions import settle
from tonnx.lowering.regions.forms import Form, TensorForm

if TYPE_CHECKING:
    from tonnx.frontends.paddle.lower.walk import ProgramWalk

SELECTS = ("select_input", "pd_op.select_input")


def lower_branch(walk: ProgramWalk, op: Op) -> tuple[Thing, ...]:
    """The results of a branch, None where nobody needs one."""
    condition = _condition(walk, op)
    kept = walk.needed.kept(op)
    things: list[Thing] = [None] * len(results_of(op))
    value = known_number(condition)
    chosen = _if(walk, op, condition, kept) if value is None else _side(walk, op, 0 if value else 1, kept)
    for i, thing in zip(kept, chosen, strict=True):
        things[i] = thing
    return tuple(things)


def _condition(walk: ProgramWalk, op: Op) -> ir.Value:
    operands = [walk.resolve(operand) for operand in op.operands]
    builder = walk.op
    if not op.attributes.get("is_scalar_condition", True):
        # The oldest form: run if there is something to run on.
        filled = [builder.Greater(builder.Size(operand), 0) for operand in operands]
        condition = filled[0]
        for other in filled[1:]:
            condition = builder.And(condition, other)
        return condition
    if len(operands) != 1:
        raise LoweringError(f"a branch has {len(operands)} conditions")
    (only,) = operands
    return only  # type: ignore[no-any-return]


def _side(walk: ProgramWalk, op: Op, side: int, kept: Sequence[int]) -> list[Thing]:
    """Lower one side where we are; gives its kept results."""
    if side < len(op.blocks):
        block = op.blocks[side]
        walk.block(block)
        values = [block.results[i] for i in kept]
    else:
        values = [before_of(op, i) for i in kept]
    outputs = results_of(op)
    return [assigned_value(walk.defined(v), declared(outputs[i])) for i, v in zip(kept, values, strict=True)]


def declared(value: Value | None) -> Type:
    return value.type if value is not None else Type()


def _if(walk: ProgramWalk, op: Op, condition: ir.Value, kept: Sequence[int]) -> list[Thing]:
    sides = []
    for side, name in enumerate(("then", "else")):
        inner = walk.op.inner(name)
        with walk.building(inner):
            sides.append((inner, _side(walk, op, side, kept)))
    outputs = results_of(op)
    return choose(walk, condition, sides, [declared(outputs[i]) for i in kept])


def choose(
    walk: ProgramWalk, condition: ir.Value, sides: Sequence[tuple[Builder, Sequence[Thing]]], types: Sequence[Type]
) -> list[Thing]:
    """What an If over two graphs that were begun leaves, with these results."""
    results = list(sides[0][1])
    differing = [i for i, (one, other) in enumerate(zip(results, sides[1][1], strict=True)) if one is not other]
    ends = [(inner, {i: snapshot(things[i]) for i in differing}) for inner, things in sides]
    crossed = settle.choose(walk.op, condition, ends, lambda i: PaddleRules(walk.op, types[i]), PaddleMaker())
    for i, (form, joined) in crossed.items():
        note(walk, form, types[i])
        results[i] = thing_of(joined)
    return results


def note(walk: ProgramWalk, form: Form, said: Type) -> None:
    """Believe the program less where it calls something fixed that is not."""
    if contradicts(form, said):
        walk.trusts = False
    if isinstance(form, TensorForm) and form.dims is None:
        walk.trusts_ranks = False


def lower_select(walk: ProgramWalk, op: Op) -> Thing:
    """``select_input``: one of several values, by its place."""
    if op.name == SELECTS[0]:
        (mask,), values, (out,) = op.inputs["Mask"], op.inputs["X"], op.outputs["Out"]
    else:
        (mask, *values), (out,) = op.operands, op.results
    things = [assigned_value(walk.defined(value), declared(out)) for value in values]
    place: ir.Value = walk.resolve(mask)
    position = known_number(place)
    if position is not None:
        return things[int(position)]
    chosen = things[-1]
    for i in reversed(range(len(things) - 1)):
        sides = [(walk.op.inner("then"), [chosen]), (walk.op.inner("else"), [things[i]])]
        (chosen,) = choose(walk, walk.op.Greater(place, i), sides, [declared(out)])
    return chosen
