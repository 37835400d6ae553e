"""Loops: Loop, unless all passes can be written down one after the other.

What a loop carries has one type and one shape in the file, as far as they are said. Which ones hold for every pass is
found by trial: the body is lowered for what the first pass gets, and once more for something wider if it gives back
something else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from tonnx.errors import LoweringError
from tonnx.frontends.paddle.lower.arrays import START, Growing, Listed, Stacked, Unsuitable, common, counted
from tonnx.frontends.paddle.lower.bind import constant
from tonnx.frontends.paddle.lower.control import declared, note, number, own, take
from tonnx.frontends.paddle.lower.forms import (
    ChainForm,
    Form,
    ListForm,
    NoForm,
    StackForm,
    TensorForm,
    Thing,
    flexible,
    form_of,
    given,
    has_lost_sizes,
    join,
    same,
)
from tonnx.frontends.paddle.read.graph import Block, Op, Type, Value
from tonnx.frontends.paddle.read.liveness import before_of, results_of
from tonnx.ir.build import Builder
from tonnx.ir.infer import UNKNOWN, dims_of, same_dim

if TYPE_CHECKING:
    from tonnx.frontends.paddle.lower.walk import Walk

T = ir.DataType
UNROLLED = 256
"""Operators that a loop may become, if how often it runs is known: more of them stay a loop."""
BUDGET = 4096
"""Operators of all unrolled loops, and bodies lowered once more, in one program: loops in loops multiply."""
_MOST_PASSES = 4096


@dataclass(eq=False)
class _State:
    """What a loop carries."""

    argument: Value
    next: Value | None
    start: Thing
    declared: Type
    form: Form
    growing: bool = False
    """Whether it is taken to be an array that gets one element in every pass."""
    may_grow: bool = True
    stacked: bool = False
    """Whether it is an array whose elements have one shape, since they are stacked afterwards."""
    unread: bool = False
    """Whether nobody asks for it after the loop."""
    arguments: list[ir.Value] = field(default_factory=list)
    array: Growing | None = None
    last: ir.Value | None = None
    """Of a growing array: the argument that holds the last element."""


def lower_loop(walk: Walk, op: Op) -> tuple[Thing, ...]:
    """The results of a loop, None where nobody needs one."""
    (body,) = op.blocks
    kept = walk.needed.kept(op)
    made = results_of(op)
    found: list[Thing] = [None] * len(made)
    starts = [_start(walk, before_of(op, i), body.arguments[i]) for i in kept]
    passes = _passes(walk, op, kept, starts)
    size = (passes or 0) * len(walk.needed.ops(body))
    if passes is not None and size <= min(UNROLLED, walk.budget):
        walk.budget -= size
        results = starts
        for _ in range(passes):
            before, results = results, _pass(walk, body, kept, results)
            if any(_has_other_shape(old, new) for old, new in zip(before, results, strict=True)):
                walk.trusts = False  # in its body, the program speaks of the first pass
    else:
        states = [
            _State(
                body.arguments[i],
                body.results[1 + i],
                start,
                declared(made[i]),
                _first(walk, body.arguments[i], start),
                stacked=walk.needed.is_only_stacked(made[i]),
                unread=not walk.needed.reads(made[i]),
            )
            for i, start in zip(kept, starts, strict=True)
        ]
        results = _Loop(walk, op, states, passes).lower()
    for i, thing in zip(kept, results, strict=True):
        found[i] = thing
    return tuple(found)


def _start(walk: Walk, before: Value | None, argument: Value) -> Thing:
    """What a variable holds before the loop. Paddle's tracer gives one that the loop assigns first a number, and says
    that it is a tensor of some shape."""
    thing = given(walk.defined(before), argument.type)
    known, said = constant(thing), before.shape if before is not None else None
    if known is not None and known.ndim == 0 and said not in (None, (), (1,)) and not walk.needed.reads(argument):
        return None
    return thing


def _first(walk: Walk, argument: Value, start: Thing) -> Form:
    """The form to begin with. For a variable without a value that is read all the same, what the program says."""
    form, dtype, shape = form_of(start), argument.dtype, argument.shape
    if isinstance(form, NoForm) and walk.needed.reads(argument) and dtype is not None and shape is not None:
        return TensorForm(dtype, tuple(size if size >= 0 else UNKNOWN for size in shape))
    return form


def _pass(walk: Walk, body: Block, kept: Sequence[int], things: Sequence[Thing]) -> list[Thing]:
    """One pass, lowered where we are."""
    for i, thing in zip(kept, things, strict=True):
        walk.define(body.arguments[i], thing)
    walk.block(body)
    return [given(walk.defined(body.results[1 + i]), body.arguments[i].type) for i in kept]


def _has_other_shape(old: Thing, new: Thing) -> bool:
    if not isinstance(old, ir.Value) or not isinstance(new, ir.Value):
        return False
    one, other = dims_of(old), dims_of(new)
    return one is None or other is None or len(one) != len(other) or not all(map(same_dim, one, other))


def _passes(walk: Walk, op: Op, kept: Sequence[int], starts: Sequence[Thing]) -> int | None:
    """How often a loop runs, if that follows from numbers that are known now."""
    (body,) = op.blocks
    condition = constant(walk.resolve(op.operands[0]))
    if condition is None:
        return None
    if not bool(condition.reshape(-1)[0]):
        return 0
    counters = walk.needed.counters(op)
    known = dict(zip(kept, starts, strict=True))
    if counters is None or any(constant(known.get(i)) is None for i in counters.places):
        return None
    things = [known[i] for i in counters.places]
    with walk.building(walk.op.inner("count")):  # a graph that nobody uses
        for count in range(1, _MOST_PASSES):
            for i, thing in zip(counters.places, things, strict=True):
                walk.define(body.arguments[i], thing)
            walk.ops(counters.ops)
            more = constant(walk.resolve(body.results[0]))
            things = [walk.resolve(body.results[1 + i]) for i in counters.places]
            if more is None or any(constant(thing) is None for thing in things):
                return None
            if not bool(more.reshape(-1)[0]):
                return count
    return None


class _Loop:
    """One loop. Its body is lowered until the forms of what it carries hold for every pass."""

    def __init__(self, walk: Walk, op: Op, states: list[_State], passes: int | None) -> None:
        self._walk, self._op, self._states, self._passes = walk, op, states, passes
        self._outer = walk.op
        self._body = op.blocks[0]

    def lower(self) -> list[Thing]:
        while self._walk.budget > 0:
            self._walk.budget -= 1
            reported = len(self._walk.unsupported)
            try:
                inner, results = self._trial()
                done = self._settle(inner, results)
            except Unsuitable as error:
                self._give_up(error)
                done = False
            if done:
                return self._emit(inner, results)
            del self._walk.unsupported[reported:]
        raise LoweringError("the types of what loops carry do not settle", why="they are nested too deep")

    def _trial(self) -> tuple[Builder, list[Thing]]:
        """Lower the body for the forms of now."""
        walk, inner = self._walk, self._outer.inner("loop", [("iteration", T.INT64, []), ("go_on", T.BOOL, [])])
        iteration = inner.graph.inputs[0]
        iteration.meta["tonnx.nonnegative"] = True
        with walk.building(inner):
            for state in self._states:
                walk.define(state.argument, self._argument(inner, state, iteration))
            walk.block(self._body)
            results = [given(walk.defined(state.next), state.declared) for state in self._states]
        return inner, results

    def _argument(self, inner: Builder, state: _State, iteration: ir.Value) -> Thing:
        if state.growing:
            assert isinstance(state.start, Listed) and isinstance(state.form, TensorForm)
            state.last = self._input(inner, state.form.types[0]) if state.start.elements else None
            state.array = Growing(state.start, iteration, state.last)
            return state.array
        state.arguments = [self._input(inner, found) for found in state.form.types]
        number = constant(state.start)
        if number is not None and number.size == 1 and number.dtype.kind == "i":
            state.arguments[0].meta[START] = int(number.reshape(-1)[0])
        return state.form.thing(state.arguments)

    def _input(self, inner: Builder, found: tuple[Any, Any]) -> ir.Value:
        type_, dims = found
        shape = None if dims is None else ir.Shape(dims)
        value = ir.Value(name=inner.names.unique("carried"), type=type_, shape=shape)
        inner.graph.inputs.append(value)
        return value

    # Do the forms hold?

    def _settle(self, inner: Builder, results: Sequence[Thing]) -> bool:
        """Whether all forms hold; those that do not are widened."""
        settled = True
        for state, result in zip(self._states, results, strict=True):
            if state.growing:
                held = self._grown(state, result)
            else:
                form = join(state.form, form_of(result), state.declared)
                held = same(form, state.form)
                if not held:
                    self._widen(state, form)
            settled = settled and held
        return settled

    def _widen(self, state: _State, form: Form) -> None:
        note(self._walk, form, state.declared)
        note(self._walk, form, state.argument.type)
        if has_lost_sizes(state.form, form):
            self._walk.trusts = False  # inside, the program speaks of the first pass
        if isinstance(state.form, ListForm) and isinstance(form, (StackForm, ChainForm)) and state.may_grow:
            state.growing, state.may_grow = True, False
            form = TensorForm(form.dtype, form.dims)
        state.form = form

    def _grown(self, state: _State, result: Thing) -> bool:
        """Whether a growing array got one element of the right shape, at its end."""
        mine = state.array
        assert mine is not None and isinstance(state.start, Listed)
        if not isinstance(result, Growing) or result.trusted is not mine.trusted or result.added is None:
            raise Unsuitable(mine)
        uniform = common([*state.start.elements, result.added]) is not None
        if not uniform and not state.unread and not (state.stacked and result.added.shape is not None):
            raise Unsuitable(mine)
        for root in mine.trusted:
            counter = next((s for s in self._states if root in s.arguments), None)
            step = self._walk.resolve(counter.next) if counter is not None else None
            if not isinstance(step, ir.Value) or counted(step) != (root, 1):
                raise Unsuitable(mine)
        form = join(state.form, form_of(result.added), Type())
        held = same(form, state.form)
        state.form = form
        return held

    def _give_up(self, error: Unsuitable) -> None:
        """Let an array be one that is written to anywhere, at any time."""
        state = next((s for s in self._states if s.array is not None and s.array.trusted is error.array.trusted), None)
        if state is None:
            raise error  # it belongs to a loop around
        assert isinstance(state.form, TensorForm)
        state.growing, state.array, state.last = False, None, None
        state.form = flexible([form_of(state.start), ListForm((state.form,))])

    # The node

    def _emit(self, inner: Builder, results: Sequence[Thing]) -> list[Thing]:
        op, walk = self._outer, self._walk
        with walk.building(inner):
            go_on = inner.graph.inputs[1] if self._passes is not None else walk.resolve(self._body.results[0])
            inner.graph.outputs.append(own(inner, number(inner, go_on)))
            for state, result in zip(self._states, results, strict=True):
                for value in self._next(inner, state, result):
                    inner.graph.outputs.append(own(inner, value))
            scanned = [result.added for state, result in self._scanned(results)]
            inner.graph.outputs.extend(own(inner, value) for value in scanned)
        carried = [value for state in self._states for value in self._begin(state)]
        types = [(None, dims) for state in self._states for _, dims in self._types(state)]
        types += [(value.dtype, [UNKNOWN, *value.shape.dims]) for value in scanned]
        trips = None if self._passes is None else op.constant(self._passes, T.INT64)
        go = op.constant(True, T.BOOL) if self._passes is not None else walk.resolve(self._op.operands[0])
        body = [ir.AttrGraph("body", inner.graph)]
        values = list(op.node("Loop", [trips, number(op, go), *carried], body, types))
        return self._results(values, results)

    def _types(self, state: _State) -> list[tuple[Any, Any]]:
        """The types of the values that a state is carried as."""
        return [] if state.growing and state.last is None else state.form.types

    def _begin(self, state: _State) -> list[ir.Value]:
        if not self._types(state):
            return []
        start = state.start.elements[-1] if state.growing and isinstance(state.start, Listed) else state.start
        return state.form.values(self._outer, start)

    def _next(self, inner: Builder, state: _State, result: Thing) -> list[ir.Value]:
        if state.last is not None and not state.last.uses():  # nobody asks for the last element
            inner.graph.inputs.remove(state.last)
            state.last = None
        if not self._types(state):
            return []
        return state.form.values(inner, result.added if isinstance(result, Growing) else result)

    def _scanned(self, results: Sequence[Thing]) -> list[tuple[_State, Any]]:
        """The arrays whose new elements are collected."""
        pairs = zip(self._states, results, strict=True)
        return [(state, result) for state, result in pairs if state.growing and not state.unread]

    def _results(self, values: list[ir.Value], results: Sequence[Thing]) -> list[Thing]:
        singles = {state: take(values, len(self._types(state))) for state in self._states}
        scans = dict(zip((state for state, _ in self._scanned(results)), values, strict=True))
        found: list[Thing] = []
        for state in self._states:
            for value, (type_, _) in zip(singles[state], self._types(state), strict=True):
                value.type = type_
            if state in scans:
                found.append(self._whole(state, scans[state]))
            elif state.growing:
                found.append(None)
            else:
                found.append(state.form.thing(singles[state]))
        return found

    def _whole(self, state: _State, scanned: ir.Value) -> Thing:
        """What was there before the loop, and what it has added."""
        assert isinstance(state.start, Listed)
        if not state.start.elements:
            return Stacked(scanned)
        return Stacked(self._outer.Concat(state.start.joined(self._outer, 0, stack=True)[0], scanned, axis=0))
