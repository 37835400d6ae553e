"""Where a builder's nodes stand and come from, and trials that are taken back."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from tonnx.ir.build import Builder, Names

T = ir.DataType


def builder(*dims: int | str) -> tuple[Builder, ir.Value]:
    x = ir.Value(name="x", type=ir.TensorType(T.FLOAT), shape=ir.Shape(dims or (2, 3)))
    graph = ir.Graph([x], [], nodes=[], opset_imports={"": 23}, name="main")
    return Builder(graph, names=Names(["x"])), x


def kinds(op: Builder) -> list[str]:
    return [node.op_type for node in op.graph]


def test_origin_holds_inside_and_is_put_back() -> None:
    op, x = builder()
    with op.origin("encoder.layer", "aten.relu", "model.py:3"):
        with op.origin("", "aten.neg"):
            inner = op.Neg(x).producer()
        outer = op.Relu(x).producer()
    after = op.Abs(x).producer()
    assert dict(inner.metadata_props) == {"tonnx.op": "aten.neg"}
    assert outer.name == "/encoder/layer/Relu"
    assert outer.metadata_props["tonnx.source"] == "model.py:3"
    assert (after.name, dict(after.metadata_props)) == ("/Abs", {})


def test_origin_is_put_back_after_a_fault() -> None:
    op, x = builder()
    with pytest.raises(TypeError), op.origin("a", "b"):
        op.Relu(x, axis=1)
    assert (op.scope, op.source) == ("", {})


def test_nodes_at_a_place_come_before_it_and_are_named() -> None:
    op, x = builder()
    with op.origin("layer", "aten.relu"):
        last = op.Relu(x).producer()
    with op.at(last, 13) as made:
        assert op.opset == 13
        op.Neg(x)
        with op.at(last):
            op.Abs(x)
    assert [node.op_type for node in made] == ["Neg", "Abs"]
    assert kinds(op) == ["Neg", "Abs", "Relu"]
    assert made[0].metadata_props["tonnx.module"] == "layer"
    assert op.before is None and op.opset != 13


@pytest.mark.parametrize("fails", [True, False])
def test_a_trial_leaves_nothing(fails: bool) -> None:
    op, x = builder("n", 3)
    kept = op.Relu(x)

    def trial() -> None:
        with op.transaction() as attempt:
            body = op.inner("then")
            body.graph.outputs.append(body.Neg(body.Mul(kept, op.constant([1.0, 2.0, 3.0]))))
            unfinished = op.inner("else")
            unfinished.Abs(kept)
            op.reshape(kept, [op.size(x, 0), 1, 3])
            if fails:
                raise LookupError
            attempt.take_back()

    if fails:
        with pytest.raises(LookupError):
            trial()
    else:
        trial()
    assert kinds(op) == ["Relu"]
    assert not kept.uses(), "an inner graph that was given up still looks like a use"
    assert op.known_size("n") is None, "a size that was taken back would be used"


def test_a_trial_that_holds_is_kept() -> None:
    op, x = builder("n", 3)
    with op.transaction():
        op.size(x, 0)
    assert kinds(op) == ["Shape"] and op.known_size("n") is not None


def test_trials_nest() -> None:
    op, x = builder()
    with op.transaction() as outer:
        op.Relu(x)
        with op.transaction() as inner:
            op.Neg(x)
            inner.take_back()
        assert kinds(op) == ["Relu"]
        outer.take_back()
    assert kinds(op) == []
