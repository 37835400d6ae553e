"""Every argument that `torch.onnx.export` has or had: by name, by position; with its effect, or a line that says why.

The calls of the tutorials are here word for word, with another import only.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
import torch.onnx
from torch import nn
from torch.onnx import OperatorExportTypes, TrainingMode

import tonnx
import tonnx as linger_onnx  # the tutorials call linger.onnx.export
from tonnx.api.torch_compat import by_position
from tonnx.errors import InvalidArgument, LoweringError, RetargetError, UnsupportedOp

LIBRARY = torch.library.Library("tonnx_classic", "FRAGMENT")
LIBRARY.define("odd(Tensor x, int[] sizes, float? alpha=None, str mode='a', Tensor? other=None) -> (Tensor, Tensor)")
LIBRARY.impl("odd", lambda x, sizes, alpha=None, mode="a", other=None: (x * 2, x.sum(1)), "CPU")
torch.library.register_fake(
    "tonnx_classic::odd",
    lambda x, sizes, alpha=None, mode="a", other=None: (torch.empty_like(x), x.new_empty(x.shape[0])),
    lib=LIBRARY,
)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.norm(self.conv(x))
        return self.drop(y), y + 1


class Odd(nn.Module):
    """Has an operator that nothing but PyTorch knows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = torch.ops.tonnx_classic.odd(torch.relu(x), [1, 2], mode="b")
        return a + b[:, None]


Model = Net
X = torch.randn(1, 3, 6, 6)


def kinds(model: Any) -> list[str]:
    return [f"{n.domain}::{n.op_type}" if n.domain else n.op_type for n in model.graph]


# The examples of the tutorials, word for word


def test_the_simplest_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch_model = Model()
    # set the model to inference mode
    torch_model.eval()
    dummy_input = torch.randn(1, 3, 24, 24)
    tonnx.export(torch_model, dummy_input, "test.onnx")
    onnx.checker.check_model(onnx.load("test.onnx"))


def test_dynamic_sizes_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch_model, x = nn.Conv2d(3, 4, 3), X
    linger_onnx.export(torch_model,               # model being run
                      x,                         # model input (or a tuple for multiple inputs)
                      "super_resolution.onnx",   # where to save the model (can be a file or file-like object)
                      export_params=True,        # store the trained parameter weights inside the model file
                      opset_version=12,          # the ONNX version to export the model to
                      do_constant_folding=True,  # whether to execute constant folding for optimization
                      input_names = ['input'],   # the model's input names
                      output_names = ['output'], # the model's output names
                      dynamic_axes={'input' : {0 : 'batch_size'},    # variable lenght axes
                                    'output' : {0 : 'batch_size'}})  # fmt: skip
    proto = onnx.load("super_resolution.onnx")
    assert proto.opset_import[0].version == 12
    assert proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch_size"
    session = onnxruntime.InferenceSession("super_resolution.onnx")
    assert session.run(["output"], {"input": np.zeros((5, 3, 6, 6), np.float32)})[0].shape == (5, 4, 4, 4)


AXES = [
    ("indices only", {"input_1": [0, 2, 3], "input_2": [0], "output": [0, 1]},
     [["input_1_dim_0", 3, "input_1_dim_2", "input_1_dim_3"], ["input_2_dim_0", 2]]),
    ("names", {"input_1": {0: "batch", 1: "width", 2: "height"}, "input_2": {0: "batch"},
               "output": {0: "batch", 1: "detections"}},
     [["batch", "width", "height", 6], ["batch", 2]]),
    ("mixed", {"input_1": [0, 2, 3], "input_2": {0: "batch"}, "output": [0, 1]},
     [["input_1_dim_0", 3, "input_1_dim_2", "input_1_dim_3"], ["batch", 2]]),
]  # fmt: skip


@pytest.mark.parametrize("case", AXES, ids=[case[0] for case in AXES])
def test_three_forms_of_dynamic_axes(case: Any) -> None:
    _, dynamic_axes, shapes = case

    def model(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a.flatten(2).mean(2).sum(1, keepdim=True) + b.sum()

    result = tonnx.export(
        model,
        (X, torch.randn(1, 2)),
        input_names=["input_1", "input_2"],
        output_names=["output"],
        dynamic_axes=dynamic_axes,
    )
    assert [[d if isinstance(d, int) else d.value for d in v.shape] for v in result.model.graph.inputs] == shapes
    assert result.verification is not None and result.verification.ok


@pytest.mark.parametrize("grad", [False, True], ids=["no_grad", "without no_grad"])
def test_aten_fallback_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grad: bool) -> None:
    monkeypatch.chdir(tmp_path)
    torch_model = Model()
    torch_model.eval()
    dummy_input = torch.randn(1, 3, 24, 24)
    with torch.set_grad_enabled(grad):
        linger_onnx.export(torch_model,dummy_input,"test.onnx",
                        opset_version=11,input_names=["input"],output_names=["output"],operator_export_type=torch.onnx.OperatorExportTypes.ONNX_ATEN_FALLBACK)  # fmt: skip  # noqa: E501
    session = onnxruntime.InferenceSession("test.onnx")
    got = session.run(["output"], {"input": dummy_input.numpy()})[0]
    np.testing.assert_allclose(got, torch_model(dummy_input)[0].detach().numpy(), rtol=1e-3, atol=1e-5)


def test_bytes_io_and_any_file_like_object() -> None:
    class Sink:
        def __init__(self) -> None:
            self.parts: list[bytes] = []

        def write(self, data: Any) -> None:  # returns nothing, as some do
            self.parts.append(bytes(data))

    buffer, sink = io.BytesIO(), Sink()
    for f in (buffer, sink):
        tonnx.export(nn.Conv2d(3, 4, 3), X, f)
    for data in (buffer.getvalue(), b"".join(sink.parts)):
        assert onnxruntime.InferenceSession(data).run(None, {"input": X.numpy()})[0].shape == (1, 4, 4, 4)


# By position


def test_positions_of_both_orders() -> None:
    first = (True, False, TrainingMode.EVAL, ["a"], ["b"])
    assert by_position(first) == {
        "export_params": True,
        "verbose": False,
        "training": TrainingMode.EVAL,
        "input_names": ["a"],
        "output_names": ["b"],
    }
    newer = by_position((*first, OperatorExportTypes.ONNX, 13, True, {"a": [0]}, None, {"d": 1}))
    assert newer["opset_version"] == 13 and newer["custom_opsets"] == {"d": 1}
    older = by_position((*first, False, False, None, 11, True, True, None, False, {"a": [0]}))
    assert older["opset_version"] == 11 and older["strip_doc_string"] is False and older["dynamic_axes"] == {"a": [0]}
    assert by_position((*first, None, False, None, 12))["opset_version"] == 12
    with pytest.raises(InvalidArgument, match="21 arguments by position at most, not 22"):
        by_position((None,) * 19)


def test_a_call_by_position() -> None:
    buffer = io.BytesIO()
    result = tonnx.export(
        nn.Conv2d(3, 4, 3), (X,), buffer, True, False, TrainingMode.EVAL, ["a"], ["b"], OperatorExportTypes.ONNX, 13,
        True, {"a": {0: "n"}},
    )  # type: ignore[call-arg]  # fmt: skip
    assert result.opset == 13 and result.model.graph.inputs[0].name == "a" and buffer.tell()
    with pytest.raises(InvalidArgument, match="export_params is given twice"):
        tonnx.export(nn.ReLU(), X, None, True, export_params=True)  # type: ignore[call-arg, misc]


# Weights


def test_names_after_the_inputs_are_the_parameters() -> None:
    names = ["x", "kernel", "bias"]
    result = tonnx.export(nn.Conv2d(3, 4, 3), X, input_names=names, export_params=False)
    assert [value.name for value in result.model.graph.inputs] == names and not result.model.graph.initializers
    result = tonnx.export(nn.Conv2d(3, 4, 3), X, input_names=names, keep_initializers_as_inputs=True)
    assert [value.name for value in result.model.graph.inputs] == names
    assert list(result.model.graph.initializers) == names[1:]
    with pytest.raises(InvalidArgument, match="4 names, but the model has 1 tensor inputs and 2 parameters"):
        tonnx.export(nn.Conv2d(3, 4, 3), X, input_names=[*names, "d"])
    with pytest.raises(InvalidArgument, match="'kernel' is given to an input and to an output"):
        tonnx.export(nn.Conv2d(3, 4, 3), X, input_names=names, output_names=["kernel"])


def test_structure_without_weights_runs_with_others() -> None:
    net, other = nn.Linear(3, 2), nn.Linear(3, 2)
    buffer, x = io.BytesIO(), torch.randn(4, 3)
    tonnx.export(net, x, buffer, export_params=False)
    feeds = {"input": x.numpy(), **{name: p.detach().numpy() for name, p in other.named_parameters()}}
    got = onnxruntime.InferenceSession(buffer.getvalue()).run(None, feeds)[0]
    np.testing.assert_allclose(got, other(x).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_constant_folding_is_a_switch() -> None:
    class Transposed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(3, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.weight.t().exp()

    x = torch.randn(4, 3)
    assert kinds(tonnx.export(Transposed(), x).model) == ["Mul"]
    for off in ({"do_constant_folding": False}, {"optimize": False}):
        assert kinds(tonnx.export(Transposed(), x, **off).model) == ["Transpose", "Exp", "Mul"]


def test_external_data_by_its_older_name(tmp_path: Path) -> None:
    tonnx.export(nn.Linear(64, 64), torch.randn(1, 64), tmp_path / "a.onnx", use_external_data_format=True)
    assert (tmp_path / "a.onnx.data").stat().st_size >= 64 * 64 * 4


# Training

TRAINING = [
    (None, False), (TrainingMode.EVAL, False), ("eval", False), (0, False), (False, False),
    (TrainingMode.TRAINING, True), ("TRAINING", True), (2, True), (True, True), (TrainingMode.PRESERVE, True),
]  # fmt: skip


@pytest.mark.parametrize("case", TRAINING, ids=[str(case[0]) for case in TRAINING])
def test_training_modes(case: Any) -> None:
    mode, trains = case
    model = Net().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    result = tonnx.export(model, torch.randn(2, 3, 6, 6), training=mode, dynamic_axes={"x": [0]})
    assert kinds(result.model) == (["Conv", "BatchNormalization", "Dropout", "Add"] if trains else ["Conv", "Add"])
    assert model.training and all(bool((before[name] == value).all()) for name, value in model.state_dict().items())
    assert result.verification is not None and result.verification.ok
    if not trains:
        return
    nodes = {node.op_type: node for node in result.model.graph}
    assert bool(nodes["Dropout"].inputs[2].const_value.numpy())  # type: ignore[union-attr]
    assert nodes["BatchNormalization"].attributes["training_mode"].as_int() == 1
    assert [o.name for o in nodes["BatchNormalization"].outputs[1:]] == [
        "norm.running_mean.next",
        "norm.running_var.next",
    ]
    assert nodes["BatchNormalization"].attributes["momentum"].as_float() == pytest.approx(0.9)
    first, second = result.verification.per_output()
    assert first.drawn and first.measured and not second.drawn  # compared without dropout, and shapes with it
    assert "with it, only shapes and types were compared" in str(result)


def test_preserve_keeps_the_mode_of_every_layer() -> None:
    model = Net().train()
    model.norm.eval()
    result = tonnx.export(model, torch.randn(2, 3, 6, 6), training=TrainingMode.PRESERVE)
    assert kinds(result.model) == ["Conv", "BatchNormalization", "Dropout", "Add"]
    assert "training_mode" not in list(result.model.graph)[1].attributes
    assert kinds(tonnx.export(Net().eval(), X, training="PRESERVE").model) == ["Conv", "BatchNormalization", "Add"]


def test_the_file_for_training_really_drops_and_normalises() -> None:
    buffer = io.BytesIO()
    x = torch.randn(8, 3, 6, 6) * 3 + 1
    tonnx.export(Net(), x, buffer, training=TrainingMode.TRAINING)
    dropped, normal = onnxruntime.InferenceSession(buffer.getvalue()).run(None, {"x": x.numpy()})
    assert 0.3 < (dropped == 0).mean() < 0.5
    np.testing.assert_allclose(normal.mean((0, 2, 3)), 1, atol=1e-5)
    np.testing.assert_allclose(normal.var((0, 2, 3)), 1, atol=1e-3)


@pytest.mark.parametrize(
    "layer",
    [nn.Dropout1d(0.3), nn.AlphaDropout(0.3), nn.FeatureAlphaDropout(0.3)],
    ids=lambda layer: type(layer).__name__,
)
def test_other_dropouts(layer: nn.Module) -> None:
    x = torch.randn(64, 8, 16)
    buffer = io.BytesIO()
    result = tonnx.export(layer, x, buffer, training="TRAINING", dynamic_axes={"input": [0]})
    assert "Dropout" in kinds(result.model)
    got = onnxruntime.InferenceSession(buffer.getvalue()).run(None, {"input": x.numpy()})[0]
    torch.manual_seed(0)
    want = layer.train()(x)
    assert abs(got.std() - float(want.std())) < 0.1 and abs(got.mean() - float(want.mean())) < 0.1
    if not isinstance(layer, nn.AlphaDropout):  # whole channels
        assert ((got == got[:, :, :1]).all(-1) | (got != got[:, :, :1]).any(-1)).all()


def test_a_transformer_for_training() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=True)
    result = tonnx.export(layer, torch.randn(2, 5, 8), training="TRAINING")
    assert kinds(result.model).count("Dropout") == 4
    assert result.verification is not None and result.verification.per_output()[0].measured


def test_what_training_cannot_say() -> None:
    with pytest.raises(LoweringError, match="dropout between the layers"):
        tonnx.export(nn.LSTM(4, 4, 2, dropout=0.5), torch.randn(2, 5, 4), training="TRAINING")
    with pytest.raises(RetargetError, match="before 12 dropout is for inference only"):
        tonnx.export(Net(), torch.randn(2, 3, 6, 6), training="TRAINING", opset_version=11)


def test_random_models_are_compared_as_far_as_possible() -> None:
    result = tonnx.export(lambda x: (x + torch.randn_like(x), x * 2), torch.randn(2, 3))
    noisy, plain = result.verification.per_output()  # type: ignore[union-attr]
    assert noisy.drawn and not noisy.measured and not plain.drawn
    assert "random in the model itself: only shapes and types were compared" in str(result)


def test_a_random_file_for_a_model_that_is_not_random_is_wrong() -> None:
    def noisy(op: Any, x: Any) -> Any:
        return op.RandomNormalLike(x)

    with pytest.raises(tonnx.VerificationFailed):
        tonnx.export(nn.ReLU(), torch.randn(4, 5), custom_translation_table={torch.ops.aten.relu: noisy})


# Operators that cannot be exported


def test_onnx_refuses_and_shows_the_way() -> None:
    for kind in (None, OperatorExportTypes.ONNX, "ONNX", 0):
        with pytest.raises(UnsupportedOp) as caught:
            tonnx.export(Odd(), torch.randn(2, 3), operator_export_type=kind)
        assert "tonnx_classic.odd.default" in str(caught.value)
        assert '@tonnx.lower("tonnx_classic::odd")' in str(caught.value)
        assert "ONNX_ATEN_FALLBACK" in str(caught.value)


@pytest.mark.parametrize("opset", [9, 11, 18, 26])
def test_fallback(opset: int) -> None:
    kind = OperatorExportTypes.ONNX_ATEN_FALLBACK
    result = tonnx.export(
        Odd(), torch.randn(2, 3), operator_export_type=kind, opset_version=opset, dynamic_axes={"x": {0: "n"}}
    )
    assert kinds(result.model) == ["Relu", "org.pytorch.aten::ATen", "Unsqueeze", "Add"]
    proto = result.proto
    onnx.checker.check_model(proto, full_check=True)
    assert {o.domain: o.version for o in proto.opset_import} == {"": opset, "org.pytorch.aten": 1}
    node = proto.graph.node[1]
    attributes = {a.name: a.s.decode() for a in node.attribute}
    assert attributes == {"operator": "tonnx_classic::odd", "overload_name": "", "mode": "b"}
    assert len(node.input) == 2 and len(node.output) == 2
    assert result.verification is None
    assert "org.pytorch.aten::ATen(tonnx_classic::odd): the file was checked, but not run or compared" in str(result)


def test_fallback_of_a_real_operator_and_of_an_argument() -> None:
    class Real(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(torch.linalg.ldl_factor(x).LD)

    with pytest.raises(LoweringError):
        tonnx.export(Real(), torch.eye(3))
    result = tonnx.export(Real(), torch.eye(3), operator_export_type="onnx_aten_fallback")
    assert kinds(result.model) == ["org.pytorch.aten::ATen", "Relu"]
    operator = next(iter(result.model.graph)).attributes["operator"].as_string()
    assert operator in ("linalg_ldl_factor", "linalg_ldl_factor_ex")


def test_what_can_be_exported_is_not_affected_by_the_fallback() -> None:
    result = tonnx.export(Net(), X, operator_export_type=OperatorExportTypes.ONNX_ATEN_FALLBACK)
    assert kinds(result.model) == ["Conv", "Add"] and result.verification is not None and result.verification.ok


def test_aten_and_fallthrough() -> None:
    x = torch.randn(2, 3)
    for asked in ({"operator_export_type": "ONNX_ATEN"}, {"aten": True}):
        result = tonnx.export(Odd(), x, **asked)
        assert set(kinds(result.model)) == {"org.pytorch.aten::ATen"}
        operators = {node.attributes["operator"].as_string(): node for node in result.model.graph}
        operators.pop("slice", None)  # of everything, which torch leaves out from 2.9 on
        assert list(operators) == ["relu", "tonnx_classic::odd", "unsqueeze", "add"]
        assert operators["add"].attributes["overload_name"].as_string() == "Tensor"
    for asked in ({"operator_export_type": OperatorExportTypes.ONNX_FALLTHROUGH}, {"export_raw_ir": True}):
        result = tonnx.export(Odd(), x, **asked)
        others = [kind for kind in kinds(result.model) if kind != "Slice"]
        assert others == ["Relu", "tonnx_classic::odd", "Unsqueeze", "Add"]


# Doc strings, and what no longer makes sense


@pytest.mark.parametrize("opset", [13, 21])
def test_doc_strings(opset: int) -> None:
    def node(**options: Any) -> Any:
        return tonnx.export(Net(), X, opset_version=opset, **options).proto.graph.node[0]

    kept = node(strip_doc_string=False)
    assert "aten.conv2d" in kept.doc_string and "module: conv" in kept.doc_string
    stripped = node(strip_doc_string=True)
    assert not stripped.doc_string and not stripped.metadata_props
    usual = node()
    assert ("aten.conv2d" in usual.doc_string) == (opset == 13)  # IR version 10 has metadata for it


ANSWERED = {
    "dynamo": False, "profile": True, "dump_exported_program": True, "artifacts_dir": "out",
    "fallback": True, "autograd_inlining": False, "export_modules_as_functions": {nn.Conv2d},
    "enable_onnx_checker": False, "example_outputs": X, "_retain_param_name": False,
}  # fmt: skip


def test_what_no_longer_makes_sense_is_answered() -> None:
    result = tonnx.export(nn.ReLU(), X, **ANSWERED)  # type: ignore[arg-type]
    for name in ANSWERED:
        (line,) = [note for note in result.notes if note.startswith(name)]
        assert "\n" not in line and len(line) < 120
    quiet = tonnx.export(
        nn.ReLU(), X, enable_onnx_checker=True, _retain_param_name=True, autograd_inlining=True, example_outputs=None,
        export_modules_as_functions=False, aten=False, export_raw_ir=False, keep_initializers_as_inputs=None,
    )  # fmt: skip
    assert quiet.notes == []


def test_verbose_prints_the_network(capsys: pytest.CaptureFixture[str]) -> None:
    tonnx.export(Net(), X, verbose=True)
    printed = capsys.readouterr().out
    assert "capture" in printed and "= Conv[" in printed and "# conv" in printed and "[✓]" in printed


def test_custom_opsets_that_nobody_needs_are_told() -> None:
    result = tonnx.export(Net(), X, custom_opsets={"my.domain": 2})
    assert "custom_opsets: the model has no operator of 'my.domain'" in result.notes
    assert "my.domain" not in result.model.opset_imports


WRONG: list[tuple[dict[str, Any], list[str]]] = [
    ({"training": "sometimes"}, ["training='sometimes'", "EVAL, PRESERVE, TRAINING"]),
    ({"operator_export_type": 7}, ["operator_export_type=7", "ONNX_ATEN_FALLBACK"]),
    ({"operator_export_type": True}, ["operator_export_type=True"]),
    ({"aten": True, "export_raw_ir": True}, ["exclude each other"]),
    ({"aten": True, "operator_export_type": "ONNX"}, ["give only one"]),
    ({"custom_opsets": 3}, ["custom_opsets must be a dict"]),
    ({"custom_opsets": {"a": 0}}, ["custom_opsets['a']", "0"]),
    ({"custom_opsets": {"": 18}}, ["for other domains", "opset_version"]),
    ({"custom_translation_table": [1]}, ["custom_translation_table must be a dict"]),
    ({"custom_translation_table": {torch.ops.aten.relu: 1}}, ["must be a function, not 1"]),
    ({"custom_translation_table": {torch.relu: print}}, ["no operator", "torch.ops.namespace.name"]),
    ({"dynamc_axes": {}}, ["no argument 'dynamc_axes'", "did you mean 'dynamic_axes'?"]),
]


@pytest.mark.parametrize("case", WRONG, ids=[f"{i} {next(iter(case[0]))}" for i, case in enumerate(WRONG)])
def test_wrong_arguments(case: Any) -> None:
    options, parts = case
    with pytest.raises(InvalidArgument) as caught:
        tonnx.export(nn.ReLU(), X, **options)
    for part in parts:
        assert part in str(caught.value)
