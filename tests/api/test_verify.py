"""`tonnx.verify` and ``tonnx verify``: any ONNX file against any model."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

import tonnx
from tonnx.api.verify import EXPORTED_WELL
from tonnx.cli import main
from tonnx.proof.compare import EDGES, compare
from tonnx.proof.trials.values import other_values
from tonnx.proof.trials.verification import Trial

GOOD = "The difference of results between ONNXRuntime and PyTorch looks good!"
BAD = "The difference of results between ONNXRuntime and PyTorch looks bad!"


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.act = nn.ReLU()
        self.last = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.act(self.first(x)))


def net() -> Net:
    torch.manual_seed(0)
    return Net().eval()


def changed(path: Path, change: Callable[[onnx.ModelProto], None]) -> Path:
    model = onnx.load(path)
    change(model)
    onnx.save(model, path)
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "net.onnx"
    tonnx.export(net(), (torch.randn(2, 4),), path, dynamic_axes={"x": {0: "batch"}}, verify=False)
    return path


@pytest.fixture
def wrong(file: Path) -> Path:
    def change(model: onnx.ModelProto) -> None:
        (relu,) = (node for node in model.graph.node if node.op_type == "Relu")
        relu.op_type = "Neg"

    return changed(file, change)


# Figures


@pytest.mark.parametrize(
    ("expected", "actual", "mean", "cosine", "share", "bin", "allclose", "close"),
    [
        ([1, 2], [1, 2], 0.0, 1.0, 0.0, 0, True, True),
        ([1, 2], [1, 2.5], 0.25, 0.9965, 0.5, 10, False, False),
        ([1, 0], [0, 1], 1.0, 0.0, 1.0, 11, False, False),
        ([100, 100], [100, 100.0005], 0.00025, 1.0, 0.0, 7, True, True),  # 5e-4, but 5e-6 of the largest
        ([1, 1], [1, 1.0005], 0.00025, 1.0, 0.0, 7, True, False),
        ([0, 0], [0, 0], 0.0, 1.0, 0.0, 0, True, True),
        ([1, np.nan], [1, 2], np.inf, 1.0, 0.5, 12, False, False),
    ],
)
def test_figures(
    expected: Any, actual: Any, mean: float, cosine: float, share: float, bin: int, allclose: bool, close: bool
) -> None:
    found = compare("y", np.array(expected, np.float64), np.array(actual, np.float64), lowered="float32")
    assert found.mean_abs == pytest.approx(mean, rel=1e-3)
    assert found.cosine == pytest.approx(cosine, abs=1e-3)
    assert (found.share, found.allclose, found.close) == (share, allclose, close)
    assert len(found.histogram) == len(EDGES) + 2 and sum(found.histogram) == 2 and found.histogram[bin] >= 1


def test_figures_of_integers_and_of_what_cannot_be_measured() -> None:
    found = compare("y", np.array([1, 2, 3]), np.array([1, 2, 5]))
    assert (found.mean_abs, found.share, found.histogram[0]) == (pytest.approx(2 / 3), pytest.approx(1 / 3), 2)
    assert 0.9 < found.cosine < 1
    other = compare("y", np.zeros(3), np.zeros(4))
    assert (other.share, other.close, other.allclose, other.histogram) == (1.0, False, False, ())


def test_other_values_stay_plausible() -> None:
    example = {"x": np.array([[0.5, -1.0, 2.0, 3.5]], np.float32), "ids": np.array([3, 1, 4, 1, 5])}
    tried = dict(other_values(example))
    assert set(tried) >= {"seed 1", "seed 2", "zeros", "negative values", "large values"}
    assert not tried["zeros"]["x"].any() and np.array_equal(tried["zeros"]["ids"], example["ids"])
    assert (tried["positive values"]["x"] > 0).all()
    assert (tried["negative values"]["x"] <= 0).all() and tried["large values"]["x"].max() == 35
    for label, inputs in tried.items():
        assert inputs["x"].dtype == np.float32 and inputs["x"].shape == (1, 4), label
        assert inputs["ids"].min() >= 1 and inputs["ids"].max() <= 5, label
    assert not np.array_equal(tried["seed 1"]["x"], tried["seed 2"]["x"])


# Against whatever


def against_program() -> Any:
    return torch.export.export(net(), (torch.randn(2, 4),), dynamic_shapes=({0: torch.export.Dim("n")},))


AGAINST = {
    "module": net,
    "program": against_program,
    "script": lambda: torch.jit.script(net()),
    "trace": lambda: torch.jit.trace(net(), torch.randn(2, 4)),
    "function on tensors": lambda: lambda x: net()(x),
    "function on arrays": lambda: lambda x: net()(torch.from_numpy(x)).detach().numpy(),
}


@pytest.mark.parametrize("kind", AGAINST)
def test_against(kind: str, file: Path) -> None:
    x = torch.randn(2, 4)
    args: Any = {"x": x.numpy()} if kind == "function on arrays" else (x,)
    result = tonnx.verify(file, AGAINST[kind](), args)
    assert result.ok and result.allclose and result.close and result.located is None
    labels = [trial.label for trial in result.verification.trials if not trial.skipped]
    assert labels[0] == "example" and "zeros" in labels and "batch=3" in labels
    assert EXPORTED_WELL in str(result)


@pytest.mark.parametrize("kind", AGAINST)
def test_against_finds_a_fault(kind: str, wrong: Path) -> None:
    x = torch.randn(2, 4)
    args: Any = {"x": x.numpy()} if kind == "function on arrays" else (x,)
    result = tonnx.verify(wrong, AGAINST[kind](), args)
    assert not result.ok and not result.allclose and not result.close
    with pytest.raises(tonnx.VerificationFailed, match="output 'output' of the file differs"):
        result.raise_if_failed()
    if kind == "function on arrays":
        assert result.located is None and "plain function" in result.notes[0]
    else:
        assert [node.op_type for node in result.located.nodes] == ["Neg"]
        assert "relu" in result.located.operator


def test_inputs_are_drawn_from_the_file(file: Path) -> None:
    result = tonnx.verify(file, net())
    assert result.ok and result.verification.trials[0].shapes == {"x": (2, 4)}


def test_against_another_file(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.onnx"
    tonnx.retarget(file, 11, other, verify=False)
    assert tonnx.verify(other, str(file)).ok
    changed(other, lambda model: setattr(model.graph.node[1], "op_type", "Neg"))
    result = tonnx.verify(other, file)
    assert not result.ok and result.framework == "ONNX"
    assert [node.op_type for node in result.located.nodes] == ["Neg"] and "Relu" in result.located.operator


def test_with_strict_both_verdicts_count() -> None:
    found = compare("y", np.ones(2), np.array([1, 1.0005]), lowered="float32")
    verification = tonnx.api.verify.Verification((Trial("example", {}, {}, (found,)),))
    loose = tonnx.api.verify.VerifyResult(Path("x.onnx"), "Paddle", verification)
    assert loose.ok and loose.verdicts()[0] == EXPORTED_WELL
    assert loose.verdicts()[1] == "The difference of results between ONNXRuntime and Paddle looks bad!"
    assert loose.verdicts()[2:] == ["relative_diff:  0.0005", "max_abs_diff:  0.0005"]
    strict = tonnx.api.verify.VerifyResult(Path("x.onnx"), "Paddle", verification, strict=True)
    assert not strict.ok
    with pytest.raises(tonnx.VerificationFailed, match="not within the strict ones"):
        strict.raise_if_failed()


class Several(nn.Module):
    """Two inputs, one of them not used, and outputs by name."""

    def forward(self, a: torch.Tensor, unused: torch.Tensor, b: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"sum": a + b, "difference": a - b}


def several_file(path: Path, outputs: list[str], inputs: list[str]) -> Path:
    nodes = [helper.make_node("Add", ["a", "b"], ["sum"]), helper.make_node("Sub", ["a", "b"], ["difference"])]
    infos = {n: helper.make_tensor_value_info(n, TensorProto.FLOAT, [None, 2]) for n in (*inputs, *outputs)}
    graph = helper.make_graph(nodes, "g", [infos[n] for n in inputs], [infos[n] for n in outputs])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=7), path)
    return path


def test_inputs_and_outputs_are_matched_by_name(tmp_path: Path) -> None:
    path = several_file(tmp_path / "s.onnx", ["difference", "sum"], ["b", "a"])
    x = [torch.randn(3, 2) for _ in range(3)]
    result = tonnx.verify(path, Several(), tuple(x))
    assert result.ok and [c.name for c in result.example] == ["difference", "sum"]
    tried = [trial.sizes for trial in result.verification.trials if not trial.skipped]
    assert any(sizes["a_0"] == sizes["b_0"] != 3 for sizes in tried)


def test_wrong_inputs_are_refused_with_both_lists(tmp_path: Path, file: Path) -> None:
    path = several_file(tmp_path / "s.onnx", ["sum"], ["a", "b"])
    with pytest.raises(tonnx.InvalidArgument, match="the file has 2 inputs, the model takes 1 input") as caught:
        tonnx.verify(path, net(), (torch.randn(2, 4),))
    assert "the file's: a, b; the model's: x" in str(caught.value)
    with pytest.raises(tonnx.InvalidArgument, match="the file has no input 'y'"):
        tonnx.verify(file, net(), {"y": np.zeros((2, 4), np.float32)})
    with pytest.raises(tonnx.InvalidArgument, match="does not fit the file") as caught:
        tonnx.verify(file, net(), {"x": np.zeros((2, 4))})
    assert "x: float[batch, 4], and the value float64[2, 4]" in str(caught.value)
    with pytest.raises(tonnx.InvalidArgument, match="cannot verify against a int"):
        tonnx.verify(file, 3)


def test_another_number_of_outputs_is_refused(tmp_path: Path) -> None:
    path = several_file(tmp_path / "s.onnx", ["sum"], ["a", "b"])
    with pytest.raises(tonnx.InvalidArgument, match="the file has 1 output, the model gives 2 outputs"):
        tonnx.verify(path, lambda a, b: (a + b, a - b, a)[:2], (torch.randn(2, 2), torch.randn(2, 2)))


# Files of other exporters and of all ages


def by_torch(path: Path, **options: Any) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(net(), (torch.randn(2, 4),), path, verbose=False, **options)
    return path


@pytest.mark.parametrize("options", [{"dynamo": True, "external_data": True}, {"dynamo": False}])
def test_file_of_another_exporter(options: dict[str, Any], tmp_path: Path) -> None:
    path = by_torch(tmp_path / "other.onnx", **options)
    assert tonnx.verify(path, net(), (torch.randn(2, 4),)).ok
    relu = next(i for i, node in enumerate(onnx.load(path).graph.node) if node.op_type == "Relu")
    changed(path, lambda model: setattr(model.graph.node[relu], "op_type", "Neg"))
    result = tonnx.verify(path, net(), (torch.randn(2, 4),))
    assert not result.ok
    assert [node.index for node in result.located.nodes] == [relu]
    assert (result.located.operator, result.located.module) == ("aten.relu.default", "act")
    assert result.located.source.startswith("tests/api/test_verify.py:")


@pytest.mark.parametrize("opset", [7, 12, 21, 26])
def test_every_age_and_no_names(opset: int, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    tonnx.export(net(), (torch.randn(2, 4),), path, opset_version=opset, external_data=True, verify=False)

    def strip(model: onnx.ModelProto) -> None:
        for node in model.graph.node:
            node.ClearField("name")
            node.op_type = "Neg" if node.op_type == "Relu" else node.op_type

    changed(path, strip)
    result = tonnx.verify(path, net(), (torch.randn(2, 4),))
    assert not result.ok
    (node,) = result.located.nodes
    assert (node.op_type, node.name) == ("Neg", "") and f"Neg (node {node.index}, no name)" in str(result.located)
    assert result.located.module == "act"


# The command


@pytest.fixture
def maker(tmp_path: Path) -> str:
    source = Path(__file__).read_text(encoding="utf-8")
    start = source.index("class Net(")
    body = "import torch\nfrom torch import nn\n\n" + source[start : source.index("def changed(")]
    body += "\n\ndef on_arrays(x):\n    return net()(torch.from_numpy(x)).detach().numpy()\n"
    body += "\n\ndef on_tensors(x):\n    return net()(x)\n\n\ndef listed():\n    return [net(), (torch.ones(2, 4),)]\n"
    (tmp_path / "maker.py").write_text(body)
    return str(tmp_path / "maker.py")


def test_command_on_a_good_file(file: Path, maker: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(file), "--against", f"{maker}:net", "--locate", "-v"]) == 0
    printed = capsys.readouterr().out
    assert EXPORTED_WELL in printed and GOOD in printed and "values inside:" in printed
    assert "sizes tried: batch=1,2,3" in printed and "large values" in printed


def test_command_on_a_wrong_file(wrong: Path, maker: str, capsys: pytest.CaptureFixture[str]) -> None:
    x = wrong.with_name("anything.npy")
    np.save(x, np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32))
    assert main(["verify", str(wrong), "--against", f"{maker}:net", "--inputs", str(x), "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert data["ok"] is False and BAD in data["verdicts"]
    assert data["verification"]["trials"][0]["outputs"][0]["shape"] == [5, 3]
    located = data["located"]
    assert [node["op_type"] for node in located["nodes"]] == ["Neg"] and located["operator"] == "aten.relu.default"
    assert located["module"] == "act" and located["confirmed"] is True
    part, arrays = map(Path, located["reproducer"])
    assert (part.name, arrays.name) == ("net.part.onnx", "net.part.npz") and part.is_file() and arrays.is_file()
    assert data["differences"] and {"value", "max_abs", "index"} <= set(data["differences"][0])


@pytest.mark.parametrize("name", ["on_arrays", "on_tensors", "listed"])
def test_command_takes_functions_and_lists(name: str, file: Path, maker: str) -> None:
    assert main(["verify", str(file), "--against", f"{maker}:{name}", "-q"]) == 0


def test_command_takes_what_was_saved_without_names(file: Path, maker: str, capsys: Any) -> None:
    x = torch.randn(5, 4)
    folder = file.parent
    np.savez(folder / "plain.npz", x.numpy())
    torch.save(x, folder / "some.pt")
    torch.save({"x": x}, folder / "named.pt")
    torch.save([x], folder / "listed.pth")
    for name in ("plain.npz", "some.pt", "named.pt", "listed.pth"):
        command = ["verify", str(file), "--against", f"{maker}:net", "--inputs", str(folder / name), "--json"]
        assert main(command) == 0, name
        trials = json.loads(capsys.readouterr().out)["verification"]["trials"]
        assert trials[0]["outputs"][0]["shape"] == [5, 3], name
    torch.save(net(), folder / "module.pt")
    assert main(["verify", str(file), "--against", f"{maker}:net", "--inputs", str(folder / "module.pt")]) == 1
    assert "cannot read" in capsys.readouterr().err


def test_equal_nans_and_infinities_are_allclose() -> None:
    """As for np.testing.assert_allclose."""
    values = np.array([np.nan, np.inf, -np.inf, 1.0], np.float32)
    assert compare("y", values, values).allclose and not compare("y", values, -values).allclose


def test_command_takes_shapes_and_a_seed(file: Path, maker: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["verify", str(file), "--against", f"{maker}:net", "--input-shapes", "x:7,4", "--no-values", "--no-sizes"]
    assert main([*command, "--seed", "3", "--json"]) == 0
    trials = json.loads(capsys.readouterr().out)["verification"]["trials"]
    assert [trial["outputs"][0]["shape"] for trial in trials] == [[7, 3]]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["missing.onnx", "--against", "{maker}:net"], "there is no file"),
        (["half.onnx", "--against", "{maker}:net"], "is not an ONNX model"),
        (["empty.onnx", "--against", "{maker}:net"], "is not an ONNX model"),
        (["net.onnx", "--against", "{maker}:nobody"], "there is no 'nobody'"),
        (["net.onnx", "--against", "other.onnx"], "there is no file"),
        (["net.onnx", "--against", "{maker}:net", "--input", "y:float32[2,4]"], "the file has no input 'y'"),
        (["net.onnx", "--against", "{maker}:net", "--input", "x:int64[2,4]"], "does not fit the file"),
        (["net.onnx", "--against", "{maker}:net", "--input-shapes", "x:2,5"], "does not fit the file"),
        (["net.onnx", "--against", "{maker}:net", "--inputs", "x=nan.npy"], "has 1 NaNs among its 8 elements"),
        (["net.onnx", "--against", "{maker}:net", "--inputs", "maker.py"], "cannot read maker.py"),
        (["net.onnx", "--against", "{maker}:net", "--reproducer", "part.txt"], "ends in .onnx"),
        (["net.onnx", "--against", "{maker}:net", "--reproducer", "no/where.onnx"], "the folder no does not exist"),
    ],
)
def test_bad_input_is_one_clear_line(
    arguments: list[str], said: str, file: Path, maker: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(file.parent)
    Path("half.onnx").write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    Path("empty.onnx").write_bytes(b"")
    array = np.zeros((2, 4), np.float32)
    array[0, 0] = np.nan
    np.save("nan.npy", array)
    before = sorted(path.name for path in Path().iterdir())
    assert main(["verify", *(argument.format(maker=maker) for argument in arguments)]) != 0
    captured = capsys.readouterr()
    assert said in captured.err and "Traceback" not in captured.err and not captured.out
    assert sorted(path.name for path in Path().iterdir() if path.name != "__pycache__") == before


def test_nan_in_the_file_is_a_failure(file: Path) -> None:
    def spoil(model: onnx.ModelProto) -> None:
        weight = next(tensor for tensor in model.graph.initializer if len(tensor.dims) == 2)
        array = numpy_helper.to_array(weight).copy()
        array[0, 0] = np.nan
        weight.CopyFrom(numpy_helper.from_array(array, weight.name))

    changed(file, spoil)
    result = tonnx.verify(file, net(), (torch.randn(2, 4),))
    assert not result.ok and "nan in the file" in str(result) and [n.op_type for n in result.located.nodes] == ["Gemm"]


def test_a_fault_beside_a_file_of_an_old_opset_is_located(tmp_path: Path) -> None:
    """Below 7, ONNX Runtime runs neither the file nor parts of it as they are."""
    paths = []
    for name, opset, op in (("old", 5, "Relu"), ("new", 7, "Abs")):
        ends = [helper.make_tensor_value_info(end, TensorProto.FLOAT, ["n", 4]) for end in ("x", "y")]
        steps = [("Neg", "x", "a"), (op, "a", "b"), ("Sigmoid", "b", "y")]
        nodes = [helper.make_node(kind, [start], [end]) for kind, start, end in steps]
        graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
        paths.append(tmp_path / f"{name}.onnx")
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=3), paths[-1])
    old, new = paths
    for file, against, wrong in ((new, old, "Abs"), (old, new, "Relu")):
        result = tonnx.verify(file, str(against))
        assert not result.ok and result.located is not None
        assert [node.op_type for node in result.located.nodes] == [wrong], result.notes


def test_weights_of_another_model_are_told_as_such(tmp_path: Path) -> None:
    def make() -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 5)).eval()

    model, x, path = make(), torch.rand(1, 3, 4, 4), tmp_path / "net.onnx"
    tonnx.export(model, (x,), path)
    other = tonnx.verify(path, make(), (x,))
    assert "the file holds other weights than this model" in other.foreign and other.located is None
    with pytest.raises(tonnx.VerificationFailed, match="other weights"):
        other.raise_if_failed()
    model[3].weight.data[0] += 1  # type: ignore[operator]
    one_layer = tonnx.verify(path, model, (x,))
    assert not one_layer.ok and not one_layer.foreign and one_layer.located is not None
