"""Loops: Loop, unless all passes can be written down one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from tonnx.errors import LoweringError
from tonnx.frontends.paddle.lower.arrays import Dynamic, Growing, Listed, Unsuitable, common, counted
from tonnx.frontends.paddle.lower.control import declared, note
from tonnx.frontends.paddle.lower.snapshots import (
    PaddleMaker,
    PaddleRules,
    Thing,
    assigned_value,
    carried_form,
    has_lost_sizes,
    snapshot,
    thing_of,
)
from tonnx.frontends.paddle.read.graph import Block, Op, Type, Value
from tonnx.frontends.paddle.read.liveness import Counters, before_of, results_of
from tonnx.ir import facts
from tonnx.ir.build import Builder
from tonnx.ir.infer import UNKNOWN, constant, known_number, same_dims
from tonnx.lowering.regions.emit import LoopBody
from tonnx.lowering.regions.forms import (
    Container,
    Form,
    ListForm,
    PartsForm,
    Same,
    Snapshot,
    TensorForm,
    join,
    list_form,
)
from tonnx.lowering.regions.lists import DynamicList, gathered, shape_of
from tonnx.lowering.regions.settle import MOST_PASSES, UNROLLED, at_start, close_loop, loop_body, settle

if TYPE_CHECKING:
    from tonnx.frontends.paddle.lower.walk import ProgramWalk

BUDGET = 4096
"""Operators of all unrolled loops, and bodies lowered once more, in one program: loops in loops multiply."""


@dataclass(frozen=True)
class Collected:
    """The form of an array that gets one element at its end in every pass: the Loop itself stacks them."""

    element: TensorForm


@dataclass(eq=False)
class _Variable:
    """What a loop carries."""

    argument: Value
    next: Value | None
    start: Thing
    declared: Type
    only_stacked: bool
    """Whether it is an array whose elements have one shape, since they are stacked afterwards."""
    unread: bool
    """Whether nobody asks for it after the loop."""
    may_grow: bool = True
    inside: Thing = None
    """What it is when a pass begins."""


CarriedForm = Form | Collected
Forms = dict[_Variable, CarriedForm]
Results = dict[_Variable, Thing]


def lower_loop(walk: ProgramWalk, op: Op) -> tuple[Thing, ...]:
    """The results of a loop, None where nobody needs one."""
    (body,) = op.blocks
    kept = walk.needed.kept(op)
    outputs = results_of(op)
    things: list[Thing] = [None] * len(outputs)
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
        variables = [
            _Variable(
                body.arguments[i],
                body.results[1 + i],
                start,
                declared(outputs[i]),
                walk.needed.is_only_stacked(outputs[i]),
                unread=not walk.needed.reads(outputs[i]),
            )
            for i, start in zip(kept, starts, strict=True)
        ]
        results = _Loop(walk, op, variables, passes).lower()
    for i, thing in zip(kept, results, strict=True):
        things[i] = thing
    return tuple(things)


def _start(walk: ProgramWalk, before: Value | None, argument: Value) -> Thing:
    """What a variable holds before the loop. Paddle's tracer gives one that the loop assigns first a number, and says
    that it is a tensor of some shape."""
    thing = assigned_value(walk.defined(before), argument.type)
    number, said = constant(thing), before.shape if before is not None else None
    if number is not None and number.ndim == 0 and said not in (None, (), (1,)) and not walk.needed.reads(argument):
        return None
    return thing


def _first(walk: ProgramWalk, variable: _Variable) -> CarriedForm:
    """The form to begin with. For a variable without a value that is read all the same, what the program says."""
    argument = variable.argument
    if variable.start is not None or not walk.needed.reads(argument):
        return carried_form(variable.start)
    if argument.dtype is None or argument.shape is None:
        return carried_form(None)
    return TensorForm(argument.dtype, tuple(size if size >= 0 else UNKNOWN for size in argument.shape))


def _pass(walk: ProgramWalk, body: Block, kept: Sequence[int], things: Sequence[Thing]) -> list[Thing]:
    for i, thing in zip(kept, things, strict=True):
        walk.define(body.arguments[i], thing)
    walk.block(body)
    return [assigned_value(walk.defined(body.results[1 + i]), body.arguments[i].type) for i in kept]


def _has_other_shape(old: Thing, new: Thing) -> bool:
    if not isinstance(old, ir.Value) or not isinstance(new, ir.Value):
        return False
    return not same_dims(shape_of(old), shape_of(new))


def _passes(walk: ProgramWalk, op: Op, kept: Sequence[int], starts: Sequence[Thing]) -> int | None:
    """How often a loop runs, if that follows from numbers that are known now."""
    (body,) = op.blocks
    condition = known_number(walk.resolve(op.operands[0]))
    if not condition:
        return None if condition is None else 0
    counters = walk.needed.counters(op)
    begin = dict(zip(kept, starts, strict=True))
    if counters is None or any(constant(begin.get(i)) is None for i in counters.places):
        return None
    aside = walk.op.inner("count")
    with walk.building(aside):
        count = _counted(walk, body, counters, [begin[i] for i in counters.places])
    aside.discard()
    return count


def _counted(walk: ProgramWalk, body: Block, counters: Counters, things: Sequence[Thing]) -> int | None:
    """How often a loop runs, if its counters begin as ``things``."""
    for count in range(1, MOST_PASSES):
        for i, thing in zip(counters.places, things, strict=True):
            walk.define(body.arguments[i], thing)
        walk.ops(counters.ops)
        more = known_number(walk.resolve(body.results[0]))
        things = [walk.resolve(body.results[1 + i]) for i in counters.places]
        if more is None or any(constant(thing) is None for thing in things):
            return None
        if not more:
            return count
    return None


class _Loop:
    """One loop. Its body is lowered until the forms of what it carries hold for every pass."""

    def __init__(self, walk: ProgramWalk, op: Op, variables: list[_Variable], passes: int | None) -> None:
        self._walk, self._op, self._variables, self._passes = walk, op, variables, passes
        self._outer = walk.op
        self._body = op.blocks[0]

    def lower(self) -> list[Thing]:
        begin = {variable: _first(self._walk, variable) for variable in self._variables}
        forms, (loop, results) = settle(begin, self._attempt, BUDGET)
        return self._emit(forms, loop, results)

    def _attempt(self, forms: Forms) -> tuple[Forms, Builder, tuple[LoopBody, Results]]:
        walk, reported = self._walk, len(self._walk.unsupported)
        if walk.budget <= 0:
            raise LoweringError("the types of what loops carry do not settle", why="they are nested too deep")
        walk.budget -= 1
        carried = {variable: state for variable, form in forms.items() if (state := _carried(variable, form))}
        loop = loop_body(self._outer, carried)
        results: Results = {}
        try:
            results = self._pass(loop, forms, at_start(loop, carried, PaddleMaker()))
            wider = {variable: self._wider(variable, form, results[variable]) for variable, form in forms.items()}
        except Unsuitable as error:
            wider = self._given_up(forms, error)
        if wider != forms:
            del walk.unsupported[reported:]
        return wider, loop.inner, (loop, results)

    def _pass(self, loop: LoopBody, forms: Forms, begun: Mapping[_Variable, tuple[Form, Any]]) -> Results:
        walk = self._walk
        with walk.building(loop.inner):
            for variable, form in forms.items():
                thing: Any = begun[variable][1] if variable in begun else None
                if isinstance(form, Collected):
                    assert isinstance(variable.start, Listed)
                    thing = Growing(variable.start, loop.iteration, thing)
                elif type(number := known_number(variable.start)) is int:
                    facts.PADDLE_START[thing] = number
                variable.inside = thing_of(thing)
                walk.define(variable.argument, variable.inside)
            walk.block(self._body)
            return {variable: assigned_value(walk.defined(variable.next), variable.declared) for variable in forms}

    # Do the forms hold?

    def _wider(self, variable: _Variable, form: CarriedForm, result: Thing) -> CarriedForm:
        """The form of what goes in and of what comes out."""
        if isinstance(form, Collected):
            return self._collected(variable, form, result)
        wider = join(form, Same(snapshot(result)), self._rules(variable.declared))
        if wider == form:
            return form
        note(self._walk, wider, variable.declared)
        note(self._walk, wider, variable.argument.type)
        if has_lost_sizes(form, wider):
            self._walk.trusts = False  # inside, the program speaks of the first pass
        if isinstance(form, PartsForm) and isinstance(wider, ListForm) and variable.may_grow:
            variable.may_grow = False
            return Collected(TensorForm(wider.dtype, wider.dims))
        return wider

    def _collected(self, variable: _Variable, form: Collected, result: Thing) -> Collected:
        """A growing array has to get one element of the right shape, at its end."""
        mine, start = variable.inside, variable.start
        assert isinstance(mine, Growing) and isinstance(start, Listed)
        if not isinstance(result, Growing) or result.trusted is not mine.trusted or result.added is None:
            raise Unsuitable(mine)
        uniform = common([*start.elements, result.added]) is not None
        if not uniform and not variable.unread and not (variable.only_stacked and result.added.shape is not None):
            raise Unsuitable(mine)
        for root in mine.trusted:
            counter = next((other for other in self._variables if other.inside is root), None)
            step = self._walk.resolve(counter.next) if counter is not None else None
            if not isinstance(step, ir.Value) or counted(step) != (root, 1):
                raise Unsuitable(mine)
        element = join(form.element, Same(snapshot(result.added)), self._rules(Type()))
        assert isinstance(element, TensorForm)
        return Collected(element)

    def _given_up(self, forms: Forms, error: Unsuitable) -> Forms:
        """Let an array be one that is written to anywhere, at any time."""
        for variable, form in forms.items():
            mine = variable.inside
            if isinstance(mine, Growing) and isinstance(form, Collected) and mine.trusted is error.array.trusted:
                one = PartsForm(Container("list"), (form.element,))
                return {**forms, variable: list_form([carried_form(variable.start), one], self._rules(Type()))}
        raise error  # it belongs to a loop around

    def _rules(self, declared: Type) -> PaddleRules:
        return PaddleRules(self._outer, declared, sums=True)

    # The node

    def _emit(self, forms: Forms, loop: LoopBody, results: Results) -> list[Thing]:
        walk, counted_passes = self._walk, self._passes is not None
        carried: dict[_Variable, tuple[Snapshot, Form]] = {}
        collected: dict[_Variable, ir.Value] = {}
        for variable, form in forms.items():
            growing = variable.inside if isinstance(form, Collected) else None
            if isinstance(growing, Growing) and not variable.unread:
                collected[variable] = _added(results[variable])
            if isinstance(growing, Growing) and growing.last is not None and not growing.last.uses():
                loop.drop(growing.last)  # nobody asks for the last element
            elif state := _carried(variable, form):
                carried[variable] = state
        ends = {v: snapshot(_added(results[v]) if isinstance(forms[v], Collected) else results[v]) for v in carried}
        course = (
            self._passes,
            True if counted_passes else walk.resolve(self._op.operands[0]),
            loop.go_on if counted_passes else walk.resolve(self._body.results[0]),
        )
        after, rest = close_loop(loop, carried, ends, course, PaddleMaker(), list(collected.values()))
        wholes = {variable: self._whole(variable, added) for variable, added in zip(collected, rest, strict=True)}
        things = {v: thing_of(crossed) for v, (_, crossed) in after.items() if not isinstance(forms[v], Collected)}
        return [wholes.get(variable, things.get(variable)) for variable in forms]

    def _whole(self, variable: _Variable, added: ir.Value) -> Thing:
        """What was there before the loop, and what it has added."""
        assert isinstance(variable.start, Listed) and added.dtype is not None
        items = DynamicList(added, added.dtype, (shape_of(added) or ())[1:])
        if variable.start.elements:
            before = gathered(self._outer, variable.start.elements, items.dtype, items.dims, True, False)
            items = before.extend(self._outer, items)
        return Dynamic(items)


def _carried(variable: _Variable, form: CarriedForm) -> tuple[Snapshot, Form] | None:
    """What a variable is carried as: of an array that grows, the last element."""
    if not isinstance(form, Collected):
        return snapshot(variable.start), form
    assert isinstance(variable.start, Listed)
    return (snapshot(variable.start.elements[-1]), form.element) if variable.start.elements else None


def _added(result: Thing) -> ir.Value:
    assert isinstance(result, Growing) and result.added is not None
    return result.added
