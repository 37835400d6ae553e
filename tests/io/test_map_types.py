"""Files of classifiers: maps, which onnx-ir does not read, and no operator of the default domain."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tonnx


def classifier(weight: float = 1.0, labels: list[int] | list[str] | None = None) -> onnx.ModelProto:
    """What scikit-learn's exporter writes: probabilities by label."""
    labels = labels or [3, 5]
    kind = TensorProto.INT64 if isinstance(labels[0], int) else TensorProto.STRING
    key = "classlabels_int64s" if isinstance(labels[0], int) else "classlabels_strings"
    nodes = [
        helper.make_node("Scaler", ["x"], ["s"], domain="ai.onnx.ml", offset=[0.0], scale=[weight]),
        helper.make_node("Sigmoid", ["s"], ["p"]),
        helper.make_node("ZipMap", ["p"], ["y"], domain="ai.onnx.ml", **{key: labels}),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2])
    rows = helper.make_sequence_type_proto(
        helper.make_map_type_proto(kind, helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    )
    graph = helper.make_graph(nodes, "g", [x], [helper.make_value_info("y", rows)])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


@pytest.mark.parametrize("labels", [[3, 5], ["yes", "no"]])
def test_maps_are_kept_and_compared(labels: list[int] | list[str]) -> None:
    proto = classifier(labels=labels)
    before = proto.SerializeToString()
    result = tonnx.retarget(proto, 11)
    assert result.verification.ok and result.verification.compared
    written = onnx.load_model_from_string(tonnx.io.write.to_bytes(result.model))
    assert written.graph.output[0] == proto.graph.output[0] and proto.SerializeToString() == before
    assert not result.notes


@pytest.mark.parametrize("other", [classifier(1.5), classifier(labels=[3, 6])])
def test_other_probabilities_and_other_labels_are_found(other: onnx.ModelProto, tmp_path: Path) -> None:
    for name, proto in (("a", classifier()), ("b", other)):
        onnx.save(proto, tmp_path / f"{name}.onnx")
    assert tonnx.verify(tmp_path / "a.onnx", tmp_path / "a.onnx").ok
    assert not tonnx.verify(tmp_path / "b.onnx", tmp_path / "a.onnx").ok


def test_a_file_without_an_operator_of_the_default_domain() -> None:
    proto = classifier()
    del proto.graph.node[1:], proto.graph.output[:], proto.opset_import[0]
    proto.graph.output.append(helper.make_tensor_value_info("s", TensorProto.FLOAT, ["n", 2]))
    result = tonnx.retarget(proto, 11, inputs={"x": np.ones((3, 2), np.float32)})
    assert result.verification.ok and result.opset == 11
