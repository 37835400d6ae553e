"""Second moments of what layers multiply: the mean of x xᵀ over all rows of all samples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from tonnx.errors import InvalidArgument
from tonnx.quant.observe import Feeds, Open

_HELD = 1 << 30
"""Bytes of moments that are held at a time; for more of them the samples are run again."""


class Moments:
    """Computed when they are asked for, some values at once, in the order of the graph."""

    def __init__(self, model: ir.Model, samples: Sequence[Feeds], opened: Open) -> None:
        """``model`` is not used by anybody else: it gets other outputs."""
        self._model, self._samples, self._opened = model, samples, opened
        products = [node for node in model.graph if node.op_type in ("MatMul", "Gemm") and node.domain == ""]
        self._factors = list(dict.fromkeys(node.inputs[0] for node in products if node.inputs[0] is not None))
        self._by_name: dict[str, np.ndarray] = {}

    def of(self, names: Sequence[str]) -> np.ndarray | None:
        """Of what these values hold together; None if one of them is constant."""
        total: np.ndarray | None = None
        for name in names:
            if name not in self._by_name:
                self._look(name)
            if name not in self._by_name:
                return None
            total = self._by_name[name] if total is None else total + self._by_name[name]
        return total

    def _look(self, name: str) -> None:
        """Run the samples for this value and the ones after it, as many as may be held."""
        first = next((place for place, value in enumerate(self._factors) if value.name == name), None)
        if first is None:
            return
        chosen: list[ir.Value] = []
        for value in self._factors[first:]:
            length = value.shape[-1] if value.shape else None
            size = 4 * length * length if isinstance(length, int) else _HELD
            if chosen and size + sum(4 * int(v.shape[-1]) ** 2 for v in chosen) > _HELD:  # type: ignore
                break
            if isinstance(length, int) and not value.is_initializer():
                chosen.append(value)
        if not chosen or chosen[0].name != name:
            return
        graph = self._model.graph
        graph.outputs.clear()
        graph.outputs.extend(value for value in chosen if not value.is_graph_input())
        run = self._opened(self._model) if graph.outputs else None
        self._by_name = {str(value.name): np.zeros([int(value.shape[-1])] * 2, np.float32) for value in chosen}  # type: ignore
        for number, feeds in enumerate(self._samples):
            results = {**feeds, **({} if run is None else run(feeds))}
            for value in chosen:
                self._add(str(value.name), results[str(value.name)], number)

    def _add(self, name: str, array: np.ndarray, number: int) -> None:
        rows = array.reshape(-1, array.shape[-1]).astype(np.float32)
        sums = rows.T @ rows
        if not np.isfinite(sums).all():
            raise InvalidArgument(
                f"the network itself computes numbers that are not finite on sample {number}", why=f"the value {name}"
            )
        self._by_name[name] += sums
