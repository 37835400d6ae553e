"""Files of opsets 1 to 6 as others wrote them, brought up: hand-made models with known answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import tonnx
from tests.legalise.harness import run
from tonnx.errors import RetargetError
from tonnx.proof import upward
from tonnx.proof.session import Session

Array = np.ndarray
A = np.linspace(-2, 2, 24, dtype=np.float32).reshape(2, 3, 4)
B3, B4 = np.array([1, 10, 100], np.float32), np.array([1, 2, 3, 4], np.float32)
POSITIVE = A + 3


def model(opset: int, body: str, *inputs: Array, weights: str = "", out: str = "float[?, ?, ?]") -> onnx.ModelProto:
    """``body`` computes y from in0, in1 …; nothing is said of the values between."""
    kinds = {"float32": "float", "int64": "int64", "bool": "bool", "float64": "double"}
    formals = ", ".join(f"{kinds[str(a.dtype)]}[{', '.join(map(str, a.shape))}] in{i}" for i, a in enumerate(inputs))
    text = f'<ir_version: 3, opset_import: ["" : {opset}]> old ({formals}) => ({out} y) {weights} {{ {body} }}'
    made = onnx.parser.parse_model(text)
    for tensor in made.graph.initializer:
        if tensor.name not in {value.name for value in made.graph.input}:
            made.graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    return made


Q = np.float32
CASES: list[tuple[str, int, str, tuple[Array, ...], dict[str, Any], Array]] = [
    ("suffix", 6, "y = Add<broadcast = 1>(in0, in1)", (A, B4), {}, A + B4),
    ("middle axis", 6, "y = Mul<broadcast = 1, axis = 1>(in0, in1)", (A, B3), {}, A * B3[:, None]),
    ("axis from the back", 6, "y = Mul<broadcast = 1, axis = -2>(in0, in1)", (A, B3), {}, A * B3[:, None]),
    ("first axes", 1, "y = Sub<broadcast = 1, axis = 0>(in0, in1)", (A, A[:, :, 0]), {}, A - A[:, :, :1]),
    ("one number", 3, "y = Div<broadcast = 1>(in0, in1)", (A, B4[1:2]), {}, A / Q(2)),
    (
        "one number of high rank",
        1,
        "y = Pow<broadcast = 1>(in0, in1)",
        (POSITIVE, np.full((1, 1), 2, Q)),
        {},
        POSITIVE**2,
    ),
    (
        "behind unknown shapes",
        6,
        "t = Add(in0, in0) u = Relu(t) y = Mul<broadcast = 1, axis = 1>(u, in1)",
        (A, B3),
        {},
        np.maximum(A + A, 0) * B3[:, None],
    ),
    (
        "less",
        6,
        "y = Less<broadcast = 1, axis = 1>(in0, in1)",
        (A, B3),
        {"out": "bool[?, ?, ?]"},
        np.less(A, B3[:, None]),
    ),
    ("consumed", 1, "y = Relu<consumed_inputs = [0]>(in0)", (A,), {}, np.maximum(A, 0)),
    ("cast by name", 3, 'y = Cast<to = "INT64">(in0)', (A,), {"out": "int64[?, ?, ?]"}, A.astype(np.int64)),
    ("reshape", 1, "y = Reshape<shape = [0, -1, 2]>(in0)", (A,), {}, A.reshape(2, 6, 2)),
    (
        "tile",
        1,
        "y = Tile(in0, tiles, axis)",
        (A,),
        {"weights": "<float tiles = {3.0}, float axis = {1.0}>"},
        np.tile(A, (1, 3, 1)),
    ),
    ("concat by default", 1, "y = Concat(in0, in0)", (A,), {}, np.concatenate([A, A], 1)),
    ("split", 1, "y, z = Split<axis = 2, split = [3, 1]>(in0)", (A,), {}, A[:, :, :3]),
    (
        "split by an input",
        1,
        "y, z = Split<axis = 2>(in0, sizes)",
        (A,),
        {"weights": "<float[2] sizes = {1.0, 3.0}>"},
        A[:, :, :1],
    ),
    (
        "pad",
        1,
        "y = Pad<paddings = [0, 1, 0, 0, 0, 2], value = 5.0>(in0)",
        (A,),
        {},
        np.pad(A, ((0, 0), (1, 0), (0, 2)), constant_values=5),
    ),
    ("clip without a bound", 1, "y = Clip<max = 0.5>(in0)", (A,), {}, np.minimum(A, Q(0.5))),
    (
        "selu of old",
        1,
        "y = Selu(in0)",
        (A,),
        {},
        (Q(1.0507) * np.where(A > 0, A, Q(1.6732) * (np.exp(A) - 1))).astype(Q),
    ),
    ("prelu by channel", 6, "y = PRelu(in0, in1)", (A, B3), {}, np.where(A < 0, A * B3[:, None], A)),
    ("prelu with one slope", 1, "y = PRelu(in0, in1)", (A, B3[1:2]), {}, np.where(A < 0, A * 10, A)),
    (
        "gemm",
        6,
        "y = Gemm<broadcast = 1, transB = 1>(in0, in1, in2)",
        (A[0], A[1], B3),
        {"out": "float[?, ?]"},
        A[0] @ A[1].T + B3,
    ),
    ("dropout", 6, "y = Dropout<is_test = 1>(in0)", (A,), {}, A),
    (
        "batch norm",
        1,
        "y = BatchNormalization<consumed_inputs = [0, 0, 0, 1, 1], is_test = 1>(in0, in1, in1, in1, in1)",
        (A, B3),
        {},
        (A - B3[:, None]) / np.sqrt(B3[:, None] + Q(1e-5)) * B3[:, None] + B3[:, None],
    ),
    (
        "upsample",
        6,
        "y = Upsample<height_scale = 2.0, width_scale = 3.0>(in0)",
        (A[None],),
        {"out": "float[?, ?, ?, ?]"},
        A[None].repeat(2, 2).repeat(3, 3),
    ),
    (
        "power as a fraction",
        1,
        "y = GlobalLpPool<p = 2.0>(in0)",
        (A[None],),
        {"out": "float[?, ?, ?, ?]"},
        np.sqrt((A[None] ** 2).sum((2, 3), keepdims=True)),
    ),
]


@pytest.mark.parametrize(("opset", "body", "inputs", "more", "want"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
@pytest.mark.parametrize("target", [7, 13, 18])
def test_up(opset: int, body: str, inputs: tuple[Array, ...], more: dict[str, Any], want: Array, target: int) -> None:
    made = tonnx.retarget(model(opset, body, *inputs, **more), target, verify=False).proto
    assert made.opset_import[0].version == target
    onnx.checker.check_model(made, full_check=True)
    got = run(made, inputs)[0]
    assert got.dtype == want.dtype and got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


REFUSED = [
    ("no axis", 1, "y, z = Split<split = [1, 2]>(in0)", "says no axis"),
    ("no such type", 5, 'y = Cast<to = "FRACTION">(in0)', "there is no type 'FRACTION'"),
    ("no shape", 4, "y = Reshape(in0)", "says no shape"),
    ("training", 6, "y, m, v, s, t = BatchNormalization(in0, c, c, c, c) z = Add(m, v)", "it is training"),
    ("broken power", 1, "y = GlobalLpPool<p = 2.5>(in0)", "not 2.5"),
]


@pytest.mark.parametrize(("opset", "body", "reason"), [c[1:] for c in REFUSED], ids=[c[0] for c in REFUSED])
def test_refused(opset: int, body: str, reason: str) -> None:
    weights = "<float[3] c = {1.0, 2.0, 3.0}>" if "c, c" in body else ""
    with pytest.raises(RetargetError, match=reason):
        tonnx.retarget(model(opset, body, A, weights=weights), 9, verify=False)


def test_an_old_file_is_proven_by_onnx_converter() -> None:
    old = model(3, "t = Add<broadcast = 1>(in0, in1) y = Sigmoid(t)", A, B4)
    result = tonnx.retarget(old, 18)
    assert result.verification is not None and result.verification.ok and not result.verification.brought_up_by
    down = tonnx.retarget(result.proto, 2)
    assert down.verification is not None and down.verification.brought_up_by == upward.BY_ONNX
    assert "brought up by onnx's version converter" in str(down)
    assert down.proto.ir_version == 3


def test_what_the_converter_cannot_is_said() -> None:
    session = Session(model(5, 't = Cast<to = "FLOAT">(in0) y = Neg(t)', A.astype(np.float64)).SerializeToString())
    np.testing.assert_array_equal(session.run({"in0": A.astype(np.float64)})["y"], -A)
    assert session.brought_up_by.startswith(f"{upward.BY_TONNX} (onnx's version converter cannot: ")
    assert "Cast" in session.brought_up_by  # its reason


def test_what_the_converter_misreads_is_said() -> None:
    over_a_middle_axis = model(5, "y = Add<broadcast = 1, axis = 1>(in0, in1)", A, B4[:3])
    (_, who), *_ = upward.ways_up(over_a_middle_axis, {"in0": A.shape, "in1": B4[:3].shape})
    assert "misreads operands over a middle axis" in who
