"""Activations and dropouts."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.lowering.harness import Case, check, export_case, table
from tonnx.errors import UnsupportedArgument

X = torch.randn(2, 3, 5) * 3
EDGES = torch.tensor([-100.0, -21.0, -3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0, 6.5, 19.9, 21.0, 100.0])
INTS = torch.arange(-4, 8).reshape(3, 4)


def _pointwise(name, function, has=()):
    return [
        Case(name, function, [X], dynamic="all", has=has),
        Case(f"{name} edges", function, [EDGES]),
    ]


CASES = [
    *_pointwise("relu", F.relu, ["Relu"]),
    *_pointwise("relu6", F.relu6, ["Clip"]),
    *_pointwise("hardtanh", lambda x: F.hardtanh(x, -0.7, 1.3), ["Clip"]),
    *_pointwise("leaky_relu", lambda x: F.leaky_relu(x, 0.2), ["LeakyRelu"]),
    *_pointwise("elu", lambda x: F.elu(x, 0.7), ["Elu"]),
    *_pointwise("selu", F.selu, ["Selu"]),
    *_pointwise("celu", lambda x: F.celu(x, 1.7), ["Celu"]),
    *_pointwise("gelu", F.gelu),
    *_pointwise("gelu tanh", lambda x: F.gelu(x, approximate="tanh")),
    *_pointwise("silu", F.silu, ["Sigmoid"]),
    *_pointwise("mish", F.mish),
    *_pointwise("hardswish", F.hardswish, ["HardSwish"]),
    *_pointwise("hardsigmoid", F.hardsigmoid, ["HardSigmoid"]),
    *_pointwise("softplus", F.softplus, ["Softplus"]),
    *_pointwise("softplus beta", lambda x: F.softplus(x, beta=2.5, threshold=1.5)),
    *_pointwise("softshrink", lambda x: F.softshrink(x, 0.6), ["Shrink"]),
    *_pointwise("hardshrink", lambda x: F.hardshrink(x, 0.6), ["Shrink"]),
    *_pointwise("tanhshrink", F.tanhshrink),
    *_pointwise("softsign", F.softsign),
    *_pointwise("threshold", lambda x: F.threshold(x, 0.5, -7.0)),
    *_pointwise("logsigmoid", F.logsigmoid),
    Case("elu scaled", lambda x: torch.ops.aten.elu(x, 1.5, 1.1, 0.5), [X]),
    Case("silu in place", lambda x: F.silu(x + 1, inplace=True), [X]),
    Case("relu scalar", F.relu, [torch.tensor(-2.0)]),
    Case("relu empty", F.relu, [torch.randn(0, 3)]),
    Case("relu int64", F.relu, [INTS], has=["Max"]),
    Case("relu int8", F.relu, [INTS.to(torch.int8)]),
    Case("relu int16", F.relu, [INTS.to(torch.int16)]),
    Case("hardtanh int32", lambda x: F.hardtanh(x, -2, 3), [INTS.to(torch.int32)]),
    Case("threshold int64", lambda x: F.threshold(x, 1, 20), [INTS]),
    Case("silu not contiguous", F.silu, [X.permute(2, 0, 1)]),
    Case("gelu float16", F.gelu, [X.half()]),
    Case("mish float64", F.mish, [X.double()]),
    Case("elu bfloat16", F.elu, [X.bfloat16()]),
    Case("prelu", nn.PReLU(), [X], dynamic="all", has=["PRelu"]),
    Case("prelu channels", nn.PReLU(3, 0.1), [torch.randn(2, 3, 4, 5)], dynamic={0: [0, 2, 3]}, has=["PRelu"]),
    Case("prelu channels 2d", nn.PReLU(3, 0.1), [torch.randn(4, 3)], dynamic={0: [0]}),
    Case("prelu vector", nn.PReLU(), [torch.randn(7)], dynamic="all"),
    Case("prelu scalar", lambda x, w: F.prelu(x, w), [torch.tensor(-2.0), torch.tensor(0.3)]),
    Case("rrelu", nn.RReLU(0.1, 0.4), [X], has=["LeakyRelu"]),
    Case("glu", nn.GLU(), [torch.randn(3, 6)], dynamic={0: [0]}),
    Case("glu dim", nn.GLU(1), [torch.randn(2, 6, 5)], dynamic={0: [0, 2]}),
    Case("glu dynamic axis", lambda x: F.glu(torch.cat([x, x], 0), 0), [torch.randn(3, 2)], dynamic="all"),
    Case(
        "dropouts",
        nn.Sequential(nn.Dropout(0.3), nn.AlphaDropout(0.2), nn.FeatureAlphaDropout(0.2)),
        [X],
        dynamic="all",
    ),
    Case("dropout2d", nn.Sequential(nn.Dropout2d(0.3), nn.ReLU()), [torch.randn(2, 3, 4, 5)], has_not=["Dropout"]),
    Case("dropout nothing", lambda x: F.dropout(x, 0.0, training=True) + F.dropout(x, 1.0, training=True), [X]),
]


@table(CASES)
def test_activation(case):
    check(case)


def test_random_functions_are_refused():
    with pytest.raises(UnsupportedArgument, match="random"):
        export_case(Case("dropout", lambda x: F.dropout(x, 0.5, training=True), [X]))
    with pytest.raises(UnsupportedArgument, match="random"):
        export_case(Case("rrelu", lambda x: F.rrelu(x, training=True), [X]))
