"""Normalisations: the same numbers, and forms that ONNX Runtime fuses back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from tests.legalise.harness import check, model_of, random, reference, retarget

SCALE, BIAS = random(6), random(6)


@pytest.mark.parametrize("dynamic", [False, True])
def test_layer_norm(dynamic: bool) -> None:
    def build(op: Any, x: Any) -> Any:
        return op.LayerNormalization(x, SCALE, BIAS, epsilon=1e-3)

    check(build, [random(2, 5, 6)], targets=(16, 13, 11, 9, 7), dynamic=dynamic)


def test_layer_norm_over_several_axes_with_statistics() -> None:
    def build(op: Any, x: Any) -> Any:
        return op.LayerNormalization(x, random(5, 6), None, axis=1, _outputs=3)

    check(build, [random(2, 5, 6)], targets=(16, 11, 7))


def test_half_precision_is_normalised_in_the_stash_type() -> None:
    def build(op: Any, x: Any) -> Any:
        return op.LayerNormalization(x, SCALE.astype(np.float16), BIAS.astype(np.float16))

    made = check(build, [random(2, 5, 6, dtype=np.float16)], targets=(16, 11), rtol=2e-3, atol=2e-3)
    assert [n.op_type for n in made[16].graph.node].count("Cast") == 2


def test_rms_norm() -> None:
    check(lambda op, x: op.RMSNormalization(x, SCALE), [random(2, 5, 6)], targets=(22, 17, 13, 9, 7))
    check(lambda op, x: op.RMSNormalization(x, SCALE, axis=1, epsilon=0.1), [random(2, 5, 6)], targets=(22, 7))


@pytest.mark.parametrize("dynamic", [False, {0: (0, 2, 3)}])
def test_group_norm(dynamic: Any) -> None:
    def per_channel(op: Any, x: Any) -> Any:
        return op.GroupNormalization(x, SCALE, BIAS, num_groups=3)

    def per_group(op: Any, x: Any) -> Any:  # deprecated since 21, so the builder has no method for it
        inputs = [x, op.constant(SCALE[:3]), op.constant(BIAS[:3])]
        (result,) = op.node("GroupNormalization", inputs, [ir.AttrInt64("num_groups", 3)], [(x.dtype, x.shape)])
        return result

    x = random(2, 6, 4, 5)
    check(per_channel, [x], targets=(17, 13, 9, 7), dynamic=dynamic, oracle=reference)
    check(per_group, [x], source=18, targets=(17, 13, 9, 7), dynamic=dynamic)


def test_mean_variance_normalization() -> None:
    check(lambda op, x: op.MeanVarianceNormalization(x), [random(2, 3, 4, 5)], source=13, targets=(9, 8, 7))


FUSED = {
    "LayerNormalization": lambda op, x: op.LayerNormalization(x, SCALE, BIAS),
    "SimplifiedLayerNormalization": lambda op, x: op.RMSNormalization(x, SCALE),
    "Gelu": lambda op, x: op.Gelu(x),
}


@pytest.mark.parametrize("opset", [16, 11, 9])
@pytest.mark.parametrize("fused", FUSED)
def test_onnx_runtime_fuses_it_back(fused: str, opset: int, tmp_path: Path) -> None:
    model, _ = retarget(model_of(FUSED[fused], [random(2, 5, 6)]), opset)
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.log_severity_level = 3
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    assert [n.op_type for n in onnx.load(options.optimized_model_filepath).graph.node] == [fused]
