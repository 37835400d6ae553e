"""The table of version steps: for every operator and every version of it, how to express it one version below.

    @down("Squeeze", 13)
    def squeeze(op, node): ...      # a Squeeze-13 in terms of opset 12

    @down("Gemm", 11, up="C became optional")   # the other way, nothing has to be done, for this reason
    same("Gemm", 6, "nothing but the text changed")
    impossible("SequenceAt", 11, "sequences came with opset 11")

A rule that returns None leaves the node; what the other version has no attribute for is then left out.
A step whose version is the operator's first is its decomposition into older operators. `up` goes the other way: a
node of the version before ``since``, written as ``since`` wants it. Completeness over onnx.defs is tested.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

from tonnx.ir.registry import Registry
from tonnx.ir.schema import Signature, history

RuleFunction = Callable[..., Any]


@dataclass(frozen=True)
class Step:
    """One version step: a function, "the same", or a reason why not."""

    kind: str  # "rule" | "same" | "impossible"
    reason: str = ""
    function: RuleFunction | None = None


DOWN: Registry[Step] = Registry("step down")
UP: Registry[Step] = Registry("step up")
SUBSTITUTES: Registry[Step] = Registry("substitute")
"""Operators in terms of others at the same opset, for targets that have not got them."""


def key(op_type: str, since: int) -> str:
    return f"{op_type}-{since}"


def down(op_type: str | tuple[str, ...], since: int, *, up: str = "") -> Callable[[RuleFunction], RuleFunction]:
    """Enter a function: version ``since`` of the operator in terms of opset ``since - 1``.

    ``up`` is the reason why a node of the version before is one of ``since`` as it stands.
    """
    if up:
        same(op_type, since, up, direction=UP)
    return _enter(DOWN, op_type, since)


def up(op_type: str | tuple[str, ...], since: int) -> Callable[[RuleFunction], RuleFunction]:
    """Enter a function: the version before ``since``, in terms of opset ``since``."""
    return _enter(UP, op_type, since)


def substitute(op_type: str | tuple[str, ...]) -> Callable[[RuleFunction], RuleFunction]:
    """Enter a function: the operator in terms of others of the same opset."""

    def enter(function: RuleFunction) -> RuleFunction:
        for name in (op_type,) if isinstance(op_type, str) else op_type:
            SUBSTITUTES.add(name, Step("rule", (function.__doc__ or "").strip(), function))
        return function

    return enter


def formula(step: Callable[[RuleFunction], RuleFunction], summary: str, function: Any, **attributes: float) -> None:
    """Enter a function of the node's first input and of its attributes, which have these defaults.

    formula(down("Cosh", 9), "(eˣ + e⁻ˣ)/2.", lambda op, x: (op.Exp(x) + op.Exp(-x)) * 0.5)
    """

    def rule(op: Any, node: Any) -> Any:
        x = node.need(node.signature.inputs[0].name)
        return function(op, x, *(node.attr(name, default) for name, default in attributes.items()))

    rule.__doc__ = summary
    step(rule)


def attributes_go(op: Any, node: Any) -> None:
    """What the other version does not say is left out."""


def attributes_become_inputs(op_type: str | tuple[str, ...], since: int, *names: str) -> None:
    """Enter the step up for operators whose attributes ``names`` are inputs from ``since`` on."""

    def rule(op: Any, node: Any) -> Any:
        moved = ([value] if isinstance(value := node.attr(name), int) else value for name in names)
        emit = getattr(op, node.op_type)
        return emit(*node.inputs, *moved, _outputs=node.outputs, **node.attributes(*names))

    rule.__doc__ = f"{' and '.join(names)}: inputs, which were attributes."
    up(op_type, since)(rule)


def _enter(
    registry: Registry[Step], op_type: str | tuple[str, ...], since: int
) -> Callable[[RuleFunction], RuleFunction]:
    def enter(function: RuleFunction) -> RuleFunction:
        summary = (function.__doc__ or "").strip().split("\n")[0]
        for name in (op_type,) if isinstance(op_type, str) else op_type:
            registry.add(key(name, since), Step("rule", summary, function))
        return function

    return enter


def same(op_type: str | tuple[str, ...], since: int, reason: str, *, direction: Registry[Step] | None = None) -> None:
    """The step changes nothing for a node that the type rule accepts."""
    for registry in (DOWN, UP) if direction is None else (direction,):
        for name in (op_type,) if isinstance(op_type, str) else op_type:
            if key(name, since) not in registry:
                registry.add(key(name, since), Step("same", reason))


def impossible(op_type: str | tuple[str, ...], since: int, reason: str) -> None:
    """Nothing older expresses it."""
    for name in (op_type,) if isinstance(op_type, str) else op_type:
        DOWN.add(key(name, since), Step("impossible", reason))


# The steps of an operator: those of the table, and those in which nothing but the accepted types changed


def step_down(op_type: str, since: int) -> Step | None:
    """How to express version ``since`` of an operator one opset below; None if nobody knows."""
    return _step_of(DOWN, op_type, since)


def step_up(op_type: str, since: int) -> Step | None:
    """How to express the version before ``since`` at that opset; None if nobody knows."""
    return _step_of(UP, op_type, since)


def _step_of(direction: Registry[Step], op_type: str, since: int) -> Step | None:
    entered = direction.get(key(op_type, since))
    if entered is None and _types_alone(op_type, since):
        return Step("same", "only the accepted types changed")
    return entered


@cache
def _types_alone(op_type: str, since: int) -> bool:
    """Whether a version differs from the one before in nothing but its types: the type rule deals with those."""
    for before, after in pairwise(history(op_type)):
        if after.since == since:
            return _structure(before) == _structure(after) and _types(before) != _types(after)
    return False


def _structure(schema: Signature) -> tuple[Any, ...]:
    sides = [[(p.name, p.option, p.homogeneous) for p in side] for side in (schema.inputs, schema.outputs)]
    return *sides, schema.attributes, schema.deprecated


def _types(schema: Signature) -> list[frozenset[str]]:
    return [parameter.types for parameter in (*schema.inputs, *schema.outputs)]
