"""Weights that Paddle packs for a GPU, by its own kernel for the CPU; the product itself it has on a GPU only."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest

import tonnx
from tests.frontends.paddle import encode as e
from tonnx.errors import UnsupportedArgument
from tonnx.frontends.paddle.ops.weight_only import unpacked
from tonnx.proof.session import Session

paddle = pytest.importorskip("paddle")

ROWS, COLUMNS = 128, 48
WEIGHT = np.random.default_rng(0).standard_normal((ROWS, COLUMNS)).astype(np.float16)
X = np.random.default_rng(1).standard_normal((3, ROWS)).astype(np.float16)


def packed(bits: int, arch: int, group: int = -1) -> tuple[np.ndarray, np.ndarray]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = paddle.nn.quant.weight_quantize(
            paddle.to_tensor(WEIGHT), algo=f"weight_only_int{bits}", arch=arch, group_size=group
        )
    return made[0].numpy(), made[1].numpy()


def wanted(scale: np.ndarray, bits: int, group: int = -1) -> tuple[np.ndarray, np.ndarray]:
    """The integers of each weight, and what they stand for."""
    steps = np.repeat(scale, group, 0) if scale.ndim == 2 else scale[None]
    ratio, most = WEIGHT.astype(np.float32) / steps.astype(np.float32), 127 if bits == 8 else 7
    integers = np.clip(np.sign(ratio) * np.floor(np.abs(ratio) + 0.5), -most, most)
    return integers, (integers.astype(np.float16) * steps).astype(np.float32)


@pytest.mark.parametrize("arch", [70, 75, 80, 86, 89, 90])
@pytest.mark.parametrize("bits", [8, 4])
def test_integers_are_put_in_order(bits: int, arch: int) -> None:
    integers, scale = packed(bits, arch)
    np.testing.assert_array_equal(unpacked(integers, bits, arch), wanted(scale, bits)[0])


@pytest.mark.parametrize(("shape", "arch", "why"), [((32, 96), 80, "96 rows"), ((32, 64), 0, "capability 0")])
def test_other_layouts_are_refused(shape: tuple[int, int], arch: int, why: str) -> None:
    with pytest.raises(UnsupportedArgument, match=why):
        unpacked(np.zeros(shape, np.int8), 8, arch)


def program(folder: Path, parameters: dict[str, np.ndarray], bits: int, group: int) -> Path:
    """A program of one product, as a build of Paddle for GPUs saves it."""
    codes = {"int8": ("0.t_i8", 21), "float16": ("0.t_f16", 4)}
    given = [
        {"#": "p", "A": [0, 1, 1, name], "DA": [], "OA": [1, 1, 0], "QA": [],
         "O": {"%": number, "TT": e.pir_type(*array.shape, dtype=codes[str(array.dtype)][0])}}
        for number, (name, array) in enumerate(parameters.items(), 2)
    ]  # fmt: skip
    x = e.pir_data(1, "x")
    x["O"][0]["TT"] = e.pir_type(-1, ROWS, dtype="0.t_f16")
    kinds = {"weight_dtype": ("0.a_str", f"int{bits}"), "arch": ("0.a_i32", 80), "group_size": ("0.a_i32", group)}
    product = e.pir_op("1.weight_only_linear", [1, 2, 3, 4], [9], *(e.pir_attr(n, *a) for n, a in kinds.items()))
    product["O"][0]["TT"] = e.pir_type(-1, COLUMNS, dtype="0.t_f16")
    (folder / "made.json").write_text(json.dumps(e.pir([*given, x, product, e.pir_fetch(9, "y")])))
    records = [
        e.record(e.tensor_desc(codes[str(array.dtype)][1], *array.shape), array.tobytes())
        for _, array in sorted(parameters.items())
    ]
    (folder / "made.pdiparams").write_bytes(b"".join(records))
    return folder / "made.json"


@pytest.mark.parametrize("opset", [13, 21])
@pytest.mark.parametrize(("bits", "group"), [(8, -1), (4, -1), (8, 64), (4, 64)])
def test_product(bits: int, group: int, opset: int, tmp_path: Path) -> None:
    integers, scale = packed(bits, 80, group)
    bias = np.linspace(-1, 1, COLUMNS).astype(np.float16)
    path = program(tmp_path, {"a": integers, "b": bias, "c": scale}, bits, group)
    tonnx.export(path, f=tmp_path / "out.onnx", opset_version=opset, verify=False)
    got = next(iter(Session(tmp_path / "out.onnx", threads=1).run({"x": X}).values()))
    expected = X.astype(np.float32) @ wanted(scale, bits, group)[1] + bias.astype(np.float32)
    np.testing.assert_allclose(got.astype(np.float32), expected, rtol=1e-2, atol=5e-2)
    kinds = {i.data_type for i in onnx.load(tmp_path / "out.onnx").graph.initializer if len(i.dims) >= 2}
    stored = {onnx.TensorProto.INT8, onnx.TensorProto.UINT8, onnx.TensorProto.INT4, onnx.TensorProto.UINT4}
    assert kinds & stored and (bits == 8 or opset < 21 or onnx.TensorProto.INT4 in kinds)
