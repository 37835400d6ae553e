"""QuantizeLinear and DequantizeLinear; Attention's windows and padding; DFT; scatter reductions."""

from __future__ import annotations

import itertools

import numpy as np
import onnx_ir as ir
import pytest

from tests.legalise.harness import check, model_of, random, reference, retarget

T = ir.DataType
X = random(2, 6, 4)
ALL = (22, 20, 18, 12, 10)


def test_quantize_per_tensor() -> None:
    check(lambda op, x: op.QuantizeLinear(x, op.constant(0.1, T.FLOAT), output_dtype=3), [X], targets=ALL)
    check(lambda op, x: op.QuantizeLinear(x, op.constant([0.1], T.FLOAT)), [X], targets=ALL)
    zero = lambda op: op.constant(3, T.UINT8)  # noqa: E731
    check(lambda op, x: op.QuantizeLinear(x, op.constant(0.1, T.FLOAT), zero(op)), [X], targets=ALL)


def test_what_every_version_has_stays_the_node_it_is() -> None:
    def build(op, x):  # type: ignore[no-untyped-def]
        step = op.constant(0.1, T.FLOAT), op.constant(3, T.UINT8)
        return op.DequantizeLinear(op.QuantizeLinear(x, *step), *step)

    _, report = retarget(model_of(build, [X]), 13)
    assert not report.rewritten


def test_quantize_per_axis() -> None:
    def build(op, x, scale, zero):  # type: ignore[no-untyped-def]
        return op.QuantizeLinear(x, scale, zero, axis=-2)

    check(build, [X, random(6, low=0.01, high=0.1), random(6, dtype=np.int8)], targets=ALL)


@pytest.mark.parametrize("dtype", [T.INT16, T.UINT16])
def test_quantize_to_16_bits(dtype: ir.DataType) -> None:
    build = lambda op, x: op.QuantizeLinear(x, op.constant(0.001, T.FLOAT), output_dtype=int(dtype))  # noqa: E731
    check(build, [X * 100], targets=ALL)


def test_quantize_half_precision() -> None:
    build = lambda op, x: op.QuantizeLinear(x, op.constant(0.1, T.FLOAT16), op.constant(3, T.INT8))  # noqa: E731
    check(build, [X.astype(np.float16)], targets=(22, 19))


BLOCKS = [(1, 2, (2, 3, 4)), (-1, 2, (2, 6, 2)), (1, 4, (2, 2, 4))]


@pytest.mark.parametrize(("axis", "size", "shape"), BLOCKS)
def test_blocks(axis: int, size: int, shape: tuple[int, ...]) -> None:
    scale, zero = random(*shape, low=0.01, high=0.1), random(*shape, dtype=np.int8)

    def quantize(op, x, s, z):  # type: ignore[no-untyped-def]
        return op.QuantizeLinear(x, s, z, axis=axis, block_size=size)

    def dequantize(op, x, s, z):  # type: ignore[no-untyped-def]
        return op.DequantizeLinear(x, s, z, axis=axis, block_size=size)

    check(quantize, [X, scale, zero], targets=ALL)
    whole = random(2, 6, 4, dtype=np.int8, low=-100, high=100)
    check(dequantize, [whole, scale, zero], targets=ALL)


def test_dequantize() -> None:
    whole = random(2, 6, 4, dtype=np.int8, low=-100, high=100)
    per_axis = [whole, random(6, low=0.01, high=0.1), random(6, dtype=np.int8)]
    check(lambda op, x, s, z: op.DequantizeLinear(x, s, z), per_axis, targets=ALL)
    check(lambda op, x: op.DequantizeLinear(x, op.constant(0.1, T.FLOAT)), [whole], targets=ALL)
    half = lambda op, x: op.DequantizeLinear(x, op.constant(0.1, T.FLOAT16), op.constant(3, T.INT8))  # noqa: E731
    check(half, [whole], targets=ALL, rtol=1e-2)


def test_dequantize_weights_of_4_bits() -> None:
    def build(op, x):  # type: ignore[no-untyped-def]
        weight = op.constant(np.arange(-8, 8).reshape(4, 4), T.INT4)
        return op.MatMul(x, op.DequantizeLinear(weight, op.constant([0.1, 0.2, 0.3, 0.4], T.FLOAT), axis=1))

    check(build, [X], targets=(22, 21, 20, 18, 13, 11, 10))


def test_quantize_up() -> None:
    def build(op, x):  # type: ignore[no-untyped-def]
        scale, zero = op.constant(0.1, T.FLOAT), op.constant(3, T.UINT8)
        return op.DequantizeLinear(op.QuantizeLinear(x, scale, zero), scale, zero)

    check(build, [X], source=10, targets=(13, 19, 21, 23, 26))


# Attention

Q, K, V = (random(2, 3, n, 8) for n in (4, 5, 5))


@pytest.mark.parametrize(("left", "right", "causal"), [(1, 1, 0), (2, -1, 1), (-1, 0, 0)])
@pytest.mark.parametrize("dynamic", [False, True])
def test_attention_window(left: int, right: int, causal: int, dynamic: bool) -> None:
    def build(op, q, k, v):  # type: ignore[no-untyped-def]
        return op.Attention(q, k, v, left_window_size=left, right_window_size=right, is_causal=causal)

    check(build, [Q, K, V], targets=(24, 23), oracle=reference, dynamic=dynamic, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("mask", [None, np.float32, np.bool_])
def test_attention_padding(causal: int, mask: type | None) -> None:
    masks = [] if mask is None else [random(4, 5, dtype=mask)]

    def build(op, q, k, v, n, *m):  # type: ignore[no-untyped-def]
        return op.Attention(q, k, v, *(m or [None]), None, None, n, is_causal=causal)

    inputs = [Q, K, V, np.array([5, 4]), *masks]
    check(build, inputs, targets=(23,), oracle=reference, rtol=1e-4, atol=1e-5)


def test_attention_mask_shorter_than_the_cache() -> None:
    build = lambda op, q, k, v, n, m: op.Attention(q, k, v, m, None, None, n)  # noqa: E731
    inputs = [Q, K, V, np.array([4, 3]), random(4, 4)]
    check(build, inputs, targets=(23,), oracle=reference, rtol=1e-4, atol=1e-5)


# DFT


def test_dft_axis() -> None:
    x = random(2, 5, 7, 1)
    check(lambda op, x: op.DFT(x, None, op.constant(1, T.INT64)), [x], targets=(19, 17), rtol=1e-4, atol=1e-4)
    check(lambda op, x: op.DFT(x), [x], targets=(19, 17), rtol=1e-4, atol=1e-4)
    check(lambda op, x: op.DFT(x), [x], source=17, targets=(20, 23), rtol=1e-4, atol=1e-4)


# Scatter

REDUCTIONS = ["add", "mul", "max", "min", "none"]


@pytest.mark.parametrize(("reduction", "axis"), list(itertools.product(REDUCTIONS, [0, 1])))
def test_scatter_elements(reduction: str, axis: int) -> None:
    data, updates = random(3, 4), random(3, 4)
    repeated = np.array([[0, 2, 1, 0], [0, -1, 1, 1], [2, 2, 0, -3]])
    build = lambda op, d, i, u: op.ScatterElements(d, i, u, axis=axis, reduction=reduction)  # noqa: E731
    if reduction != "none":
        check(build, [data, repeated, updates], targets=(17, 15, 13, 11, 9))
    different = np.array([[0, 2, 1, 3], [1, 0, 2, 0], [2, 1, 0, 1]]) if axis == 0 else np.array([[0, 2, 1, 3]] * 3)
    different = different if axis else np.array([[0, 2, 1, 2], [1, 0, 2, 0], [2, 1, 0, 1]])
    constant = lambda op, d, u: build(op, d, op.constant(different), u)  # noqa: E731
    check(constant, [data, updates], targets=(17, 15, 11), has=["ScatterElements"])


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_scatter_nd(reduction: str, dtype: type) -> None:
    indices = np.array([[0, 1], [2, 0]]) if reduction == "none" else np.array([[0, 1], [2, 0], [0, 1], [-1, 0]])
    data, updates = random(3, 2, 4, dtype=dtype), random(len(indices), 4, dtype=dtype)
    build = lambda op, d, i, u: op.ScatterND(d, i, u, reduction=reduction)  # noqa: E731
    check(build, [data, indices, updates], targets=(17, 15, 13, 11))
    different = np.array([[0, 1], [2, 0]])
    constant = lambda op, d, u: build(op, d, op.constant(different), u)  # noqa: E731
    check(constant, [data, updates[:2]], targets=(17, 15, 12), has=["ScatterND"])


@pytest.mark.parametrize("reduction", ["add", "mul", "max", "min"])
def test_scatter_of_fewer_than_the_data(reduction: str) -> None:
    build = lambda op, d, i, u: op.ScatterElements(d, i, u, reduction=reduction)  # noqa: E731
    check(build, [random(3, 4), np.array([[0, 1], [0, 2]]), random(2, 2)], targets=(17, 15, 11))
