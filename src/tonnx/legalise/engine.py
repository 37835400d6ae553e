"""Takes a model from one opset to another, node by node, in one pass over the graph.

Every node is at some opset: first that of the model, then that of the rule that made it. While its version is newer
than the target has, the rule of that version step rewrites it one step further down; steps that change nothing are
jumped over. What a rule makes is put in the place of the node and goes through the same loop. Each node is rewritten at
most once for each of its version steps, so the pass is linear.

An operator that a named target has not is taken down as well, to the opset before its first version: there it is
written with others, which then come up to the target's opset. What no opset lacks has a substitute at the same one
(`rules/substitutes.py`); so have some element types of an operator.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from functools import cache
from operator import is_

import onnx_ir as ir

from tonnx.errors import Blocker, InvalidModel, RetargetError
from tonnx.ir import facts
from tonnx.ir.build import Builder, Names, UnknownRank
from tonnx.ir.provenance import origin_of
from tonnx.ir.rewrite import inner_graphs, names_in, no_collection, replace_node
from tonnx.ir.schema import INSTEAD, history, signature
from tonnx.ir.target import Target
from tonnx.legalise import types
from tonnx.legalise.node_view import Blocked, NodeView
from tonnx.legalise.rules import load
from tonnx.legalise.table import SUBSTITUTES, Step, step_down, step_up
from tonnx.targets import Profile


@dataclass
class Report:
    """What legalising changed: operator → how many nodes were rewritten."""

    source: int
    target: int
    rewritten: Counter[str] = field(default_factory=Counter)
    cast: Counter[str] = field(default_factory=Counter)


def legalise(model: ir.Model, target: Target) -> Report:
    """Rewrite ``model`` in place; raises RetargetError with every blocking node if that is impossible."""
    load()
    source = model.opset_imports.get("")
    if source is None:
        raise InvalidModel("the model imports no version of the default operator set")
    with no_collection():
        engine = _Engine(model, source, target)
        engine.graph(model.graph, source)
        for function in model.functions.values():
            engine.graph(function.graph, function.opset_imports.get("", source))
    if engine.blockers:
        raise RetargetError(target.opset, engine.blockers, target=target.profile.name if target.profile else "")
    for function in model.functions.values():
        if "" in function.opset_imports:
            function.opset_imports[""] = target.opset
    model.graph.opset_imports[""] = target.opset
    model.ir_version = target.ir_version
    return engine.report


class _Engine:
    def __init__(self, model: ir.Model, source: int, target: Target) -> None:
        self.model = model
        self.source = source
        self.target = target.opset
        self.profile = target.profile
        self.report = Report(source, target.opset)
        self.blockers: list[Blocker] = []
        self.names = Names(names_in(model))
        self._done: set[ir.Graph] = set()

    def graph(self, graph: ir.Graph, opset: int, parent: Builder | None = None) -> None:
        """All nodes of a graph, which is written at ``opset``."""
        if graph in self._done:  # a rule that rebuilds an If or Loop keeps the bodies it was given
            return
        self._done.add(graph)
        in_function = parent.constants_as_nodes if parent else graph is not self.model.graph
        builder = Builder(graph, names=self.names, parent=parent, constants_as_nodes=in_function)
        for node in list(graph):
            # A rule may have dealt with a later node itself, or brought in nodes that need nothing.
            if node.graph is graph and node not in facts.LEGAL:
                self._node(builder, node, opset)

    def _node(self, builder: Builder, node: ir.Node, opset: int) -> None:
        queue = deque([(node, opset, frozenset[str]())])
        while queue:
            current, at, missing = queue.popleft()
            for inner in inner_graphs(current):
                if current.op_type == "Loop" and inner.inputs:
                    facts.COUNT.add(inner.inputs[0])  # which turn it is
                self.graph(inner, at, builder)
            if current.domain != "":
                continue
            goal = self._goal(current, missing)
            next_step = _next_step(current.op_type, at, goal)
            if next_step is None:
                others = None if current.op_type in missing else self._substitute(builder, current)
                if others is None:
                    self._finish(builder, current)
                else:
                    queue.extendleft((new, goal, missing | {current.op_type}) for new in reversed(others))
                continue
            step, since = next_step
            left, reached = (since, since - 1) if at > goal else (since - 1, since)
            if reached == goal != self.target:
                missing |= {current.op_type}
            new_nodes = self._apply(builder, current, step, since, left, reached, goal)
            queue.extendleft((new, reached, missing) for new in reversed(new_nodes))

    def _goal(self, node: ir.Node, missing: frozenset[str]) -> int:
        """The opset that a node is taken to: below its first where the target has not got it, and others express it.

        Where nothing does, it stays: it may yet be folded, and `conformity` names it otherwise.
        """
        if self.profile is None or self.profile.has(node.op_type) or node.op_type in missing:
            return self.target  # missing: it came of itself, as Resize, Upsample, Resize
        lower = _before_first(node.op_type)
        return self.target if lower is None else lower

    def _substitute(self, builder: Builder, node: ir.Node) -> list[ir.Node] | None:
        """At the target's opset, write a node that the target has not, or not of its dtype; None leaves it."""
        step = SUBSTITUTES.get(node.op_type) if self.profile is not None else None
        if step is None or self.profile is None:
            return None
        present = self.profile.has(node.op_type)
        if present and _computable(node, self.profile):
            return None
        schema = signature(node.op_type, self.target)
        assert schema is not None and step.function is not None
        try:
            with builder, builder.at(node, self.target) as new_nodes:
                result = step.function(builder, NodeView(node, schema))
        except (Blocked, UnknownRank) as blocked:
            if present:
                return None  # `conformity` says what is the matter with it
            self._blocked(node, f"{self.profile.name} has no operator {node.op_type}, and {blocked}", None)
            return []
        self.report.rewritten[node.op_type] += 1
        replace_node(node, [result] if isinstance(result, ir.Value) else list(result))
        return new_nodes

    def _apply(
        self, builder: Builder, node: ir.Node, step: Step, since: int, left: int, reached: int, goal: int
    ) -> list[ir.Node]:
        """Rewrite a node of opset ``left`` for opset ``reached``; returns the nodes that stand in its place."""
        schema = signature(node.op_type, left, deprecated=True)
        assert schema is not None
        before = (*node.attributes.values(), *node.inputs)
        try:
            if step.function is None:
                raise Blocked(step.reason)
            with builder, builder.at(node, reached) as new_nodes:
                result = step.function(builder, NodeView(node, schema))
        except (Blocked, UnknownRank) as blocked:
            if goal != self.target:
                assert self.profile is not None
                self._blocked(node, f"{self.profile.name} has no operator {node.op_type}, and {blocked}", None)
            else:  # on the way up, no lower opset is one that works
                self._blocked(node, str(blocked), since if left > reached else None)
            return []
        if result is None:  # the rule changed attributes of the node itself, or found nothing to change
            _without_unknown(node, reached)
            if new_nodes or not _unchanged(node, before):
                self.report.rewritten[node.op_type] += 1
            return [*new_nodes, node]
        self.report.rewritten[node.op_type] += 1
        replace_node(node, [result] if isinstance(result, ir.Value) else list(result))
        return new_nodes

    def _finish(self, builder: Builder, node: ir.Node) -> None:
        schema = signature(node.op_type, self.target)
        if schema is None:
            self._blocked(node, f"ONNX has no operator {node.op_type} at opset {self.target}", None)
            return
        try:
            if types.fits(node, schema):
                return
        except TypeError as error:  # a node that was not valid at its own opset either
            self._blocked(node, str(error), None)
            return
        try:
            with builder.at(node, self.target):
                if types.fit(builder, node, schema):
                    self.report.cast[node.op_type] += 1
        except Blocked as blocked:
            self._blocked(node, blocked.reason, types.lowest_opset(node, self.target))

    def _blocked(self, node: ir.Node, reason: str, lowest: int | None) -> None:
        source = origin_of(node).source
        self.blockers.append(Blocker(node.name or node.op_type, node.op_type, reason, source, lowest))


def _without_unknown(node: ir.Node, opset: int) -> None:
    """Attributes that the version at ``opset`` does not have go: the rule has seen that they say nothing."""
    schema = signature(node.op_type, opset, deprecated=True)
    for name in list(node.attributes) if schema is not None else ():
        if name not in schema.attributes:  # type: ignore[union-attr]
            node.attributes.pop(name)


def _unchanged(node: ir.Node, before: tuple[object, ...]) -> bool:
    now = (*node.attributes.values(), *node.inputs)
    return len(now) == len(before) and all(map(is_, now, before))


def _computable(node: ir.Node, profile: Profile) -> bool:
    """Whether the target has the operator for the dtype of its first operand, or for one that does instead."""
    dtype = node.inputs[0].dtype if node.inputs and node.inputs[0] is not None else None
    if dtype is None:
        return True
    others = (ir.DataType.INT32,) if dtype == ir.DataType.INT64 else INSTEAD.get(dtype, ())
    return any(profile.takes(node.op_type, other.name.lower()) for other in (dtype, *others))


@cache
def _before_first(op_type: str) -> int | None:
    """The opset that an operator can be taken to in terms of others; None if nothing expresses it."""
    first = next((schema.since for schema in history(op_type)), 1)
    step = step_down(op_type, first)
    return first - 1 if first > 1 and step is not None and step.kind == "rule" else None


def _next_step(op_type: str, opset: int, target: int) -> tuple[Step, int] | None:
    if opset == target:
        return None
    return (_next_down if opset > target else _next_up)(op_type, opset, target)


@cache
def _next_down(op_type: str, opset: int, target: int) -> tuple[Step, int] | None:
    """The next step that does something, from the version in force at ``opset`` towards ``target``."""
    at = opset
    while True:
        schema = signature(op_type, at, deprecated=True)
        if schema is None or schema.since <= target:
            return None
        step = step_down(op_type, schema.since)
        if step is None:
            return Step("impossible", f"no rule takes {op_type} below opset {schema.since}"), schema.since
        if step.kind != "same":
            return step, schema.since
        at = schema.since - 1


@cache
def _next_up(op_type: str, opset: int, target: int) -> tuple[Step, int] | None:
    for at in range(opset + 1, target + 1):
        schema = signature(op_type, at, deprecated=True)
        if schema is not None and schema.since == at:
            step = step_up(op_type, at)
            if step is None:
                return Step("impossible", f"no rule takes {op_type} up to opset {at}"), at
            if step.kind != "same":
                return step, at
    return None
