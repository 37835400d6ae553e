"""Quantisation: what PyTorch quantises has QuantizeLinear and DequantizeLinear in the file."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.ao import quantization

import tonnx
from tests.lowering.harness import Case, check, table

torch.manual_seed(0)
X, IMAGE = torch.randn(3, 4), torch.randn(2, 3, 6, 6)
SCALES, ZEROS = torch.rand(4) + 0.05, torch.tensor([0, 3, 5, -2], dtype=torch.int32)
QDQ = ["QuantizeLinear", "DequantizeLinear"]


def decomposed() -> Any:
    import torch.ao.quantization.fx._decomposed

    return torch.ops.quantized_decomposed


def dynamic(x: torch.Tensor) -> torch.Tensor:
    ops = decomposed()
    scale, zero = ops.choose_qparams(x, -128, 127, 1e-5, torch.int8)
    whole = ops.quantize_per_tensor.tensor(x, scale, zero, -128, 127, torch.int8)
    return ops.dequantize_per_tensor.tensor(whole, scale, zero, -128, 127, torch.int8)


def there_and_back(x: torch.Tensor, low: int, high: int, dtype: torch.dtype) -> torch.Tensor:
    ops = decomposed()
    return ops.dequantize_per_tensor(ops.quantize_per_tensor(x, 0.07, 3, low, high, dtype), 0.07, 3, low, high, dtype)


def per_channel(x: torch.Tensor) -> torch.Tensor:
    ops = decomposed()
    whole = ops.quantize_per_channel(x, SCALES, ZEROS, 1, -128, 127, torch.int8)
    return ops.dequantize_per_channel(whole, SCALES, ZEROS, 1, -128, 127, torch.int8)


CASES = [
    Case("fake, uint8", lambda x: torch.fake_quantize_per_tensor_affine(x, 0.07, 3, 0, 255), (X,), "all", has=QDQ),
    Case("fake, int8", lambda x: torch.fake_quantize_per_tensor_affine(x, 0.02, 3, -128, 127), (X,), has=QDQ),
    Case("fake, 7 bits", lambda x: torch.fake_quantize_per_tensor_affine(x, 0.02, 0, 0, 127), (X,), has=[*QDQ, "Clip"]),
    Case("fake, 4 bits", lambda x: torch.fake_quantize_per_tensor_affine(x, 0.3, 0, -8, 7), (X,), has=[*QDQ, "Clip"]),
    Case("fake, 16 bits", lambda x: torch.fake_quantize_per_tensor_affine(x, 1e-4, 0, -32768, 32767), (X,), opset=21,
         has=QDQ),
    Case("fake, tensors", lambda x, s, z: torch.fake_quantize_per_tensor_affine(x, s, z, 0, 255),
         (X, torch.tensor(0.05), torch.tensor(7, dtype=torch.int32)), {0: [0]}, has=QDQ),
    Case("fake, per channel", lambda x: torch.fake_quantize_per_channel_affine(x, SCALES, ZEROS, 1, -128, 127), (X,),
         {0: [0]}, has=QDQ),
    Case("fake, axis 0", lambda x: torch.fake_quantize_per_channel_affine(x, SCALES, ZEROS, 0, -128, 127),
         (torch.randn(4, 2, 3),), has=QDQ),
    Case("fake, learnable", lambda x: torch._fake_quantize_learnable_per_tensor_affine(
        x, torch.tensor([0.1]), torch.tensor([2.3]), 0, 255, 1.0), (X,), has=QDQ),
    Case("fake, opset 9", lambda x: torch.fake_quantize_per_tensor_affine(x, 0.07, 3, 0, 255), (X,), opset=9),
    Case("fake, channel, 10", lambda x: torch.fake_quantize_per_channel_affine(x, SCALES, ZEROS, 1, -128, 127), (X,),
         opset=10),
    Case("quantised tensor", lambda x: torch.quantize_per_tensor(x, 0.1, 3, torch.quint8).dequantize(), (X,), {0: [0]},
         has=QDQ),
    Case("quantised tensor, int32", lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint32).dequantize(), (X,)),
    Case("quantised tensor, per channel",
         lambda x: torch.quantize_per_channel(x, SCALES, ZEROS, 1, torch.qint8).dequantize(), (X,), has=QDQ),
    Case("pt2e", lambda x: there_and_back(x, 0, 255, torch.uint8), (X,), "all", has=QDQ),
    Case("pt2e, narrow", lambda x: there_and_back(x, -127, 127, torch.int8), (X,), has=[*QDQ, "Clip"]),
    Case("pt2e, 16 bits", lambda x: there_and_back(x, -32768, 32767, torch.int16), (X,), opset=21, has=QDQ),
    Case("pt2e, int32", lambda x: there_and_back(x, -(2**31), 2**31 - 1, torch.int32), (X,)),
    Case("pt2e, per channel", per_channel, (X,), {0: [0]}, has=QDQ),
    Case("pt2e, dynamic", dynamic, (X,), "all", has=QDQ),
]  # fmt: skip


@table(CASES)
def test_quantisation(case: Case) -> None:
    check(case)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.relu = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()
        self.linear = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(self.relu(self.norm(self.conv(x))).mean((2, 3)))


def aware(observe: bool = False) -> nn.Module:
    """A network trained with quantisation in mind."""
    model = quantization.QuantWrapper(Net()).train()
    model.qconfig = quantization.get_default_qat_qconfig("fbgemm")
    model = quantization.fuse_modules_qat(model, [["module.conv", "module.norm", "module.relu"]])
    quantization.prepare_qat(model, inplace=True)
    model(IMAGE)
    return model.eval() if observe else model.apply(quantization.disable_observer).eval()


@pytest.mark.filterwarnings("ignore")
def test_training_aware_of_quantisation() -> None:
    result = tonnx.export(aware(), IMAGE, dynamic_axes={"X": {0: "n"}})
    assert result.verification is not None and result.verification.ok
    kinds = [node.op_type for node in result.model.graph]
    assert kinds.count("QuantizeLinear") == 3 and kinds.count("DequantizeLinear") == 5  # two are of weights
    stored = {
        value.dtype.name
        for value in result.model.graph.initializers.values()
        if value.dtype and value.const_value.size > 7
    }  # type: ignore[union-attr]
    assert "UINT8" in stored


REFUSED: list[tuple[str, Any, str]] = [
    ("still observing", lambda: aware(observe=True), "disable_observer"),
    ("lazy", lambda: nn.LazyConv2d(4, 3), "run the model once"),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", REFUSED, ids=[case[0] for case in REFUSED])
def test_what_is_refused(case: Any) -> None:
    _, make, part = case
    with pytest.raises(tonnx.TonnxError) as caught:
        tonnx.export(make(), IMAGE)
    assert part in str(caught.value)
