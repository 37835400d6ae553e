"""Operators that Paddle computes on a GPU only, against numpy; and what rules refuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tonnx
from tests.frontends.paddle import encode as e
from tonnx.errors import LoweringError, UnsupportedArgument, UnsupportedOp
from tonnx.proof.session import Session

RANDOM = np.random.default_rng(3)
KINDS = {bool: "0.a_bool", int: "0.a_i32", float: "0.a_f32", str: "0.a_str"}
DTYPES = {"float32": "0.t_f32", "int64": "0.t_i64", "complex64": "0.t_c64"}


def attribute(name: str, value: Any) -> dict[str, Any]:
    if isinstance(value, list):
        parts = [{"#": KINDS[type(item)], "D": item} for item in value]
        return e.pir_attr(name, "0.a_array", parts)
    return e.pir_attr(name, KINDS[type(value)], value)


def program(folder: Path, name: str, inputs: list[Any], results: int = 1, dtype: str = "float32", **attrs: Any) -> Path:
    """A program of one operator; an input that is a list is given as one operand, None is not given."""
    ops, operands, number = [], [], 0

    def data(array: np.ndarray) -> int:
        nonlocal number
        number += 1
        given = e.pir_data(number, f"in{number}")
        given["O"][0]["TT"] = e.pir_type(*array.shape, dtype=DTYPES[str(array.dtype)])
        ops.append(given)
        return number

    for array in inputs:
        if array is None:
            operands.append(0)
        elif isinstance(array, list):
            parts = [data(part) for part in array]
            number += 1
            combined = e.pir_op("0.combine", parts, [number])
            combined["O"][0]["TT"] = {"#": "0.t_vec", "D": [e.pir_type(*part.shape) for part in array]}
            ops.append(combined)
            operands.append(number)
        else:
            operands.append(data(array))
    outputs = [number + 1 + i for i in range(results)]
    made = e.pir_op(f"1.{name}", operands, outputs, *(attribute(*a) for a in attrs.items()))
    for value in made["O"]:
        value["TT"] = e.pir_type(*[-1] * 2, dtype=DTYPES[dtype])
    fetches = [e.pir_fetch(number + 1, "y")]
    file = folder / "made.json"
    file.write_text(json.dumps(e.pir([*ops, made, *fetches])))
    return file


def floats(*shape: int) -> np.ndarray:
    return RANDOM.uniform(-2, 2, shape).astype("float32")


def softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def rotary(q: np.ndarray) -> np.ndarray:
    width = q.shape[3]
    angle = np.arange(q.shape[1])[:, None] * 10000.0 ** (-np.arange(0, width, 2) / width)
    pairs = q.reshape(*q.shape[:3], width // 2, 2)
    turned = (pairs[..., 0] + 1j * pairs[..., 1]) * np.exp(1j * angle)[None, :, None]
    return np.stack([turned.real, turned.imag], -1).reshape(q.shape)


def rms(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * scale


def normalized(x: np.ndarray) -> np.ndarray:
    return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    q, k, v = (x.swapaxes(1, 2) for x in (q, k, v))
    return (softmax(q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1])) @ v).swapaxes(1, 2)


Expected = Callable[..., np.ndarray]
COMPUTED: dict[str, tuple[str, list[Any], dict[str, Any], Expected]] = {
    "rms_norm": ("rms_norm", [floats(2, 5), floats(5)], {"normalized_shape": [5], "epsilon": 1e-5}, rms),
    "triangle": (
        "fused_softmax_mask_upper_triangle",
        [floats(2, 2, 4, 4)],
        {},
        lambda x: softmax(np.where(np.tri(4, dtype=bool), x, -10000.0)),
    ),
    "rotary": ("fused_rotary_position_embedding", [floats(2, 5, 3, 8)], {"use_neox_rotary_style": True}, rotary),
    "epilogue": (
        "fused_gemm_epilogue",
        [floats(3, 4), floats(5, 4), floats(5)],
        {"trans_x": False, "trans_y": True, "activation": "relu"},
        lambda x, y, b: np.maximum(x @ y.T + b, 0),
    ),
    "fc": ("fc", [floats(2, 3, 4), floats(4, 5), floats(5)], {"in_num_col_dims": 2}, lambda x, w, b: x @ w + b),
    "linear_v2": ("linear_v2", [floats(2, 4), floats(5, 4), floats(5)], {"transpose_weight": True},
                  lambda x, w, b: x @ w.T + b),
    "bias_act": (
        "fused_bias_act",
        [floats(2, 6), floats(6)],
        {"act_method": "swiglu"},
        lambda x, b: (x + b)[:, :3] / (1 + np.exp(-(x + b)[:, :3])) * (x + b)[:, 3:],
    ),
    "dropout_add": (
        "fused_dropout_add",
        [floats(2, 3), floats(2, 3)],
        {"p": 0.4, "is_test": True, "mode": "upscale_in_train"},
        lambda x, y: x + y,
    ),
    "skip_layernorm": (
        "skip_layernorm",
        [floats(2, 5), floats(2, 5), floats(5), floats(5)],
        {"epsilon": 1e-5, "begin_norm_axis": 1},
        lambda x, y, s, b: normalized(x + y) * s + b,
    ),
    "flash_attn": (
        "flash_attn", [floats(2, 5, 3, 4), floats(2, 6, 3, 4), floats(2, 6, 3, 4)], {"is_test": True}, attention
    ),
    "partial_concat": (
        "partial_concat",
        [[floats(2, 4), floats(2, 4)]],
        {"start_index": 1, "length": 2},
        lambda x, y: np.concatenate([x[:, 1:3], y[:, 1:3]], 1),
    ),
    "searchsorted": (
        "searchsorted",
        [np.float32([1, 2, 2, 4]), np.float32([[2, 3], [0, 4]])],
        {"out_int32": False, "right": True},
        lambda sequence, x: np.searchsorted(sequence, x, side="right"),
    ),
    "partial_sum": ("partial_sum", [[floats(2, 4), floats(2, 4)]], {"start_index": 1, "length": -1},
                    lambda x, y: x[:, 1:] + y[:, 1:]),
}  # fmt: skip


@pytest.mark.parametrize("opset", [11, 20])
@pytest.mark.parametrize("case", COMPUTED)
def test_computed(case: str, opset: int, tmp_path: Path) -> None:
    name, inputs, attrs, expected = COMPUTED[case]
    results = {"rms_norm": 2, "fused_rotary_position_embedding": 3}.get(name, 1)
    path = program(tmp_path, name, inputs, results, **attrs)
    tonnx.export(path, f=tmp_path / "out.onnx", opset_version=opset, verify=False)
    arrays = [part for item in inputs for part in (item if isinstance(item, list) else [item])]
    feeds = {f"in{i + 1}": array for i, array in enumerate(arrays)}
    got = Session(tmp_path / "out.onnx", threads=1).run(feeds)
    np.testing.assert_allclose(next(iter(got.values())), expected(*arrays), rtol=1e-4, atol=1e-5)


# Old operators whose kernels Paddle 2.6 has no more


def old_attribute(name: str, value: Any) -> bytes:
    if isinstance(value, bool):
        return e.attr(name, 6, (10, int(value)))
    if isinstance(value, list):
        return e.attr(name, 3, *((6, item) for item in value))
    kind, number = {int: (0, 3), float: (1, 4), str: (2, 5)}[type(value)]
    return e.attr(name, kind, (number, value))


def old_program(folder: Path, name: str, slots: dict[str, np.ndarray], attrs: dict[str, Any]) -> Path:
    codes = {"float32": 5, "int64": 3}
    variables = [e.variable("feed", kind=9), e.variable("fetch", kind=10)]
    variables += [e.variable(slot, *array.shape, dtype=codes[str(array.dtype)]) for slot, array in slots.items()]
    variables.append(e.message((1, "y"), (2, e.message((1, 7)))))
    ops = [e.feed(slot, column) for column, slot in enumerate(slots)]
    ops += [e.op(name, {slot: [slot] for slot in slots}, {"Out": ["y"]}, *(old_attribute(*a) for a in attrs.items()))]
    file = folder / "made.pdmodel"
    file.write_bytes(e.program(e.block(0, -1, variables, [*ops, e.fetch("y")])))
    return file


IMAGE, X, IDS = floats(2, 3, 4, 5), floats(2, 1, 3), np.array([[1], [0], [4]])
HALVES = np.array([-2.5, -1.5, -0.5, 0.4, 0.5, 1.5, 2.5], "float32")
SIDES = [1, 2, 0, 3]
AROUND = ((0, 0), (0, 0), (1, 2), (0, 3))
OLD: dict[str, tuple[str, dict[str, np.ndarray], dict[str, Any], np.ndarray]] = {
    "pad2d": ("pad2d", {"X": IMAGE}, {"mode": "constant", "paddings": SIDES, "pad_value": 0.5, "data_format": "NCHW"},
              np.pad(IMAGE, AROUND, constant_values=0.5)),
    "pad2d_reflect": ("pad2d", {"X": IMAGE}, {"mode": "reflect", "paddings": SIDES}, np.pad(IMAGE, AROUND, "reflect")),
    "pad2d_edge": ("pad2d", {"X": IMAGE}, {"mode": "edge", "paddings": SIDES}, np.pad(IMAGE, AROUND, "edge")),
    "pad2d_nhwc": ("pad2d", {"X": IMAGE}, {"mode": "constant", "paddings": [1, 2, 0, 1], "data_format": "NHWC"},
                   np.pad(IMAGE, ((0, 0), (1, 2), (0, 1), (0, 0)))),
    "flatten": ("flatten", {"X": IMAGE}, {"axis": 2}, IMAGE.reshape(6, 20)),
    "squeeze": ("squeeze", {"X": X}, {"axes": [1]}, X[:, 0]),
    "unsqueeze": ("unsqueeze", {"X": X}, {"axes": [0, 2]}, X[None, :, None]),
    "expand_as": ("expand_as", {"X": X, "target_tensor": floats(2, 4, 3)}, {}, np.repeat(X, 4, 1)),
    "round": ("round", {"X": HALVES}, {}, np.sign(HALVES) * np.floor(np.abs(HALVES) + 0.5)),
    "shard_index": ("shard_index", {"X": IDS}, {"index_num": 6, "nshards": 2, "shard_id": 0, "ignore_value": -1},
                    np.array([[1], [0], [-1]])),
    "fused part, switched off": ("pad2d", {"X": IMAGE}, {"mode": "edge", "paddings": SIDES, "fuse_brelu_threshold": 6.0,
                                                         "fuse_brelu": False}, np.pad(IMAGE, AROUND, "edge")),
    "one_hot": ("one_hot", {"X": IDS}, {"depth": 5, "dtype": 5}, np.eye(5, dtype="float32")[IDS[:, 0]]),
}  # fmt: skip


@pytest.mark.parametrize("case", OLD)
def test_old(case: str, tmp_path: Path) -> None:
    name, slots, attrs, expected = OLD[case]
    path = old_program(tmp_path, name, slots, attrs)
    tonnx.export(path, f=tmp_path / "out.onnx", opset_version=11, verify=False)
    session = Session(tmp_path / "out.onnx", threads=1)
    (got,) = session.run({slot: array for slot, array in slots.items() if slot in session.inputs}).values()
    np.testing.assert_allclose(got, expected, rtol=1e-5)


NMS = {
    "score_threshold": 0.1, "nms_top_k": 10, "keep_top_k": 5, "nms_threshold": 0.5, "normalized": True, "nms_eta": 1.0,
    "background_label": -1,
}  # fmt: skip
REFUSED: dict[str, tuple[str, list[Any], dict[str, Any], str]] = {
    "polygon": ("multiclass_nms3", [floats(1, 4, 8), floats(1, 2, 4), None], NMS, "polygons"),
    "lod": ("roi_align", [floats(2, 3, 4, 4), floats(5, 4), None], {"pooled_height": 2, "pooled_width": 2}, "LoD"),
    "training": ("fake_quantize_dequantize_moving_average_abs_max", [floats(2, 3), floats(1)], {"is_test": False},
                 "layer.eval()"),
    "zero_point": ("quantize_linear", [floats(2, 3), floats(1), floats(1)], {"quant_axis": -1, "is_test": True},
                   "zero point"),
    "bounds": ("histogram", [floats(2, 3), None], {"bins": 4, "min": 0.0, "max": 0.0}, "bounds"),
    "halves": ("fused_rotary_position_embedding", [floats(1, 2, 2, 4)], {"use_neox_rotary_style": False}, "give sin"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str, tmp_path: Path) -> None:
    name, inputs, attrs, what = REFUSED[case]
    with pytest.raises(UnsupportedArgument) as error:
        tonnx.export(program(tmp_path, name, inputs, **attrs), f=tmp_path / "out.onnx")
    assert what in str(error.value)
    assert not (tmp_path / "out.onnx").exists()


def test_a_fused_part_that_is_switched_on_is_refused(tmp_path: Path) -> None:
    switched = {"paddings": SIDES, "mode": "edge", "fuse_brelu": True, "fuse_brelu_threshold": 6.0}
    with pytest.raises(UnsupportedArgument, match="fuse_brelu"):
        tonnx.export(old_program(tmp_path, "pad2d", {"X": IMAGE}, switched), f=tmp_path / "out.onnx", verify=False)


def test_complex_numbers_are_not_mistaken_for_reals(tmp_path: Path) -> None:
    with pytest.raises(LoweringError, match="as_real"):
        tonnx.export(program(tmp_path, "complex", [floats(2, 3), floats(2, 3)], dtype="complex64"))
    with pytest.raises(UnsupportedOp, match=r"pd_op\.relu of complex numbers"):
        tonnx.export(program(tmp_path, "relu", [floats(2, 3).astype("complex64")]))
