"""Branches that only the run decides: both sides are recorded."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tonnx.frontends.torch.capture.python_flow.conditions import condition_of, truth
from tonnx.frontends.torch.capture.python_flow.merge import Line, Merge, Side
from tonnx.frontends.torch.capture.python_flow.operators import operators
from tonnx.frontends.torch.capture.python_flow.recorded_list import RecordedList
from tonnx.frontends.torch.capture.python_flow.scope_analysis import Unsuitable
from tonnx.frontends.torch.capture.python_flow.values import Constants, own_facts, symbols
from tonnx.frontends.torch.capture.python_flow.variables import (
    Attributes,
    Contents,
    Variables,
    changed,
    contents_of,
    fill,
    held_elsewhere,
    put_attribute,
)

Run = Callable[[], Any]


def branch(test: Any, one: Run, other: Run, kept: tuple[str, ...] = ()) -> None:
    """``if test: one() else: other()``; ``kept`` are the variables that they set and that count afterwards."""
    outcome = truth(test)
    if isinstance(outcome, bool):
        (one if outcome else other)()
    else:
        caller = sys._getframe(1)  # the rewritten function: both are called by nobody else
        line = (caller.f_code.co_filename, caller.f_lineno)
        record_branch(outcome, one, other, Variables(one, other), kept, line)


def chosen(test: Any, one: Run, other: Run) -> Any:
    """``one() if test else other()`` in the code of the user."""
    caller = sys._getframe(1)
    return choose(test, one, other, (caller.f_code.co_filename, caller.f_lineno))


def choose(test: Any, one: Run, other: Run, line: Line | None = None) -> Any:
    """The same for a choice that we make for the user; ``line`` is where what comes after may go into the sides."""
    outcome = truth(test)
    if isinstance(outcome, bool):
        return (one if outcome else other)()
    return record_branch(outcome, one, other, Variables(one, other), (), line)


class _Watched:
    """The variables, attributes, lists and dicts that the sides of a branch may change."""

    def __init__(self, variables: Variables, kept: Iterable[str]) -> None:
        self.variables, self.kept = variables, kept
        self.before = variables.values()
        self.contents: Contents = contents_of(list(self.before.values()))
        self.owners: dict[Any, Any] = {}

    def run(self, run: Run) -> Side:
        """One side; everything is put back as it was."""
        attributes, constants = Attributes(), Constants(self.before.values())
        try:
            with attributes.watched():
                result = run()
            if constants.written():
                raise Unsuitable(
                    "a side writes in place to a tensor that is a constant: write `n = n + 1`, or clone it"
                )
            values: dict[Any, Any] = {}
            for name in self.kept:
                value = self.variables.get(name)
                if value is not self.before[name]:  # of the same object, only what is in it can differ
                    values["name", name] = _copied(value)
            now = contents_of([content.owner for content in self.contents.values()])
            for key in changed(self.contents, now):
                values["content", key] = now[key].held
            for (key, name), value in attributes.values().items():
                values["attribute", key, name] = value
                self.owners["attribute", key, name] = attributes.before[key, name]
            objects = {name: _copied(value) for name, value in self.before.items() if name in self.kept}
            side = Side({**values, "result": result}, objects)
            side.prepare()
            return side
        finally:
            attributes.undo()
            self.variables.restore(self.before)
            for content in self.contents.values():
                fill(content.owner, content.held)

    def otherwise(self, key: Any, side: Side) -> Any:
        """The value on a side that does not change it."""
        if key[0] == "content":
            return self.contents[key[1]].held
        return self.owners[key][1] if key[0] == "attribute" else side.objects[key[1]]

    def label(self, key: Any) -> str:
        if key[0] == "name":
            return "the result" if key[1] == "tonnx_result" else str(key[1])
        if key[0] == "attribute":
            return f"the attribute {key[2]} of a {type(self.owners[key][0]).__name__}"
        owner = self.contents[key[1]].owner
        names = [name for name, value in self.before.items() if value is owner]
        return names[0] if names else f"a {type(owner).__name__}"

    def set(self, key: Any, value: Any) -> None:
        if key[0] == "name":
            self.variables.set(key[1], value)
        elif key[0] == "attribute":
            put_attribute(self.owners[key][0], key[2], value)
        else:
            self._fill(self.contents[key[1]].owner, value)

    def _fill(self, owner: Any, value: Any) -> None:
        if isinstance(owner, RecordedList) or not isinstance(value, RecordedList):
            fill(owner, value)
        else:  # a list that has as many elements as only the run knows: another object
            names = [name for name, held in self.before.items() if held is owner]
            if len(names) != 1 or held_elsewhere(owner, 2):
                raise Unsuitable(
                    f"the list {names[0] if names else 'of a module'} that a side fills is held elsewhere too"
                )
            for name in names:
                self.variables.set(name, value)


def _copied(value: Any) -> Any:
    """Lists and dicts as they are now: both sides get to see the same ones."""
    return pytree.tree_map(lambda leaf: leaf.copied() if isinstance(leaf, RecordedList) else leaf, value)


def record_branch(
    test: bool | torch.Tensor,
    one: Run,
    other: Run,
    variables: Variables,
    kept: Iterable[str],
    line: Line | None = None,
) -> Any:
    """Both sides, one after the other; then everything is what the two make of it together."""
    if isinstance(test, bool):
        return (one if test else other)()
    tonnx = operators()
    watched, outer_symbols = _Watched(variables, kept), symbols()
    Constants(value for name, value in watched.before.items() if name in watched.kept).forget()
    token = tonnx.if_begin(test)
    try:
        with own_facts():
            first = watched.run(one)
        tonnx.if_else(token)
        with own_facts():
            second = watched.run(other)
        tonnx.if_join(token)
        merge = Merge(first, second, outer_symbols, line)
        makers = {}
        for key in dict.fromkeys((*first.values, *second.values)):
            a, b = (
                side.values[key] if key in side.values else watched.otherwise(key, side) for side in (first, second)
            )
            makers[key] = merge("the result" if key == "result" else watched.label(key), a, b)
    except BaseException:
        tonnx.drop(token)
        raise
    results = tonnx.if_end(token, merge.one, merge.other)
    if (condition := condition_of(test)) is not None:
        merge.define_sizes(results, condition)
    values = {key: make(results) for key, make in makers.items()}
    result = values.pop("result")
    for key, value in values.items():
        watched.set(key, value)
    return result
