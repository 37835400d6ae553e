"""The command: what it accepts, what it prints where, and its exit codes. In this process, but for a few calls."""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from tonnx.cli import main, specs
from tonnx.cli.console import Console, Report
from tonnx.cli.specs import DimSpec, InputSpec

MODELS = '''
import torch
from torch import nn

from helpers_of_this_model import one

print("importing the model")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, x, scale=None):
        from helpers_of_this_model import one  # imports may also come late
        print("running the model")
        y = torch.relu(self.conv(x)) * one()
        return y if scale is None else y * scale


class Sized(Net):
    def __init__(self, size):
        super().__init__()


class Ids(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.randn(2))

    def forward(self, ids, *, mask):
        return ids * mask


class Many(nn.Module):
    def forward(self, a, *more, **named):
        return a + more[0] + named["k"]


net = Net()


def make_model():
    return Net()


def with_example():
    return Net(), torch.randn(1, 3, 8, 8)


def with_everything():
    return Net(), (torch.randn(1, 3, 8, 8),), {"scale": torch.randn(4, 1, 1)}


def fixed():
    class Fixed(nn.Module):
        def forward(self, x):
            return x.reshape(2, 4) + 1

    return Fixed()


def broken():
    raise ValueError("no weights here")


def wrong():
    return 3


def leaves():
    raise SystemExit(4)
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The user's folder: a model file, a helper beside it, a package, arrays and an archive."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "sub").mkdir()
    (folder / "sub" / "nets.py").write_text(MODELS)
    (folder / "sub" / "helpers_of_this_model.py").write_text("def one():\n    return 1\n")
    (folder / "sub" / "syntax.py").write_text("x = 1\ny = (\n")
    (folder / "sub" / "random.py").write_text("import torch\nnet = torch.nn.ReLU()\n")
    (folder / "pack").mkdir()
    (folder / "pack" / "__init__.py").touch()
    (folder / "pack" / "inner.py").write_text("from . import layers\nnet = layers.torch.nn.ReLU()\n")
    (folder / "pack" / "layers.py").write_text("import torch\n")
    np.savez(folder / "data.npz", x=np.random.rand(2, 3, 8, 8).astype(np.float32), scale=np.ones((4, 1, 1), np.float32))
    np.save(folder / "x.npy", np.random.rand(2, 3, 8, 8))
    batch = torch.export.Dim("batch", max=16)
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 1), torch.nn.ReLU())
    program = torch.export.export(module, (torch.randn(2, 3, 4, 4),), dynamic_shapes=({0: batch},))
    torch.export.save(program, folder / "program.pt2")
    (folder / "damaged.pt2").write_bytes(b"nothing")
    return folder


@pytest.fixture
def at(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(folder)
    return folder


X = "x:float32[batch,3,8,8]"


def shapes(path: Path) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    graph = onnx.load(path).graph

    def of(values: Any) -> dict[str, list[Any]]:
        return {v.name: [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in values}

    return of(graph.input), of(graph.output)


# What is accepted: arguments, then the file's inputs

RUNS: list[tuple[str, list[str], dict[str, list[Any]]]] = [
    ("class", ["sub/nets.py:Net", "--input", X], {"x": ["batch", 3, 8, 8]}),
    ("instance", ["sub/nets.py:net", "--input", X], {"x": ["batch", 3, 8, 8]}),
    ("function", ["sub/nets.py:make_model", "--input", X], {"x": ["batch", 3, 8, 8]}),
    ("function with example", ["sub/nets.py:with_example"], {"x": [1, 3, 8, 8]}),
    ("function with args and kwargs", ["sub/nets.py:with_everything"], {"x": [1, 3, 8, 8], "scale": [4, 1, 1]}),
    ("example made dynamic", ["sub/nets.py:with_example", "--dynamic", "x:0=n,2"], {"x": ["n", 3, "x_dim_2", 8]}),
    ("example replaced in part", ["sub/nets.py:with_everything", "--input", "scale:float32[1]"],
     {"x": [1, 3, 8, 8], "scale": [1]}),
    ("two inputs in any order", ["sub/nets.py:Net", "--input", "scale[]", "--input", X],
     {"x": ["batch", 3, 8, 8], "scale": []}),
    ("names of one's own", ["sub/nets.py:Net", "--input", "image:float32[batch,3,8,8]"], {"image": ["batch", 3, 8, 8]}),
    ("names by order", ["sub/nets.py:Net", "--input", X, "--input-names", "image"], {"image": ["batch", 3, 8, 8]}),
    ("shapes as elsewhere", ["sub/nets.py:Net", "--input-shapes", "x:1,3,8,8", "scale:[4,1,1]"],
     {"x": [1, 3, 8, 8], "scale": [4, 1, 1]}),
    ("shape without a name", ["sub/nets.py:Net", "--input-shapes", "1,3,-1,8"], {"x": [1, 3, "x_dim_2", 8]}),
    ("values of a npz", ["sub/nets.py:Net", "--inputs", "data.npz"], {"x": [2, 3, 8, 8], "scale": [4, 1, 1]}),
    ("values and a description", ["sub/nets.py:Net", "--inputs", "x.npy", "--input", "x:float32[n,3,h,w]"],
     {"x": ["n", 3, "h", "w"]}),
    ("values under a name", ["sub/nets.py:Net", "--inputs", "x=x.npy", "--input", "x:float32[2,3,8,8]"],
     {"x": [2, 3, 8, 8]}),
    ("dtypes", ["sub/nets.py:Ids", "--input", "ids:int64[batch,seq=5]", "--input", "mask:int64[batch,seq]"],
     {"ids": ["batch", "seq"], "mask": ["batch", "seq"]}),
    ("*args and **kwargs", ["sub/nets.py:Many", "--input", "a[n]", "--input", "more_0[n]", "--input", "k[n]"],
     {"a": ["n"], "more_0": ["n"], "k": ["n"]}),
    ("dotted module", ["pack.inner:net", "--input", "input[2,3]"], {"input": [2, 3]}),
    ("file of a package", ["pack/inner.py:net", "--input", "input[2,3]"], {"input": [2, 3]}),
    ("file named like one of Python's", ["sub/random.py:net", "--input", "input[2]"], {"input": [2]}),
    ("archive", ["program.pt2", "--dynamic", "input:0=batch"], {"input": ["batch", 3, 4, 4]}),
    ("archive with other values", ["program.pt2", "--input", "input[n=3,3,4,4]"], {"input": ["n", 3, 4, 4]}),
]  # fmt: skip


@pytest.mark.parametrize("case", RUNS, ids=[case[0] for case in RUNS])
def test_runs(case: Any, at: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, argv, inputs = case
    path = tmp_path / "out.onnx"
    before = list(sys.path)
    code = main(["export", *argv, "-o", str(path)])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    assert shapes(path)[0] == inputs
    assert "[✓]" in captured.out and "the model" not in captured.out
    assert "tonnx: load\n" in captured.err and "tonnx: verify\n" in captured.err
    assert sys.path == before


def test_options_reach_the_export(at: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "out.onnx"
    argv = ["export", "sub/nets.py:Net", "-o", str(path), "--input", X, "--opset", "13", "--output-names", "y"]
    argv += ["--dynamic", "y:0=batch", "--no-verify", "--no-fold", "--no-fuse-conv-bn", "--external-data", "-v"]
    assert main(argv) == 0
    out = capsys.readouterr().out
    assert "opset 13" in out and "not verified" in out and "Conv " in out
    assert onnx.load(path).opset_import[0].version == 13
    assert shapes(path)[1] == {"y": ["batch", 4, 8, 8]}


def test_quiet(at: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "sub/random.py:net", "-o", str(tmp_path / "a.onnx"), "--input", "input[2]", "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")


def test_json(at: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "out.onnx"
    assert main(["export", "sub/nets.py:Net", "-o", str(path), "--input", X, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["ok"] and data["path"] == str(path) and data["opset"] == 18 and data["ir_version"] == 8
    assert data["nodes"] == sum(data["operators"].values()) and data["size"] == path.stat().st_size
    assert data["inputs"] == [{"name": "x", "dtype": "float", "shape": ["batch", 3, 8, 8]}]
    assert {"capture", "lower", "verify"} <= set(data["timings"])
    (output,) = data["verification"]["outputs"]
    assert output["name"] == "output" and output["ok"] and output["max_abs"] < 1e-5
    assert [trial["sizes"]["batch"] for trial in data["verification"]["trials"]][:5] == [2, 3, 1, 2, 2]


def test_json_has_no_infinity(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(json=True)
    report = Report("", lambda: {"noise": [math.inf, 1.0, (math.nan,)], "of": {"x": -math.inf}})
    console._print_report(report)
    assert json.loads(capsys.readouterr().out) == {"ok": True, "noise": [None, 1.0, [None]], "of": {"x": None}}


# What is refused: arguments, exit code, what the message has

REFUSED: list[tuple[str, list[str], int, list[str]]] = [
    ("no output", ["sub/nets.py:Net", "-o"], 2, ["usage: tonnx export", "-o/--output"]),
    ("unknown option", ["sub/nets.py:Net", "--nonsense"], 2, ["--nonsense"]),
    ("bad input", ["sub/nets.py:Net", "--input", "x:float32"], 2, ["'x:float32'", "NAME:DTYPE[DIM,...]"]),
    ("bad dtype", ["sub/nets.py:Net", "--input", "x:float33[1]"], 2, ["'float33'", "bfloat16"]),
    ("bad dimension", ["sub/nets.py:Net", "--input", "x[1.5]"], 2, ["'1.5'", "batch=4"]),
    ("bad axes", ["sub/nets.py:Net", "--dynamic", "0=batch"], 2, ["NAME:0=batch"]),
    ("bad opset", ["sub/nets.py:Net", "--opset", "99"], 2, ["99 is out of range", "1 to 26"]),
    ("opset not a number", ["sub/nets.py:Net", "--opset", "new"], 2, ["--opset", "'new'"]),
    ("two sizes", ["sub/nets.py:Net", "--input", "x[n=2,n=3]"], 2, ["'n' has two example sizes"]),
    ("described twice", ["sub/nets.py:Net", "--input", "x[2]", "--input", "x[2]"], 2, ["'x'", "twice"]),
    ("no such file", ["sub/none.py:Net"], 1, ["there is no file sub/none.py"]),
    ("no such module", ["none.such:net"], 1, ["No module named 'none'"]),
    ("no such name", ["sub/nets.py:Nett"], 1, ["there is no 'Nett'", "make_model"]),
    ("no name", ["sub/nets.py"], 1, ["does not say which model", "make_model"]),
    ("not a model", ["sub/nets.py:wrong"], 1, ["neither a model nor", "int"]),
    ("nonsense", ["sub/nets"], 1, ["'sub/nets' does not name a model", "path/file.py:name"]),
    ("weights", ["weights.pth"], 1, ["weights.pth holds weights"]),
    ("damaged archive", ["damaged.pt2"], 1, ["cannot read damaged.pt2"]),
    ("class that needs arguments", ["sub/nets.py:Sized"], 1, ["missing a required argument: 'size'"]),
    ("error in the file", ["sub/nets.py:broken"], 1,
     ["ValueError: no weights here", f"sub/nets.py:{MODELS.splitlines().index('def broken():') + 2}: raise Value"]),
    ("syntax error", ["sub/syntax.py:net"], 1, ["SyntaxError", "sub/syntax.py:2"]),
    ("file that exits", ["sub/nets.py:leaves"], 1, ["exit code 4", "__main__"]),
    ("no example", ["sub/nets.py:Net"], 1, ["no example for the input 'x' of Net", '--input "x:float32']),
    ("one name of two", ["sub/nets.py:Net", "--input", X, "--input", "y[2]"], 1, ["no input 'y'", "scale"]),
    ("too many inputs", ["sub/random.py:net", "--input", "a[1]", "--input", "b[1]"], 1, ["the model has 1"]),
    ("unreadable values", ["sub/nets.py:Net", "--inputs", "none.npz"], 1, ["cannot read none.npz"]),
    ("values of another shape", ["sub/nets.py:Net", "--inputs", "x.npy", "--input", "x[1,3,8,8]"], 1,
     ["(2, 3, 8, 8)", "--input"]),
    ("no such folder", ["sub/nets.py:Net", "-o", "none/a.onnx", "--input", X], 1, ["none does not exist"]),
    ("no such output", ["sub/nets.py:Net", "--input", X, "--dynamic", "y:0"], 1, ["'y'", "inputs: x"]),
    ("fixed dimension", ["sub/nets.py:fixed", "--input", "x[n,4]", "--capture", "export"], 1,
     ["dimension 0 of the input 'x' (n)", "where: sub/nets.py:", "x.reshape(2, 4)", "do:"]),
    ("fixed dimension of an archive", ["program.pt2", "--dynamic", "input:1=c"], 1, ["fixed in this program"]),
]  # fmt: skip


@pytest.mark.parametrize("case", REFUSED, ids=[case[0] for case in REFUSED])
def test_refused(case: Any, at: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, argv, code, parts = case
    output = [] if "-o" in argv else ["-o", "a.onnx"]
    assert main(["export", *argv, *output]) == code
    captured = capsys.readouterr()
    assert captured.out == "" and "error: " in captured.err and "Traceback" not in captured.err
    for part in parts:
        assert part in captured.err, captured.err
    assert not (at / "a.onnx").exists()


def test_errors_as_json(at: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["export", "sub/nets.py:fixed", "-o", "a.onnx", "--input", "x[n,4]", "--capture", "export", "--json"]
    assert main(argv) == 1
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["type"] == "CaptureError" and "sub/nets.py" in error["where"] and error["hint"]
    assert main(["export", "sub/nets.py:fixed", "--json"]) == 2
    data = json.loads(capsys.readouterr().out)
    assert not data["ok"] and data["error"]["type"] == "Usage"


def test_a_wrong_file_is_a_failure(
    at: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tonnx.lowering import rules

    def wrong(op: Any, x: Any) -> Any:
        return op.Abs(x)

    for name in [name for name in rules.load() if name in ("aten.relu", "aten.relu.default")]:
        monkeypatch.setitem(rules.load()._entries, name, rules.Rule(wrong, ("x",)))
    argv = ["export", "sub/random.py:net", "-o", str(tmp_path / "a.onnx"), "--input", "input[n,3]"]
    assert main(argv) == 1
    assert "error: output 'output' of the file differs" in capsys.readouterr().err
    assert main([*argv, "--json"]) == 1
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["type"] == "VerificationFailed" and not error["verification"]["outputs"][0]["ok"]
    assert error["located"]["operator"] == "aten.relu.default" and error["located"]["nodes"][0]["op_type"] == "Abs"
    assert sorted(os.listdir(tmp_path)) == ["a.failed.onnx", "a.failed.part.npz", "a.failed.part.onnx"]


def test_debug_shows_the_traceback(at: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "sub/nets.py:broken", "-o", "a.onnx", "--debug"]) == 1
    error = capsys.readouterr().err
    assert "Traceback" in error and 'raise ValueError("no weights here")' in error


def test_a_fault_of_ours_is_called_one(at: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr("tonnx.api.export.export", lambda *args, **options: 1 / 0)
    assert main(["export", "sub/random.py:net", "-o", "a.onnx", "--input", "input[2]"]) == 1
    error = capsys.readouterr().err
    assert "ZeroDivisionError" in error and "fault of tonnx" in error and "--debug" in error


def test_progress_on_a_terminal(at: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert main(["export", "sub/random.py:net", "-o", str(tmp_path / "a.onnx"), "--input", "input[2]"]) == 0
    error = capsys.readouterr().err
    assert "✓" in error and "capture" in error and "tonnx: " not in error


# The little languages


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("x:float32[batch,3]", InputSpec("x", "float32", (DimSpec(None, "batch"), DimSpec(3)))),
        (" x : fp16 [ batch = 4 , 3 ] ", InputSpec("x", "float16", (DimSpec(4, "batch"), DimSpec(3)))),
        ("x[2]", InputSpec("x", None, (DimSpec(2),))),
        ("x:[?]", InputSpec("x", None, (DimSpec(None, ""),))),
        ("x:bfloat16[]", InputSpec("x", "bfloat16", ())),
        ("m[b, past + sequence]", InputSpec("m", None, (DimSpec(None, "b"), DimSpec(None, "past + sequence")))),
        ("layer.0/in-put[1]", InputSpec("layer.0/in-put", None, (DimSpec(1),))),
    ],
)
def test_input_spec(text: str, spec: InputSpec) -> None:
    assert specs.input_spec(text) == spec


@pytest.mark.parametrize("dtype", specs.DTYPES)
def test_every_dtype_has_example_values(dtype: str) -> None:
    from tonnx.cli.examples import _value

    spec = InputSpec("x", dtype, (DimSpec(2, "n"), DimSpec(3)))
    value = _value("x", spec, None)
    assert value.dtype == getattr(torch, dtype) and value.shape == (2, 3)


def test_example_sizes() -> None:
    first, second = specs.with_example_sizes([specs.input_spec("x[b,3,h,w=9]"), specs.input_spec("y[n,b,w,?]")])
    assert [dim.size for dim in first.dims] == [2, 3, 64, 9]
    assert [dim.size for dim in second.dims] == [2, 2, 9, 64]


def test_sizes_computed_of_others() -> None:
    texts = ["x[b,s=4]", "past[b,p]", "mask[b, p + s]"]
    assert [dim.size for dim in specs.with_example_sizes([*map(specs.input_spec, texts)])[2].dims] == [2, 12]
    assert specs.dynamic_spec("mask:0=b, 1=past + s") == ("mask", {0: "b", 1: "past + s"})
    with pytest.raises(argparse.ArgumentTypeError, match="not a dimension"):
        specs.input_spec("x[past +]")


# Other processes: clean stdout, exit codes


def test_as_a_process(at: Path, tmp_path: Path) -> None:
    """Prints of the model, also of processes it starts, do not reach stdout; failure is an exit code."""
    (tmp_path / "loud.py").write_text(
        "import subprocess, torch\nprint('python')\nsubprocess.run(['echo', 'process'])\nnet = torch.nn.ReLU()\n"
    )
    command = [sys.executable, "-m", "tonnx", "export", str(tmp_path / "loud.py:net"), "--input", "input[n,2]"]
    command += ["--json", "-o", str(tmp_path / "a.onnx")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ok"]
    assert "python" in done.stderr and "process" in done.stderr
    assert (tmp_path / "a.onnx").exists()


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_a_reader_that_has_read_enough(form: list[str]) -> None:
    """`tonnx … | head` is no fault of anybody."""
    command = [sys.executable, "-m", "tonnx", "check", "--list", *form]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8") as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        told = process.stderr.read()
    assert process.returncode == 0 and "fault" not in told and "Error" not in told
