"""What an export gives back."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from tonnx.ir.describe import signature_of

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

    from tonnx.proof import Verification


@dataclass
class ExportResult:
    """A finished export: the model, what was done to it, and the proof. ``print`` it to read it."""

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
    capture: str = ""
    """How the graph was had: torch.export, TorchScript, torch.jit.script or torch.jit.trace; empty for saved models."""
    notes: list[str] = field(default_factory=list)
    """What the optimiser folded and fused, and limits of dynamic dimensions."""

    @cached_property
    def proto(self) -> onnx.ModelProto:
        """The model as a protobuf. Made on demand: it copies the weights."""
        import onnx

        from tonnx.io import write

        return onnx.load_model_from_string(write.to_bytes(self.model))

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
            place = " ".join(node.metadata_props.get(f"tonnx.{key}", "") for key in ("module", "source")).strip()
            call = f"{kind}[{attributes}]({inputs})" if attributes else f"{kind}({inputs})"
            lines.append(f"{outputs} = {call}" + (f"  # {place}" if place else ""))
        return "\n".join(lines)

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
        for kind, values in (("input", self.model.graph.inputs), ("output", self.model.graph.outputs)):
            lines += [f"  {kind} {signature_of(value)}" for value in values if not value.is_initializer()]
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
