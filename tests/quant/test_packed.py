"""Weights that a model holds as integers and unpacks by itself: the file has the same integers, and little else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, numpy_helper
from torch import nn

import tonnx
from tests.quant.packed_layers import Awq, Gptq
from tonnx.proof.session import Session
from tonnx.proof.trials.rounding import without_rounding


class Blocks(nn.Module):
    """Integers of 8 bits with a scale for each block, as torchao has them after what it wraps them in is taken off."""

    def __init__(self, inputs: int, outputs: int, group: int = 32) -> None:
        super().__init__()
        self.register_buffer("qdata", torch.randint(-8, 8, (outputs, inputs)).to(torch.int8))
        self.register_buffer("scale", torch.rand(outputs, inputs // group, 1) * 0.02 + 0.001)
        self.integers = self.qdata.T

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        blocks = self.qdata.view(*self.scale.shape[:2], -1)
        floats = (blocks.to(torch.float32) * self.scale).view(self.qdata.shape)
        return torch.nn.functional.linear(x, floats)


class Rows(nn.Module):
    """Words that hold two numbers of 4 bits each, whose zero points were multiplied by the scale beforehand."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.integers = torch.randint(0, 16, (inputs, outputs))
        pairs = self.integers.reshape(inputs, outputs // 2, 2)
        self.register_buffer("words", (pairs[..., 0] + pairs[..., 1] * 16).to(torch.uint8))
        self.register_buffer("scale", 2.0 ** torch.randint(-8, -4, (1, outputs)))
        self.register_buffer("shift", 8 * self.scale)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        numbers = torch.stack([self.words & 15, self.words >> 4], -1).reshape(len(self.words), -1)
        return x @ (numbers * self.scale - self.shift)


LAYERS: list[Any] = [
    ("gptq", lambda: Gptq(128, 64)),
    ("gptq of half precision", lambda: Gptq(128, 64, half=True)),
    ("gptq with groups in no order", lambda: Gptq(128, 64, shuffled=True)),
    ("gptq with one group", lambda: Gptq(64, 64, 64)),
    ("awq", lambda: Awq(128, 64)),
    ("awq of half precision", lambda: Awq(128, 64, half=True)),
    ("blocks", lambda: Blocks(128, 64)),
    ("rows", lambda: Rows(96, 64)),
]


def numbers(model: onnx.ModelProto) -> dict[int, list[np.ndarray]]:
    """The initializers of more than a thousand numbers, by type."""
    large = [tensor for tensor in model.graph.initializer if np.prod(tensor.dims) > 1000]
    kinds = {tensor.data_type for tensor in large}
    return {kind: [numpy_helper.to_array(tensor) for tensor in large if tensor.data_type == kind] for kind in kinds}


@pytest.mark.parametrize(("name", "build"), LAYERS, ids=[name for name, _ in LAYERS])
@pytest.mark.parametrize("opset", [21, 13])
def test_integers_are_the_same(name: str, build: Any, opset: int, tmp_path: Path) -> None:
    torch.manual_seed(0)
    layer = build().eval()
    packed = sum(buffer.nbytes for buffer in layer.buffers())
    rows = len(layer.integers)
    tonnx.export(layer, (torch.randn(3, rows),), tmp_path / "net.onnx", opset_version=opset)
    model = onnx.load(tmp_path / "net.onnx")
    four = TensorProto.INT4 if name == "blocks" else TensorProto.UINT4
    eight = TensorProto.INT8 if name == "blocks" else TensorProto.UINT8
    large = numbers(model)
    assert set(large) == {four if opset >= 21 else eight}
    (stored,) = next(iter(large.values()))
    wanted = layer.integers.numpy().T if name == "blocks" else layer.integers.numpy()
    integers = stored.astype(np.int32).reshape(wanted.shape)
    if "no order" in name:
        integers, wanted = (np.sort(array, axis=0) for array in (integers, wanted))
    np.testing.assert_array_equal(integers, wanted)
    if opset >= 21:
        assert sum(len(tensor.raw_data) for tensor in model.graph.initializer) <= 1.02 * packed + 4 * 64  # a bias
        assert "DequantizeLinear" in {node.op_type for node in model.graph.node}


class Columns(nn.Module):
    """Integers of 8 bits whose scales are multiplied by what comes of the product, as torchao's ``int8`` has them."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randint(-127, 128, (64, 128)).to(torch.int8))
        self.register_buffer("scale", torch.rand(shape) * 0.01 + 0.001)
        self.bias = nn.Parameter(torch.randn(64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.mm(x, self.weight.t().to(x.dtype)) * self.scale + self.bias


@pytest.mark.parametrize(("shape", "kept"), [((64,), False), ((1, 64), False), ((3, 1), True), ((3, 64), True)])
def test_factors_of_columns_are_scales(shape: tuple[int, ...], kept: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    layer = Columns(shape).eval()
    tonnx.export(layer, (torch.randn(3, 128),), tmp_path / "net.onnx", opset_version=21, runtime=None)
    model = onnx.load(tmp_path / "net.onnx")
    (stored,) = numbers(model)[TensorProto.INT8]
    np.testing.assert_array_equal(np.sort(stored, axis=None), np.sort(layer.weight.numpy(), axis=None))
    kinds = {node.op_type for node in model.graph.node}
    assert ("Mul" in kinds, "DequantizeLinear" in kinds) == (kept, not kept)


def test_tables_of_floats_stay_folded() -> None:
    """Positions and masks are integers that become floats, too; they are no weights."""

    class Positions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("place", torch.arange(64).view(64, 1))
            self.register_buffer("mask", torch.ones(64, 64, dtype=torch.int32).tril())
            self.register_buffer("rate", torch.rand(1, 64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x + torch.sin(self.place * self.rate)) * (self.mask * -2.0)

    result = tonnx.export(Positions(), (torch.randn(64, 64),), opset_version=21)
    assert "DequantizeLinear" not in {node.op_type for node in result.proto.graph.node}


class AsItGoes(nn.Module):
    """Rounds each row in a range of its own, and multiplies integers, as torchao does on processors with VNNI."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randint(-127, 128, (128, 64)).to(torch.int8))
        self.register_buffer("scale", torch.rand(64) * 0.01)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        step = x.abs().amax(1, keepdim=True).clamp(min=1e-5) / 127
        integers = (x / step).round().clamp(-128, 127).to(torch.int8)
        product = torch._int_mm((integers.int() + 128).to(torch.uint8), self.weight)
        product = product - self.weight.sum(0, keepdim=True, dtype=torch.int32) * 128
        return product.float() * step * self.scale


def test_what_rounding_by_hand_does_is_measured() -> None:
    torch.manual_seed(0)
    layer, x = AsItGoes().eval(), torch.randn(32, 128)
    result = tonnx.export(layer, (x,))
    assert result.verification is not None and result.verification.ok
    smooth = without_rounding(result.proto.SerializeToString())
    assert smooth is not None
    (flat,) = Session(smooth.SerializeToString()).run({"x": x.numpy()}).values()
    wanted = x @ (layer.weight.float() * layer.scale)
    np.testing.assert_allclose(flat, wanted.numpy(), rtol=1e-3, atol=1e-3)
    assert np.abs(layer(x).numpy() - wanted.numpy()).max() > 0.01


def test_sums_of_integer_weights_are_folded() -> None:
    """What is made of weights beside a product of integers does not have them stored twice."""

    class Product(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weight", torch.randint(-127, 128, (512, 256)).to(torch.int8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            product = torch._int_mm((x.int() + 128).to(torch.uint8), self.weight)
            return product - self.weight.sum(0, keepdim=True, dtype=torch.int32) * 128

    result = tonnx.export(Product(), (torch.randint(-100, 100, (32, 512)).to(torch.int8),), verify=False)
    sizes = [int(np.prod(tensor.dims)) for tensor in result.proto.graph.initializer]
    assert sorted(sizes)[-1] == 512 * 256 and sorted(sizes)[-2] <= 256


class OfAKernel(nn.Module):
    """A weight of 4 bits in the order of this processor's kernel, as torchao has it on a CPU; zeros are reals."""

    def __init__(self, dtype: torch.dtype, group: int) -> None:
        super().__init__()
        self.integers, self.group = torch.randint(0, 16, (64, 320), dtype=torch.int32), group
        self.register_buffer("weight", torch.ops.aten._convert_weight_to_int4pack_for_cpu(self.integers, 1))
        scale_and_zero = torch.stack([torch.rand(320 // group, 64) * 0.1 + 0.01, torch.randn(320 // group, 64)], -1)
        self.register_buffer("scale_and_zero", scale_and_zero.to(dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten._weight_int4pack_mm_for_cpu(x, self.weight, self.group, self.scale_and_zero)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("group", [32, 64])
def test_what_is_packed_for_a_kernel_is_put_in_order(dtype: torch.dtype, group: int, tmp_path: Path) -> None:
    torch.manual_seed(0)
    layer, x = OfAKernel(dtype, group).eval(), torch.randn(3, 320, dtype=dtype)
    tonnx.export(layer, (x,), tmp_path / "net.onnx", opset_version=21, dynamic_axes={"x": {0: "rows"}})
    (stored,) = numbers(onnx.load(tmp_path / "net.onnx"))[TensorProto.INT4]
    np.testing.assert_array_equal(stored.astype(np.int32), layer.integers.numpy().T - 8)
