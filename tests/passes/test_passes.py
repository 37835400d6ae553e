"""The passes on small graphs: which nodes are left, and that they compute the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from tonnx.io import write
from tonnx.ir import facts
from tonnx.ir.build import Builder, Names
from tonnx.ir.fold import fold
from tonnx.ir.target import CANON, ORT_CPU, Target
from tonnx.legalise import legalise
from tonnx.passes import clean_up, optimise
from tonnx.proof.session import Session

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


PICTURE, MATRIX, HEADS = ["n", 3, "h", 8], ["n", 5], ["n", 2, 5, 5]


def flat_product(op: Builder, x: ir.Value, y: ir.Value) -> ir.Value:
    return op.MatMul(op.Reshape(x, [-1, 5, 5]), op.Reshape(y, [-1, 5, 5]))


def mean(op: Builder, x: ir.Value) -> ir.Value:
    return op.ReduceMean(x, [1], keepdims=1)


def weight(op: Builder, array: np.ndarray) -> ir.Value:
    value = op.initializer("w", ir.Tensor(array))
    facts.WEIGHT.add(value)
    return value


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
    # factors after a layer
    "conv · [C,1,1]": (PICTURE, lambda op, x: op.Mul(B.reshape(6, 1, 1), op.Conv(x, W, B)), "Conv"),
    "conv / number": (PICTURE, lambda op, x: op.Div(op.Conv(x, W), np.float32(3)), "Conv"),
    "conv · [C,1,1] + number": (PICTURE, lambda op, x: op.Conv(x, W) * B.reshape(6, 1, 1) + np.float32(3), "Conv"),
    "conv + batch norm · number": (PICTURE, lambda op, x: normed(op, op.Conv(x, W)) * np.float32(3), "Conv"),
    "matmul · vector": (["n", 2, 5], lambda op, x: op.MatMul(x, M) * V, "MatMul"),
    "gemm · vector": (MATRIX, lambda op, x: op.Gemm(x, M.T.copy(), V, transB=1) * V, "Gemm"),
    "conv · along the width": (PICTURE, lambda op, x: op.Conv(x, W) * floats(6), "Conv Mul"),
    "conv / nothing": (PICTURE, lambda op, x: op.Relu(op.Neg(op.Abs(op.Div(op.Conv(x, W), np.float32(0))))),
                       "Abs Conv Div Neg Relu"),
    "number / conv": (PICTURE, lambda op, x: op.Div(np.float32(3), op.Abs(op.Conv(x, W)) + 1.0), "Abs Add Conv Div"),
    "conv whose weight another reads · number": (
        PICTURE, lambda op, x: (lambda w: op.Conv(x, w) * np.float32(3) + op.ReduceSum(op.Conv(x, w, pads=[1] * 4)))(
            weight(op, W)), "Add Conv Conv Mul ReduceSum"),
    # linear layers of one sequence
    "queries and keys": (["n", 2, 5], lambda op, x: op.Mul(
        op.Reshape(op.MatMul(x, M) + V, [-1, 2, 2, 2]), op.Reshape(op.MatMul(x, floats(5, 4)) + V, [-1, 2, 2, 2])),
        "Gemm Gemm Mul Reshape Reshape Reshape"),
    "one of them": (["n", 2, 5], lambda op, x: op.Reshape(op.MatMul(x, M) + V, [-1, 4]), "Add MatMul Reshape"),
    "one is not reshaped": (["n", 2, 5], lambda op, x: op.Mul(
        op.MatMul(x, M) + V, op.Reshape(op.MatMul(x, floats(5, 4)) + V, [1, -1, 2, 4])),
        "Add Add MatMul MatMul Mul Reshape"),
    # what only moves numbers
    "reshape of a reshape read twice": (PICTURE, lambda op, x: (lambda y: op.Mul(
        op.Reshape(y, [-1]), op.Reshape(y, [-1, 1])))(op.Reshape(x, [-1, 8])), "Mul Reshape Reshape"),
    "transpose of ones, reshape": (
        ["n", 1, 5], lambda op, x: op.Reshape(op.Transpose(x, perm=[1, 0, 2]), [-1, 5]) * 2.0, "Mul Reshape"),
    "reshape, transpose of ones": ([2, 6], lambda op, x: op.Transpose(op.Reshape(x, [2, 1, 6]), perm=[1, 0, 2]) * 2.0,
                                   "Mul Reshape"),
    "unsqueeze, squeeze": (["n", 5, "h"], lambda op, x: op.Squeeze(op.Unsqueeze(x, [1]), [1]) * 2.0, "Mul"),
    "transpose of more, reshape": (["n", 2, 5], lambda op, x: op.Reshape(op.Transpose(x, perm=[1, 0, 2]), [-1, 5]),
                                   "Reshape Transpose"),
    "two sizes that are not known": (["n", "h", 5], lambda op, x: op.Squeeze(op.Reshape(x, op.Concat(
        op.Shape(x), [1], axis=0)), [3]) * 2.0, "Mul"),
    "slice of two axes": (PICTURE, lambda op, x: op.Slice(op.Slice(x, [0], [9], [2], [2]), [1], [7], [-1]) * 2.0,
                          "Mul Slice"),
    "slice of one axis twice": (PICTURE, lambda op, x: op.Slice(op.Slice(x, [0], [9], [2], [2]), [1], [7], [-2]) * 2.0,
                                "Mul Slice Slice"),
    "slice up to the end": (PICTURE, lambda op, x: op.Slice(x, [0], [8], [3]) * 2.0, "Mul"),
    "slice backwards": (PICTURE, lambda op, x: op.Slice(x, [7], [-9], [3], [-1]) * 2.0, "Mul Slice"),
    # operands that change nothing
    "add zeros": (PICTURE, lambda op, x: op.Add(x, np.zeros((3, 1, 1), np.float32)) * 2.0, "Mul"),
    "add a weight of zeros": (
        PICTURE, lambda op, x: op.Relu(x + weight(op, np.zeros((3, 1, 1), np.float32))), "Add Relu"),
    "zeros that broadcast": (["n", 1, 4], lambda op, x: op.Relu(x + np.zeros((3, 1), np.float32)), "Add Relu"),
    # batch axes that were joined for a product
    "batches joined and taken apart": (HEADS, lambda op, x: op.reshape(flat_product(op, x, x), op.sizes(x)), "MatMul"),
    "taken apart otherwise": (HEADS, lambda op, x: op.Reshape(flat_product(op, x, x), [-1, 1, 5, 5]),
                              "MatMul Reshape Reshape"),
    "joined operand of another batch": (
        HEADS, lambda op, x: op.reshape(flat_product(op, x, op.Transpose(x, perm=[1, 0, 2, 3])), op.sizes(x)),
        "MatMul Reshape Reshape Reshape Transpose"),
    # what broadcasts by itself
    "expand + mul": (PICTURE, lambda op, x: op.Expand(mean(op, x), op.Shape(x)) * x, "Mul ReduceMean"),
    "where + expand": (
        PICTURE, lambda op, x: op.Where(op.Less(x, 0.0), op.Expand(mean(op, x), op.Shape(x)), x),
        "Less ReduceMean Where"),
    "expand + smaller": (
        PICTURE, lambda op, x: op.Expand(mean(op, x), op.Shape(x)) * floats(8), "Expand Mul ReduceMean Shape"),
    "expand read as it is": (
        PICTURE, lambda op, x: (lambda y: op.Softmax(y * x) + y)(op.Expand(mean(op, x), op.Shape(x))),
        "Add Mul ReduceMean Softmax"),
    "expand read by others": (
        PICTURE, lambda op, x: (lambda y: op.Softmax(y) * x)(op.Expand(mean(op, x), op.Shape(x))),
        "Expand Mul ReduceMean Shape Softmax"),
    # reciprocals
    "mul by a reciprocal": (MATRIX, lambda op, x: op.Mul(op.Reciprocal(op.Exp(x)), x) * 2.0, "Div Exp Mul"),
    "reciprocal read twice": (
        MATRIX, lambda op, x: (lambda y: op.Mul(x, y) + op.Mul(y, op.Tanh(x)))(op.Reciprocal(op.Exp(x))),
        "Add Div Div Exp Tanh"),
    "reciprocal read by others": (
        MATRIX, lambda op, x: (lambda y: op.Mul(x, y) + y)(op.Reciprocal(op.Exp(x))), "Add Exp Mul Reciprocal"),
    "square of a reciprocal": (
        MATRIX, lambda op, x: (lambda y: op.Mul(y, y))(op.Reciprocal(op.Exp(x))), "Exp Mul Reciprocal"),
    # constants
    "filled shape": (MATRIX, lambda op, x: op.Expand(x, op.Where(op.Equal(op.ConstantOfShape(
        weight(op, np.array([2]))), 1.0), op.constant(np.array([2, 5])), op.constant(np.array([1, 5])))) * 2.0,
        "Expand Mul"),
    "elements": (MATRIX, lambda op, x: x + op.GatherElements(
        weight(op, floats(1, 9)), np.array([[0, -1, 2, 3, 4]]), axis=1), "Add"),
    "large step to a small one": (
        MATRIX, lambda op, x: x + op.ReduceMean(
            weight(op, floats(5, 1)) * weight(op, floats(1, 20_000)), [1], keepdims=0), "Add"),
    "only the large step": (
        ["n", 5, 9000], lambda op, x: x + weight(op, floats(5, 1)) * weight(op, floats(1, 9000)), "Add Mul"),
    "functions": (MATRIX, lambda op, x: x + op.Log(op.Exp(op.Sin(op.Cos(op.Tanh(
        op.Sigmoid(op.Relu(weight(op, floats(5))))))))), "Add"),
    "product and length": (
        MATRIX, lambda op, x: x + op.ReduceL2(op.MatMul(weight(op, floats(3, 4)), weight(op, M.T.copy())), [0]), "Add"),
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
