"""Bodies of If, Loop and Scan are legalised with the rest; Scan's batch axis; functions; what is reported."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import tonnx
from tests.legalise.harness import check, model_of, random, retarget, run
from tonnx.errors import RetargetError
from tonnx.ir.schema import history, operators
from tonnx.ir.target import CANON, OLDEST
from tonnx.legalise.rules import load
from tonnx.legalise.table import step_down, step_up

X = random(3, 4)


def test_if_bodies() -> None:
    def build(op, x):  # type: ignore[no-untyped-def]
        with_sum, with_max = op.inner("then"), op.inner("else")
        with with_sum:
            with_sum.graph.outputs.append(with_sum.ReduceSum(x, [-1], keepdims=0))
        with with_max:
            with_max.graph.outputs.append(with_max.Squeeze(with_max.ReduceMax(x, [-1]), [-1]))
        condition = op.Greater(op.ReduceMean(x, keepdims=0), 0.0)
        return op.If(condition, then_branch=with_sum.graph, else_branch=with_max.graph)

    check(build, [X], targets=(18, 13, 11, 9, 7))


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("axes", [[0], [0, 1]], ids=["size", "rank"])
def test_branches_of_different_shapes(axes: list[int], sign: int) -> None:
    """Below opset 11 a fixed shape of one branch would be taken for that of both."""

    def build(op, x):  # type: ignore[no-untyped-def]
        whole, part = op.inner("then"), op.inner("else")
        with whole:
            whole.graph.outputs.append(whole.Neg(x))
        with part:
            part.graph.outputs.append(part.ReduceSum(x, axes, keepdims=int(len(axes) == 1)))
        condition = op.Greater(op.ReduceMean(x, keepdims=0), 0.0)
        result = op.If(condition, then_branch=whole.graph, else_branch=part.graph)
        result.dtype = ir.DataType.FLOAT
        total = op.ReduceSum(op.Abs(result), keepdims=0)
        total.shape = ir.Shape([])
        return total

    check(build, [sign * np.abs(X)], targets=(18, 13, 11, 9, 7))


def test_loop_body() -> None:
    def build(op, x):  # type: ignore[no-untyped-def]
        inputs = [("i", ir.DataType.INT64, []), ("on", ir.DataType.BOOL, []), ("sum", ir.DataType.FLOAT, [3, 4])]
        body = op.inner("body", inputs)
        _, on, total = body.graph.inputs
        with body:
            step = total + body.Clip(total, -0.5, 0.5)
            body.graph.outputs.extend([body.Identity(on), step])
        result = op.Loop(op.constant(3, ir.DataType.INT64), None, x, body=body.graph)
        result.shape = ir.Shape([3, 4])
        return result

    check(build, [X], targets=(18, 13, 11, 10, 9, 7))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_scan(axis: int) -> None:
    def build(op, x):  # type: ignore[no-untyped-def]
        size = 3 if axis else 4
        inputs = [("sum", ir.DataType.FLOAT, [size]), ("row", ir.DataType.FLOAT, [size])]
        body = op.inner("body", inputs)
        total, row = body.graph.inputs
        with body:
            body.graph.outputs.extend([total + row, body.Softmax(total, axis=0)])
        start = op.constant(np.zeros(size, np.float32))
        return op.Scan(
            start, x, body=body.graph, num_scan_inputs=1, scan_input_axes=[axis], scan_input_directions=[1], _outputs=2
        )

    check(build, [X], targets=(18, 11, 10, 9, 8))


def test_function_bodies() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 21, "my" : 1]>
        g (float[3,4] in0) => (float[3] out0) { out0 = my.Total(in0) }
        <domain: "my", opset_import: ["" : 21]>
        Total (x) => (y) {
            axes = Constant <value_ints = [-1]> ()
            y = ReduceSum <keepdims = 0> (x, axes)
        }""")
    wanted = X.sum(axis=-1)
    for opset in (18, 13, 11):
        made, _ = retarget(model, opset)
        assert {i.domain: i.version for i in made.functions[0].opset_import} == {"": opset}
        np.testing.assert_allclose(run(made, [X])[0], wanted, rtol=1e-5)


def test_other_domains_are_left_alone() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
        g (float[3,4] in0) => (float[3,4] out0) { y = com.microsoft.Gelu(in0)  out0 = Relu(y) }""")
    made, report = retarget(model, 13)
    assert [node.domain for node in made.graph.node] == ["com.microsoft", ""]
    assert not report.rewritten


def test_the_report_counts_what_changed() -> None:
    model = model_of(lambda op, x: op.Relu(op.Squeeze(op.Unsqueeze(op.Cast(x, to=11), [0]), [0])), [X])
    _, report = retarget(model, 12)
    assert report.rewritten == {"Squeeze": 1, "Unsqueeze": 1}


def test_every_version_step_is_covered() -> None:
    load()
    missing = []
    for name in operators():
        for i, since in enumerate(schema.since for schema in history(name)):
            if OLDEST < since <= CANON:
                missing += [] if step_down(name, since) else [f"{name}-{since} down"]
                missing += [] if i == 0 or step_up(name, since) else [f"{name}-{since} up"]
    assert not missing


CARRYING = """<ir_version: 8, opset_import: ["" : 13]> g (float[2, 3] x, int64 n) => (float y) <bool c = {1}> {
    y = Loop<body = b (int64 i, bool again, float v) => (bool more, float w) <int64[1] axis = {0}> {
        more = Identity(again)
        s = ReduceMax<axes = [-1], keepdims = 1>(v)
        w = LAST
    }>(n, c, x) }"""


def test_what_a_loop_carries_has_a_rank_if_every_turn_keeps_it() -> None:
    def model(last: str) -> onnx.ModelProto:
        made = onnx.parser.parse_model(CARRYING.replace("LAST", last))
        body = made.graph.node[0].attribute[0].g
        for value in (body.input[2], body.output[1], made.graph.output[0]):
            value.type.tensor_type.ClearField("shape")
        return made

    inputs = {"x": random(2, 3), "n": np.array(3)}
    result = tonnx.retarget(model("Sub(v, s)"), 9, inputs=inputs)
    assert result.verification is not None and result.verification.ok
    with pytest.raises(RetargetError, match="the rank of its input is not known"):
        tonnx.retarget(model("Unsqueeze(s, axis)"), 10, inputs=inputs)
