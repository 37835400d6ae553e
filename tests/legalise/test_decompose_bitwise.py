"""Bits of integers from arithmetic: exact for every width, with and without sign."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.legalise.harness import check, reference

SIGNED = [np.int8, np.int16, np.int32, np.int64]
UNSIGNED = [np.uint8, np.uint16, np.uint32, np.uint64]
BINARY = {
    "and": lambda op, a, b: op.BitwiseAnd(a, b),
    "or": lambda op, a, b: op.BitwiseOr(a, b),
    "xor": lambda op, a, b: op.BitwiseXor(a, b),
}
MASKS = (0, 1, 7, 0xF0, 0x7F, 0x55, -1, -8, -2, -128, 0b0110_0001)


def _numbers(dtype: Any, seed: int) -> np.ndarray:
    info = np.iinfo(dtype)
    some = np.random.default_rng(seed).integers(info.min, info.max, 30, dtype=dtype, endpoint=True)
    return np.concatenate([some, np.array([info.min, info.max, 0, 1, info.max // 2], dtype)])


@pytest.mark.parametrize("dtype", [*SIGNED, *UNSIGNED])
def test_binary(dtype: Any) -> None:
    def build(op: Any, a: Any, b: Any) -> Any:
        return [function(op, a, b) for function in BINARY.values()]

    targets = (17, 10) if dtype in (np.int32, np.int64, np.uint8) else (17,)
    check(build, [_numbers(dtype, 1), _numbers(dtype, 2)[::-1].copy()], targets=targets)


def test_broadcast_and_unknown_sizes() -> None:
    a = np.random.default_rng(3).integers(-99, 99, (4, 1, 3)).astype(np.int32)
    b = np.random.default_rng(4).integers(-99, 99, (5, 1)).astype(np.int32)
    check(BINARY["xor"], [a, b], targets=(17, 13, 10, 7), dynamic=True)


@pytest.mark.parametrize("mask", MASKS)
def test_known_mask_needs_no_bits(mask: int) -> None:
    def build(op: Any, x: Any) -> Any:
        return op.BitwiseAnd(x, np.array(mask, np.int32))

    made = check(build, [_numbers(np.int32, 5)], targets=(17, 9))
    few_runs = mask not in (0x55,)
    assert ("ReduceSum" in {n.op_type for n in made[17].graph.node}) != few_runs


@pytest.mark.parametrize("dtype", [*SIGNED, *UNSIGNED])
def test_not(dtype: Any) -> None:
    targets = (17, 13) if dtype != np.uint64 else (17,)
    check(lambda op, x: op.BitwiseNot(x), [_numbers(dtype, 6)], targets=targets, oracle=reference)


@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint32, np.uint64])
def test_shift(dtype: Any, direction: str) -> None:
    x = _numbers(dtype, 7)
    by = np.arange(x.size).astype(dtype) % np.iinfo(dtype).bits
    build = lambda op, x, by: op.BitShift(x, by, direction=direction)  # noqa: E731
    targets = (10, 9) if dtype != np.uint64 else (10,)
    check(build, [x, by], targets=targets)
    check(lambda op, x: op.BitShift(x, np.array(3, dtype), direction=direction), [x], targets=targets)


def test_cast_between_signed_and_unsigned_keeps_bits() -> None:
    x = _numbers(np.int32, 8)
    expected = [x.view(np.uint32)]
    check(lambda op, x: op.BitCast(x, to=12), [x], targets=(25, 13, 9), expected=expected)
