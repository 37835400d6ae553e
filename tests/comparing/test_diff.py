"""`tonnx.diff`: ten regressions planted in a file, each named; and nothing where nothing changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper
from torch import nn

import tonnx
from tonnx.cli import main


class Net(nn.Module):
    """Two branches that are subtracted, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.left, self.right = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1)
        self.head = nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(x))
        y = torch.sigmoid(self.left(x)) - torch.tanh(self.right(x))
        return torch.softmax(self.head(y.mean((2, 3))), -1)


@pytest.fixture(scope="module")
def base() -> onnx.ModelProto:
    torch.manual_seed(0)
    example = (torch.randn(2, 3, 8, 8),)
    names = {"input_names": ["x"], "output_names": ["y"], "dynamic_axes": {"x": {0: "batch"}}}
    return tonnx.export(Net(), example, verify=False, opset_version=17, **names).proto


def node(model: onnx.ModelProto, op_type: str) -> onnx.NodeProto:
    return next(n for n in model.graph.node if n.op_type == op_type)


def weight(model: onnx.ModelProto, name: str) -> onnx.TensorProto:
    return next(t for t in model.graph.initializer if t.name == name)


def change_weight(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[onnx.ModelProto], None]:
    def plant(model: onnx.ModelProto) -> None:
        tensor = weight(model, name)
        tensor.CopyFrom(numpy_helper.from_array(change(numpy_helper.to_array(tensor)), name))

    return plant


def one_number(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flat[0] += 0.25
    return array


def drop_relu(model: onnx.ModelProto) -> None:
    relu = node(model, "Relu")
    for other in model.graph.node:
        for i, name in enumerate(other.input):
            if name == relu.output[0]:
                other.input[i] = relu.input[0]
    model.graph.node.remove(relu)


def add_abs(model: onnx.ModelProto) -> None:
    relu = node(model, "Relu")
    before = list(model.graph.node).index(relu)
    model.graph.node.insert(before, helper.make_node("Abs", [relu.input[0]], ["positive"], name="planted"))
    node(model, "Relu").input[0] = "positive"


def other_activation(model: onnx.ModelProto) -> None:
    node(model, "Sigmoid").op_type = "HardSigmoid"


def stride(model: onnx.ModelProto) -> None:
    attribute = next(a for a in node(model, "Conv").attribute if a.name == "strides")
    attribute.ints[:] = [2, 2]
    del model.graph.value_info[:]  # what the file says of shapes is believed


def swap(model: onnx.ModelProto) -> None:
    inputs = node(model, "Sub").input
    inputs[0], inputs[1] = inputs[1], inputs[0]


def fixed_batch(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2


def rename(model: onnx.ModelProto) -> None:
    model.graph.input[0].name = "image"
    node(model, "Conv").input[0] = "image"


def opset(model: onnx.ModelProto) -> None:
    model.opset_import[0].version = 16


PLANTED: dict[str, tuple[Callable[[onnx.ModelProto], None], set[str], str]] = {
    "an operator gone": (drop_relu, {"gone"}, "gone: Relu"),
    "an operator added": (add_abs, {"added"}, "added: Abs (planted)"),
    "another operator": (other_activation, {"gone", "added"}, "added: HardSigmoid"),
    "one number of a weight": (change_weight("stem.weight", one_number), {"weight"}, "stem.weight: 1 of 108 numbers"),
    "a weight of zeros": (change_weight("left.weight", np.zeros_like), {"weight"}, "100 % of its length"),
    "a weight in another type": (
        change_weight("left.bias", lambda a: a.astype(np.float64)), {"weight"}, "float32[4] → float64[4]",
    ),
    "an attribute": (stride, {"attribute", "shape"}, "strides [1, 1] → [2, 2]"),
    "operands swapped": (swap, {"rewired"}, "Sub"),
    "a dimension fixed": (fixed_batch, {"signature", "shape"}, "x: float[batch, 3, 8, 8] → x: float[2, 3, 8, 8]"),
    "another opset": (opset, {"file"}, "17 → 16"),
    "an input renamed": (rename, {"signature"}, "input x: float[batch, 3, 8, 8] → image: float[batch, 3, 8, 8]"),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_planted(name: str, base: onnx.ModelProto) -> None:
    plant, kinds, told = PLANTED[name]
    other = onnx.ModelProto.FromString(base.SerializeToString())
    plant(other)
    result = tonnx.diff(base, other)
    assert {change.kind for change in result.changes} == kinds, str(result)
    assert told in str(result)


def test_numbers_are_told_in_the_precision_of_the_file() -> None:
    head = '<ir_version: 8, opset_import: ["": 17]> agraph (float[3] x) => (float[3] y)'
    text = head + " {{ y = LeakyRelu <alpha = {}> (x) }}"
    (change,) = tonnx.diff(*(onnx.parser.parse_model(text.format(alpha)) for alpha in (0.2, 0.3))).changes
    assert change.what.endswith("alpha 0.2 → 0.3")


def test_the_module_is_named(base: onnx.ModelProto) -> None:
    other = onnx.ModelProto.FromString(base.SerializeToString())
    change_weight("left.weight", np.zeros_like)(other)
    (change,) = tonnx.diff(base, other).changes
    assert change.module == "left" and "test_diff.py" in change.source


def test_nothing_changed(base: onnx.ModelProto, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        torch.manual_seed(0)
        tonnx.export(Net(), (torch.randn(2, 3, 8, 8),), tmp_path / f"{name}.onnx", verify=False)
    assert main(["diff", str(tmp_path / "a.onnx"), str(tmp_path / "b.onnx"), "--numeric"]) == 0
    assert capsys.readouterr().out == ""


def test_renamed_values_are_renamed(base: onnx.ModelProto) -> None:
    other = onnx.ModelProto.FromString(base.SerializeToString())
    for n in other.graph.node:
        for names in (n.input, n.output):
            names[:] = [name if name in ("x", "y") else f"{name}_new" for name in names]
        n.name += "_new"
    for tensor in other.graph.initializer:
        tensor.name += "_new"
    del other.graph.value_info[:]
    (change,) = tonnx.diff(base, other).changes
    assert change.kind == "renamed" and change.count >= 8 and "_new" in change.what


def test_a_layer_of_many_equal_ones() -> None:
    """Which of five layers is gone is told by its weights."""
    torch.manual_seed(0)
    layers = [nn.Linear(4, 4) for _ in range(5)]
    models = [nn.Sequential(*layers), nn.Sequential(*layers[:2], *layers[3:])]
    files = [tonnx.export(m, (torch.randn(2, 4),), verify=False, strip_doc_string=True).proto for m in models]
    result = tonnx.diff(*files)
    assert [change.kind for change in result.changes if change.kind != "renamed"] == ["gone"]
    assert "2" in result.changes[0].what


FORMS = {
    "a text": (
        '(string[1] x) => (bool[1] y) <string[1] w = {"WORD"}> { y = Equal(x, w) }', ("other", "one"), "1 of 1 texts",
    ),
    "in a branch": (
        "(bool c, float[2] x) => (float[2] y) {"
        "y = If(c) <then_branch = g1 () => (float[2] a) { a = WORD(x) },"
        "else_branch = g2 () => (float[2] b) { b = Neg(x) }> }",
        ("Abs", "Exp"),
        "gone: Abs",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_other_forms(name: str) -> None:
    text, words, told = FORMS[name]
    head = '<ir_version: 8, opset_import: ["" : 19]> net '
    files = [onnx.parser.parse_model(head + text.replace("WORD", word)) for word in words]
    assert tonnx.diff(files[0], files[0]).same
    assert told in str(tonnx.diff(*files))


def test_a_function(base: onnx.ModelProto) -> None:
    head = '<ir_version: 8, opset_import: ["" : 17, "own" : 1]> net (float[2] x) => (float[2] y) { y = own.f(x) }'
    body = '<domain: "own", opset_import: ["" : 17]> f (a) => (b) { b = WORD(a) }'
    files = [onnx.parser.parse_model(head + body.replace("WORD", word)) for word in ("Abs", "Exp")]
    assert {change.kind for change in tonnx.diff(*files).changes} == {"gone", "added"}


def test_numeric_and_the_page(base: onnx.ModelProto, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = onnx.ModelProto.FromString(base.SerializeToString())
    change_weight("head.weight", lambda array: array + 1)(other)
    rename(other)
    files = [tmp_path / "a.onnx", tmp_path / "b.onnx"]
    for proto, path in zip((base, other), files, strict=True):
        onnx.save(proto, path)
    page = tmp_path / "changes.html"
    assert main(["diff", *map(str, files), "--numeric", "--html", str(page), "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert not data["same"] and data["numeric"][0]["max_abs"] > 0 and data["changes"]
    assert "head.weight" in page.read_text("utf-8")
    main(["diff", *map(str, files), "--numeric"])
    assert "output y: max abs" in capsys.readouterr().out


def test_sizes_that_only_one_of_them_fixes(base: onnx.ModelProto) -> None:
    other = onnx.ModelProto.FromString(base.SerializeToString())
    other.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 5
    for pair in ((base, other), (other, base)):
        result = tonnx.diff(*pair, numeric=True)
        assert result.numeric and all(comparison.ok for comparison in result.numeric) and not result.not_run


def test_bad_input(base: onnx.ModelProto, tmp_path: Path) -> None:
    other = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> net (int64[2] i) => (int64[2] o) { o = Identity(i) }'
    )
    result = tonnx.diff(base, other, numeric=True)  # what changed is told all the same
    assert "do not take the same inputs" in str(result) and result.changes and result.data()["not_run"]
    with pytest.raises(tonnx.InvalidArgument):
        tonnx.diff(base, base, numeric=True, inputs={"x": np.zeros(3, np.float32)})
    with pytest.raises(tonnx.InvalidModel, match="is not an ONNX model"):
        tonnx.diff(__file__, base)
    with pytest.raises(tonnx.InvalidArgument, match="there is no file"):
        tonnx.diff(base, tmp_path / "missing.onnx")
