"""Saved Paddle models to ONNX. The programs and what Paddle made of them lie in fixtures; no Paddle is needed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import tonnx
from tests.frontends.paddle import encode as e
from tests.frontends.paddle.archive import FIXTURES, cases, check, unpacked
from tonnx.cli import main
from tonnx.errors import InvalidArgument, RetargetError, UnsupportedArgument, UnsupportedOp


@pytest.fixture(autouse=True)
def without_paddle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Comparisons with Paddle itself are tested elsewhere: starting it takes seconds."""
    monkeypatch.setattr("tonnx.frontends.paddle.convert.predictor", lambda *_: None)


@pytest.mark.parametrize("name", cases("pir", ("operators",)))
@pytest.mark.parametrize("opset", [11, 18])
def test_pir(name: str, opset: int, tmp_path: Path) -> None:
    check("pir", name, opset, tmp_path)


@pytest.mark.parametrize("name", cases("old", ("operators",)))
def test_old(name: str, tmp_path: Path) -> None:
    check("old", name, 13, tmp_path)


@pytest.mark.parametrize("opset", [7, 8, 9, 10, 12, 13, 14, 15, 16, 17, 20, 23, 26])
@pytest.mark.parametrize("kind", ["pir", "old"])
def test_every_opset(kind: str, opset: int, tmp_path: Path) -> None:
    check(kind, "lenet", opset, tmp_path)


# How a model is given, and what is said of it


def test_result_says_that_it_was_not_compared(tmp_path: Path) -> None:
    result = tonnx.export(unpacked("pir", "lenet", tmp_path), f=tmp_path / "a.onnx", opset_version=11)
    assert result.verification is not None and result.verification.ok and not result.verification.compared
    assert {trial.sizes["batch"] for trial in result.verification.trials} == {1, 2, 3}
    assert "not compared with Paddle" in str(result)


def test_given_by_folder_prefix_and_weights(tmp_path: Path) -> None:
    for path, params in (
        (FIXTURES / "lenet.json", None),
        (FIXTURES / "lenet", None),
        (FIXTURES / "old" / "separate", None),
        (FIXTURES / "old" / "lenet.pdmodel", FIXTURES / "old" / "lenet.pdiparams"),
    ):
        result = tonnx.export(str(path), f=tmp_path / "a.onnx", params=params, opset_version=9)
        assert result.verification is not None and result.verification.ok


def test_names_and_shapes(tmp_path: Path) -> None:
    path = unpacked("pir", "aavg_dyn", tmp_path)

    def dims(value: ir.Value) -> list[Any]:
        assert value.shape is not None
        return [value.name, *(d if isinstance(d, int) else d.value for d in value.shape)]

    def shape(**options: Any) -> tuple[list[Any], list[Any]]:
        graph = tonnx.export(path, opset_version=13, **options).model.graph
        return dims(graph.inputs[0]), dims(graph.outputs[0])

    assert shape() == (["in0", "batch", 4, "DIM_0", "DIM_1"], ["fetch_name_0", "batch", 4, 4, 3])
    named = shape(input_shapes={"in0": ["n", -1, None, "w"]}, input_names=["image"], output_names=["y"])
    assert named == (["image", "n", 4, "DIM_0", "w"], ["y", "n", 4, 4, 3])
    # A dimension that the program has fixed: its own shapes are no longer believed.
    assert shape(input_shapes={"in0": [2, "c", 8, 9]})[0] == ["in0", 2, "c", 8, 9]
    assert shape(input_shapes={"in0": [2, 5, 8, 9]})[1] == ["fetch_name_0", 2, 5, 4, 3]


def test_arrays_of_different_sizes_are_not_one_batch(tmp_path: Path) -> None:
    path = unpacked("pir", "meshgrid", tmp_path)
    arrays = {"in0": np.ones(3, np.float32), "in1": np.ones(4, np.float32)}
    result = tonnx.export(path, arrays, opset_version=13)
    assert [str(v.shape) for v in result.model.graph.inputs] == ["[batch]", "[batch_of_in1]"]


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"input_shapes": {"y": [1]}}, "no input 'y'"),
        ({"input_shapes": {"in0": [1, 2]}}, "4 dimensions, not 2"),
        ({"input_shapes": {"in0": [1, 2, 3, 4.5]}}, "not a size or a name"),
        ({"input_names": ["a", "b"]}, "2 names, but the model has 1 inputs"),
        ({"output_names": ["in0"]}, "given to two"),
        ({"args": "out.onnx"}, "numpy arrays, not str"),
        ({"args": {"z": np.ones(1)}}, "no input 'z'"),
        ({"args": [np.ones((2, 3))]}, "has the shape [2, 3]"),
        ({"dynamic_axes": {"in1": [0]}}, "names 'in1', which is neither"),
        ({"dynamic_axes": {"in0": [4]}}, "no axis 4"),
        ({"dynamic_shapes": {"in0": {0: "n"}}}, "takes no dynamic_shapes"),
        ({"input_spec": [1]}, "takes no input_spec"),
        ({"kwargs": {"x": 1}}, "takes no kwargs"),
    ],
)
def test_wrong_arguments(options: dict[str, Any], what: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument) as error:
        tonnx.export(unpacked("pir", "lenet", tmp_path), **options)
    assert what in str(error.value)


def test_a_torch_model_takes_no_paddle_arguments() -> None:
    with pytest.raises(InvalidArgument, match="takes no params"):
        tonnx.export(lambda x: x, params="x.pdiparams")


# What cannot be exported


def _program(folder: Path, *ops: Any) -> Path:
    file = folder / "made.json"
    file.write_text(json.dumps(e.pir([e.pir_data(1, "x"), *ops])))
    return file


def test_all_unsupported_operators_at_once(tmp_path: Path) -> None:
    names = ["1.nothing", "3.custom", "1.nothing"]
    ops = [e.pir_op(name, [i + 1], [i + 2]) for i, name in enumerate(names)]
    with pytest.raises(UnsupportedOp) as error:
        tonnx.export(_program(tmp_path, *ops, e.pir_fetch(4, "y")))
    assert [o.operator for o in error.value.occurrences] == ["pd_op.nothing", "custom_op.custom", "pd_op.nothing"]


def test_operators_that_nothing_needs_are_left_out(tmp_path: Path) -> None:
    ops = [e.pir_op("1.nothing", [1], [2]), e.pir_op("1.relu", [1], [3]), e.pir_fetch(3, "y")]
    assert tonnx.export(_program(tmp_path, *ops)).nodes == 1


def test_an_attribute_that_the_rule_does_not_know_is_refused(tmp_path: Path) -> None:
    new = {"N": "beta", "AT": {"#": "0.a_f32", "D": 0.5}}
    with pytest.raises(UnsupportedArgument, match=r"beta=0\.5"):
        tonnx.export(_program(tmp_path, e.pir_op("1.relu", [1], [2], new), e.pir_fetch(2, "y")))


def test_an_opset_too_low_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RetargetError, match="works from opset 9"):
        tonnx.export(unpacked("pir", "nonzero", tmp_path), opset_version=7)


# Without frameworks


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unpacked("old", "lenet", tmp_path)
    out = tmp_path / "out.onnx"
    options = ["--opset", "11", "--input-shapes", "in0:n,4,7,6", "--json"]
    assert main(["export", str(tmp_path), "-o", str(out), *options]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["opset"] == 11 and data["inputs"][0]["shape"] == ["n", 4, 7, 6]
    assert data["verification"]["compared"] is False
    assert main(["export", str(tmp_path / "nobody.json"), "-o", str(out)]) == 1


@pytest.mark.parametrize("kind", ["pir", "old"])
def test_neither_torch_nor_paddle_is_imported(kind: str, tmp_path: Path) -> None:
    path = unpacked(kind, "lenet", tmp_path)
    code = f"""
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "paddle"):
            raise ImportError(name)
sys.meta_path.insert(0, Refuse())
import importlib.util
importlib.util.find_spec = lambda name: None
import tonnx
result = tonnx.export({str(path)!r}, f={str(tmp_path / "a.onnx")!r}, opset_version=11)
assert result.verification.ok
assert not {{"torch", "paddle"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
