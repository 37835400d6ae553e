"""The one writer of QuantizeLinear and DequantizeLinear: weights, biases and activations of a file, stored or rounded.

Integers are int8 here, as TensorRT and QNN want them; `tonnx.passes.unsigned` makes them uint8 for ONNX Runtime's CPU.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from tonnx.ir.build import Builder
from tonnx.quant.integers import Stored

_LIMITS = {8: (-128, 127, np.int8), 16: (0, 65535, np.uint16)}


@dataclass(frozen=True)
class Step:
    """How activations are rounded: integers times ``scale`` from ``zero_point`` on."""

    scale: np.float32
    zero_point: int
    bits: int = 8

    @staticmethod
    def of(ends: tuple[float, float], bits: int = 8) -> Step:
        """The step whose integers reach from one end to the other; zero is one of its numbers."""
        least, most, _ = _LIMITS[bits]
        low, high = min(ends[0], 0.0), max(ends[1], 0.0)
        scale = np.float32((high - low) / (most - least)) or np.float32(1)
        if scale * np.float32(most - least) > high - low and low == 0:
            # A Clip before is left out by runtimes only if no integer stands for more than its end.
            scale = np.nextafter(scale, np.float32(0))
        return Step(scale, int(np.clip(np.rint(least - low / scale), least, most)), bits)

    @property
    def ends(self) -> tuple[float, float]:
        """What the least and the largest integer stand for."""
        least, most, _ = _LIMITS[self.bits]
        return float(self.scale) * (least - self.zero_point), float(self.scale) * (most - self.zero_point)

    def parts(self) -> tuple[np.ndarray, np.ndarray]:
        """The scale and the zero point, as QuantizeLinear takes them."""
        return np.asarray(self.scale), np.asarray(self.zero_point, _LIMITS[self.bits][2])

    def rounded(self, array: np.ndarray) -> np.ndarray:
        least, most, _ = _LIMITS[self.bits]
        steps = np.clip(np.rint(array / self.scale) + self.zero_point, least, most)
        return np.asarray((steps - self.zero_point) * self.scale, np.float32)


def stored_floats(op: Builder, name: str, stored: Stored) -> ir.Value:
    """The floats that stored integers stand for, as a value of the graph."""
    return op.DequantizeLinear(*stored_parts(op, name, stored), axis=stored.axis, block_size=stored.block or None)


def stored_parts(op: Builder, name: str, stored: Stored) -> list[ir.Value | None]:
    """The integers, the scale and the zero point as initializers."""
    parts = {"quantized": stored.integers, "scale": stored.scale, "zero_point": stored.zero_point}
    return [
        None if array is None else op.initializer(f"{name}_{part}", ir.Tensor(np.ascontiguousarray(array)))
        for part, array in parts.items()
    ]


def step_inputs(op: Builder, name: str, bits: int = 8) -> tuple[ir.Value, ir.Value]:
    """The scale and the zero point of a value as inputs of the graph."""
    kinds = {"scale": np.float32, "zero_point": _LIMITS[bits][2]}
    types = [(part, ir.TensorType(ir.DataType.from_numpy(np.dtype(kind)))) for part, kind in kinds.items()]
    ports = [ir.Value(name=op.names.unique(f"{name}_{part}"), type=kind, shape=ir.Shape([])) for part, kind in types]
    op.graph.inputs.extend(ports)
    return ports[0], ports[1]


def rounded_activation(op: Builder, value: ir.Value, scale: ir.Value, zero_point: ir.Value) -> ir.Value:
    """The value, rounded to integers and back; its type and shape are the same."""
    floats = op.DequantizeLinear(op.QuantizeLinear(value, scale, zero_point), scale, zero_point)
    floats.shape, floats.type = value.shape, value.type
    return floats


def rounded_bias(bias: np.ndarray, scale: np.ndarray) -> Stored | None:
    """A bias as int32 in the steps of the products that it is added to; None if it does not fit."""
    steps = np.rint(bias.astype(np.float64) / scale.astype(np.float64))
    if not np.isfinite(steps).all() or (np.abs(steps) > 2**30).any():
        return None
    return Stored(steps.astype(np.int32), scale.astype(np.float32), None, 0, 0)
