"""What constants evaluate to: the same as in onnx's reference implementation."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from tonnx.ir.fold import LIMIT, fold

NUMBERS = np.arange(12, dtype=np.int64).reshape(3, 4)
CASES = {
    "sums": ("CumSum", [NUMBERS, np.array(1)], {}),
    "sums backwards": ("CumSum", [NUMBERS, np.array(0)], {"reverse": 1}),
    "sums of what comes before": ("CumSum", [NUMBERS, np.array(-1)], {"exclusive": 1}),
    "both": ("CumSum", [NUMBERS.astype(np.float32), np.array(1)], {"exclusive": 1, "reverse": 1}),
    "elements": ("GatherND", [NUMBERS, np.array([[0, 1], [2, -1]])], {}),
    "rows": ("GatherND", [NUMBERS, np.array([[[0], [2]]])], {}),
    "elements written": ("ScatterND", [NUMBERS, np.array([[0, 1], [2, 3]]), np.array([50, 60])], {}),
    "tiles": ("Tile", [NUMBERS, np.array([2, 1])], {}),
    "truths expanded": ("Expand", [np.array([[True], [False]]), np.array([2, 3])], {}),
    "exclusive or": ("Xor", [np.array([True, True, False]), np.array([True, False, False])], {}),
}


@pytest.mark.parametrize("name", CASES)
def test_as_the_reference_says(name: str) -> None:
    op_type, arrays, attributes = CASES[name]
    names = [f"x{i}" for i in range(len(arrays))]
    node = onnx.helper.make_node(op_type, names, ["y"], **attributes)
    graph = onnx.helper.make_graph([node], "net", [onnx.ValueInfoProto(name=n) for n in names], [])
    graph.output.append(onnx.ValueInfoProto(name="y"))
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)])
    expected = ReferenceEvaluator(model).run(None, dict(zip(names, arrays, strict=True)))[0]
    result = fold(op_type, arrays, attributes)
    assert result is not None and result.dtype == expected.dtype
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    ("op_type", "arrays", "attributes"),
    [
        ("Tile", [NUMBERS, np.array([LIMIT, 1])], {}),
        ("GatherND", [NUMBERS, np.array([[0], [1], [2]])], {"batch_dims": 1}),
        ("Pow", [np.ones(2), np.ones(())], {"broadcast": 1}),
        ("ScatterND", [NUMBERS, np.array([[0, 1]]), np.array([5])], {"reduction": "add"}),
    ],
)
def test_what_stays_a_node(op_type: str, arrays: list[np.ndarray], attributes: dict[str, int]) -> None:
    assert fold(op_type, arrays, attributes) is None
