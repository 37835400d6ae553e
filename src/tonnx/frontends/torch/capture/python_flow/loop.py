"""Loops that end only the run knows when: one pass is recorded."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from tonnx.frontends.torch.capture.python_flow.branch import choose, record_branch
from tonnx.frontends.torch.capture.python_flow.conditions import negated, truth
from tonnx.frontends.torch.capture.python_flow.iterate import Items, call, items, uniform
from tonnx.frontends.torch.capture.python_flow.operators import operators
from tonnx.frontends.torch.capture.python_flow.scope_analysis import Unsuitable
from tonnx.frontends.torch.capture.python_flow.state import Differs, Kinds, Learned, Recording
from tonnx.frontends.torch.capture.python_flow.values import Constants, entered_modules, own_facts, symbols
from tonnx.frontends.torch.capture.python_flow.variables import (
    Objects,
    Snapshot,
    Variables,
    attributes_refused,
    contents_of,
    fill,
)

Body = Callable[..., None]
_FAILURES = (GuardOnDataDependentSymNode, NameError, LookupError)
"""What a pass may fail with only because it is not the first: a variable that has no value yet, `i == 0`."""
_ATTEMPTS = 30  # at recording one loop; each shows something new about a variable


class _AttributeSet(Unsuitable):
    """The body of a loop sets an attribute of an object, which passes hand on like a variable."""

    def __init__(self, loop: _Loop, owner: Any, name: str) -> None:
        super().__init__(f"its body sets the attribute {name} of a {type(owner).__name__}")
        self.loop, self.owner, self.name = loop, owner, name


class _ConstantWritten(Exception):
    """The pass was recorded for what a constant holds before it; now it is none any more."""


class _Loop:
    """One loop, with the variables of its function."""

    def __init__(self, body: Body, test: Callable[[], Any] | None, kinds: Kinds) -> None:
        self.body, self.test, self.kinds = body, test, kinds
        self.variables = Variables(body, *([test] if test is not None else []))

    def snapshot(self) -> Callable[[], None]:
        """A function that puts the variables back to what they are now, and what is in them."""
        values = self.variables.values()
        contents = contents_of(list(values.values()))
        leave_modules = entered_modules()

        def restore() -> None:
            leave_modules()
            self.variables.restore(values)
            for content in contents.values():
                fill(content.owner, content.held)

        return restore

    def before(self) -> Snapshot:
        """The variables that the body changes, as they are now."""
        return Snapshot({name: self.variables.get(name) for name in (*self.kinds.assigned, *self.kinds.grown)})

    def set_attribute(self, owner: Any, name: str) -> None:
        """The body sets an attribute, which has to be one of the variables."""
        if not self.variables.has(owner, name):
            raise _AttributeSet(self, owner, name)

    def _carry(self, owner: Any, name: str) -> None:
        variable = self.variables.add(owner, name)
        kinds = {kind: (*getattr(self.kinds, kind), variable) for kind in ("assigned", "carried", "kept")}
        self.kinds = replace(self.kinds, **kinds)

    def again(self) -> bool | torch.Tensor:
        """Whether there is another pass; True if only the length says so."""
        return True if self.test is None else truth(self.test())

    def record(self, items: Items | None, go_on: bool | torch.Tensor) -> None:
        """The whole loop, as often tried as something new shows about its variables."""
        learned, restore = Learned(), self.snapshot()
        outer_symbols = symbols()  # before what an attempt makes of its own, and is learned from
        for _ in range(_ATTEMPTS):
            try:
                self._once(items, go_on, learned, outer_symbols)
                return
            except _ConstantWritten:
                restore()
            except _AttributeSet as change:
                restore()
                if change.loop is not self:  # that of a loop around it
                    raise
                self._carry(change.owner, change.name)
                restore = self.snapshot()
            except Differs as problem:
                restore()
                if problem.learned is None or not learned.add(problem.learned):
                    raise
                if learned.last and items is None and go_on is not True:
                    raise  # if there is no pass at all, the variable is what it was, which is something else
            except BaseException:
                restore()
                raise
        raise Unsuitable("its variables are of another kind in every pass")

    def _constants(self) -> Constants:
        return Constants(self.variables.values().values())

    def _once(self, items: Items | None, go_on: bool | torch.Tensor, learned: Learned, outer_symbols: set[Any]) -> None:
        """One pass between ``loop_begin`` and ``loop_end``."""
        tonnx = operators()
        recording = Recording(self.variables, self.kinds, self.before(), learned, outer_symbols)
        trips = None if items is None else items.length
        go_on = torch.full((), True) if go_on is True else go_on
        index, *inside = tonnx.loop_begin(trips, go_on, recording.states, recording.varying)
        again, constants, objects = None, self._constants(), Objects(self.variables.values().values())
        try:
            with own_facts(), attributes_refused(self.set_attribute):
                number = index.item()
                torch._check(number >= 0)
                recording.open(inside)
                if items is None:
                    self.body()
                else:
                    torch._check(number < items.length)
                    self.body(items.item(number))
                if self.test is not None:
                    again = self.again()
                    again = torch.full((), again) if isinstance(again, bool) else again
                if constants.lost():
                    raise _ConstantWritten
                for change in objects.changed():
                    self.set_attribute(*change)
                recording.close()
        except BaseException:
            tonnx.drop(index)
            objects.undo()
            raise
        results = (recording.finals, recording.lasts, recording.stacked)
        recording.finish(tonnx.loop_end(index, trips, again, *results, recording.varying))

    def tried(self, *item: Any) -> bool:
        """Run one pass as it stands; False, and nothing done, if the run decides whether another one follows."""
        tonnx = operators()
        restore, constants = self.snapshot(), self._constants()
        token = tonnx.try_begin()
        try:
            self.body(*item)
            again = self.again()
            if not isinstance(again, bool):
                constants.lost()
        except BaseException:
            tonnx.drop(token)
            restore()
            raise
        if isinstance(again, bool):
            tonnx.keep(token)
            return True
        tonnx.drop(token)
        restore()
        return False


def while_(test: Callable[[], Any], body: Body, **kinds: tuple[str, ...]) -> None:
    """``while test(): body()``."""
    loop = _Loop(body, test, Kinds(**kinds))
    while True:
        go_on = loop.again()
        if go_on is False:
            return
        if go_on is True and loop.tried():
            continue
        try:
            loop.record(None, go_on)
            return
        except (Differs, Unsuitable, *_FAILURES) as problem:
            if go_on is not True:
                raise Unsuitable(str(problem)) if isinstance(problem, Differs) else problem from None
        body()  # the first pass may be another one than the rest


def for_(iterable: Any, body: Body, stopped: Callable[[], Any] | None = None, **kinds: tuple[str, ...]) -> None:
    """``for item in iterable: body(item)``, until ``stopped()``."""
    test = None if stopped is None else _not(stopped)
    loop = _Loop(body, test, Kinds(**kinds))
    if isinstance(iterable, Items):
        _for_items(loop, iterable)
    elif test is None:
        for item in iterable:
            body(item)
    else:
        _for_static(loop, iterable)


def _not(stopped: Callable[[], Any]) -> Callable[[], Any]:
    # A function with the same cells, so that the variable is found.
    def test(stopped: Callable[[], Any] = stopped) -> Any:
        return negated(stopped())

    return test


def _for_items(loop: _Loop, items: Items) -> None:
    try:
        loop.record(items, True)
        return
    except (Differs, *_FAILURES):
        pass
    # The first pass may be another one than the rest: `h` is None before it, or the body asks for `i == 0`.
    torch._check(items.length >= 1)
    loop.body(items.item(0))
    go_on = loop.again()
    if go_on is False:
        return
    try:
        loop.record(items.after(1), go_on)
    except Differs as problem:
        raise Unsuitable(str(problem)) from None


def _for_static(loop: _Loop, iterable: Any) -> None:
    """A fixed number of passes, of which the run may do fewer."""
    left = list(iterable)
    even = uniform(iterable)
    for done, item in enumerate(left):
        if loop.tried(item):
            if loop.again() is False:
                return
            continue
        if even is not None:
            try:
                loop.record(even.after(done), True)
                return
            except (Differs, Unsuitable, *_FAILURES):
                pass
        # Items of different kinds, such as layers: every one that follows runs only if nothing stopped the loop.
        loop.body(item)
        for later in left[done + 1 :]:
            run = partial(loop.body, later)
            record_branch(loop.again(), run, lambda: None, loop.variables, loop.kinds.kept)
        return


def listed(iterable: Any, each: Callable[[Any], Any], wanted: Callable[[Any], Any] | None = None) -> list[Any]:
    """A list comprehension: ``each`` is its element for an item, ``wanted`` its condition."""
    if wanted is None and not isinstance(iterable, Items):
        return [each(item) for item in iterable]
    results: list[Any] = []

    def body(item: Any) -> None:
        if wanted is None:
            results.append(each(item))
        else:
            choose(wanted(item), lambda: results.append(each(item)), lambda: None)

    for_(iterable, body, grown=("results",))
    return results


def yielded(values: Any) -> Any:
    """What a generator gives: a list of which only the run knows the length has to stay one."""
    return iter(values) if type(values) is list else values


def mapped(function: Any, *args: Any) -> Any:
    """``map(each, iterable)``; all of it at once where only the run knows how much there is."""
    if function is not builtins.map:
        return function(*args)
    each, *iterables = args
    if not any(isinstance(items(iterable), Items) for iterable in iterables):
        return map(lambda *parts: call(each, *parts), *iterables)
    return listed(items(call(builtins.zip, *iterables)), lambda parts: call(each, *parts))
