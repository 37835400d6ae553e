"""The numbers that a file compares with, clips at or rounds to: values around them show which side it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from tonnx.ir.infer import constant
from tonnx.ir.rewrite import all_graphs
from tonnx.proof.trials.inputs import is_ordered

_COMPARES = frozenset("Greater GreaterOrEqual Less LessOrEqual Equal Clip Min Max".split())
_ROUNDS = frozenset("Round Floor Ceil".split())
_FEW = 16
"""Thresholds that are tried; and elements that a constant has at most to be one."""
_LARGEST = 1e6
"""Beyond it a constant is a mask's infinity, not a threshold."""


def thresholds(model: ir.Model) -> list[float]:
    """The float constants that something is compared with, and halves where something is rounded."""
    numbers: dict[float, None] = {}
    for graph in all_graphs(model):
        for node in graph:
            if node.domain == "" and node.op_type in _COMPARES:
                for value in node.inputs:
                    array = constant(value) if value is not None else None
                    if array is not None and array.dtype.kind == "f" and array.size <= _FEW:
                        numbers.update(dict.fromkeys(array.astype(np.float64).reshape(-1).tolist()))
            elif node.domain == "" and node.op_type in _ROUNDS:
                numbers.update(dict.fromkeys((0.5, 1.0)))
            elif node.domain == "" and node.op_type == "ThresholdedRelu":
                numbers[node.attributes.get_float("alpha", 1.0)] = None
    return [number for number in numbers if abs(number) < _LARGEST][:_FEW]


def around(
    example: Mapping[str, np.ndarray], numbers: Sequence[float], seed: Sequence[int]
) -> dict[str, np.ndarray] | None:
    """The example with its floats close to ``numbers``, above and below; None if it has no floats to move."""
    rng = np.random.default_rng(list(seed))
    moved = {}
    for name, array in example.items():
        if array.dtype.kind == "f" and array.size and not is_ordered(array):
            near = rng.choice(np.asarray(numbers), array.shape)
            offsets = rng.uniform(-1, 1, array.shape) * rng.choice([0.3, 0.03], array.shape) * (np.abs(near) + 0.1)
            moved[name] = np.asarray(near + offsets).astype(array.dtype)
    return {**example, **moved} if moved else None
