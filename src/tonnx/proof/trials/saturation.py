"""Integer kernels that saturate: who is off when a quantised file and its model differ by more than a step.

x86 processors without VNNI multiply uint8 by int8 in pairs that are added up in 16 bits, in ONNX Runtime as well as in
PyTorch: beyond 32767 the sum is cut off. What a file means is what it computes in reals, or with integers that no
kernel cuts off: the file as it stands, its int8 stored as uint8 and nothing in it fused.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
import onnx
import onnx_ir as ir

from tonnx.errors import TonnxError
from tonnx.io import read as reading
from tonnx.io import write
from tonnx.ir.rewrite import all_graphs
from tonnx.passes.unsigned import store_unsigned
from tonnx.proof.judge import open_session
from tonnx.proof.session import Session

SAFE = 127
"""Two products of a uint8 up to this with any int8 fit 16 bits; PyTorch observes ranges so that it is not exceeded."""
FACTORS = (1.0, 0.7, 0.5, 0.35, 0.25, 0.12)
"""What inputs are multiplied by until no activation exceeds that."""

_INTEGER = frozenset("QuantizeLinear DequantizeLinear MatMulInteger ConvInteger QLinearMatMul QLinearConv".split())
_LAYERS = frozenset("Conv ConvTranspose Gemm MatMul".split())


@cache
def runtime_saturates() -> bool:
    """Whether ONNX Runtime's product of uint8 by int8 is cut off on this processor."""
    nodes = [onnx.helper.make_node("MatMulInteger", ["a", "b"], ["c"])]
    kinds = {"a": onnx.TensorProto.UINT8, "b": onnx.TensorProto.INT8}
    inputs = [onnx.helper.make_tensor_value_info(name, kind, [4, 4]) for name, kind in kinds.items()]
    output = onnx.helper.make_tensor_value_info("c", onnx.TensorProto.INT32, [4, 4])
    graph = onnx.helper.make_graph(nodes, "probe", inputs, [output])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=7)
    feeds = {"a": np.full((4, 4), 255, np.uint8), "b": np.full((4, 4), 127, np.int8)}
    return bool((Session(model.SerializeToString()).run(feeds)["c"] != 4 * 255 * 127).any())


@dataclass(frozen=True)
class Exact:
    """A quantised file that no kernel of ONNX Runtime cuts off."""

    session: Session
    watched: tuple[str, ...]
    """Outputs besides the file's own: the integers that a layer multiplies."""
    signed: bool
    """Whether the file itself has int8: only those are cut off."""

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        """The outputs and what is watched; None if ONNX Runtime cannot."""
        try:
            return self.session.run(inputs)
        except TonnxError:
            return None

    def is_safe(self, inputs: Mapping[str, np.ndarray]) -> bool:
        """Whether no kernel of anybody can be cut off on these inputs."""
        values = self.run(inputs)
        return values is not None and all(int(values[name].max(initial=0)) <= SAFE for name in self.watched)

    def safe(self, inputs: Mapping[str, np.ndarray], example: Mapping[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        """The inputs within the example's range, and nearer to zero until they are safe; None if that does not help."""
        for factor in FACTORS:
            nearer = {name: _nearer(array, example[name], factor) for name, array in inputs.items()}
            if self.is_safe(nearer):
                return nearer
        return None


def _nearer(array: np.ndarray, example: np.ndarray, factor: float) -> np.ndarray:
    if array.dtype.kind != "f":
        return array
    low, high = (example.min(), example.max()) if example.size else (-np.inf, np.inf)
    return np.asarray(np.clip(array, low, high) * factor, dtype=array.dtype)


def exact_form(model: str | os.PathLike[str] | bytes, *, watch: bool = True) -> Exact | None:
    """None if the file multiplies no integers, or does not run so."""
    read = reading.reader(model)()
    if not any(node.op_type in _INTEGER for graph in all_graphs(read) for node in graph):
        return None
    reading.infer(read)
    signed = any(value.dtype == ir.DataType.INT8 for graph in all_graphs(read) for value in _values(graph))
    store_unsigned(read)
    watched = [value for node in read.graph if watch and (value := _multiplied(node)) is not None]
    read.graph.outputs.extend(dict.fromkeys(watched))
    try:
        session = Session(write.to_bytes(read), optimised=False)
    except TonnxError:
        return None
    return Exact(session, tuple(dict.fromkeys(str(value.name) for value in watched)), signed)


def _values(graph: ir.Graph) -> Iterator[ir.Value]:
    yield from (*graph.inputs, *graph.initializers.values())
    for node in graph:
        yield from node.outputs


def _multiplied(node: ir.Node) -> ir.Value | None:
    """The uint8 activations that a layer reads here, as they are or as reals."""
    value = node.inputs[0] if node.op_type in _INTEGER and node.domain == "" else None
    producer = None if value is None else value.producer()
    if value is None or producer is None or producer.op_type == "Constant" or value.is_graph_output():
        return None
    reads = node.op_type not in ("QuantizeLinear", "DequantizeLinear") or _reaches_layer(node.outputs[0])
    return value if reads and value.dtype == ir.DataType.UINT8 else None


def _reaches_layer(start: ir.Value) -> bool:
    """Whether a layer reads a value, at once or after what keeps it as it is; rounding to other steps ends the way."""
    pending, seen = [start], {start}
    for value in pending:  # which grows
        for user, _ in value.uses():
            if user.op_type in _LAYERS:
                return True
            if user.op_type != "QuantizeLinear":
                further = [output for output in user.outputs if output not in seen]
                seen.update(further)
                pending += further
    return False


def dependable(model: str | os.PathLike[str] | bytes) -> Session:
    """A file to compare with: as ONNX Runtime runs it, unless its kernels are cut off on this processor."""
    exact = exact_form(model, watch=False) if runtime_saturates() else None
    return open_session(model) if exact is None or not exact.signed else exact.session
