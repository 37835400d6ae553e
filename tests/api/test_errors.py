"""What a user reads when something is wrong: what, where, why, and what to do."""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim

import tonnx
from tonnx.errors import (
    Blocker,
    CaptureError,
    InvalidArgument,
    MissingDependency,
    Occurrence,
    RetargetError,
    TonnxError,
    UnsupportedOp,
    VerificationFailed,
)
from tonnx.lowering import rules


class Net(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor | None = None) -> torch.Tensor:
        return torch.relu(x) if y is None else torch.relu(x) + y


class Two(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x + 1, x * 2


def t(*shape: int) -> torch.Tensor:
    return torch.randn(shape)


def _closed() -> io.BytesIO:
    buffer = io.BytesIO()
    buffer.close()
    return buffer


def here(text: str) -> str:
    """``tests/api/test_errors.py:N`` of the line that has the comment ``# text``."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return f"test_errors.py:{next(i for i, line in enumerate(lines, 1) if line.endswith(f'# {text}'))}"


# Wrong arguments. Each message names the offence, and what would be right.

X = {"args": (t(2, 3),)}
XY = {"args": (t(2, 3), t(2, 3))}
WRONG: list[tuple[str, dict[str, Any], list[str]]] = [
    ("opset too low", {"opset_version": 0}, ["opset_version=0", "1 to 26"]),
    ("opset too high", {"opset_version": 99}, ["opset_version=99", "1 to 26"]),
    ("opset as text", {"opset_version": "18"}, ["integer", "'18'"]),
    ("opset as bool", {"opset_version": True}, ["integer", "True"]),
    ("too few args", {"args": ()}, ["missing a required argument: 'x'", "forward(x"]),
    ("too many args", {"args": (t(2), t(2), t(2))}, ["too many positional arguments", "forward(x"]),
    ("unknown keyword", {"kwargs": {"z": t(2)}}, ["unexpected keyword argument 'z'"]),
    ("given twice", {"kwargs": {"x": t(2)}}, ["multiple values for argument 'x'"]),
    ("kwargs not a dict", {"kwargs": [t(2)]}, ["kwargs must be a dict", "list"]),
    ("numpy array", {"args": (np.ones((2, 3)),)}, ["numpy array", "(2, 3)", "torch.from_numpy"]),
    ("too many input names", {"input_names": ["a", "b"]}, ["2 names", "1 tensor inputs", "x"]),
    ("input name twice", {**XY, "input_names": ["a", "a"]}, ["input_names", "'a' twice"]),
    ("input name of another input", {**XY, "input_names": ["y"]}, ["two inputs are called 'y'", "all 2 inputs"]),
    ("input name empty", {"input_names": [""]}, ["input_names", "non-empty"]),
    ("input name not text", {"input_names": [1]}, ["input_names", "non-empty", "1"]),
    ("input names not a list", {"input_names": {"x": 1}}, ["input_names must be a list"]),
    ("too many output names", {"output_names": ["a", "b"]}, ["2 names", "1 outputs"]),
    ("output name twice", {"output_names": ["a", "a"]}, ["output_names", "'a' twice"]),
    ("output name not text", {"output_names": [None]}, ["output_names", "None"]),
    ("name of input and output", {"input_names": ["a"], "output_names": ["a"]}, ["'a'", "an input and to an output"]),
    ("output named like the input", {"output_names": ["x"]}, ["'x'", "an input and to an output"]),
    ("axes of an unknown name", {"dynamic_axes": {"input": [0]}, "output_names": ["out"]},
     ["'input'", "inputs: x", "outputs: out"]),
    ("axes of an unknown name, outputs unnamed", {"dynamic_axes": {"outptu": [0]}},
     ["'outptu'", "inputs: x", "did you mean 'output'?"]),
    ("axis too large", {"dynamic_axes": {"x": [2]}}, ["'x' has no axis 2", "(2, 3)"]),
    ("axis too small", {"dynamic_axes": {"x": {-3: "n"}}}, ["'x' has no axis -3"]),
    ("axis of an output too large", {"dynamic_axes": {"x": [0], "output": [5]}},
     ["'output' has no axis 5", "rank is 2"]),
    ("axis not a number", {"dynamic_axes": {"x": {"0": "n"}}}, ["'0'", "integers"]),
    ("axes not axes", {"dynamic_axes": {"x": 0}}, ["dynamic_axes['x']", "list of axes or a dict", "0"]),
    ("axes not a dict", {"dynamic_axes": [0]}, ["dynamic_axes must be a dict"]),
    ("name of a dimension not text", {"dynamic_axes": {"x": {0: 3}}}, ["dynamic_axes['x'][0]", "a string"]),
    ("shapes of an unknown name", {"dynamic_shapes": {"z": {0: "n"}}}, ["'z'", "not an argument", "x"]),
    ("too many shapes", {"dynamic_shapes": ({0: "n"}, None)}, ["2 entries for 1 arguments"]),
    ("shapes not shapes", {"dynamic_shapes": 3}, ["dynamic_shapes must be", "3"]),
    ("shape of a tensor by name", {"dynamic_shapes": {"x": {"a": "n"}}}, ["'x'", "integers", "'a'"]),
    ("shape of a tensor not axes", {"dynamic_shapes": {"x": "n"}}, ["'x'", "'n'"]),
    ("shapes: no such axis", {"dynamic_shapes": {"x": {3: "n"}}}, ["'x' has no axis 3"]),
    ("shapes: odd dimension", {"dynamic_shapes": {"x": {0: 1.5}}}, ["1.5", "axis 0", "'x'"]),
    ("shapes: fixed to another size", {"dynamic_shapes": {"x": {0: 7}}}, ["axis 0", "7", "2"]),
    ("shapes: example out of range", {"dynamic_shapes": {"x": {0: Dim("n", min=4)}}}, ["size 2", "n: 4"]),
    ("one name, two sizes", {"dynamic_axes": {"x": {0: "n", 1: "n"}}}, ["'n'", "size 2", "3", "different names"]),
    ("f of a wrong type", {"f": 3}, ["f must be a path", "3"]),
    ("f is a folder", {"f": os.curdir}, ["folder", "'.'"]),
    ("f is empty", {"f": ""}, ["path of a file", "''"]),
    ("no such folder", {"f": "no/such/folder/net.onnx"}, ["no/such/folder does not exist", "make the folder first"]),
    ("f is open for text", {"f": io.StringIO()}, ["open for text", "'wb'"]),
    ("f is open for reading", {"f": open(os.devnull, "rb")}, ["open for reading", "'wb'"]),  # noqa: SIM115
    ("f is closed", {"f": _closed()}, ["is closed", "give a path"]),
    ("f ends with a separator", {"f": "net" + os.sep}, ["path of a file", "folder"]),
    ("f is too long", {"f": "n" * 300 + ".onnx"}, ["cannot write", "too long"]),
    ("f with a zero", {"f": "a\0b.onnx"}, ["cannot write", "null"]),
    ("f is no text", {"f": "net\udcff.onnx"}, ["cannot write", "surrogates"]),
    ("external data in an object", {"f": io.BytesIO(), "external_data": True}, ["external data", "give a path"]),
    ("negative tolerance", {"rtol": -1}, ["rtol", "-1"]),
    ("tolerance not a number", {"atol": float("nan")}, ["atol", "nan"]),
    ("a class", {"model": Net}, ["Net is a class", "Net(...)"]),
    ("weights", {"model": Net().state_dict()}, ["cannot export a OrderedDict", "load_state_dict"]),
    ("nonsense", {"model": 3}, ["cannot export a int", "torch.nn.Module"]),
]  # fmt: skip


@pytest.mark.parametrize("case", WRONG, ids=[case[0] for case in WRONG])
def test_wrong_arguments(case: Any) -> None:
    _, options, parts = case
    call = {"model": Net(), **X, **options}
    with pytest.raises(InvalidArgument) as caught:
        tonnx.export(**call)
    message = str(caught.value)
    for part in parts:
        assert part in message, message
    assert "\n" not in caught.value.what and len(message) < 700


def test_wrong_arguments_of_a_program() -> None:
    program = torch.export.export(Net(), (t(2, 3),))
    for options, part in [
        ({"args": (t(2, 3), t(2, 3))}, "do not fit the program"),
        ({"args": (t(4, 3),)}, "of shape [2, 3], not torch.float32 of shape [4, 3]"),
        ({"args": (torch.ones(2, 3, dtype=torch.int64),)}, "not torch.int64"),
        ({"dynamic_axes": {"x": [0]}}, "fixed in this program, to 2"),
        ({"dynamic_shapes": {"x": {0: "n"}}}, "has its dynamic dimensions already"),
    ]:
        with pytest.raises(InvalidArgument) as caught:
            tonnx.export(program, **options)  # type: ignore[arg-type]
        assert part in str(caught.value)


# Captures that fail


def fixed_by_reshape(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x.reshape(2, 3))  # reshape


def fixed_by_constant(x: torch.Tensor) -> torch.Tensor:
    return x + torch.ones(2, 3)  # constant


@pytest.mark.parametrize("function", [fixed_by_reshape, fixed_by_constant])
def test_a_frozen_dimension_is_named_with_the_line_that_froze_it(function: Callable[..., Any]) -> None:
    with pytest.raises(CaptureError) as caught:
        tonnx.export(function, t(2, 3), dynamic_axes={"x": {0: "batch"}}, capture="export")
    error = caught.value
    assert error.what == "dimension 0 of the input 'x' (batch) cannot be dynamic: the model fixes it to 2"
    assert here(function.__name__.removeprefix("fixed_by_")) in (error.where or "")
    assert "leave this dimension out" in (error.hint or "")


def test_every_frozen_dimension_is_named() -> None:
    def model(a: Any, k: torch.Tensor) -> Any:
        return a["x"] + torch.ones(2, 3), k + torch.ones(5)

    with pytest.raises(CaptureError) as caught:
        tonnx.export(model, ({"x": t(2, 3)},), kwargs={"k": t(5)}, dynamic_axes={"a_x": {1: "w"}, "k": {0: "n"}})
    assert "dimension 1 of the input 'a_x' (w)" in caught.value.what
    assert "dimension 0 of the input 'k' (n)" in caught.value.what


def test_control_flow_on_values_shows_the_line_and_no_graph(capfd: pytest.CaptureFixture[str]) -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:  # values
            return x
        return x.int()

    with pytest.raises(CaptureError) as caught:
        tonnx.export(model, t(2), capture="export")
    assert "values of a tensor" in caught.value.what and "torch.cond" in (caught.value.hint or "")
    assert here("values") in (caught.value.where or "")
    assert capfd.readouterr() == ("", "")


def test_an_error_of_the_model_shows_its_line() -> None:
    def model(x: torch.Tensor) -> Any:
        return {"a": x}["b"]  # raises

    with pytest.raises(CaptureError) as caught:
        tonnx.export(model, t(2))
    assert "KeyError: 'b'" in str(caught.value.why) and here("raises") in (caught.value.where or "")


# Operators without a rule


@pytest.fixture(scope="module")
def odd_operators() -> Any:
    """As operators of compiled libraries: of a kernel, which nobody looks into."""
    for name in ("tonnx_test::odd", "tonnx_test::odder"):
        torch.library.define(name, "(Tensor x) -> Tensor")
        torch.library.impl(name, "cpu", lambda x: x + 1)
        torch.library.register_fake(name, torch.empty_like)
    return torch.ops.tonnx_test


def test_all_unsupported_operators_at_once(odd_operators: Any, tmp_path: Path) -> None:
    class Block(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return odd_operators.odd(torch.relu(x))  # odd

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.Sequential(Block(), Block())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return odd_operators.odder(self.blocks(x)) + 1  # odder

    with pytest.raises(UnsupportedOp) as caught:
        tonnx.export(Model(), t(2), tmp_path / "net.onnx")
    places = [(o.operator, o.module) for o in caught.value.occurrences]
    assert places == [
        ("tonnx_test.odd.default", "blocks.0"),
        ("tonnx_test.odd.default", "blocks.1"),
        ("tonnx_test.odder.default", ""),
    ]
    message = str(caught.value)
    assert message.startswith("2 operators of this model cannot be exported:")
    assert "2 × tonnx_test.odd.default  in blocks.0" in message and "(and 1 more)" in message
    assert here("odd") in message and here("odder") in message
    assert os.listdir(tmp_path) == []


# Files that are wrong


@pytest.fixture
def wrong_relu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that is wrong for negative numbers."""

    def relu(op: Any, x: Any) -> Any:
        return op.Abs(x)

    entries = rules.load()._entries
    for name in ("aten.relu", "aten.relu.default"):
        if name in entries:
            monkeypatch.setitem(entries, name, rules.Rule(relu, ("x",)))


def test_a_wrong_file_is_never_left_under_the_asked_name(wrong_relu: None, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(b"older")
    model = Net()
    with pytest.raises(VerificationFailed) as caught:
        tonnx.export(model, t(2, 3), path, dynamic_axes={"x": {0: "batch"}}, output_names=["out"])
    error = caught.value
    assert "output 'out' of the file differs" in error.what and "max abs" in error.what
    assert "out of tolerance" in (error.why or "") and "net.failed.onnx" in (error.hint or "")
    assert error.verification is not None and not error.verification.ok
    assert path.read_bytes() == b"older"
    left = ["net.failed.onnx", "net.failed.part.npz", "net.failed.part.onnx", "net.onnx"]
    assert sorted(os.listdir(tmp_path)) == left
    assert model.training


def test_a_wrong_file_in_memory(wrong_relu: None) -> None:
    buffer = io.BytesIO()
    with pytest.raises(VerificationFailed):
        tonnx.export(Net(), t(2, 3), buffer)
    assert buffer.getvalue() == b""
    tonnx.export(Net(), t(2, 3), buffer, verify=False)
    assert buffer.getvalue()


def test_the_tree() -> None:
    for name in tonnx.__all__:
        value = getattr(tonnx, name)
        if isinstance(value, type) and issubclass(value, Exception):
            assert issubclass(value, TonnxError) and value.__doc__
    assert issubclass(InvalidArgument, ValueError)
    text = str(TonnxError("what", where="net.py:3", why="because", hint="this"))
    assert text == "what\n  where: net.py:3\n  why:   because\n  do:    this"


@pytest.mark.parametrize(
    "error",
    [
        InvalidArgument("what", where="where", why="why", hint="hint"),
        MissingDependency("what", hint="pip install it"),
        CaptureError("what", data_dependent=True),
        UnsupportedOp([Occurrence("aten.rare", "body.0", "net.py:3")]),
        RetargetError(9, [Blocker("/Clip", "Clip", "no such kernel", lowest_opset=11)], target="device"),
        VerificationFailed("what", why="numbers"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_reach_other_processes(error: TonnxError) -> None:
    """A pool of workers hands them over by pickling."""
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error) and str(copy) == str(error) and vars(copy) == vars(error)
