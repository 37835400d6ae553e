"""``tonnx.report``: everything about one file on one page that needs no network."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from tonnx.errors import InvalidArgument, TonnxError
from tonnx.io.staging import replacing
from tonnx.ir import history
from tonnx.proof.data import finite, verification_data
from tonnx.reporting import collect
from tonnx.reporting.quantised import Quantised, made_inputs, quantisation_data

if TYPE_CHECKING:
    import numpy as np

    from tonnx.benching import Bench
    from tonnx.proof.locate.located import Difference, Located
    from tonnx.proof.trials.verification import Verification

_HERE = Path(__file__).parent
_TIMED_UP_TO = 2 << 30
"""Bytes of weights up to which a file is loaded without being asked to."""
_SCRIPTS = ("layout.js", "graph.js", "page.js")


def report(
    path: str | os.PathLike[str],
    f: str | os.PathLike[str] | None = None,
    *,
    inputs: Mapping[str, np.ndarray] | None = None,
    sizes: Mapping[str, int] | None = None,
    profile: bool | None = None,
    timings: Mapping[str, float] | None = None,
    verification: Verification | None = None,
    differences: Sequence[Difference] | None = None,
    located: Located | None = None,
    bench: Bench | None = None,
    quantised: Quantised | None = None,
) -> Path:
    """Write a page about an ONNX file: graph, operators, weights, proof, time per node.

    Example::

        tonnx.report("net.onnx", "net.html")

    Args:
        path: the ONNX file, of any origin.
        f: the page; beside the file if not given.
        inputs, sizes: values for the inputs, or sizes of its dynamic dimensions (1 and 224), to time the nodes with.
        profile: time the nodes with ONNX Runtime, which reads all weights; None does so up to 2 GiB of them.
        timings: seconds by stage of the export.
        verification: the proof of the export, or what ``tonnx.verify`` gave.
        differences, located: the differences at the values inside and where they begin, as ``tonnx.verify`` gave them.
        bench: what ``tonnx.bench`` gave.
        quantised: the float original of a quantised file, samples to look at its layers with, and what was measured
            while it was made; without, the layers of a quantised file are looked at with ``inputs``.
    """
    from tonnx.io import read
    from tonnx.ir.provenance import load

    target = Path(f) if f is not None else Path(path).with_suffix(".html")
    if not target.parent.is_dir():
        raise InvalidArgument(f"cannot write {target}", why=f"the folder {target.parent} does not exist")
    model = read.reader(path)()
    load(model)
    inferred = [] if _described(model) else read.infer(model)
    data = model_data(model, Path(path))
    data["notes"] += inferred
    if profile is None and data["file"]["weights"] > _TIMED_UP_TO:
        data["notes"].append("nodes were not timed: the weights take more than 2 GiB (profile=True, --profile does it)")
    elif profile is not False:
        data["times"], note = _times(path, inputs or {}, sizes or {})
        known = quantised or Quantised()
        data["quantisation"], more = quantisation_data(model, path, known, inputs or {}, sizes or {})
        data["notes"] += filter(None, (note, more))
    if differences:
        data["differences"] = _differences(model, differences)
    data["timings"] = dict(timings or {})
    data["located"] = None if located is None else str(located)
    if verification is not None:
        data["verification"] = verification_data(verification)
    data["bench"] = None if bench is None else {"svg": bench.svg(), "text": str(bench), **bench.data()}
    with replacing(target) as page:
        page.write_text(fill(_HERE / "page.html", [_HERE / name for name in _SCRIPTS], data), encoding="utf-8")
    return target


def model_data(model: ir.Model, path: Path) -> dict[str, Any]:
    """What a page says of the model itself."""
    weights = collect.weights_data(model)
    beside = {t.path for v in model.graph.initializers.values() if isinstance(t := v.const_value, ir.ExternalTensor)}
    stages, notes = history.read(model)
    return {
        "file": {
            "name": path.name,
            "size": path.stat().st_size + sum(os.path.getsize(file) for file in beside if os.path.isfile(file)),
            "opset": model.opset_imports.get("", 0),
            "domains": {domain or "ai.onnx": version for domain, version in model.opset_imports.items()},
            "ir_version": model.ir_version,
            "producer": " ".join(filter(None, (model.producer_name, model.producer_version))),
            "weights": sum(weight["bytes"] for weight in weights),
            "parameters": sum(math.prod(weight["shape"]) for weight in weights),
        },
        "inputs": _ports(value for value in model.graph.inputs if not value.is_initializer()),
        "outputs": _ports(model.graph.outputs),
        "stages": [*stages, {"name": "file", "operators": history.operator_counts(model)}],
        "notes": notes,
        "weights": weights[:200],
        "metadata": history.others(model),
        "graph": collect.graph_data(model),
        "times": None,
        "differences": None,
        "located": None,
        "verification": None,
        "quantisation": None,
    }


def _described(model: ir.Model) -> bool:
    """Whether the file says the types and shapes of all of its values itself; inferring them takes long."""
    values = (value for node in model.graph.all_nodes() for value in node.outputs if value.name)
    return all(value.shape is not None and value.type is not None for value in values)


def fill(template: Path, scripts: Sequence[Path], data: Mapping[str, Any]) -> str:
    """A page of a template, in the look that all pages share, with its data inside: it needs no network."""
    html = template.read_text(encoding="utf-8")
    # "</" would end the script element that holds the data; in JSON, "<\/" means the same.
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace("</", "<\\/")
    parts = {
        "/*STYLE*/": (_HERE / "page.css").read_text(encoding="utf-8"),
        "/*SCRIPT*/": "\n".join(script.read_text(encoding="utf-8") for script in scripts),
        "/*DATA*/": text,
    }
    for mark, content in parts.items():
        before, _, after = html.partition(mark)
        html = before + content + after
    return html


def _ports(values: Iterable[ir.Value]) -> list[dict[str, Any]]:
    return [{"name": value.name, "type": collect.value_type(value)} for value in values]


def _times(
    path: str | os.PathLike[str], inputs: Mapping[str, np.ndarray], sizes: Mapping[str, int]
) -> tuple[list[float] | None, str]:
    """Seconds by node; where the model does not run on invented inputs, why not."""
    from tonnx.reporting.profile import node_times

    try:
        return node_times(path, made_inputs(path, inputs, sizes)), ""
    except InvalidArgument:
        raise
    except TonnxError as error:
        return None, f"nodes were not timed: {error.why or error.what}"


def _differences(model: ir.Model, differences: Sequence[Difference]) -> list[Any]:
    """For each node, how far its output is from the model's: absolute, and in units of what is allowed."""
    by_value = {difference.value: difference.comparison for difference in differences}
    rows: list[Any] = []
    for spot in collect.walk(model):
        compared = by_value if spot.call < 0 else {}  # in a function, names mean something else
        seen = [compared[v.name] for v in spot.node.outputs if v.name in compared]
        worst = max(seen, key=lambda comparison: comparison.excess, default=None)
        rows.append(None if worst is None else [finite(worst.max_abs), finite(worst.excess), worst.ok])
    return rows
