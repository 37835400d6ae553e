"""Schemas of opsets that the installed onnx does not know yet.

Every front end lowers to CANON, whichever onnx is installed. onnx 1.18 ends at opset 23, 1.19 at 24, 1.20 at 25; what
came after that is read from ``newer_schemas.json``, which a test compares with onnx's own.
"""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from functools import cache
from importlib import resources
from types import SimpleNamespace
from typing import Any

import onnx

from tonnx.ir.target import CANON

OLDEST_ONNX = 23
"""The newest opset of the oldest onnx that is supported."""

_FILE = "newer_schemas.json"
_FORMALS = ("name", "type_str", "is_homogeneous")
_COUNTS = ("since_version", "min_input", "max_input", "min_output", "max_output", "deprecated")


@cache
def schemas() -> dict[str, list[Any]]:
    """What onnx lacks up to CANON, by operator, oldest first: in the form of `onnx.defs.OpSchema`."""
    missing: dict[str, list[Any]] = defaultdict(list)
    if onnx.defs.onnx_opset_version() < CANON:
        content = json.loads(resources.files(__package__).joinpath(_FILE).read_text(encoding="utf-8"))
        for entry in content["schemas"]:
            if entry["since_version"] > onnx.defs.onnx_opset_version():
                missing[entry["name"]].append(decoded(entry, content["types"]))
    return missing


def encoded() -> str:
    """The contents of the file, from an onnx that knows CANON."""
    types: dict[tuple[str, ...], int] = {}
    entries = []
    onnx_schemas = [s for s in onnx.defs.get_all_schemas_with_history() if s.domain == ""]
    for schema in sorted(onnx_schemas, key=lambda s: (s.name, s.since_version)):
        if not OLDEST_ONNX < schema.since_version <= CANON:
            continue
        entry: dict[str, Any] = {"name": schema.name} | {name: getattr(schema, name) for name in _COUNTS}
        for side in ("inputs", "outputs"):
            entry[side] = [
                {name: getattr(p, name) for name in _FORMALS}
                | {"option": p.option.name, "types": types.setdefault(tuple(sorted(p.types)), len(types))}
                for p in getattr(schema, side)
            ]
        entry["attributes"] = {
            name: [a.type.name, a.required, base64.b64encode(a.default_value.SerializeToString()).decode()]
            for name, a in sorted(schema.attributes.items())
        }
        entries.append(entry)
    lines = ",\n".join(json.dumps(entry) for entry in entries)
    sets = ",\n".join(json.dumps(names) for names in types)
    return f'{{"types": [\n{sets}\n],\n"schemas": [\n{lines}\n]}}\n'


def decoded(entry: dict[str, Any], types: list[list[str]]) -> SimpleNamespace:
    """One entry of the file as a schema."""
    kinds, options = onnx.defs.OpSchema.AttrType, onnx.defs.OpSchema.FormalParameterOption

    def formals(side: str) -> list[SimpleNamespace]:
        return [
            SimpleNamespace(**{**p, "types": types[p["types"]], "option": getattr(options, p["option"])})
            for p in entry[side]
        ]

    attributes = {
        name: SimpleNamespace(
            type=getattr(kinds, kind),
            required=required,
            default_value=onnx.AttributeProto.FromString(base64.b64decode(default)),
        )
        for name, (kind, required, default) in entry["attributes"].items()
    }
    sides = {"inputs": formals("inputs"), "outputs": formals("outputs"), "attributes": attributes}
    return SimpleNamespace(**{**entry, **sides})
