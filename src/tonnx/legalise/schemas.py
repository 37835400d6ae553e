"""Version steps that follow from onnx's own schemas: nothing but the accepted types changed."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from tonnx.ir.schema import histories
from tonnx.legalise.table import DOWN, UP, key, same


def structure(schema: Any) -> tuple[Any, ...]:
    """All of a signature but its types."""

    def formals(parameters: Any) -> tuple[Any, ...]:
        return tuple((p.name, str(p.option), p.is_homogeneous) for p in parameters)

    attributes = tuple(sorted((n, str(a.type), a.required, str(a.default_value)) for n, a in schema.attributes.items()))
    return formals(schema.inputs), formals(schema.outputs), attributes, schema.deprecated


def types(schema: Any) -> tuple[Any, ...]:
    """The types that a signature accepts."""
    return tuple(frozenset(p.types) for p in (*schema.inputs, *schema.outputs))


def enter_type_only_steps(oldest: int) -> None:
    """Enter every step that only changes the accepted types: the type rule deals with those."""
    for name, schemas in histories().items():
        for before, after in pairwise(schemas):
            since = after.since_version
            if since <= oldest or structure(before) != structure(after):
                continue
            if types(before) != types(after):
                for registry in (DOWN, UP):
                    if key(name, since) not in registry:
                        same(name, since, "only the accepted types changed", direction=registry)
