"""Branches: If, unless it is known now which way they go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import onnx_ir as ir

from tonnx.errors import LoweringError
from tonnx.frontends.paddle.lower.bind import constant
from tonnx.frontends.paddle.lower.forms import Form, TensorForm, Thing, contradicts, form_of, given, join
from tonnx.frontends.paddle.read.graph import Op, Type, Value
from tonnx.frontends.paddle.read.liveness import before_of, results_of
from tonnx.ir.build import Builder

if TYPE_CHECKING:
    from tonnx.frontends.paddle.lower.walk import Walk

T = ir.DataType
SELECTS = ("select_input", "pd_op.select_input")


def number(op: Builder, condition: ir.Value) -> ir.Value:
    """A condition as ONNX wants it: bool, rank 0."""
    condition = op.cast(condition, T.BOOL)
    return condition if condition.shape is not None and not op.rank(condition) else op.reshape(condition, [])


def lower_branch(walk: Walk, op: Op) -> tuple[Thing, ...]:
    """The results of a branch, None where nobody needs one."""
    condition = _condition(walk, op)
    kept = walk.needed.kept(op)
    found: list[Thing] = [None] * len(results_of(op))
    known = constant(condition)
    if known is not None:
        chosen = _side(walk, op, 0 if bool(known.reshape(-1)[0]) else 1, kept)
    else:
        chosen = _if(walk, op, condition, kept)
    for i, thing in zip(kept, chosen, strict=True):
        found[i] = thing
    return tuple(found)


def _condition(walk: Walk, op: Op) -> ir.Value:
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
    found: ir.Value = operands[0]
    return found


def _side(walk: Walk, op: Op, side: int, kept: Sequence[int]) -> list[Thing]:
    """Lower one side where we are; gives its kept results."""
    if side < len(op.blocks):
        block = op.blocks[side]
        walk.block(block)
        values = [block.results[i] for i in kept]
    else:
        values = [before_of(op, i) for i in kept]
    made = results_of(op)
    return [given(walk.defined(v), declared(made[i])) for i, v in zip(kept, values, strict=True)]


def declared(value: Value | None) -> Type:
    """What the program says of a value."""
    return value.type if value is not None else Type()


def _if(walk: Walk, op: Op, condition: ir.Value, kept: Sequence[int]) -> list[Thing]:
    outer = walk.op
    condition = number(outer, condition)
    builders, sides = [], []
    for side, name in enumerate(("then", "else")):
        inner = outer.inner(name)
        with walk.building(inner):
            sides.append(_side(walk, op, side, kept))
        builders.append(inner)
    made = results_of(op)
    return choose(walk, condition, builders, sides, [declared(made[i]) for i in kept])


def choose(
    walk: Walk,
    condition: ir.Value,
    builders: Sequence[Builder],
    sides: Sequence[Sequence[Thing]],
    types: Sequence[Type],
) -> list[Thing]:
    """An If over two graphs that were begun, with these results."""
    forms: list[Form | None] = []
    for one, other, said in zip(*sides, types, strict=True):
        form = None if one is other else join(form_of(one), form_of(other), said)
        if form is not None:
            note(walk, form, said)
        forms.append(form)
    for inner, things in zip(builders, sides, strict=True):
        with walk.building(inner):
            for form, thing in zip(forms, things, strict=True):
                for value in form.values(inner, thing) if form is not None else ():
                    inner.graph.outputs.append(own(inner, value))
    crossing = [found for form in forms if form is not None for found in form.types]
    values = []
    if crossing:
        graphs = [ir.AttrGraph(f"{name}_branch", b.graph) for name, b in zip(("then", "else"), builders, strict=True)]
        values = list(walk.op.node("If", [condition], graphs, [(None, dims) for _, dims in crossing]))
        for value, (type_, _) in zip(values, crossing, strict=True):
            value.type = type_
    results: list[Thing] = []
    for form, thing in zip(forms, sides[0], strict=True):
        results.append(thing if form is None else form.thing(take(values, len(form.types))))
    return results


def note(walk: Walk, form: Form, said: Type) -> None:
    """Believe the program less where it calls something fixed that is not."""
    if contradicts(form, said):
        walk.trusts = False
    if isinstance(form, TensorForm) and form.dims is None:
        walk.trusts_ranks = False


def lower_select(walk: Walk, op: Op) -> Thing:
    """``select_input``: one of several values, by its place."""
    if op.name == SELECTS[0]:
        (mask,), values, (out,) = op.inputs["Mask"], op.inputs["X"], op.outputs["Out"]
    else:
        (mask, *values), (out,) = op.operands, op.results
    things = [given(walk.defined(value), declared(out)) for value in values]
    place: ir.Value = walk.resolve(mask)
    known = constant(place)
    if known is not None:
        return things[int(known.reshape(-1)[0])]
    chosen = things[-1]
    for i in reversed(range(len(things) - 1)):
        condition = number(walk.op, walk.op.Greater(place, i))
        builders = [walk.op.inner("then"), walk.op.inner("else")]
        (chosen,) = choose(walk, condition, builders, [[chosen], [things[i]]], [declared(out)])
    return chosen


def own(inner: Builder, value: ir.Value) -> ir.Value:
    """A value that the graph itself makes, and no other output is: what is handed through gets an Identity."""
    producer = value.producer()
    if producer is not None and producer.graph is inner.graph and not value.is_graph_output():
        return value
    type_, shape = value.type, value.shape
    (made,) = inner.node("Identity", [value], [], [(None, None if shape is None else shape.dims)])
    made.type = type_
    return made


def take(values: list[ir.Value], count: int) -> list[ir.Value]:
    """The first few of a list, which it then has no longer."""
    taken = values[:count]
    del values[:count]
    return taken
