"""The version steps of an operator: those of the table, and those in which nothing but the accepted types changed."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any

from tonnx.ir.registry import Registry
from tonnx.ir.schema import Signature, history
from tonnx.legalise.table import DOWN, UP, Step, key


def step_down(op_type: str, since: int) -> Step | None:
    """How to express version ``since`` of an operator one opset below; None if nobody knows."""
    return _step(DOWN, op_type, since)


def step_up(op_type: str, since: int) -> Step | None:
    """How to express the version before ``since`` at that opset; None if nobody knows."""
    return _step(UP, op_type, since)


def _step(direction: Registry[Step], op_type: str, since: int) -> Step | None:
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
