"""Loops: Loop, unless all passes can be written down one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx_ir as ir

from tonnx.errors import LoweringError
from tonnx.frontends.paddle.lower.arrays import START, Dynamic, Growing, Listed, Unsuitable, common, counted
from tonnx.frontends.paddle.lower.bind import constant
from tonnx.frontends.paddle.lower.control import declared, note
from tonnx.frontends.paddle.lower.snapshots import (
    PaddleRules,
    Thing,
    carried_form,
    given,
    has_lost_sizes,
    snapshot,
    unpack,
)
from tonnx.frontends.paddle.read.graph import Block, Op, Type, Value
from tonnx.frontends.paddle.read.liveness import Counters, before_of, results_of
from tonnx.ir.build import Builder
from tonnx.ir.infer import UNKNOWN
from tonnx.lowering.regions.emit import Kind, LoopBody
from tonnx.lowering.regions.forms import (
    Container,
    Form,
    ListForm,
    PartsForm,
    Same,
    TensorForm,
    join,
    kinds,
    list_form,
    pack,
)
from tonnx.lowering.regions.lists import DynamicList, gathered, same_dims, shape_of
from tonnx.lowering.regions.settle import MOST_PASSES, UNROLLED, settle

if TYPE_CHECKING:
    from tonnx.frontends.paddle.lower.walk import Walk

BUDGET = 4096
"""Operators of all unrolled loops, and bodies lowered once more, in one program: loops in loops multiply."""


@dataclass(frozen=True)
class Collected:
    """The form of an array that gets one element at its end in every pass: the Loop itself stacks them."""

    element: TensorForm


CarriedForm = Form | Collected


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
        variables = [
            _Variable(
                body.arguments[i],
                body.results[1 + i],
                start,
                declared(made[i]),
                walk.needed.is_only_stacked(made[i]),
                unread=not walk.needed.reads(made[i]),
            )
            for i, start in zip(kept, starts, strict=True)
        ]
        results = _Loop(walk, op, variables, passes).lower()
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


def _first(walk: Walk, variable: _Variable) -> CarriedForm:
    """The form to begin with. For a variable without a value that is read all the same, what the program says."""
    argument = variable.argument
    if variable.start is not None or not walk.needed.reads(argument):
        return carried_form(variable.start)
    if argument.dtype is None or argument.shape is None:
        return carried_form(None)
    return TensorForm(argument.dtype, tuple(size if size >= 0 else UNKNOWN for size in argument.shape))


def _pass(walk: Walk, body: Block, kept: Sequence[int], things: Sequence[Thing]) -> list[Thing]:
    """One pass, lowered where we are."""
    for i, thing in zip(kept, things, strict=True):
        walk.define(body.arguments[i], thing)
    walk.block(body)
    return [given(walk.defined(body.results[1 + i]), body.arguments[i].type) for i in kept]


def _has_other_shape(old: Thing, new: Thing) -> bool:
    if not isinstance(old, ir.Value) or not isinstance(new, ir.Value):
        return False
    return not same_dims(shape_of(old), shape_of(new))


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
    aside = walk.op.inner("count")
    with walk.building(aside):
        count = _counted(walk, body, counters, [known[i] for i in counters.places])
    aside.discard()
    return count


def _counted(walk: Walk, body: Block, counters: Counters, things: Sequence[Thing]) -> int | None:
    """How often a loop runs, if its counters begin as ``things``."""
    for count in range(1, MOST_PASSES):
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

    def __init__(self, walk: Walk, op: Op, variables: list[_Variable], passes: int | None) -> None:
        self._walk, self._op, self._variables, self._passes = walk, op, variables, passes
        self._outer = walk.op
        self._body = op.blocks[0]

    def lower(self) -> list[Thing]:
        begin = tuple(_first(self._walk, variable) for variable in self._variables)
        forms, (loop, results) = settle(begin, self._attempt, BUDGET)
        return self._emit(forms, loop, results)

    def _attempt(
        self, forms: tuple[CarriedForm, ...]
    ) -> tuple[tuple[CarriedForm, ...], Builder, tuple[LoopBody, list[Thing]]]:
        walk, reported = self._walk, len(self._walk.unsupported)
        if walk.budget <= 0:
            raise LoweringError("the types of what loops carry do not settle", why="they are nested too deep")
        walk.budget -= 1
        pairs = list(zip(self._variables, forms, strict=True))
        loop = LoopBody(self._outer, [kind for variable, form in pairs for kind in _kinds(variable, form)])
        results: list[Thing] = []
        try:
            results = self._pass(loop, forms)
            wider = tuple(self._wider(*pair, result) for pair, result in zip(pairs, results, strict=True))
        except Unsuitable as error:
            wider = self._given_up(forms, error)
        if wider != forms:
            del walk.unsupported[reported:]
        return wider, loop.inner, (loop, results)

    def _pass(self, loop: LoopBody, forms: Sequence[CarriedForm]) -> list[Thing]:
        """Lower the body for these forms."""
        walk, values = self._walk, iter(loop.carried)
        with walk.building(loop.inner):
            for variable, form in zip(self._variables, forms, strict=True):
                variable.inside = self._argument(loop, variable, form, values)
                walk.define(variable.argument, variable.inside)
            walk.block(self._body)
            return [given(walk.defined(variable.next), variable.declared) for variable in self._variables]

    def _argument(self, loop: LoopBody, variable: _Variable, form: CarriedForm, values: Iterator[ir.Value]) -> Thing:
        start = variable.start
        if isinstance(form, Collected):
            assert isinstance(start, Listed)
            return Growing(start, loop.iteration, next(values) if start.elements else None)
        thing, number = unpack(form, values), constant(start)
        if isinstance(thing, ir.Value) and number is not None and number.size == 1 and number.dtype.kind == "i":
            thing.meta[START] = int(number.reshape(-1)[0])
        return thing

    # Do the forms hold?

    def _wider(self, variable: _Variable, form: CarriedForm, result: Thing) -> CarriedForm:
        """The form of what goes in and of what comes out."""
        if isinstance(form, Collected):
            return self._collected(variable, form, result)
        wider = join(form, Same(snapshot(result)), PaddleRules(self._outer, variable.declared))
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
        element = join(form.element, Same(snapshot(result.added)), PaddleRules(self._outer, Type()))
        assert isinstance(element, TensorForm)
        return Collected(element)

    def _given_up(self, forms: Sequence[CarriedForm], error: Unsuitable) -> tuple[CarriedForm, ...]:
        """Let an array be one that is written to anywhere, at any time."""
        for i, (variable, form) in enumerate(zip(self._variables, forms, strict=True)):
            mine = variable.inside
            if isinstance(mine, Growing) and isinstance(form, Collected) and mine.trusted is error.array.trusted:
                one = PartsForm(Container("list"), (form.element,))
                wider = list_form([carried_form(variable.start), one], PaddleRules(self._outer, Type()))
                return (*forms[:i], wider, *forms[i + 1 :])
        raise error  # it belongs to a loop around

    # The node

    def _emit(self, forms: Sequence[CarriedForm], loop: LoopBody, results: Sequence[Thing]) -> list[Thing]:
        walk, op = self._walk, self._outer
        starts: list[ir.Value] = []
        ends: list[ir.Value] = []
        collected: list[ir.Value] = []
        for variable, form, result in zip(self._variables, forms, results, strict=True):
            if not isinstance(form, Collected):
                starts += pack(op, snapshot(variable.start), form)
                ends += pack(loop.inner, snapshot(result), form)
                continue
            assert isinstance(variable.inside, Growing) and isinstance(variable.start, Listed)
            assert isinstance(result, Growing) and result.added is not None
            last = variable.inside.last
            if last is not None and not last.uses():  # nobody asks for the last element
                loop.drop(last)
                variable.inside = last = None
            if last is not None:
                starts += pack(op, snapshot(variable.start.elements[-1]), form.element)
                ends += pack(loop.inner, snapshot(result.added), form.element)
            if not variable.unread:
                collected.append(result.added)
        known = self._passes is not None
        go_on = loop.go_on if known else walk.resolve(self._body.results[0])
        condition = True if known else walk.resolve(self._op.operands[0])
        values = iter(loop.close(self._passes, condition, starts, go_on, ends, collected))
        carried = [next(values) for _ in starts]
        return self._results(forms, iter(carried), values)

    def _results(
        self, forms: Sequence[CarriedForm], carried: Iterator[ir.Value], collected: Iterator[ir.Value]
    ) -> list[Thing]:
        things: list[Thing] = []
        for variable, form in zip(self._variables, forms, strict=True):
            if not isinstance(form, Collected):
                things.append(unpack(form, carried))
                continue
            if isinstance(variable.inside, Growing) and variable.inside.last is not None:
                next(carried)
            things.append(None if variable.unread else self._whole(variable, next(collected)))
        return things

    def _whole(self, variable: _Variable, added: ir.Value) -> Thing:
        """What was there before the loop, and what it has added."""
        assert isinstance(variable.start, Listed) and added.dtype is not None
        items = DynamicList(added, added.dtype, (shape_of(added) or ())[1:])
        if variable.start.elements:
            before = gathered(self._outer, variable.start.elements, items.dtype, items.dims, True, False)
            items = before.extend(self._outer, items)
        return Dynamic(items)


def _kinds(variable: _Variable, form: CarriedForm) -> list[Kind]:
    """The values that a variable is carried as."""
    if not isinstance(form, Collected):
        return list(kinds(form))
    return list(kinds(form.element)) if isinstance(variable.start, Listed) and variable.start.elements else []
