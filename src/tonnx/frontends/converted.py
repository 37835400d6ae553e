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
    """How the graph was had: the name of one of PyTorch's capture strategies; empty for saved programs."""
    passed_over: list[str] = field(default_factory=list)
    """The strategies that were not taken before it, and why."""
