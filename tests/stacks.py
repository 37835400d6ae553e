"""Models of square layers, one after the other, as files of any size: weights are holes but for their first numbers.

A hole takes no room on the disk and reads as zeros, so that a model of 30 GB is there in a moment.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import BinaryIO

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.frontends.paddle import encode as e


def numbers(layer: int, width: int) -> bytes:
    """What a layer's weight begins with: no two are equal."""
    return np.arange(layer + 1, layer + 1 + min(width, 64), dtype=np.float32).tobytes()


def _put(file: BinaryIO, layer: int, width: int) -> None:
    start = file.tell()
    file.write(numbers(layer, width))
    file.seek(start + 4 * width * width)


def paddle_stack(folder: Path, layers: int, width: int) -> Path:
    """``stack.pdmodel`` with ``stack.pdiparams``."""
    names = [f"w{i:04}" for i in range(layers)]
    variables = [e.variable(name, width, width, persistable=1) for name in names]
    variables += [e.variable(f"x{i}", -1, width) for i in range(layers + 1)]
    ops = [e.op("matmul_v2", {"X": [f"x{i}"], "Y": [name]}, {"Out": [f"x{i + 1}"]}) for i, name in enumerate(names)]
    block = e.block(0, -1, variables, [e.feed("x0"), *ops, e.fetch(f"x{layers}")])
    (folder / "stack.pdmodel").write_bytes(e.program(block))
    with open(folder / "stack.pdiparams", "wb") as file:
        for layer in range(layers):
            file.write(e.record(e.tensor_desc(5, width, width)))
            _put(file, layer, width)
        file.truncate()
    return folder / "stack.pdmodel"


def onnx_stack(path: Path, layers: int, width: int, opset: int = 18, kind: str = "MatMul") -> Path:
    """An ONNX file with its external data beside it: ``x @ w0 @ w1 …``, or rows of tables that are added up."""
    weights, nodes = [], []
    for i in range(layers):
        weight = TensorProto(name=f"w{i}", data_type=TensorProto.FLOAT, dims=[width, width])
        weight.data_location = TensorProto.EXTERNAL
        nbytes = 4 * width * width
        said = {"location": f"{path.name}.data", "offset": str(i * nbytes), "length": str(nbytes)}
        for key, value in said.items():
            weight.external_data.add(key=key, value=value)
        weights.append(weight)
        if kind == "MatMul":
            nodes.append(helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}"]))
        else:
            nodes.append(helper.make_node("Gather", [f"w{i}", "x0"], [f"r{i}"]))
    dtype = TensorProto.FLOAT if kind == "MatMul" else TensorProto.INT64
    if kind != "MatMul":
        nodes.append(helper.make_node("Sum", [f"r{i}" for i in range(layers)], [f"x{layers}"]))
    inputs = [helper.make_tensor_value_info("x0", dtype, ["n", width] if kind == "MatMul" else ["n"])]
    outputs = [helper.make_tensor_value_info(f"x{layers}", TensorProto.FLOAT, ["n", width])]
    graph = helper.make_graph(nodes, "stack", inputs, outputs, weights)
    path.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8).SerializeToString()
    )
    with open(path.with_name(f"{path.name}.data"), "wb") as file:
        for i in range(layers):
            _put(file, i, width)
        file.truncate()
    assert onnx.load(path, load_external_data=False).graph.node
    return path


def safetensors_stack(path: Path, layers: int, width: int, first: int = 0) -> Path:
    """The weights of `torch.nn.Sequential` of linear layers without biases, from the layer ``first`` on."""
    nbytes = 4 * width * width
    shape = [width, width]
    tensors = [{"dtype": "F32", "shape": shape, "data_offsets": [i * nbytes, (i + 1) * nbytes]} for i in range(layers)]
    header = json.dumps({f"{first + i}.weight": tensor for i, tensor in enumerate(tensors)}).encode()
    header += b" " * (-len(header) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        for i in range(layers):
            _put(file, first + i, width)
        file.truncate()
    return path
