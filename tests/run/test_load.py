"""`tonnx.load`: a file as a function on what people have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from PIL import Image

import tonnx

# tonnx.load


def test_a_loaded_model_takes_what_people_have(folder: Path) -> None:
    model = tonnx.load(folder / "mean.onnx", recipe=folder / "mean.yaml")
    x = torch.rand(3, 3, 16, 16)
    expected = x.mean((2, 3)).numpy()
    for given in (x, x.numpy(), x.tolist(), x.clone().requires_grad_()):
        np.testing.assert_allclose(model(given)["y"], expected, rtol=1e-5)
    np.testing.assert_allclose(model(x=x)["y"], expected, rtol=1e-5)
    np.testing.assert_allclose(model({"x": x})["y"], expected, rtol=1e-5)
    red = model(folder / "red.png")["y"]
    np.testing.assert_allclose(red, np.array([[200, 10, 20]]) / 255, rtol=1e-5)
    np.testing.assert_array_equal(model(Image.open(folder / "red.png"))["y"], red)
    assert model.predict(folder / "green.png").data["top_k"][0]["label"] == "green"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m(np.zeros((1, 3, 16, 16))), r"x: float32\[batch, 3, 16, 16\] was given as float64"),
        (lambda m: m(np.zeros((1, 3, 16, 8), np.float32)), r"shape \[1, 3, 16, 8\](.|\n)*axis 3 is 16"),
        (lambda m: m(np.zeros((3, 16, 16), np.float32)), r"its rank is 4"),
        (lambda m: m(), "missing: x"),
        (lambda m: m(1, 2), "2 inputs were given, the model has 1"),
        (lambda m: m(y=1), "the model has no input 'y'"),
        (lambda m: m(object()), "cannot be made of object"),
    ],
)
def test_a_loaded_model_checks_its_inputs(call: Callable, message: str, folder: Path) -> None:
    with pytest.raises(tonnx.InvalidArgument, match=message):
        call(tonnx.load(folder / "mean.onnx"))


def test_names_of_dimensions_must_agree(tmp_path: Path) -> None:
    pair = {"a": {0: "n"}, "b": {0: "n"}}
    path = tmp_path / "add.onnx"
    tonnx.export(torch.add, (torch.rand(2), torch.rand(2)), path, input_names=["a", "b"], dynamic_axes=pair)
    with pytest.raises(tonnx.InvalidArgument, match="n is 2 in a, but 3 in b"):
        tonnx.load(path)(np.zeros(2, np.float32), np.zeros(3, np.float32))


@pytest.mark.parametrize(
    ("options", "message"), [({"threads": 0}, "threads"), ({"providers": ["CUDA"]}, "has no CUDA")]
)
def test_load_refuses(options: dict, message: str, folder: Path) -> None:
    with pytest.raises(tonnx.InvalidArgument, match=message):
        tonnx.load(folder / "mean.onnx", **options)


def _relu(path: Path, kind: int, shape: list | None, op: str = "Relu", opset: int = 17) -> Path:
    ends = [onnx.helper.make_tensor_value_info(name, kind, shape) for name in "xy"]
    graph = onnx.helper.make_graph([onnx.helper.make_node(op, ["x"], ["y"])], "g", ends[:1], ends[1:])
    imports = [onnx.helper.make_opsetid("", opset)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=imports, ir_version=8), path)
    return path


def test_an_input_of_unknown_rank_takes_any(tmp_path: Path) -> None:
    model = tonnx.load(_relu(tmp_path / "any.onnx", onnx.TensorProto.FLOAT, None))
    assert model(-np.ones((2, 3), np.float32))["y"].shape == (2, 3)
    scalar = tonnx.load(_relu(tmp_path / "scalar.onnx", onnx.TensorProto.FLOAT, []))
    with pytest.raises(tonnx.InvalidArgument, match="its rank is 0"):
        scalar(np.ones(2, np.float32))


def test_numbers_are_not_changed_to_fit(tmp_path: Path) -> None:
    model = tonnx.load(_relu(tmp_path / "i.onnx", onnx.TensorProto.INT64, ["n"], "Identity"))
    assert model([1, 2.0])["y"].tolist() == [1, 2]
    assert model(np.array([1, 2], ">i8"))["y"].tolist() == [1, 2]
    for wrong in ([1.5, 2], None):
        with pytest.raises(tonnx.InvalidArgument, match="cannot be made of"):
            model(wrong)
    with pytest.raises(tonnx.InvalidArgument, match="takes the path of a file, not bytes"):
        tonnx.load((tmp_path / "i.onnx").read_bytes())


def test_pictures_in_a_list_are_a_batch(folder: Path) -> None:
    model = tonnx.load(folder / "mean.onnx", recipe=folder / "mean.yaml", providers="cpu")
    paths = [folder / "red.png", folder / "green.png"]
    assert model(paths)["y"].argmax(1).tolist() == [0, 1]
    assert model([Image.open(path) for path in paths])["y"].argmax(1).tolist() == [0, 1]
    assert model.predict(np.asarray(Image.open(paths[1]))).data["top_k"][0]["label"] == "green"
    with pytest.raises(tonnx.InvalidArgument, match="a picture is a path"):
        model.predict(3)
