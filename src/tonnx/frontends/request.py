"""What a front end is asked for, and what it hands over."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir

from tonnx.ir.target import Target
from tonnx.proof.subject import Subject


@dataclass(frozen=True)
class ModelRequest:
    """A model, its example, and what is said of its inputs and outputs; the options are those of `tonnx.export`."""

    model: Any
    args: Any = ()
    kwargs: Mapping[str, Any] | None = None
    input_names: Sequence[str] | None = None
    output_names: Sequence[str] | None = None
    target: Target = field(default_factory=Target)
    """Rules know no opset; symbolic functions that a user registered with PyTorch are told it."""
    dynamic_axes: Mapping[str, Any] | None = None
    dynamic_shapes: Any = None
    input_spec: Any = None
    params: str | os.PathLike[str] | None = None
    input_shapes: Mapping[str, Sequence[int | str | None]] | None = None
    saving: Mapping[str, Any] = field(default_factory=dict)
    """Options of ``paddle.jit.save`` that say what of a layer is exported."""
    training: str = "EVAL"
    operator_export_type: str = "ONNX"
    custom_translation_table: Mapping[Any, Any] | None = None
    capture: str = "auto"
    verify: bool | str | float = True
    """False: nothing will be compared, and no reference need be started."""


# What every front end hands over


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
