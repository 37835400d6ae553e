"""Control flow, lists and recurrent layers of Paddle to ONNX. The programs lie in fixtures; no Paddle is needed."""

from __future__ import annotations

import io
import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import tonnx
from tests.frontends.paddle import encode as e
from tests.frontends.paddle.archive import SUFFIX, _read
from tonnx.errors import LoweringError, RetargetError, UnsupportedArgument
from tonnx.frontends.paddle.read.load import load
from tonnx.ir.rewrite import inner_graphs
from tonnx.proof.session import Session


def cases(kind: str) -> dict[str, list[dict[str, list[str]]]]:
    return json.loads(_read("flow", kind)["cases.json"])


@cache
def arrays(kind: str) -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(_read("flow", kind)["arrays.npz"])) as stored:
        return dict(stored)


def unpacked(kind: str, name: str, folder: Path) -> Path:
    for suffix in (SUFFIX[kind], ".pdiparams"):
        if (data := _read("flow", kind).get(name + suffix)) is not None:
            (folder / (name + suffix)).write_bytes(data)
    return folder / (name + SUFFIX[kind])


def check(kind: str, name: str, opset: int, folder: Path) -> None:
    """One file for all runs: every branch, every number of passes, several sizes."""
    path, out = unpacked(kind, name, folder), folder / "out.onnx"
    given = list(load(path).program.inputs)
    result = tonnx.export(path, f=out, opset_version=opset, verify=False)
    onnx.checker.check_model(out, full_check=True)
    session, used = Session(out, threads=1), {value.name for value in result.model.graph.inputs}
    for run in cases(kind)[name]:
        feeds = dict(zip(given, (arrays(kind)[key] for key in run["inputs"]), strict=True))
        got = session.run({name: array for name, array in feeds.items() if name in used})
        for value, key in zip(got.values(), run["outputs"], strict=True):
            want = arrays(kind)[key]
            assert (value.shape, value.dtype) == (want.shape, want.dtype)
            np.testing.assert_allclose(value.astype("f8"), want.astype("f8"), rtol=1e-4, atol=1e-5)


LOWEST = {"AppendShapes": 13, "BeamSearch": 9}
"""Where elements of different shapes are in a sequence, and where a Scan writes backwards."""
REFUSED = {"IfRanks"}


def possible(kind: str, opset: int) -> list[str]:
    return [name for name in cases(kind) if name not in REFUSED and LOWEST.get(name, 7) <= opset]


FORMATS = [("pir", 7), ("pir", 18), ("old", 11), ("old", 20)]


@pytest.mark.parametrize(
    ("kind", "opset", "name"),
    [(kind, opset, name) for kind, opset in FORMATS for name in possible(kind, opset)],
)
def test_as_paddle(kind: str, opset: int, name: str, tmp_path: Path) -> None:
    check(kind, name, opset, tmp_path)


FEW = ["IfNested", "IfFixedShapes", "Break", "GrowFixed", "Append", "Overwrite", "Lengths", "CellLoop", "CRNN"]


@pytest.mark.parametrize("opset", [9, 13, 26])
@pytest.mark.parametrize("name", FEW)
def test_other_opsets(name: str, opset: int, tmp_path: Path) -> None:
    check("pir", name, opset, tmp_path)


def test_lowest_opset(tmp_path: Path) -> None:
    with pytest.raises(RetargetError, match="works from opset 13"):
        tonnx.export(unpacked("old", "AppendShapes", tmp_path), opset_version=11, verify=False)


# What the files look like


def converted(kind: str, name: str, folder: Path) -> ir.Graph:
    return tonnx.export(unpacked(kind, name, folder), opset_version=18, verify=False).model.graph


def operators(kind: str, name: str, folder: Path) -> Counter[str]:
    """Of the whole model, inner graphs too."""
    found: Counter[str] = Counter()
    graphs = [converted(kind, name, folder)]
    while graphs:
        for node in graphs.pop():
            found[node.op_type] += 1
            graphs += inner_graphs(node)
    return found


@pytest.mark.parametrize("kind", ["pir", "old"])
@pytest.mark.parametrize(
    ("name", "has"),
    [
        ("If", {"If": 1}),  # old programs have two blocks and a choice
        ("IfNested", {"If": 3}),
        ("EarlyReturn", {"If": 1}),
        ("Break", {"Loop": 1, "If": 1}),
        ("Known", {"If": 0, "Loop": 0}),
        ("ArrayKnown", {"Concat": 0, "SequenceAt": 0, "Gather": 0}),
        ("ManyPasses", {"Loop": 1, "Less": 0}),  # a loop with a fixed number of passes
        ("CellUnrolled", {"Loop": 0}),
        ("Append", {"Loop": 1, "SequenceInsert": 0, "Concat": 0}),  # collected by the loop itself
        ("CellLoop", {"Loop": 1, "SequenceInsert": 0, "SequenceAt": 0}),
        ("LSTMBoth", {"LSTM": 2, "Slice": 0, "Expand": 0}),
        ("GRU", {"GRU": 1, "Loop": 0}),
    ],
)
def test_shape_of_the_file(kind: str, name: str, has: dict[str, int], tmp_path: Path) -> None:
    found = operators(kind, name, tmp_path)
    assert {op_type: found[op_type] for op_type in has} == has


def test_dynamic_axes_keep_their_names(tmp_path: Path) -> None:
    graph = converted("pir", "CRNN", tmp_path)
    assert [str(value.shape) for value in graph.inputs] == ["[batch,3,32,DIM_0]"]
    assert str(graph.outputs[0].shape).startswith("[batch,")
    graph = converted("old", "LSTMBoth", tmp_path)
    assert [str(value.shape) for value in graph.outputs] == ["[batch,DIM_0,8]", "[4,batch,4]", "[4,batch,4]"]


# What cannot be expressed


def test_ranks_that_differ_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LoweringError, match="how many dimensions its operand has is not known") as error:
        tonnx.export(unpacked("old", "IfRanks", tmp_path), verify=False)
    assert "different ranks" in str(error.value)


def _pir(folder: Path, *ops: Any) -> Path:
    file = folder / "made.json"
    data = [e.pir_data(1, "x"), *ops]
    file.write_text(json.dumps(e.pir(data)))
    return file


def test_dtypes_that_differ_are_refused(tmp_path: Path) -> None:
    def side(number: int, dtype: str) -> dict[str, Any]:
        cast = e.pir_op("1.cast", [1], [number], {"N": "dtype", "AT": {"#": "1.a_dtype", "D": dtype}})
        return {"#": "region", "blocks": [{"#": "block", "args": [], "ops": [cast, e.pir_op("2.yield", [number], [])]}]}

    condition = e.pir_op("1.any", [1], [2])
    branch = {**e.pir_op("1.if", [2], [3]), "regions": [side(4, "int32"), side(5, "float32")]}
    with pytest.raises(LoweringError, match="holds int32 here and float there"):
        tonnx.export(_pir(tmp_path, condition, branch, e.pir_fetch(3, "y")), verify=False)


def test_dropout_that_stays_active_is_refused(tmp_path: Path) -> None:
    program = json.loads(_read("flow", "pir")["LSTMBoth.json"])
    path = unpacked("pir", "LSTMBoth", tmp_path)
    (op,) = [op for op in program["program"]["regions"][0]["blocks"][0]["ops"] if op["#"] == "1.rnn"]
    (flag,) = [attribute for attribute in op["A"] if attribute["N"] == "is_test"]
    flag["AT"]["D"] = False
    path.write_text(json.dumps(program))
    with pytest.raises(UnsupportedArgument, match=r"dropout 0\.3 stays active"):
        tonnx.export(path, verify=False)
