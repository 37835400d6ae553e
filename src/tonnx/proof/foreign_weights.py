"""Does a file hold the weights of the model that it is compared with, or those of another one?"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

_ALIKE = 0.999
"""The cosine between a layer's weights in the file and in the model: an exporter may scale channels, but no more."""


def foreign_weights(model: ir.Model, state: Mapping[str, np.ndarray]) -> str:
    """What to tell the user if the file has the model's layers, but none of their weights; else nothing."""
    others: list[str] = []
    for name, weight in state.items():
        value = model.graph.initializers.get(name)
        if value is None or value.const_value is None or weight.size < 2 or weight.dtype.kind != "f":
            continue
        stored = value.const_value.numpy()
        if stored.dtype.kind != "f" or sorted(stored.shape) != sorted(weight.shape) or np.ptp(weight) == 0:
            continue
        if stored.shape == weight.shape and _alike(stored, weight):
            return ""
        others.append(name)
    if not others:
        return ""
    names = ", ".join(others[:3]) + (", …" if len(others) > 3 else "")
    return f"the file holds other weights than this model ({names}): load the ones that the file was made with"


def _alike(stored: np.ndarray, weight: np.ndarray) -> bool:
    rows, others = (array.reshape(len(array), -1).astype(np.float64) for array in (stored, weight))
    lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(others, axis=1)
    cosines = np.abs((rows * others).sum(axis=1))
    if rows.shape[1] == 1:  # a vector, of which every element would be alike
        return bool(np.allclose(rows, others, rtol=1e-3))
    return bool((cosines >= _ALIKE * lengths).all())
