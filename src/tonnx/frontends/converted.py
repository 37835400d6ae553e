"""What every front end hands over: a graph at CANON, and what is needed to prove it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

if TYPE_CHECKING:
    from tonnx.proof.locate.trace import Trace

Reference = Callable[[dict[str, np.ndarray]], list[np.ndarray]]
"""The original model as a function on arrays: inputs by name to outputs in order."""


@dataclass
class Converted:
    """A model at CANON, and what is needed to prove it."""

    model: ir.Model
    reference: Reference | None
    """None: the framework is not there to compare with; the file is only checked, loaded and run."""
    example: dict[str, np.ndarray]
    dynamic: dict[str, dict[int, str]]
    limits: dict[str, tuple[int, int | None]]
    timings: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    capture: str = ""
    """How the graph was had: torch.export, TorchScript, torch.jit.script, torch.jit.trace; empty for saved programs."""
    redrawn: Reference | None = None
    """The original with other random numbers."""
    calm: Reference | None = None
    """The original in training, with its dropouts switched off."""
    rtol: float | None = None
    """The relative tolerance where the user gives none; None: that of each output's dtype."""
    saturates: Callable[[], str | None] | None = None
    """Names the framework whose integer kernels the original uses, if they saturate on this processor."""
    trace: Callable[[], Trace] | None = None
    """The values inside the original, for `tonnx.proof.locate.search`; made only when it is asked for."""
