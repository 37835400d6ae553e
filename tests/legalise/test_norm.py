"""GroupNormalization, BatchNormalization, recurrent layers."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.legalise.harness import check, model_of, random, reference, retarget, run

X = random(2, 6, 5, 7)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_group_normalization(dynamic: bool, dtype: type) -> None:
    inputs = [X.astype(dtype), random(6, dtype=dtype), random(6, dtype=dtype)]
    tolerance = 1e-4 if dtype is np.float32 else 2e-2
    build = lambda op, x, s, b: op.GroupNormalization(x, s, b, num_groups=3, epsilon=1e-2)  # noqa: E731
    check(build, inputs, targets=(20, 18, 13, 9, 7), dynamic=dynamic, rtol=tolerance, atol=tolerance)


def test_group_normalization_up_keeps_epsilon() -> None:
    # onnx deprecated version 18, so the builder does not make it.
    proto = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 18]>
        g (float[2,6,5] in0, float[3] in1, float[3] in2) => (float[2,6,5] out0) {
            out0 = GroupNormalization <num_groups = 3, epsilon = 0.5> (in0, in1, in2)
        }""")
    x, scale, bias = random(2, 6, 5), random(3), random(3)
    groups = x.reshape(2, 3, 10)
    normal = (groups - groups.mean(2, keepdims=True)) / np.sqrt(groups.var(2, keepdims=True) + 0.5)
    wanted = (normal * scale[:, None] + bias[:, None]).reshape(x.shape)
    for opset in (21, 26):
        made, _ = retarget(proto, opset)
        np.testing.assert_allclose(run(made, [x, scale, bias])[0], wanted, rtol=1e-4, atol=1e-5)


def test_batch_normalization() -> None:
    inputs = [X, random(6), random(6), random(6), random(6, low=0.1)]
    build = lambda op, *xs: op.BatchNormalization(*xs, epsilon=1e-2)  # noqa: E731
    check(build, inputs, targets=(15, 14, 13, 9, 8, 7))
    check(build, inputs, source=7, targets=(9, 14, 15, 26))


def test_batch_normalization_of_two_types() -> None:
    half = [X.astype(np.float16), *(random(6, low=0.1) for _ in range(4))]
    check(lambda op, *xs: op.BatchNormalization(*xs), half, targets=(14, 13, 9), rtol=1e-2, atol=1e-2, oracle=reference)


def test_batch_normalization_in_training() -> None:
    inputs = [X, random(6), random(6), random(6), random(6, low=0.1)]
    build = lambda op, *xs: op.BatchNormalization(*xs, training_mode=1, momentum=0.7, _outputs=3)  # noqa: E731
    check(build, inputs, targets=(13, 9, 7), oracle=reference, rtol=1e-3, atol=1e-4)


def test_batch_normalization_of_every_position() -> None:
    inputs = [random(3, 4, 5), *(random(4, 5, low=0.1) for _ in range(4))]
    x, scale, bias, mean, var = inputs
    wanted = (x - mean) / np.sqrt(var + 1e-5) * scale + bias
    build = lambda op, *xs: op.BatchNormalization(*xs, spatial=0)  # noqa: E731
    model = model_of(build, inputs, 7)
    np.testing.assert_allclose(run(retarget(model, 9)[0], inputs)[0], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_batch_first(kind: str, direction: str) -> None:
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    ways = 2 if direction == "bidirectional" else 1
    weights = [random(ways, gates * 3, 4), random(ways, gates * 3, 3)]
    states = [random(2, ways, 3) for _ in range(2 if kind == "LSTM" else 1)]

    def build(op, x, w, r, *state):  # type: ignore[no-untyped-def]
        emit = getattr(op, kind)
        outputs = len(state) + 1
        return emit(x, w, r, None, None, *state, hidden_size=3, direction=direction, layout=1, _outputs=outputs)

    # ONNX Runtime does not know layout=1: the reference says what it means.
    oracle = reference if direction == "forward" else None
    inputs = [random(2, 5, 4), *weights, *states]
    if oracle is not None:
        check(build, inputs, targets=(13, 7), oracle=oracle, rtol=1e-4)
        return
    made, _ = retarget(model_of(build, inputs), 13)
    got = run(made, inputs)

    def time_first(op, x, w, r, *state):  # type: ignore[no-untyped-def]
        emit = getattr(op, kind)
        return emit(x, w, r, None, None, *state, hidden_size=3, direction=direction, _outputs=len(state) + 1)

    swapped = [np.swapaxes(inputs[0], 0, 1), *weights, *(np.swapaxes(s, 0, 1) for s in states)]
    wanted = run(model_of(time_first, swapped), swapped)
    np.testing.assert_allclose(got[0], np.transpose(wanted[0], [2, 0, 1, 3]), rtol=1e-4)
    np.testing.assert_allclose(got[1], np.swapaxes(wanted[1], 0, 1), rtol=1e-4)
