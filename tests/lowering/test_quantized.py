"""Networks after torch.ao.quantization.convert: their integer kernels become QuantizeLinear and DequantizeLinear."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
import torch
from torch import nn
from torch.ao import quantization as aq

import tonnx
from tonnx.ir.pairs import are_safe
from tonnx.proof.trials.rounding import Quantised, without_rounding

pytestmark = pytest.mark.filterwarnings("ignore")
QDQ = {"QuantizeLinear", "DequantizeLinear"}


class Between(nn.Module):
    """Something between the two stubs."""

    def __init__(self, function: Callable[..., Any], *parts: nn.Module) -> None:
        super().__init__()
        self.quant, self.dequant = aq.QuantStub(), aq.DeQuantStub()
        self.parts, self.function = nn.ModuleList(parts), function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dequant(self.function(self.parts, self.quant(x)))


def converted(model: nn.Module, x: torch.Tensor, engine: str = "fbgemm") -> nn.Module:
    torch.backends.quantized.engine = engine
    model.eval().qconfig = aq.get_default_qconfig(engine)
    aq.prepare(model, inplace=True)
    model(x)
    return aq.convert(model, inplace=True)


def functional() -> Any:
    return torch.ao.nn.quantized.FloatFunctional()


def layer(*parts: nn.Module) -> tuple[Callable[..., Any], list[nn.Module]]:
    return (lambda held, x: nn.Sequential(*held)(x)), list(parts)


def call(function: Callable[..., Any]) -> tuple[Callable[..., Any], list[nn.Module]]:
    return (lambda held, x: function(held[0], x)), [functional()]


KERNELS: dict[str, tuple[Callable[..., Any], list[nn.Module]]] = {
    "conv": layer(nn.Conv2d(4, 6, 3, padding=1, stride=2)),
    "depthwise, linear": layer(nn.Conv2d(4, 4, 3, groups=4), nn.Linear(6, 3)),
    "norms": layer(nn.GroupNorm(2, 4), nn.BatchNorm2d(4), nn.InstanceNorm2d(4), nn.LayerNorm([8, 8])),
    "activations": layer(nn.Hardswish(), nn.LeakyReLU(0.1), nn.ELU(), nn.ReLU6(), nn.ReLU()),
    "own ranges": layer(nn.Sigmoid(), nn.Tanh(), nn.Hardsigmoid()),
    "pooling": layer(nn.MaxPool2d(2), nn.Upsample(scale_factor=2)),
    "add, mul": call(lambda f, x: f.add_relu(x, x)),
    "scalars": call(lambda f, x: f.mul_scalar(f.add_scalar(x, 0.7), -0.4)),
    "a scalar beyond the range": call(lambda f, x: f.add_scalar(x, 9.0)),
    "a scalar below the range": call(lambda f, x: f.add_scalar(x, -9.0)),
    "cat": call(lambda f, x: f.cat([x, x], 1)),
    "torch.cat, views": call(lambda f, x: torch.cat(x.chunk(2, 1)[::-1], 1).permute(0, 2, 3, 1).reshape(2, -1)),
    "matmul": call(lambda f, x: f.matmul(x, x)),
    "clamp, topk": call(lambda f, x: torch.topk(torch.clamp(x, -0.5, 0.5), 2)[0]),
}


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_agree_to_the_step(name: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 4, 8, 8)
    function, parts = KERNELS[name]
    model = converted(Between(function, *parts), x)
    result = tonnx.export(model, x)
    assert result.verification is not None and result.verification.ok
    for trial in result.verification.trials:
        for comparison in trial.comparisons:  # a number between two steps may be rounded either way, but few are
            assert comparison.mismatched <= 0.03 * comparison.total, trial.label
    assert {node.op_type for node in result.model.graph} >= QDQ


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.relu, self.linear = nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.conv(x))
        return self.linear(nn.functional.adaptive_avg_pool2d(y + y, 1).flatten(1))


torch.manual_seed(0)  # so that the same numbers are rounded every time
IMAGE = torch.randn(2, 3, 8, 8)


def graph_mode() -> nn.Module:
    from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

    torch.backends.quantized.engine = "fbgemm"
    prepared = prepare_fx(Net().eval(), aq.get_default_qconfig_mapping("fbgemm"), (IMAGE,))
    prepared(IMAGE)
    return convert_fx(prepared)


@pytest.mark.parametrize("opset", [11, 13, 21])
def test_graph_mode(opset: int) -> None:
    torch.manual_seed(1)
    result = tonnx.export(graph_mode(), IMAGE, opset_version=opset, dynamic_axes={"x": {0: "n"}})
    assert result.verification is not None and result.verification.ok
    assert {node.op_type for node in result.model.graph} >= QDQ
    stored = {v.name: v.dtype.name for v in result.model.graph.initializers.values() if v.dtype is not None}
    assert stored["conv.weight"] == ("INT8" if opset == 11 else "UINT8")  # there, reals are multiplied


def dynamic(model: nn.Module, *kinds: type, dtype: torch.dtype = torch.qint8) -> nn.Module:
    torch.backends.quantized.engine = "fbgemm"
    return aq.quantize_dynamic(model.eval(), set(kinds), dtype=dtype)


class Scripted(nn.Module):
    """A cell that is stepped by hand."""

    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.cell(x, torch.zeros(2, 5))


ROW, SEQUENCE = torch.randn(2, 4), torch.randn(3, 2, 4)
MLP = (nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
DYNAMIC: dict[str, tuple[Callable[[], nn.Module], torch.Tensor, dict[str, Any], str]] = {
    "linear": (lambda: dynamic(nn.Sequential(*MLP), nn.Linear), ROW, {"input": {0: "n"}}, "MatMulInteger"),
    "half": (lambda: dynamic(nn.Sequential(*MLP), nn.Linear, dtype=torch.float16), ROW, {"input": {0: "n"}}, "Gemm"),
    "scripted": (lambda: torch.jit.script(dynamic(nn.Sequential(*MLP), nn.Linear)), ROW, {}, "MatMulInteger"),
    "lstm": (lambda: dynamic(nn.Sequential(nn.LSTM(4, 5, 2, bidirectional=True)), nn.LSTM), SEQUENCE,
             {"input": {0: "t", 1: "n"}}, "Scan"),
    "gru": (lambda: dynamic(nn.Sequential(nn.GRU(4, 5, batch_first=True)), nn.GRU), SEQUENCE, {}, "Scan"),
    "gru, half": (lambda: dynamic(nn.Sequential(nn.GRU(4, 5)), nn.GRU, dtype=torch.float16), SEQUENCE, {}, "GRU"),
    "cell": (lambda: dynamic(Scripted(nn.GRUCell(4, 5)), nn.GRUCell), ROW, {}, "MatMulInteger"),
    "transformer": (lambda: dynamic(nn.TransformerEncoderLayer(8, 2, 16), nn.Linear), torch.randn(3, 2, 8),
                    {"src": {0: "t", 1: "n"}}, "MatMulInteger"),
}  # fmt: skip


@pytest.mark.parametrize("name", DYNAMIC)
def test_quantised_as_it_goes(name: str) -> None:
    torch.manual_seed(0)
    make, x, axes, kind = DYNAMIC[name]
    result = tonnx.export(make(), x, dynamic_axes=axes)
    assert result.verification is not None and result.verification.ok
    assert kind in {node.op_type for node in result.model.graph}
    weights = result.model.graph.initializers.values()
    signed = [value.const_value for value in weights if value.dtype == ir.DataType.INT8]
    # Beside uint8, others would saturate on some processors.
    assert all(tensor is not None and are_safe(tensor.numpy(), 1) for tensor in signed)


@pytest.mark.parametrize(("version", "size"), [(4, 1.0), (None, 1.0), (4, 1e-3), (4, 1e-5)])
def test_the_step_of_an_input(version: int | None, size: float) -> None:
    """Exactly PyTorch's: 7 bits, 8 in layers of old versions, and no smaller than it allows."""
    torch.manual_seed(0)
    layer = nn.Linear(64, 8, bias=False)
    layer.weight.data[:, 1::2] = 0  # with 8 bits, two products at once saturate in PyTorch on some processors
    model = dynamic(nn.Sequential(layer), nn.Linear)
    model[0].version = version  # type: ignore[index, union-attr]
    result = tonnx.export(model, torch.randn(4, 64) * size, rtol=1e-5, atol=1e-5 * size)
    assert result.verification is not None and result.verification.ok


def test_embedding() -> None:
    model = nn.Sequential(nn.Embedding(20, 8)).eval()
    model[0].qconfig = aq.float_qparams_weight_only_qconfig
    model = aq.convert(aq.prepare(model))
    result = tonnx.export(model, torch.randint(0, 20, (2, 3)))
    assert result.verification is not None and result.verification.ok


def test_the_model_is_left_as_it_was() -> None:
    torch.manual_seed(0)
    model = dynamic(nn.Sequential(*MLP), nn.Linear)
    before = model(ROW)
    tonnx.export(model, ROW)
    assert torch.equal(model(ROW), before) and "forward" not in vars(model[0])


def test_what_torch_export_cannot() -> None:
    with pytest.raises(tonnx.TonnxError, match="weights packed for PyTorch's own kernels"):
        tonnx.export(graph_mode(), IMAGE, capture="export")


def test_rounding_is_measured_and_no_more_is_allowed() -> None:
    torch.manual_seed(1)
    file = io.BytesIO()
    model = graph_mode()
    tonnx.export(model, IMAGE, file, opset_version=18, input_names=["x"], output_names=["y"], verify=False)
    smooth = without_rounding(file.getvalue())
    assert smooth is not None and "QuantizeLinear" in {node.op_type for node in smooth.graph.node}
    judge, inputs, want = Quantised(file.getvalue()), {"x": IMAGE.numpy()}, model(IMAGE).numpy()
    step = np.float32(model.linear.scale)
    one = np.arange(want.size).reshape(want.shape) == 3
    for other, allowed in ((want + step * one, True), (want * 1.5, False), (want + np.float32("nan"), False)):
        assert judge.allows(inputs, "y", want, other) is allowed
    plain = io.BytesIO()
    tonnx.export(Net(), IMAGE, plain)
    assert without_rounding(plain.getvalue()) is None
