"""What an export gives back; results and errors as JSON data."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnx.errors import RetargetError, TonnxError, UnsupportedOp, VerificationFailed
from tonnx.ir.provenance import origin_of
from tonnx.proof.signature import signature_lines

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    import onnx
    import onnx_ir as ir

    from tonnx.proof.trials.verification import Verification


@dataclass
class Result:
    """A finished file: the model, what was done to it, and the proof. ``print`` it to read it."""

    model: ir.Model
    """The onnx-ir model, with the weights' own memory behind it."""
    opset: int
    path: Path | None = None
    verification: Verification | None = None
    """None when ``verify=False``."""
    timings: dict[str, float] = field(default_factory=dict)
    """Seconds by stage."""
    size: int = 0
    """Bytes written."""
    not_run: str = ""
    """Why the file was checked, but neither run nor compared: it has operators that no runtime here has."""
    notes: list[str] = field(default_factory=list)
    """What the optimiser folded and fused, and limits of dynamic dimensions."""

    @cached_property
    def proto(self) -> onnx.ModelProto:
        """The model as a protobuf. Made on demand: it copies the weights."""
        import onnx

        from tonnx.io import write

        return onnx.load_model_from_string(write.to_bytes(self.model))

    def _common_data(self) -> dict[str, Any]:
        """What the JSON data of every finished file has."""
        from tonnx.proof.data import verification_data

        graph = self.model.graph
        return {
            "opset": self.opset,
            "ir_version": self.model.ir_version,
            "size": self.size,
            "timings": {stage: round(seconds, 6) for stage, seconds in self.timings.items()},
            "inputs": [value_data(value) for value in graph.inputs if not value.is_initializer()],
            "outputs": [value_data(value) for value in graph.outputs],
            "notes": list(self.notes),
            "verification": None if self.verification is None else verification_data(self.verification),
        }


@dataclass
class ExportResult(Result):
    """A finished export: the model, what was done to it, and the proof. ``print`` it to read it."""

    example: Mapping[str, np.ndarray] = field(default_factory=dict)
    """The example, as the inputs of the file."""
    capture: str = ""
    """How the graph was had: torch.export, TorchScript, torch.jit.script or torch.jit.trace; empty for saved models."""

    def save(self, path: str | os.PathLike[str], *, external_data: bool | None = None) -> Path:
        """Write the model (again) to ``path``, in the same way as ``export`` does."""
        from tonnx.io import write

        write.write(self.model, path, external_data=external_data)
        return Path(path)

    def listing(self) -> str:
        """The main graph as text: one line a node, with where it comes from."""
        lines = []
        for node in self.model.graph:
            outputs, inputs = (", ".join(str(v.name) if v else "" for v in vs) for vs in (node.outputs, node.inputs))
            attributes = ", ".join(
                f"{name}={attribute.value}"
                for name, attribute in node.attributes.items()
                if attribute.type.name in ("INT", "INTS", "FLOAT", "FLOATS", "STRING", "STRINGS")
            )
            kind = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
            origin = origin_of(node)
            place = f"{origin.module} {origin.source}".strip()
            call = f"{kind}[{attributes}]({inputs})" if attributes else f"{kind}({inputs})"
            lines.append(f"{outputs} = {call}" + (f"  # {place}" if place else ""))
        return "\n".join(lines)

    def data(self) -> dict[str, Any]:
        """The same as JSON data. Keys are a promise to scripts: they are added, never renamed."""
        from tonnx.ir.history import operator_counts

        return {
            "path": str(self.path) if self.path else None,
            "nodes": self.nodes,
            "operators": operator_counts(self.model),
            "not_run": self.not_run or None,
            **self._common_data(),
        }

    @property
    def nodes(self) -> int:
        """The number of nodes of the main graph and of all graphs inside it."""
        return sum(len(graph) for graph in (self.model.graph, *self.model.graph.subgraphs()))

    def __str__(self) -> str:
        name = str(self.path) if self.path else "model"
        stages = ", ".join(f"{stage} {seconds:.2f} s" for stage, seconds in self.timings.items())
        lines = [
            f"{name}: opset {self.opset}, IR {self.model.ir_version}, {self.nodes} nodes, {format_size(self.size)}",
            f"  {sum(self.timings.values()):.2f} s: {stages}",
        ]
        lines += signature_lines(self.model)
        lines += [f"  {note}" for note in self.notes]
        if self.verification is None:
            lines.append(f"  [!] {self.not_run}" if self.not_run else "  not verified (verify=False)")
        else:
            lines += [f"  {line}" for line in str(self.verification).splitlines()]
        return "\n".join(lines)


def format_size(count: int) -> str:
    """A number of bytes for people."""
    size = float(count)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.2f} GB"


def value_data(value: ir.Value) -> dict[str, Any]:
    """An input or output: a dimension is a number, a name, or null."""
    dims = None if value.shape is None else [d if isinstance(d, int) else d.value for d in value.shape]
    return {"name": value.name, "dtype": value.dtype.name.lower() if value.dtype else None, "shape": dims}


def error_data(error: TonnxError) -> dict[str, Any]:
    """An error in its parts, with whatever list it carries."""
    from tonnx.proof.data import verification_data

    data: dict[str, Any] = {
        "type": type(error).__name__,
        "what": error.what,
        "where": error.where,
        "why": error.why,
        "hint": error.hint,
        "page": error.page,
    }
    if isinstance(error, UnsupportedOp):
        data["operators"] = [dataclasses.asdict(occurrence) for occurrence in error.occurrences]
    if isinstance(error, RetargetError):
        data["blockers"] = [dataclasses.asdict(blocker) for blocker in error.blockers]
    if isinstance(error, VerificationFailed) and error.verification is not None:
        data["verification"] = verification_data(error.verification)
    if isinstance(error, VerificationFailed) and error.located is not None:
        data["located"] = error.located.data()
    return data
