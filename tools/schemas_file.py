"""Write src/tonnx/ir/schemas.json anew: the operators of ONNX's default domain, as the installed onnx describes them.

    python tools/schemas_file.py

With the newest onnx. `tests/ir/test_schema_file.py` compares the file with the installed one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx

FILE = Path(__file__).parents[1] / "src/tonnx/ir/schemas.json"


def encoded(newest: int) -> str:
    """The contents of the file: sets of types, and for each operator its versions, in the fields of `Signature`."""
    types: dict[tuple[str, ...], int] = {}
    versions: dict[str, list[Any]] = {}
    ours = [s for s in onnx.defs.get_all_schemas_with_history() if s.domain == "" and s.since_version <= newest]
    for schema in sorted(ours, key=lambda s: (s.name, s.since_version)):
        sides = [[formal(p, types) for p in side] for side in (schema.inputs, schema.outputs)]
        attributes = {
            name: [a.type.value, int(a.required), default(a)] for name, a in sorted(schema.attributes.items())
        }
        version = [schema.since_version, int(schema.deprecated), schema.min_output, *sides, attributes]
        versions.setdefault(schema.name, []).append(version)
    lines = [f"{json.dumps(name)}: [\n{join(entries)}\n]" for name, entries in versions.items()]
    between = ",\n"
    return f'{{"types": [\n{join(list(types))}\n],\n"schemas": {{\n{between.join(lines)}\n}}}}\n'


def formal(parameter: onnx.defs.OpSchema.FormalParameter, types: dict[tuple[str, ...], int]) -> list[Any]:
    accepted = types.setdefault(tuple(sorted(parameter.types)), len(types))
    return [parameter.name, parameter.type_str, parameter.option.value, int(parameter.is_homogeneous), accepted]


def join(entries: list[Any]) -> str:
    return ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in entries)


def default(attribute: onnx.defs.OpSchema.Attribute) -> Any:
    """The value that an attribute has where a node does not say it; None if there is none."""
    if not attribute.default_value.name:
        return None
    value = onnx.helper.get_attribute_value(attribute.default_value)
    if isinstance(value, list):
        return [one.decode() if isinstance(one, bytes) else one for one in value]
    return value.decode() if isinstance(value, bytes) else value


if __name__ == "__main__":
    FILE.write_text(encoded(onnx.defs.onnx_opset_version()), encoding="utf-8")
