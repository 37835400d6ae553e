"""Quantisation from arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.legalise.harness import check, random

X = random(3, 40, low=-3, high=3)
SCALE = np.float32(0.021)
BYTES = random(3, 40, dtype=np.uint8, low=0, high=255)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_quantize(dtype: Any) -> None:
    zero = np.array(17, dtype)
    check(lambda op, x: op.QuantizeLinear(x, op.constant(SCALE), zero), [X], source=13, targets=(10, 9, 8, 7))


def test_dequantize() -> None:
    zero = np.array(17, np.uint8)
    check(lambda op, x: op.DequantizeLinear(x, op.constant(SCALE), zero), [BYTES], source=13, targets=(9, 7))
    wide = random(20, dtype=np.int32, low=-(2**30), high=2**30)
    check(lambda op, x: op.DequantizeLinear(x, op.constant(SCALE)), [wide], source=13, targets=(9, 7))


def test_dynamic_quantize() -> None:
    check(lambda op, x: op.DynamicQuantizeLinear(x, _outputs=3), [X], targets=(10, 9, 7))


def test_integer_products() -> None:
    a, b = random(2, 3, 4, dtype=np.uint8, low=0, high=255), random(4, 5, dtype=np.uint8, low=0, high=255)
    build = lambda op, a, b: op.MatMulInteger(a, b, np.array(7, np.uint8), np.array(9, np.uint8))  # noqa: E731
    check(build, [a, b], targets=(9, 8, 7))
    check(lambda op, a, b: op.MatMulInteger(a, b), [a, b], targets=(9, 7))


@pytest.mark.parametrize("channels", [3, 90])
def test_integer_convolution_is_exact(channels: int) -> None:
    x = random(1, channels, 6, 6, dtype=np.uint8, low=200, high=255)
    w = random(2, channels, 3, 3, dtype=np.uint8, low=200, high=255)
    build = lambda op, x, w: op.ConvInteger(x, w, np.array(3, np.uint8), pads=[1, 1, 1, 1])  # noqa: E731
    made = check(build, [x, w], targets=(9, 7))
    assert [n.op_type for n in made[9].graph.node].count("Conv") == (1 if channels == 3 else 2)


def test_quantised_products() -> None:
    def build(op: Any, a: Any, b: Any) -> Any:
        scales = [op.constant(np.float32(s)) for s in (0.01, 0.02, 0.9)]
        zeros = [op.constant(np.array(z, np.uint8)) for z in (100, 120, 90)]
        return op.QLinearMatMul(a, scales[0], zeros[0], b, scales[1], zeros[1], scales[2], zeros[2])

    a, b = random(3, 8, dtype=np.uint8, low=0, high=255), random(8, 5, dtype=np.uint8, low=0, high=255)
    check(build, [a, b], targets=(9, 7))


def test_quantised_convolution() -> None:
    def build(op: Any, x: Any, w: Any) -> Any:
        scales = op.constant(np.float32(0.01)), op.constant(np.float32([0.02, 0.03])), op.constant(np.float32(0.5))
        zeros = op.constant(np.uint8(90)), op.constant(np.uint8([120, 110])), op.constant(np.uint8(80))
        return op.QLinearConv(
            x, scales[0], zeros[0], w, scales[1], zeros[1], scales[2], zeros[2], np.int32([500, -700])
        )

    x = random(1, 3, 6, 6, dtype=np.uint8, low=0, high=255)
    w = random(2, 3, 3, 3, dtype=np.uint8, low=0, high=255)
    check(build, [x, w], targets=(9, 7))
