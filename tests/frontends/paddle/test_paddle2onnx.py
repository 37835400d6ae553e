"""The command ``tonnx paddle2onnx``: the flags of the original, what they mean here, and what is said of bad input."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest

from tests.frontends.paddle.archive import FIXTURES
from tonnx.cli import main

LENET = ["--model_dir", str(FIXTURES), "--model_filename", "lenet.json", "--params_filename", "lenet.pdiparams"]


@pytest.fixture(autouse=True)
def without_paddle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starting Paddle for a comparison takes seconds, and is tested elsewhere."""
    monkeypatch.setattr("tonnx.frontends.paddle.convert.predictor", lambda *_: None)


def converted(path: Path) -> tuple[int, dict[str, list[Any]], dict[str, list[Any]]]:
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)

    def of(values: Any) -> dict[str, list[Any]]:
        return {v.name: [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in values}

    return model.opset_import[0].version, of(model.graph.input), of(model.graph.output)


IMAGE = {"image": ["batch", 1, 8, 8]}
OUT = {"fetch_name_0": ["batch", 5]}

RUNS: list[tuple[str, list[str], Any]] = [
    ("as the tutorial writes it", [*LENET, "--opset_version=10", "--enable_onnx_checker=True"], (10, IMAGE, OUT)),
    ("the original's default opset", LENET, (9, IMAGE, OUT)),
    ("short flags", ["-m", str(FIXTURES), "-mf", "lenet.json", "-pf", "lenet.pdiparams", "-ov", "11"],
     (11, IMAGE, OUT)),
    ("a folder with one program", ["-m", str(FIXTURES / "old" / "separate")], (9, {"x": ["batch", 4]}, None)),
    ("the old format", ["-m", str(FIXTURES / "old"), "-mf", "lenet.pdmodel"], (9, IMAGE, None)),
    ("fixed shapes", [*LENET, "--input_shape_dict", "{'image': [2, 1, 8, 8]}"], (9, {"image": [2, 1, 8, 8]}, None)),
    ("named dimensions", [*LENET, "--input_shape_dict={'image':['n',1,8,8]}", "--output_names", "y"],
     (9, {"image": ["n", 1, 8, 8]}, {"y": ["n", 5]})),
    ("names as a list", [*LENET, "--output_names", "['y']", "--input_names", "in"],
     (9, {"in": ["batch", 1, 8, 8]}, {"y": ["batch", 5]})),
    ("no optimisation", [*LENET, "--optimize_tool", "None"], (9, IMAGE, OUT)),
]  # fmt: skip


@pytest.mark.parametrize(("flags", "expected"), [run[1:] for run in RUNS], ids=[run[0] for run in RUNS])
def test_runs(flags: list[str], expected: Any, tmp_path: Path) -> None:
    file = tmp_path / "made" / "here" / "out.onnx"
    assert main(["paddle2onnx", *flags, "--save_file", str(file)]) == 0
    opset, inputs, outputs = converted(file)
    wanted_opset, wanted_inputs, wanted_outputs = expected
    assert (opset, {name: shape for name, shape in inputs.items() if name in wanted_inputs}) == (
        wanted_opset,
        wanted_inputs,
    )
    assert wanted_outputs is None or outputs == wanted_outputs


def test_no_optimisation_keeps_the_operators(tmp_path: Path) -> None:
    kinds = {}
    for tool in ("polygraphy", "None"):
        assert main(["paddle2onnx", *LENET, "-s", str(tmp_path / "a.onnx"), "--optimize_tool", tool, "-q"]) == 0
        kinds[tool] = {node.op_type for node in onnx.load(tmp_path / "a.onnx").graph.node}
    assert "BatchNormalization" in kinds["None"] and "BatchNormalization" not in kinds["polygraphy"]


@pytest.mark.parametrize(
    ("flag", "line"),
    [
        (["--enable_dist_prim_all", "True"], "enable_dist_prim_all changes nothing"),
        (["--deploy_backend", "tensorrt"], "deploy_backend=tensorrt: the file favours no runtime"),
        (["--save_calibration_file", "c.cache"], "no calibration file is written"),
        (["--external_filename", "w"], "NAME.onnx.data"),
        (["--enable_onnx_checker", "False"], "neither checked nor compared"),
        (["--enable_dev_version", "True"], "enable_dev_version changes nothing"),
    ],
)
def test_flags_that_mean_nothing_get_a_line(
    flag: list[str], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["paddle2onnx", *LENET, "-s", str(tmp_path / "a.onnx"), *flag]) == 0
    assert sum(line in text for text in capsys.readouterr().out.splitlines()) == 1


def test_version_help_and_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for flags, text in (
        (["--version"], "tonnx "),
        (["-v"], "tonnx "),
        ([], "--help"),
        (["--help"], "--params_filename"),
    ):
        assert main(["paddle2onnx", *flags]) == 0
        assert text in capsys.readouterr().out
    assert main(["paddle2onnx", *LENET, "-s", str(tmp_path / "a.onnx"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["opset"] == 9


BAD: list[tuple[str, list[str], int, str]] = [
    ("no folder", ["-s", "OUT"], 2, "--model_dir is needed"),
    ("no file to write", LENET, 2, "--save_file is needed"),
    ("no such folder", ["-m", "nowhere", "-mf", "x.json", "-s", "OUT"], 1, "nowhere does not exist"),
    ("no such program", ["-m", str(FIXTURES), "-mf", "x.json", "-s", "OUT"], 1, "there is no x.json in"),
    ("no such weights", [*LENET[:4], "-pf", "x.pdiparams", "-s", "OUT"], 1, "x.pdiparams do not exist"),
    ("other weights", [*LENET[:4], "-pf", "linear.pdiparams", "-s", "OUT"], 1, "cannot be read"),
    ("an opset out of range", [*LENET, "-s", "OUT", "-ov", "99"], 2, "out of range"),
    ("no boolean", [*LENET, "-s", "OUT", "--enable_onnx_checker", "maybe"], 2, "neither True nor False"),
    ("no dict", [*LENET, "-s", "OUT", "--input_shape_dict", "[1, 2"], 2, "is not a dict"),
    ("no shapes", [*LENET, "-s", "OUT", "--input_shape_dict", "{'x': 1}"], 2, "not a dict of shapes"),
    ("an unknown input", [*LENET, "-s", "OUT", "--input_shape_dict", "{'x': [1]}"], 1, "no input 'x'"),
    ("an unknown flag", [*LENET, "-s", "OUT", "--nonsense"], 2, "--nonsense"),
    ("float16", [*LENET, "-s", "OUT", "--export_fp16_model", "True"], 1, "export_fp16_model is not supported"),
    ("custom operators", [*LENET, "-s", "OUT", "--custom_ops", "{'a': 'b'}"], 1, "custom_ops is not supported"),
]


@pytest.mark.parametrize(("flags", "code", "line"), [bad[1:] for bad in BAD], ids=[bad[0] for bad in BAD])
def test_bad_input(flags: list[str], code: int, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "new" / "out.onnx"
    assert main(["paddle2onnx", *(str(file) if flag == "OUT" else flag for flag in flags)]) == code
    errors = [text for text in capsys.readouterr().err.splitlines() if text.startswith("error: ")]
    assert len(errors) == 1 and line in errors[0]
    assert not file.parent.exists()


def test_a_saved_model_on_the_command_line(tmp_path: Path) -> None:
    """The same names and dimensions with ``tonnx export``."""
    file = tmp_path / "a.onnx"
    flags = ["--dynamic", "image:0=n", "--dynamic", "y:0=n", "--output-names", "y"]
    assert main(["export", str(FIXTURES / "lenet.json"), "-o", str(file), "--opset", "13", *flags]) == 0
    assert converted(file) == (13, {"image": ["n", 1, 8, 8]}, {"y": ["n", 5]})
    assert main(["export", str(FIXTURES / "lenet.json"), "-o", str(file), "--input-shapes", "image:4,1,8,8"]) == 0
    assert converted(file)[1:] == ({"image": [4, 1, 8, 8]}, {"fetch_name_0": [4, 5]})


def test_neither_framework_nor_sympy_is_imported(tmp_path: Path) -> None:
    code = f"""
import sys
from tonnx.cli import main
flags = ["-s", {str(tmp_path / "a.onnx")!r}, "--enable_onnx_checker", "False", "-q"]
assert main(["paddle2onnx", *{LENET!r}, *flags]) == 0
assert not {{"torch", "paddle", "sympy.core", "onnxruntime"}} & set(sys.modules)
import onnx_ir, sympy
assert (onnx_ir.SymbolicDim("n") + 1).value == "n + 1" and sympy.Symbol("x") * 2 == sympy.sympify("2*x")
from sympy.core import Expr
"""
    subprocess.run([sys.executable, "-c", code], check=True)
