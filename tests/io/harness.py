"""Small models with weights, and a parser of their files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime as ort

RNG = np.random.default_rng(0)


def make_model(*tensors: ir.TensorProtocol, ir_version: int = 10) -> ir.Model:
    """x -> Identity -> y, with the tensors as initializers t0, t1, …"""
    x = ir.val("x", ir.DataType.FLOAT, ["n", 4])
    node = ir.node("Identity", [x], name="copy", outputs=[ir.val("y", ir.DataType.FLOAT, ["n", 4])])
    values = [
        ir.Value(name=f"t{i}", type=ir.TensorType(tensor.dtype), shape=tensor.shape, const_value=tensor)
        for i, tensor in enumerate(tensors)
    ]
    graph = ir.Graph(
        [x], node.outputs, nodes=[node], initializers=values, opset_imports={"": 18}, name="main"
    )
    return ir.Model(graph, ir_version=ir_version, producer_name="tonnx", metadata_props={"k": "v"})


def matmul_model(weight: np.ndarray | ir.TensorProtocol) -> ir.Model:
    """x @ w, so that a runtime's result depends on the weight's bytes."""
    tensor = ir.Tensor(weight) if isinstance(weight, np.ndarray) else weight
    rows, columns = tensor.shape.numpy()
    x = ir.val("x", ir.DataType.FLOAT, ["n", rows])
    w = ir.Value(name="w", type=ir.TensorType(tensor.dtype), shape=tensor.shape, const_value=tensor)
    node = ir.node("MatMul", [x, w], outputs=[ir.val("y", ir.DataType.FLOAT, ["n", columns])])
    graph = ir.Graph([x], node.outputs, nodes=[node], initializers=[w], opset_imports={"": 18}, name="main")
    return ir.Model(graph, ir_version=8)


def big(rows: int = 256, columns: int = 128) -> np.ndarray:
    return RNG.standard_normal((rows, columns)).astype(np.float32)


def run(path: str | Path | bytes, weight: np.ndarray) -> None:
    """ONNX Runtime computes with exactly this weight."""
    session = ort.InferenceSession(path if isinstance(path, bytes) else str(path))
    x = RNG.standard_normal((3, weight.shape[0])).astype(np.float32)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], x @ weight, rtol=1e-3, atol=1e-3)


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def fields(data: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Protobuf's wire format, read by hand: (number, content)."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value

    while at < len(data):
        number, kind = divmod(varint(), 8)
        if kind == 0:
            yield number, varint()
        else:
            assert kind == 2
            length = varint()
            assert at + length <= len(data)
            yield number, data[at : at + length]
            at += length
    assert at == len(data)


def values_of(dtype: type, shape: tuple[int, ...]) -> np.ndarray:
    return RNG.integers(0, 2, shape).astype(np.float32).astype(dtype)
