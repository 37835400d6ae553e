"""Sequences and optionals whose elements are known, below the opset they came with."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser

from tests.legalise.harness import blocked, check, random, retarget, run

A, B = random(2, 3), random(2, 3)


def test_construct_and_read() -> None:
    def build(op: Any, a: Any, b: Any) -> Any:
        sequence = op.SequenceConstruct(a, b)
        longer = op.SequenceInsert(sequence, op.Neg(a), op.constant(np.int64(0)))
        shorter = op.SequenceErase(longer)
        return [
            op.SequenceAt(sequence, op.constant(np.int64(-1))),
            op.ConcatFromSequence(longer, axis=1),
            op.ConcatFromSequence(shorter, axis=0, new_axis=1),
            op.Identity(op.SequenceLength(longer)),
        ]

    check(build, [A, B], targets=(11, 10, 9, 7))


def test_split() -> None:
    def build(op: Any, a: Any) -> Any:
        rows = op.SplitToSequence(a, keepdims=0)
        parts = op.SplitToSequence(a, op.constant(np.int64(2)), axis=1)
        return [op.SequenceAt(rows, op.constant(np.int64(1))), op.ConcatFromSequence(parts, axis=1)]

    check(build, [A], targets=(11, 10, 7))


def test_unknown_element_is_refused() -> None:
    def build(op: Any, a: Any, b: Any, i: Any) -> Any:
        return op.SequenceAt(op.SequenceConstruct(a, b), i)

    blocked(build, [A, B, np.array(1, np.int64)], 10, "chosen at run time")


def test_optional_that_is_there() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        g (float[2,3] in0) => (float[2,3] out0, bool out1) {
            wrapped = Optional(in0)
            plain = OptionalGetElement(wrapped)
            out0 = Neg(plain)
            out1 = OptionalHasElement(wrapped)
        }""")
    for opset in (14, 9, 7):
        made, _ = retarget(model, opset)
        onnx.checker.check_model(made, full_check=True)
        negative, there = run(made, [A])
        np.testing.assert_array_equal(negative, -A)
        assert there


def test_sequence_map() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        g (float[2,3] in0, float[2,3] in1) => (float[M, 3] out0) {
            sequence = SequenceConstruct(in0, in1)
            mapped = SequenceMap (sequence, in1) <body = b (float[2,3] x, float[2,3] y) => (float[2,3] z) {
                total = Add(x, y)
                axes = Constant<value_ints = [0]>()
                row = Unsqueeze(total, axes)
                z = Squeeze(row, axes)
            }>
            out0 = ConcatFromSequence<axis = 0>(mapped)
        }""")
    expected = np.concatenate([A + B, B + B])
    for opset in (16, 14, 13):
        made, _ = retarget(model, opset)
        onnx.checker.check_model(made, full_check=True)
        np.testing.assert_allclose(run(made, [A, B])[0], expected)
