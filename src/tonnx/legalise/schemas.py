"""Version steps that follow from onnx's own schemas: nothing but the accepted types changed."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Any

import onnx

from tonnx.legalise.table import DOWN, UP, key, same


def versions() -> dict[str, list[Any]]:
    """Every operator of the default domain with all its schemas, oldest first."""
    by_name: dict[str, list[Any]] = defaultdict(list)
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "":
            by_name[schema.name].append(schema)
    return {name: sorted(schemas, key=lambda s: s.since_version) for name, schemas in by_name.items()}


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
    for name, schemas in versions().items():
        for before, after in pairwise(schemas):
            since = after.since_version
            if since <= oldest or structure(before) != structure(after):
                continue
            if types(before) != types(after):
                for registry in (DOWN, UP):
                    if key(name, since) not in registry:
                        same(name, since, "only the accepted types changed", direction=registry)
