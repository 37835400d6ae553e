"""What every front end hands over: a graph at CANON, and what it is compared with."""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx_ir as ir

from tonnx.proof.subject import Subject


@dataclass(frozen=True)
class Converted:
    """A model at CANON, and what is needed to prove it."""

    model: ir.Model
    subject: Subject
    notes: list[str] = field(default_factory=list)
    capture: str = ""
    """How the graph was had: torch.export, TorchScript, torch.jit.script, torch.jit.trace; empty for saved programs."""
