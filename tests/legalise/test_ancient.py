"""Opsets 1 to 6: what newer operators become there, proven at opset 7.

Brought up by onnx's own version converter wherever that can (``CONVERTER``), by tonnx's own rules otherwise (``OWN``);
each row says which judge it has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import tonnx
from tests.frontends.paddle.archive import check as check_paddle
from tests.legalise.harness import Array, blocked, check, model_of, random, retarget
from tonnx.proof import upward
from tonnx.proof.session import Session

ALL = (6, 5, 4, 3, 2, 1)
CONVERTER, OWN = upward.BY_ONNX, upward.BY_TONNX

X = random(2, 3, 4, 5)
Y = random(2, 3, 4, 5, low=0.5)
SMALL = np.arange(6, dtype=np.int64).reshape(2, 3)


@dataclass(frozen=True)
class Case:
    name: str
    build: Callable[..., Any]
    inputs: Sequence[Array] = (X,)
    judge: str = CONVERTER
    has: Sequence[str] = ()
    has_not: Sequence[str] = ("Cast",)
    targets: Sequence[int] = ALL
    dynamic: Any = False
    options: dict[str, Any] = field(default_factory=dict)


def _with(kind: str, *shape: int, swapped: bool = False) -> Callable[..., Any]:
    weights = random(*shape, low=0.5)

    def build(op: Any, x: Any) -> Any:
        return getattr(op, kind)(*((op.constant(weights), x) if swapped else (x, op.constant(weights))))

    return build


BROADCASTS = [
    Case(f"{kind} {shape} {'left' if swapped else 'right'}", _with(kind, *shape, swapped=swapped), [Y], targets=(6, 1))
    for kind in ("Add", "Sub", "Mul", "Div", "Pow")
    for shape in (
        (),
        (1,),
        (5,),
        (4, 5),
        (1, 5),
        (3, 1, 1),
        (1, 3, 1, 1),
        (4, 1),
        (2, 1, 1, 1),
        (2, 1, 4, 1),
        (1, 1, 1, 1, 1),
    )
    for swapped in (False, True)
]
TWO = [
    Case(
        f"{kind} of two {a} {b}",
        lambda op, x, y, kind=kind: getattr(op, kind)(x, y),
        [random(*a, low=0.5), random(*b)],
        targets=(6, 1),
        dynamic=dynamic,
        has_not=() if dynamic else ("Cast",),
        judge=CONVERTER,
    )
    for kind in ("Sub", "Div")
    for a, b, dynamic in [
        ((2, 3, 4), (2, 1, 4), False),
        ((2, 1, 4), (2, 3, 4), False),
        ((2, 1, 4), (1, 3, 1), False),
        ((3,), (2, 1), False),
        ((2, 3, 4), (2, 3, 1), {0: [0], 1: [0]}),
        ((2, 3, 4), (2, 1, 4), {0: [0, 1], 1: [0]}),
    ]
]
LAYERS = [
    Case(
        "conv and bias",
        lambda op, x: op.Add(op.Conv(x, random(4, 3, 3, 3)), random(4, 1, 1)),
        has=["Conv"],
        has_not=["Add"],
    ),
    Case("bias of channels", _with("Add", 3, 1, 1), has=["BatchNormalization"]),
    Case("batch norm", lambda op, x: op.BatchNormalization(x, *(random(3, low=0.5) for _ in range(4)))),
    Case(
        "average with padding",
        lambda op, x: op.AveragePool(x, kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1),
        has=["Pad"],
        targets=(6, 2),
    ),
    Case("max pool", lambda op, x: op.MaxPool(x, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)),
    Case("gemm", lambda op, x: op.Gemm(x, random(3, 7), random(7)), [X[0, :, :3, 0]]),
    Case("gemm with a row", lambda op, x: op.Gemm(x, random(3, 7), random(1, 7)), [X[0, :, :3, 0]]),
    Case("gemm with a column", lambda op, x: op.Gemm(x, random(3, 7), random(3, 1)), [X[0, :, :3, 0]]),
    Case("instance norm", lambda op, x: op.InstanceNormalization(x, random(3), random(3))),
    Case("layer norm", lambda op, x: op.LayerNormalization(x, random(5), random(5))),
    Case("prelu by channel", lambda op, x: op.PRelu(x, random(3, 1, 1))),
    Case("prelu", lambda op, x: op.PRelu(x, random(1)), has=["PRelu"]),
    Case(
        "upsample",
        lambda op, x: op.Resize(
            x, None, [1.0, 1.0, 2.0, 3.0], coordinate_transformation_mode="asymmetric", nearest_mode="floor"
        ),
        has=["Upsample"],
    ),
    Case(
        "upsample linear",
        lambda op, x: op.Resize(
            x, None, [1.0, 1.0, 2.0, 2.0], mode="linear", coordinate_transformation_mode="asymmetric"
        ),
        judge=OWN,
    ),
    Case(
        "lstm", lambda op, x: op.LSTM(x, random(1, 8, 5), random(1, 8, 2), hidden_size=2, _outputs=3), [X[0]], judge=OWN
    ),
    Case(
        "gru", lambda op, x: op.GRU(x, random(1, 6, 5), random(1, 6, 2), hidden_size=2, _outputs=2), [X[0]], judge=OWN
    ),
    Case("selu", lambda op, x: op.Selu(x)),
    Case("clip", lambda op, x: op.Clip(x, None, 0.5)),
    Case("pad", lambda op, x: op.Pad(x, [0, 0, 1, 2, 0, 0, 3, 4]), targets=(6, 2)),
    Case("pad by name", lambda op, x: op.Pad(x, [0, 0, 1, 2, 0, 0, 3, 4]), targets=(1,), judge=OWN),
]
SHAPES = [
    Case("reshape", lambda op, x: op.Reshape(x, [2, -1, 5])),
    Case("reshape of a batch", lambda op, x: op.Reshape(x, [0, -1]), dynamic={0: [0]}),
    Case("flatten by sizes", lambda op, x: op.reshape(x, [op.size(x, 0), 60]), dynamic={0: [0]}, has_not=["Shape"]),
    Case(
        "to a scalar",
        lambda op, x: op.Reshape(x, np.zeros(0, np.int64)),
        [X[:1, :1, 0, 0]],
        has=["Squeeze"],
        targets=(4, 1),
    ),
    Case("integers get an axis", lambda op, x: op.Reshape(x, [2, 1, 3]), [SMALL], has=["Unsqueeze"], targets=(4, 1)),
    Case("split", lambda op, x: op.Split(x, [1, 2, 2], axis=3, _outputs=3)),
    Case("split of integers", lambda op, x: op.Split(x, [1, 2], axis=1, _outputs=2), [SMALL]),
    Case("tile", lambda op, x: op.Tile(x, [1, 2, 1, 3])),
    Case("tile of integers", lambda op, x: op.Tile(x, [2, 2]), [SMALL]),
    Case("expand", lambda op, x: op.Expand(x, [2, 3, 4, 5]), [X[:, :1]]),
    Case("concat", lambda op, x: op.Concat(x, x, axis=-1)),
    Case("slice", lambda op, x: op.Slice(x, [1, 0], [9, 2], [2, 3])),
    Case("sizes", lambda op, x: op.Div(op.Mul(op.Shape(x), 3), 2), dynamic=True, targets=(5, 1), judge=OWN, has_not=()),
    Case("sizes with integers", lambda op, x: op.Div(op.Mul(op.Shape(x), 3), 2), dynamic=True, targets=(6,)),
    Case(
        "sizes joined",
        lambda op, x: op.Concat(op.Shape(x), [7], axis=0),
        dynamic=True,
        targets=(3, 1),
        judge=OWN,
        has_not=(),
    ),
    Case(
        "expand at run time",
        lambda op, x: op.Expand(x, op.Concat(op.Slice(op.Shape(x), [0], [2]), [6], axis=0)),
        [X[0, :, :, :1]],
        dynamic={0: [0]},
        judge=OWN,
        has_not=(),
        targets=(5, 1),
    ),
]
NUMBERS = [
    Case("cast", lambda op, x: op.Cast(x, to=11), judge=OWN, has=["Cast"], has_not=(), targets=(5, 1)),
    Case(
        "bytes", lambda op, x: op.Div(op.Add(x, x), 3), [SMALL.astype(np.uint8)], judge=OWN, has_not=(), targets=(5, 1)
    ),
    Case(
        "int32", lambda op, x: op.Div(op.Sub(x, 7), 2), [SMALL.astype(np.int32)], judge=OWN, has_not=(), targets=(5, 1)
    ),
    Case("less", lambda op, x: op.Less(x, random(3, 1, 1)), judge=OWN),
    Case("where", lambda op, x: op.Where(op.Greater(x, 0.0), x, x * 2.0), judge=OWN, has_not=["Where"]),
    Case("max with a number", lambda op, x: op.Max(x, 0.25), has=["Clip"]),
    Case("max of two", lambda op, x, y: op.Max(x, y), [X, X[:, :1]]),
    Case(
        "gather from the back",
        lambda op, x, i: op.Gather(x, i, axis=1),
        [X, np.array([-1, 0, 2])],
        judge=OWN,
        has_not=(),
        targets=(6, 5, 1),
    ),
    Case("sine", lambda op, x: op.Sin(x), [random(50, low=-2000, high=2000)], targets=(6,), has_not=["Sin"]),
    Case(
        "sine below 6", lambda op, x: op.Sin(x), [random(50, low=-9, high=9)], targets=(1,), judge=OWN, has_not=["Sin"]
    ),
    *(
        Case(
            name.lower(),
            lambda op, x, name=name: getattr(op, name)(x),
            [random(50, low=low, high=high)],
            targets=(6,),
            has_not=[name],
            options={"rtol": 1e-5, "atol": 1e-6},
        )
        for name, low, high in (
            ("Cos", -50, 50),
            ("Tan", -1.5, 1.5),
            ("Asin", -1, 1),
            ("Acos", -1, 1),
            ("Atan", -50, 50),
        )
    ),
    Case(
        "angles of infinity",
        lambda op, x: op.Atan(x),
        [np.array([np.inf, -np.inf, 1e30, 0], np.float32)],
        targets=(6,),
        has_not=["Atan"],
    ),
]
CASES = [*BROADCASTS, *TWO, *LAYERS, *SHAPES, *NUMBERS]


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_down(case: Case) -> None:
    judges = set()

    def judge(model: onnx.ModelProto, inputs: Sequence[Array]) -> list[Any]:
        session = Session(model.SerializeToString(), threads=1)
        outputs = session.run({f"in{i}": array for i, array in enumerate(inputs) if f"in{i}" in session.inputs})
        judges.add(session.brought_up_by.partition(" (")[0])  # without the reason
        assert model.ir_version == 3
        return list(outputs.values())

    check(
        case.build,
        case.inputs,
        targets=case.targets,
        dynamic=case.dynamic,
        judge=judge,
        has=case.has,
        has_not=case.has_not,
        **{"rtol": 1e-4, "atol": 1e-5, **case.options},
    )
    assert judges == {case.judge}


def test_old_attributes() -> None:
    """The forms of old, as the specification has them."""

    def attributes(build: Callable[..., Any], opset: int, kind: str, *inputs: Array) -> dict[str, Any]:
        made, _ = retarget(model_of(build, inputs or [X]), opset)
        (node,) = (node for node in made.graph.node if node.op_type == kind)
        return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}

    def norm(op: Any, x: Any) -> Any:
        return op.BatchNormalization(x, *(random(3, low=0.5) for _ in range(4)))

    assert attributes(lambda op, x: op.Add(x, random(4, 5)), 6, "Add") == {"broadcast": 1}
    assert attributes(lambda op, x: op.Add(x, x), 1, "Add") == {}
    assert attributes(norm, 6, "BatchNormalization") == {"is_test": 1}
    assert attributes(norm, 1, "BatchNormalization") == {"is_test": 1, "consumed_inputs": [0, 0, 0, 1, 1]}
    assert attributes(lambda op, x: op.Cast(x, to=7), 5, "Cast") == {"to": b"INT64"}
    assert attributes(lambda op, x: op.Reshape(x, [6, -1]), 4, "Reshape") == {"shape": [6, -1]}
    assert attributes(lambda op, x: op.Pad(x, [0] * 7 + [1]), 1, "Pad")["paddings"] == [0] * 7 + [1]
    assert attributes(lambda op, x: op.Gemm(x, random(3, 7), random(7)), 6, "Gemm", X[0, :, :3, 0])["broadcast"] == 1
    assert attributes(lambda op, x: op.Selu(x), 1, "Selu")["alpha"] == pytest.approx(1.67326319)
    lstm = attributes(
        lambda op, x: op.LSTM(x, random(1, 8, 5), random(1, 8, 2), hidden_size=2, _outputs=3), 6, "LSTM", X[0]
    )
    assert lstm["output_sequence"] == 1


REFUSED = [
    ("int64", lambda op, x: op.Add(x, 1), [SMALL], 5, "Add does not take int64 there", 6, False),
    ("joined int64", lambda op, x: op.Concat(x, x, axis=0), [SMALL], 3, "Concat does not take int64 there", 4, False),
    ("run-time shape", lambda op, x, s: op.Reshape(x, s), [X, np.array([2, 60])], 4, "computed at run time", 5, False),
    (
        "gru",
        lambda op, x: op.GRU(x, random(1, 6, 5), random(1, 6, 2), hidden_size=2, linear_before_reset=1, _outputs=2),
        [X[0]],
        2,
        "linear_before_reset",
        3,
        False,
    ),
    ("dice", lambda op, x: op.Multinomial(x, sample_size=2), [X[0, 0]], 6, "nothing older draws", 7, False),
    ("precise sine", lambda op, x: op.Sin(x), [X.astype(np.float64)], 6, "not of float64", 7, False),
]


@pytest.mark.parametrize(
    ("build", "inputs", "target", "reason", "lowest", "dynamic"), [c[1:] for c in REFUSED], ids=[c[0] for c in REFUSED]
)
def test_refused_with_the_opset_that_works(
    build: Any, inputs: Any, target: int, reason: str, lowest: int, dynamic: Any
) -> None:
    error = blocked(build, inputs, target, reason, dynamic=dynamic)
    assert error.blockers[0].lowest_opset == lowest


# Paddle's operators that the documentation of Paddle promises from opset 1 on.

PADDLE = [
    "abs",
    "argmax",
    "bn",
    "cast_i",
    "clip",
    "concat",
    "conv2d",
    "convt",
    "dwconv",
    "exp",
    "full",
    "flatten",
    "floor",
    "gather",
    "hardsigmoid",
    "hardswish",
    "in",
    "leaky_relu",
    "log",
    "matmul",
    "normalize",
    "pad_constant",
    "maxpool",
    "avgpool",
    "prelu",
    "reciprocal",
    "mean",
    "max",
    "min",
    "sum",
    "relu",
    "relu6",
    "softmax",
    "scale",
    "shape",
    "sigmoid",
    "slice",
    "split",
    "add_n",
    "squeeze",
    "swish",
    "tanh",
    "transpose",
    "unsqueeze",
    "lenet",
    "prior_box",
]


OLD = ["old_mul", "old_norm", "old_im2sequence", "old_uniform_batch_size_like", "old_prelu_channel", "old_fill_batch"]


@pytest.mark.parametrize(("kind", "name"), [*(("pir", name) for name in PADDLE), *(("old", name) for name in OLD)])
@pytest.mark.parametrize("opset", [6, 1])
def test_paddle(kind: str, name: str, opset: int, tmp_path: Path) -> None:
    check_paddle(kind, name, opset, tmp_path)


def test_a_network_of_pytorch() -> None:
    import torch

    from tests.networks import statistics

    layers = [torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.MaxPool2d(2)]
    head = [torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8, 5), torch.nn.Softmax(-1)]
    net = statistics(torch.nn.Sequential(*layers, *head)).eval()
    axes = {"x": {0: "batch"}}
    for opset in (6, 4, 1):
        result = tonnx.export(
            net,
            (torch.randn(2, 3, 8, 8),),
            opset_version=opset,
            dynamic_axes=axes,
            input_names=["x"],
            fuse_conv_bn=False,
        )
        assert result.verification is not None and result.verification.ok
        assert result.verification.brought_up_by == CONVERTER and "opset 7 and up" in str(result)
        assert {i.domain: i.version for i in result.proto.opset_import} == {"": opset}
