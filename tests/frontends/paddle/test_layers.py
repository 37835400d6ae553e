"""Paddle layers to ONNX: how they are given, what the file is like, and what is said when it cannot be done."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import paddle
import pytest
from paddle import nn
from paddle.jit.dy2static import parameter_recorder
from paddle.static import InputSpec

import tonnx
from tests.frontends.paddle import models, nets
from tonnx.cli import main
from tonnx.errors import CaptureError, InvalidArgument
from tonnx.frontends.paddle import signature

IMAGE_SIZE, CLASS_NUM = 784, 10


class LinearNet(nn.Layer):
    def __init__(self):
        super(LinearNet, self).__init__()  # noqa: UP008 - as the tutorial has it
        self._linear = nn.Linear(IMAGE_SIZE, CLASS_NUM)

    def forward(self, x):
        return self._linear(x)


class Trained(nn.Layer):
    """Different in training and in inference."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm, self.drop = nn.Linear(4, 3), nn.BatchNorm1D(3), nn.Dropout(0.5)

    def forward(self, x, scale=2.0):
        return self.drop(self.norm(self.linear(x))) * scale


class Nested(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x, more, flag=True):
        h = self.linear(x) + more["a"]
        return {"z": h, "b": [more["c"][1] * 2 if flag else h, None, 3]}


class Plain(nn.Layer):
    """What Paddle 3.3 saves wrongly: an input plus a number, an input as it is, and the same again."""

    def forward(self, x):
        return x + 1.0, x, x


X = [InputSpec([None, 4], "float32", "x")]


def shapes(values: Any) -> dict[str, list[Any]]:
    return {v.name: [d if isinstance(d, int) else d.value for d in v.shape] for v in values if not v.is_initializer()}


def inputs(result: tonnx.ExportResult) -> dict[str, list[Any]]:
    assert result.verification is not None and result.verification.ok and result.verification.compared
    return shapes(result.model.graph.inputs)


def test_the_tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    layer = LinearNet()
    save_path = "onnx.save/linear_net"
    input = InputSpec([None, 784], "float32", "x")
    result = tonnx.paddle.export(layer, save_path, input_spec=[input])

    onnx_model = onnx.load(save_path + ".onnx")
    onnx.checker.check_model(onnx_model)
    assert onnx_model.opset_import[0].version == 9
    assert [node.op_type for node in onnx_model.graph.node] == ["Gemm"]
    assert inputs(result) == {"x": ["batch", 784]}
    assert {trial.sizes["batch"] for trial in result.verification.trials} == {1, 2, 3}
    x = np.random.rand(5, 784).astype(np.float32)
    got = tonnx.load(save_path + ".onnx")(x)
    got = next(iter(got.values())) if isinstance(got, dict) else got
    assert np.abs(np.asarray(got) - layer(paddle.to_tensor(x)).numpy()).max() < 1e-5


def test_the_same_with_every_argument_of_tonnx() -> None:
    spec = [InputSpec([None, 784], "float32", "x")]
    result = tonnx.export(
        LinearNet(), input_spec=spec, input_names=["image"], output_names=["scores"], opset_version=13
    )
    assert inputs(result) == {"image": ["batch", 784]}
    assert shapes(result.model.graph.outputs) == {"scores": ["batch", 10]}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"input_spec": X}, {"x": ["batch", 4]}),
        ({"input_spec": [InputSpec([None, 4])]}, {"x": ["batch", 4]}),
        ({"input_spec": [InputSpec([-1, 4], "float32", "image")]}, {"image": ["batch", 4]}),
        ({"input_spec": [paddle.ones([2, 4])]}, {"x": [2, 4]}),
        ({"input_spec": [*X, 3.0]}, {"x": ["batch", 4]}),
        ({"args": X}, {"x": ["batch", 4]}),
        ({"args": paddle.ones([2, 4])}, {"x": [2, 4]}),
        ({"args": (np.ones((2, 4), np.float32), 0.5)}, {"x": [2, 4]}),
        ({"kwargs": {"x": paddle.ones([2, 4])}}, {"x": [2, 4]}),
        ({"args": paddle.ones([5, 4]), "input_spec": X}, {"x": ["batch", 4]}),
        ({"args": paddle.ones([2, 4]), "dynamic_axes": {"x": {0: "n"}}}, {"x": ["n", 4]}),
        ({"args": paddle.ones([2, 4]), "dynamic_axes": {"x": [0]}}, {"x": ["x_dim_0", 4]}),
        ({"input_spec": X, "dynamic_axes": {"x": {0: "n"}, "y": {0: "n"}}, "output_names": ["y"]}, {"x": ["n", 4]}),
        ({"input_spec": X, "input_shapes": {"x": [3, 4]}}, {"x": [3, 4]}),
        ({"args": paddle.ones([2, 4]), "input_shapes": {"x": ["n", -1]}}, {"x": ["n", 4]}),
        ({"input_spec": X, "input_names": ["in"], "input_shapes": {"in": ["n", 4]}}, {"in": ["n", 4]}),
    ],
)
def test_inputs(options: dict[str, Any], expected: dict[str, list[Any]]) -> None:
    assert inputs(tonnx.export(Trained(), **options)) == expected


def test_nested_inputs_and_outputs_and_what_nothing_reads() -> None:
    x, a = paddle.rand([2, 4]), paddle.rand([2, 3])
    more = {"c": [paddle.rand([5]), paddle.rand([2, 3])], "a": a}
    axes = {name: {0: "n"} for name in ("x", "a", "c_1")}
    result = tonnx.export(Nested(), (x, more), dynamic_axes=axes)
    assert inputs(result) == {"x": ["n", 4], "a": ["n", 3], "c_0": [5], "c_1": ["n", 3]}
    assert len(result.model.graph.outputs) == 2


def test_outputs_that_paddle_saves_wrongly() -> None:
    result = tonnx.export(Plain(), input_spec=X)
    assert inputs(result) == {"x": ["batch", 4]} and len(result.model.graph.outputs) == 3


def test_the_layer_is_left_as_it_was() -> None:
    layer = Trained()
    layer.norm.eval()
    before = {name: value.numpy().copy() for name, value in layer.state_dict().items()}
    members = dict(vars(layer))
    tonnx.export(layer, input_spec=X)
    assert (layer.training, layer.drop.training, layer.norm.training) == (True, True, False)
    assert vars(layer) == members
    for name, value in layer.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), before[name])
    with pytest.raises(CaptureError):
        tonnx.export(layer, paddle.ones([2, 5]))
    assert (layer.training, layer.drop.training, layer.norm.training) == (True, True, False)
    assert not layer._forward_post_hooks


# What to_static and jit.load give


class Decorated(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    @paddle.jit.to_static(input_spec=[InputSpec([None, 4])], full_graph=True)
    def forward(self, x):
        return self.linear(x) if paddle.mean(x) > 0 else x[:, :3]

    @paddle.jit.to_static(input_spec=[InputSpec([None, 4])], full_graph=True)
    def other(self, x):
        return x


class Failing(nn.Layer):  # type: ignore[misc]
    """Uses its parameters, and fails after that."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        raise ValueError(str(self.linear(x).shape))


def test_a_failed_capture_leaves_nothing_in_paddle() -> None:
    recorder = parameter_recorder._global_parameter_recorder
    before = recorder.params_dict, dict(recorder.params_dict)
    with pytest.raises(tonnx.CaptureError):
        tonnx.export(Failing(), input_spec=X)
    assert recorder.params_dict is before[0] and recorder.params_dict == before[1]


def test_static_layers(tmp_path: Path) -> None:
    layer = Decorated()
    assert inputs(tonnx.export(layer)) == {"x": ["batch", 4]}
    assert inputs(tonnx.export(layer, paddle.ones([2, 4]))) == {"x": [2, 4]}
    wrapped = paddle.jit.to_static(Trained())
    wrapped.eval()
    wrapped(paddle.ones([2, 4]))
    assert inputs(tonnx.export(wrapped)) == {"x": [2, 4]}  # as it was called
    assert inputs(tonnx.export(wrapped, input_spec=X)) == {"x": ["batch", 4]}
    assert wrapped(paddle.ones([3, 4])).shape == [3, 3]
    paddle.jit.save(Trained(), str(tmp_path / "model"), input_spec=X)
    assert inputs(tonnx.export(paddle.jit.load(str(tmp_path / "model")))) == {"x": ["batch", 4]}


def test_functions() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    net.train()

    def inside(x, y):
        return net(x) * y

    @paddle.jit.to_static
    def alone(x, y):
        return paddle.tanh(x) + y

    args = (paddle.ones([2, 4]), paddle.ones([4]))
    assert inputs(tonnx.export(inside, args)) == {"x": [2, 4], "y": [4]}
    assert net.training
    assert inputs(tonnx.export(alone, args)) == {"x": [2, 4], "y": [4]}


def test_parts_of_the_output() -> None:
    class Two(nn.Layer):
        def forward(self, x):
            return x * 2, paddle.exp(x)

    result = tonnx.export(Two(), input_spec=X, output_spec=[1])
    assert inputs(result) and [node.op_type for node in result.model.graph] == ["Exp"]


# What is refused


class Fails(nn.Layer):
    def forward(self, x):
        y = x * 2
        return paddle.add(y, paddle.ones([7, 7]))


@pytest.mark.parametrize(
    ("model", "options", "kind", "texts"),
    [
        (Fails(), {"input_spec": X}, CaptureError, ["return paddle.add(y, paddle.ones([7, 7]))", "test_layers.py:"]),
        (Trained(), {}, InvalidArgument, ["missing a required argument: 'x'", "input_spec=[InputSpec("]),
        (Trained, {}, InvalidArgument, ["Trained is a class"]),
        (Trained(), {"input_spec": [[None, 4]]}, InvalidArgument, ["plain shape [None, 4]", "InputSpec([None, 4]"]),
        (Trained(), {"args": paddle.ones([2, 5])}, CaptureError, ["test_layers.py:", "dimension"]),
        (Trained(), {"input_spec": X, "dynamic_axes": {"q": [0]}}, InvalidArgument, ["names 'q'", "inputs: x"]),
        (Trained(), {"input_spec": X, "dynamic_axes": {"x": [7]}}, InvalidArgument, ["no axis 7"]),
        (Trained(), {"input_spec": X, "input_shapes": {"q": [1]}}, InvalidArgument, ["no input 'q'"]),
        (Trained(), {"input_spec": X, "dynamic_shapes": {"x": {}, "y": {0: "n"}}}, InvalidArgument, ["dynamic_shapes"]),
        (Trained(), {"input_spec": X, "params": "x"}, InvalidArgument, ["takes no params"]),
        (Trained(), {"args": [paddle.ones([2, 4])] * 2, "input_spec": X}, InvalidArgument, ["2 are given"]),
    ],
)  # fmt: skip
def test_what_is_refused(model: Any, options: dict[str, Any], kind: type, texts: list[str]) -> None:
    with pytest.raises(kind) as error:
        tonnx.export(model, **options)
    for text in texts:
        assert text in str(error.value)


def test_a_wrong_file_is_not_written(tmp_path: Path) -> None:
    """Python that Paddle runs once, while it captures: the file would hold the first random number for good."""

    class Frozen(nn.Layer):
        count = 0

        def forward(self, x):
            Frozen.count += 1
            return x * float(Frozen.count)

    with pytest.raises(tonnx.VerificationFailed, match="differs from the model's"):
        tonnx.export(Frozen(), f=tmp_path / "a.onnx", input_spec=X)
    assert not (tmp_path / "a.onnx").exists()


# The drop-in


def test_the_drop_in_makes_and_removes_its_folder(tmp_path: Path) -> None:
    with pytest.raises(CaptureError):
        tonnx.paddle.export(Fails(), tmp_path / "new" / "deep" / "net", X)
    assert not (tmp_path / "new").exists()
    with pytest.raises(InvalidArgument, match="name of a file"):
        tonnx.paddle.export(LinearNet(), f"{tmp_path}/", X)
    with pytest.raises(InvalidArgument, match="nothing to export"):
        tonnx.paddle.export(LinearNet(), tmp_path / "net", X, skip_forward=True)
    options = {"enable_onnx_checker": False, "enable_dist_prim_all": True, "opset_version": 11}
    result = tonnx.paddle.export(Trained(), tmp_path / "new" / "net", X, **options)
    assert (tmp_path / "new" / "net.onnx").exists() and result.opset == 11 and result.verification is None
    assert any("enable_dist_prim_all" in note for note in result.notes)


def test_the_drop_in_takes_a_higher_opset_where_it_must(tmp_path: Path) -> None:
    class Where(nn.Layer):
        def forward(self, x):
            return paddle.nonzero(x)

    result = tonnx.paddle.export(Where(), tmp_path / "net", X, opset_version=8)
    assert result.opset == 9 and "raised from 8 to 9" in str(result)
    with pytest.raises(tonnx.RetargetError, match="works from opset 9"):
        tonnx.paddle.export(Where(), tmp_path / "net", X, opset_version=8, enable_auto_update_opset=False)


# Whole networks; the rest is in `make test-paddle`


@pytest.mark.parametrize(("name", "opset"), [("segmentation", 11), ("detection", 11), ("recogniser", 13)])
def test_small_networks(name: str, opset: int) -> None:
    row = models.measure(name, "layer", [opset])
    assert not row.failed and row.nodes and row.trials


def test_a_network_of_paddle_vision() -> None:
    net = paddle.vision.models.mobilenet_v3_small(num_classes=10)
    for opset in (7, 17):
        result = tonnx.export(net, input_spec=[InputSpec([None, 3, 64, 64])], opset_version=opset)
        assert inputs(result) == {"x": ["batch", 3, 64, 64]} and result.opset == opset
        assert all(c.close for trial in result.verification.trials for c in trial.comparisons)
        assert "BatchNormalization" not in {node.op_type for node in result.model.graph}


def test_a_saved_model_is_compared_with_the_predictor(tmp_path: Path) -> None:
    paddle.jit.save(Trained(), str(tmp_path / "model"), input_spec=X)
    result = tonnx.export(tmp_path, opset_version=9)
    # It was saved in training mode, as Paddle's users do by mistake: dropout is off in the predictor all the same.
    assert result.verification is not None and result.verification.compared and result.verification.ok


@pytest.mark.paddle_models
@pytest.mark.parametrize("kind", models.KINDS)
@pytest.mark.parametrize("name", nets.VISION)
def test_paddle_vision(name: str, kind: str) -> None:
    assert not models.measure(name, kind).failed


def test_a_layer_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "paddle_nets.py").write_text(
        "import paddle\n"
        "class Net(paddle.nn.Layer):\n"
        "    def forward(self, x, scale=None):\n"
        "        return paddle.exp(x) if scale is None else x * scale\n"
        "def make():\n"
        "    return Net(), (paddle.ones([1, 3]), paddle.ones([3]))\n"
    )
    np.savez(tmp_path / "data.npz", x=np.ones((2, 3), np.float32))
    target, out = f"{tmp_path / 'paddle_nets.py'}:", str(tmp_path / "a.onnx")
    for flags, expected in (
        (["Net", "--input", "x:float32[n,3]"], {"x": ["n", 3]}),
        (["make", "--dynamic", "x:0=n"], {"x": ["n", 3], "scale": [3]}),
        (["Net", "--inputs", str(tmp_path / "data.npz")], {"x": [2, 3]}),
    ):
        assert main(["export", target + flags[0], *flags[1:], "-o", out, "--json"]) == 0
        data = json.loads(capsys.readouterr().out)
        assert {value["name"]: value["shape"] for value in data["inputs"]} == expected
        assert data["verification"]["compared"]
    assert main(["export", target + "Net", "-o", out]) == 1
    assert "missing a required argument: 'x'" in capsys.readouterr().err


# Imports


def test_torch_is_not_imported() -> None:
    code = """
import sys, tonnx, tonnx.paddle
assert not {"torch", "paddle", "onnx", "numpy"} & set(sys.modules), "import tonnx.paddle"
import paddle
from paddle.static import InputSpec
result = tonnx.export(paddle.nn.Linear(3, 4), input_spec=[InputSpec([None, 3])])
assert result.verification.compared and "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


class OldFloat32:
    name = "FP32"

    def __str__(self) -> str:
        return "paddle.float32"


@pytest.mark.parametrize("dtype", ["float32", paddle.float32, OldFloat32()])
def test_dtypes_of_both_program_forms(dtype: Any) -> None:
    """Where FLAGS_enable_pir_api is off, a dtype has another name."""
    assert signature._dtype(dtype) == "float32"
