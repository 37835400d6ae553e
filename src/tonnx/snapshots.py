"""What of an exported file is worth committing: a few kilobytes by which a later export is known to be the same.

Nodes are kept with the module and the line that they come from, so that what changed can be said in the terms of the
model. A line is not compared: code moves.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tonnx.api.result import ExportResult, format_size, value_data
from tonnx.errors import InvalidArgument
from tonnx.io.staging import replacing
from tonnx.ir.history import operator_of
from tonnx.ir.provenance import origin_of
from tonnx.reporting.collect import attribute_text, value_type

if TYPE_CHECKING:
    import onnx_ir as ir

Snapshot = dict[str, Any]

_SAMPLE = 32
"""Values of an output that are kept, from its first to its last."""
_MOST_LINES = 12
"""Changed nodes that are named."""
_LEAST_GROWTH = 1024


def take(result: ExportResult) -> Snapshot:
    """The snapshot of a file that was just exported."""
    graph = result.model.graph
    return {
        "opset": result.opset,
        "size": result.size,
        "inputs": [value_data(value) for value in graph.inputs if not value.is_initializer()],
        "outputs": [value_data(value) for value in graph.outputs],
        "nodes": [_node(node) for node in graph.all_nodes()],
        "weights": {
            name: _weight(value) for name, value in graph.initializers.items() if value.const_value is not None
        },
        "values": _values(result),
    }


def _node(node: ir.Node) -> list[Any]:
    origin = origin_of(node)
    attributes = {name: attribute_text(attribute) for name, attribute in node.attributes.items()}
    return [operator_of(node), origin.module, origin.source, [value_type(v) for v in node.outputs], attributes]


def _weight(value: ir.Value) -> list[Any]:
    """Shape, root mean square, and who reads it first: a change of weights is said with its size and its place."""
    assert value.const_value is not None
    array = np.asarray(value.const_value.numpy())
    numbers = np.abs(array).astype(np.float64) if array.dtype.kind not in "OSU" else np.zeros(0)
    size = float(np.sqrt(np.mean(numbers**2))) if numbers.size else 0.0
    user = next((node for node, _ in value.uses()), None)
    return [list(array.shape), size if math.isfinite(size) else None, "" if user is None else _place(_node(user))]


def _values(result: ExportResult) -> dict[str, Any]:
    from tonnx.run.model import load

    if result.path is None or result.not_run or not result.example:
        return {}
    model = load(result.path)
    outputs = model.run({name: result.example[name] for name in model.inputs if name in result.example})
    return {name: _sampled(np.asarray(array)) for name, array in outputs.items() if isinstance(array, np.ndarray)}


def _sampled(array: np.ndarray) -> dict[str, Any]:
    flat = array.reshape(-1)
    if flat.dtype.kind in "OSU":
        return {"shape": list(array.shape), "at": [], "sample": []}
    numbers = flat.astype(np.float64)
    at = sorted({round(i * (flat.size - 1) / (_SAMPLE - 1)) for i in range(_SAMPLE)}) if flat.size else []
    largest = float(np.max(np.abs(numbers), initial=0.0))
    sample = [float(f"{numbers[i]:.9g}") for i in at]
    return {"shape": list(array.shape), "largest": largest, "at": at, "sample": sample}


def read_snapshot(file: Path) -> Snapshot | None:
    try:
        return dict(json.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise InvalidArgument(f"{file} is not a snapshot", why=str(error), hint="pytest --tonnx-update") from error


def write_snapshot(file: Path, snapshot: Snapshot) -> None:
    """Write it, a line a node, so that a person sees in a review what changed."""
    file.parent.mkdir(parents=True, exist_ok=True)
    parts = []
    for key, value in snapshot.items():
        if isinstance(value, list) and value:
            parts.append(f'"{key}": [\n' + ",\n".join(f"  {json.dumps(one)}" for one in value) + "\n]")
        elif isinstance(value, dict) and value:
            lines = (f"  {json.dumps(name)}: {json.dumps(one)}" for name, one in value.items())
            parts.append(f'"{key}": {{\n' + ",\n".join(lines) + "\n}")
        else:
            parts.append(f'"{key}": {json.dumps(value)}')
    with replacing(file) as path:
        path.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def differences(before: Snapshot, after: Snapshot, *, rtol: float, atol: float, larger: float) -> list[str]:
    """What is not as it was, in words; empty if all is."""
    lines = [*_ports(before, after), *_nodes(before["nodes"], after["nodes"])]
    growth = after["size"] - before["size"]
    if abs(growth) > max(larger * before["size"], _LEAST_GROWTH):
        lines.append(f"the file has {format_size(after['size'])}, not {format_size(before['size'])}")
    lines += _weights(before["weights"], after["weights"], rtol)
    lines += _numbers(before["values"], after["values"], rtol, atol)
    return lines


def _ports(before: Snapshot, after: Snapshot) -> Iterator[str]:
    for kind in ("inputs", "outputs"):
        old, new = ([_port(port) for port in snapshot[kind]] for snapshot in (before, after))
        if old != new:
            yield f"{kind}: {', '.join(old) or 'none'} → {', '.join(new) or 'none'}"


def _port(port: Mapping[str, Any]) -> str:
    dims = "?" if port["shape"] is None else ", ".join("?" if dim is None else str(dim) for dim in port["shape"])
    return f"{port['name']} {port['dtype']}[{dims}]"


def _nodes(before: Sequence[list[Any]], after: Sequence[list[Any]]) -> list[str]:
    """Nodes that came, went or changed, with their lines."""
    old, new = ([json.dumps([node[0], node[1], *node[3:]]) for node in nodes] for nodes in (before, after))
    lines = []
    for tag, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        gone, come = list(before[a:b]), list(after[c:d])
        while gone and come and gone[0][0] == come[0][0]:  # the same operator, but for its attributes or types
            lines.append(_changed(gone.pop(0), come.pop(0)))
        lines += [f"gone: {_place(node)}" for node in gone]
        lines += [f"new:  {_place(node)}" for node in come]
    if len(lines) > _MOST_LINES:
        lines[_MOST_LINES:] = [f"… and {len(lines) - _MOST_LINES} more nodes"]
    return lines


def _changed(old: list[Any], new: list[Any]) -> str:
    parts = [] if old[3] == new[3] else [f"{', '.join(old[3])} → {', '.join(new[3])}"]
    names = [name for name in {**old[4], **new[4]} if old[4].get(name) != new[4].get(name)]
    parts += [f"{name} {old[4].get(name, 'none')} → {new[4].get(name, 'none')}" for name in names]
    parts += [] if old[1] == new[1] else [f"it was in {old[1] or 'no module'}"]
    return f"{_place(new)}: {'; '.join(parts)}"


def _place(node: list[Any]) -> str:
    """``Conv in blocks.0.conv, net.py:12``."""
    module, source = (f" in {node[1]}" if node[1] else ""), (f", {node[2]}" if node[2] else "")
    return f"{node[0]}{module}{source}"


def _weights(before: Mapping[str, Any], after: Mapping[str, Any], rtol: float) -> list[str]:
    lines = []
    for name in before.keys() & after.keys():
        (shape, size, _), (new_shape, new_size, place) = before[name], after[name]
        if shape != new_shape:
            lines.append(f"the weight {name} of {place}: {shape} → {new_shape}")
        elif (size is None) != (new_size is None) or abs((size or 0) - (new_size or 0)) > rtol * abs(size or 0):
            lines.append(f"the weight {name} of {place}: its root mean square {size:.6g} → {new_size:.6g}")
    return sorted(lines)[:_MOST_LINES]


def _numbers(before: Mapping[str, Any], after: Mapping[str, Any], rtol: float, atol: float) -> Iterator[str]:
    for name, old in before.items():
        new = after.get(name)
        if new is None:
            yield f"the output {name} was not computed"
        elif old["shape"] != new["shape"]:
            yield f"the output {name} of the example: {old['shape']} → {new['shape']}"
        elif old["sample"]:
            a, b = np.array(old["sample"]), np.array(new["sample"])
            allowed = atol * max(1.0, old["largest"]) + rtol * np.abs(a)
            apart = np.where(np.isnan(a) & np.isnan(b) | (a == b), 0.0, np.abs(a - b))
            if not (apart <= allowed).all():
                worst = int(np.nanargmax(np.where(np.isnan(apart), np.inf, apart) - allowed))
                yield f"the output {name} of the example: {a[worst]:.6g} → {b[worst]:.6g} at {old['at'][worst]}"
