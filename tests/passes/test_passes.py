"""The passes on small graphs: which nodes are left, and that they compute the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from tonnx.io import write
from tonnx.ir.build import Builder, Names
from tonnx.ir.fold import fold
from tonnx.ir.target import CANON, ORT_CPU, Target
from tonnx.legalise import legalise
from tonnx.passes import clean_up, optimise
from tonnx.proof import Session

RNG = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


W, B = floats(6, 3, 3, 3), floats(6)
M, V = floats(5, 4), floats(4)

Build = Callable[[Builder, ir.Value], Any]


def padded(op: Builder, x: ir.Value, pads: list[int], *more: Any, **attributes: Any) -> Any:
    return op.Pad(x, np.array(pads), *more, **attributes)


def normed(op: Builder, x: ir.Value) -> Any:
    return op.BatchNormalization(x, floats(6), floats(6), floats(6), np.abs(floats(6)) + 0.1)


PICTURE, MATRIX = ["n", 3, "h", 8], ["n", 5]

CASES: dict[str, tuple[list[Any], Build, str]] = {
    # a bias after a layer
    "conv + [1,C,1,1]": (PICTURE, lambda op, x: op.Conv(x, W) + B.reshape(1, 6, 1, 1), "Conv"),
    "[C,1,1] + conv": (PICTURE, lambda op, x: op.Add(B.reshape(6, 1, 1), op.Conv(x, W)), "Conv"),
    "conv + number": (PICTURE, lambda op, x: op.Conv(x, W) + np.float32(2), "Conv"),
    "conv with a bias + another": (PICTURE, lambda op, x: op.Conv(x, W, B) + B.reshape(6, 1, 1), "Conv"),
    "conv + bias + batch norm": (PICTURE, lambda op, x: normed(op, op.Conv(x, W) + B.reshape(6, 1, 1)), "Conv"),
    "transposed conv, two groups": (
        ["n", 4, "h", 8], lambda op, x: op.ConvTranspose(x, floats(4, 3, 3, 3), group=2) + B.reshape(1, 6, 1, 1),
        "ConvTranspose"),
    "conv + along the width": (PICTURE, lambda op, x: op.Conv(x, W) + floats(6), "Add Conv"),
    "one channel + more": (PICTURE, lambda op, x: op.Conv(x, W[:1]) + B.reshape(6, 1, 1), "Add Conv"),
    "conv + higher rank": (PICTURE, lambda op, x: op.Conv(x, W) + B.reshape(1, 1, 6, 1, 1), "Add Conv"),
    "conv + input": (PICTURE, lambda op, x: op.Conv(x, floats(3, 3, 1, 1)) + x, "Add Conv"),
    "matmul + vector": (MATRIX, lambda op, x: op.MatMul(x, M) + V, "Gemm"),
    "vector + matmul": (MATRIX, lambda op, x: op.Add(V.reshape(1, 4), op.MatMul(x, M)), "Gemm"),
    "matmul + number": (MATRIX, lambda op, x: op.MatMul(x, M) + np.float32(3), "Gemm"),
    "gemm + vector": (MATRIX, lambda op, x: op.Gemm(x, M.T.copy(), transB=1, alpha=0.5) + V, "Gemm"),
    "gemm with a bias + vector": (MATRIX, lambda op, x: op.Gemm(x, M, V) + V, "Add Gemm"),
    "matmul + matrix": (MATRIX, lambda op, x: op.MatMul(x, M) + floats(2, 4), "Add MatMul"),
    "matmul of three axes": (["n", 2, 5], lambda op, x: op.MatMul(x, M) + V, "Add MatMul"),
    "matmul read twice": (MATRIX, lambda op, x: (lambda y: y * (y + V))(op.MatMul(x, M)), "Add MatMul Mul"),
    # a padding before a convolution
    "pad + conv": (PICTURE, lambda op, x: op.Conv(padded(op, x, [0, 0, 1, 2, 0, 0, 3, 0]), W), "Conv"),
    "pad + conv with pads": (
        PICTURE, lambda op, x: op.Conv(padded(op, x, [0, 0, 1, 1, 0, 0, 1, 1], np.float32(0)), W, pads=[1, 0, 0, 1]),
        "Conv"),
    "pad of two axes": (
        PICTURE, lambda op, x: op.Conv(padded(op, x, [1, 2, 3, 4], np.float32(0), np.array([-1, 2])), W), "Conv"),
    "pad read by two": (
        PICTURE,
        lambda op, x: (lambda y: op.Conv(y, W) * op.Conv(y, floats(6, 3, 3, 3)))(padded(op, x, [0, 0, 1, 1] * 2)),
        "Conv Conv Mul"),
    "pad with ones": (PICTURE, lambda op, x: op.Conv(padded(op, x, [0, 0, 1, 1] * 2, np.float32(1)), W), "Conv Pad"),
    "pad of channels": (
        PICTURE, lambda op, x: op.Conv(padded(op, x, [0, 1, 0, 0] + [0] * 4), floats(6, 4, 3, 3)), "Conv Pad"),
    "negative pad": (PICTURE, lambda op, x: op.Conv(padded(op, x, [0, 0, -1, 0] + [0] * 4), W), "Conv Pad"),
    "reflected": (PICTURE, lambda op, x: op.Conv(padded(op, x, [0, 0, 1, 1] * 2, mode="reflect"), W), "Conv Pad"),
    "pad read by another": (
        PICTURE, lambda op, x: (lambda y: op.ReduceSum(y) * op.Conv(y, W))(padded(op, x, [0, 0, 1, 1] * 2)),
        "Conv Mul Pad ReduceSum"),
    # batch normalisations
    "conv + batch norm": (PICTURE, lambda op, x: normed(op, op.Conv(x, W)), "Conv"),
    "gemm + batch norm": (MATRIX, lambda op, x: op.BatchNormalization(
        op.Gemm(x, M, V), V, V, V, np.abs(V) + 1), "Gemm"),
}  # fmt: skip


def model_of(shape: list[Any], build: Build) -> ir.Model:
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(shape))
    graph = ir.Graph([x], [], nodes=[], name="main", opset_imports={"": CANON})
    with Builder(graph, names=Names(["x", "y"])) as op:
        y = build(op, x)
    y.name = "y"
    graph.outputs.append(y)
    return ir.Model(graph, ir_version=Target(CANON).ir_version)


@pytest.mark.parametrize("name", CASES)
def test_what_is_left_computes_the_same(name: str) -> None:
    shape, build, expected = CASES[name]
    model = model_of(shape, build)
    feeds = {"x": floats(*({"n": 2, "h": 9}.get(d, d) for d in shape))}
    before = Session(write.to_bytes(model), threads=1).run(feeds)["y"]
    optimise(model, runtime=ORT_CPU)
    assert sorted(node.op_type for node in model.graph) == expected.split()
    for opset in (CANON, 9):
        legalise(model, Target(opset))
        clean_up(model)
        after = Session(write.to_bytes(model), threads=1).run(feeds)["y"]
        np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-5)


def test_without_folding_nothing_is_fused() -> None:
    shape, build, _ = CASES["conv + bias + batch norm"]
    model = model_of(shape, build)
    optimise(model, fold=False, fuse_conv_bn=False)
    assert [node.op_type for node in model.graph] == ["Conv", "Add", "BatchNormalization"]


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes"),
    [
        ("Reshape", [np.zeros(3), np.array([2, 2])], {}),
        ("Gather", [np.zeros(3), np.array(5)], {}),
        ("Concat", [np.zeros((1, 2)), np.zeros(3)], {"axis": 0}),
        ("Add", [np.zeros(2), np.zeros(3)], {}),
    ],
)
def test_what_contradicts_itself_is_left_to_the_runtime(op_type: str, inputs: list, attributes: dict) -> None:
    assert fold(op_type, inputs, attributes) is None
