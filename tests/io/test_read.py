"""Files from elsewhere: what cannot be inferred of them is told."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

import tonnx
from tonnx.errors import InvalidModel
from tonnx.io import read


def model(*nodes: onnx.NodeProto) -> onnx.ModelProto:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xy")
    graph = helper.make_graph(list(nodes), "g", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


RELU = helper.make_node("Relu", ["x"], ["t"])
OTHER = helper.make_node("Odd", ["t"], ["y"], domain="somewhere.else")  # of a domain that the file does not import


def test_what_onnx_refuses_is_told() -> None:
    (note,) = read.infer(read.reader(model(RELU, OTHER))())
    assert note.startswith("[!] onnx infers no types and shapes of this model: ") and "somewhere.else" in note
    assert read.infer(read.reader(model(RELU, helper.make_node("Relu", ["t"], ["y"])))()) == []


@pytest.mark.parametrize("declared", [None, [1, 2, 3]])
def test_the_rank_of_what_is_reshaped_is_the_length_of_its_shape(declared: list[int] | None) -> None:
    """At sizes that are written as -1, as some exporters do, and by a shape that the run computes."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [-1, 3, "h", "h"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, declared)
    constants = [numpy_helper.from_array(np.asarray(v), n) for n, v in (("zero", [0]), ("one", [1]), ("rest", [-1]))]
    nodes = [
        helper.make_node("Shape", ["x"], ["sizes"]), helper.make_node("Slice", ["sizes", "zero", "one"], ["first"]),
        helper.make_node("Concat", ["first", "rest"], ["shape"], axis=0),
        helper.make_node("Softmax", ["x"], ["flat"]), helper.make_node("Reshape", ["flat", "shape"], ["y"]),
    ]  # fmt: skip
    graph = helper.make_graph(nodes, "g", [x], [y], constants)
    loaded = read.reader(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=8))()
    assert read.infer(loaded) == []
    assert all(value.shape is not None and value.shape.rank() == 2 for value in loaded.graph.node(-1).outputs)
    assert not any(isinstance(size, int) and size < 0 for size in loaded.graph.inputs[0].shape or ())


def test_the_result_says_that_nothing_was_inferred() -> None:
    result = tonnx.retarget(model(RELU, OTHER), 13, verify=False)
    assert "onnx infers no types and shapes" in str(result)


def test_a_wrong_guess_of_what_a_loop_carries_is_taken_back() -> None:
    """A guess that a rank stays contradicts a body that changes it: no error, and no guess left behind."""
    body = helper.make_graph(
        [
            helper.make_node("Constant", [], ["axes"], value_ints=[0]),
            helper.make_node("Unsqueeze", ["carried", "axes"], ["larger"]),
            helper.make_node("Identity", ["go"], ["go_on"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("carried", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("go_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("larger", TensorProto.FLOAT, None),
        ],
    )
    proto = model(
        helper.make_node("Constant", [], ["trips"], value_int=2),
        helper.make_node("Loop", ["trips", "", "x"], ["z"], body=body),
        helper.make_node("Relu", ["x"], ["y"]),
    )
    loaded = read.reader(proto)()
    assert read.infer(loaded) == []
    loop = next(node for node in loaded.graph if node.op_type == "Loop")
    assert loop.attributes["body"].as_graph().inputs[2].shape is None
    assert loop.outputs[0].shape is None


def test_damaged_files_are_refused() -> None:
    with pytest.raises(InvalidModel, match="these bytes are not an ONNX model"):
        read.reader(b"\xff\xff\xff")
    with pytest.raises(InvalidModel, match="it has no graph with an output"):
        read.reader(ir.Model(ir.Graph([], [], nodes=[], opset_imports={"": 17}), ir_version=8))()


@pytest.mark.parametrize(
    ("name", "kept"), [("?", False), ("-1", False), ("None", False), ("unknown", False), ("n", True)]
)
def test_a_name_that_says_nothing_makes_no_sizes_equal(name: str, kept: bool) -> None:
    """A Reshape to the sizes in another order is none that could go, whatever the file calls them."""
    proto = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 13]> g (float[a, b] x) => (float[c, d] y) {
          order = Constant<value = int64[2] {1, 0}>()
          sizes = Shape(x)  turned = Gather(sizes, order)  t = Reshape(x, turned)  y = Relu(t)
        }""")
    for dim in proto.graph.input[0].type.tensor_type.shape.dim:
        dim.dim_param = name
    loaded = read.reader(proto)()
    assert [dim.value for dim in loaded.graph.inputs[0].shape or () if not isinstance(dim, int)] == [
        name if kept else None
    ] * 2
    if not kept:
        result = tonnx.optimise(proto, inputs={"x": np.arange(12, dtype=np.float32).reshape(3, 4)})
        assert "Reshape" in [node.op_type for node in result.model.graph]


def test_a_single_dimension_may_have_any_name() -> None:
    proto = model(helper.make_node("Relu", ["x"], ["y"]))
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "dynamic"
    assert str((read.reader(proto)().graph.inputs[0].shape or ())[0]) == "dynamic"


WRONG = {
    "a dimension inside": ("float[n, 4, 9, 8] c", "float[n, 4] y"), "a rank inside": ("float[n, 4] c", "float[n, 4] y"),
    "a rank outside": ("float[n, 4, 8, 8] c", "float[1, 4, 1] y"),
    "a size outside": ("float[n, 4, 8, 8] c", "float[n, 5] y"),
}  # fmt: skip


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("command", [tonnx.optimise, lambda proto: tonnx.retarget(proto, 11)])
def test_shapes_that_are_declared_wrongly_are_left_out(kind: str, command: Any) -> None:
    """ONNX Runtime warns and runs such files; so they are no reason to refuse one."""
    inside, outside = WRONG[kind]
    proto = onnx.parser.parse_model(f"""
        <ir_version: 7, opset_import: ["" : 13]>
        g (float[n, 3, 8, 8] x, float[4, 3, 1, 1] w) => ({outside}) <{inside}> {{
          c = Conv(x, w)  r = Relu(c)  m = GlobalAveragePool(r)  y = Flatten(m)
        }}""")
    proto.graph.input.pop()
    proto.graph.initializer.append(numpy_helper.from_array(np.ones((4, 3, 1, 1), np.float32), "w"))
    result = command(proto)
    assert result.verification.ok and "that the file declares wrongly are left out" in str(result)


def test_bodies_that_declare_another_rank() -> None:
    proto = onnx.parser.parse_model("""
        <ir_version: 7, opset_import: ["" : 13]> g (bool c, float[2, 3] x) => (float[2, 3] y) {
          y = If (c) <then_branch = t () => (float p) { p = Relu(x) },
                      else_branch = e () => (float[2, 3] q) { q = Neg(x) }>
        }""")
    assert tonnx.retarget(proto, 11).verification.ok
