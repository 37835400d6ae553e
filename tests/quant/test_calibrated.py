"""Networks that multiply integers: fused by ONNX Runtime, close to the original, and refused where data is bad."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
import torch
from torch import nn

import tonnx
from tonnx.api import calibrated
from tonnx.cli import main
from tonnx.ir.pairs import are_safe
from tonnx.proof.judge import run_of
from tonnx.proof.trials.rounding import is_rounding
from tonnx.quant.histogram import Histogram
from tonnx.quant.integers import Form, by_channel
from tonnx.quant.layers import candidates
from tonnx.quant.qdq import Step
from tonnx.quant.static import _inside, steps_needed, write_static, write_trial

RNG = np.random.default_rng(0)
DATA = RNG.standard_normal((48, 3, 8, 8)).astype(np.float32)


class Small(nn.Module):
    """Convolutions with a residual sum, a pool, and products."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 5, padding=2), nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.third = nn.Conv2d(8, 12, 3)
        self.hidden, self.head = nn.Linear(48, 32), nn.Linear(32, 40)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.first(x)))
        x = torch.relu(self.third(torch.relu(x + self.second(x))))
        x = nn.functional.max_pool2d(x, 3)
        return self.head(torch.relu(self.hidden(x.flatten(1))))


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("quant") / "net.onnx"
    torch.manual_seed(0)
    tonnx.export(Small().eval(), torch.zeros(2, 3, 8, 8), path, input_names=["x"], dynamic_axes={"x": {0: "n"}})
    return path


def fused(path: Path, folder: Path) -> Counter[str]:
    """The operators that ONNX Runtime makes of a file."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(folder / "optimised.onnx")
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return Counter(node.op_type for node in onnx.load(folder / "optimised.onnx").graph.node)


def test_every_layer_multiplies_integers(net: Path, tmp_path: Path) -> None:
    result = tonnx.quantize(net, tmp_path / "q.onnx", data=DATA)
    assert result.verification is not None and result.verification.ok
    assert result.losses[0].signal_to_noise > 30
    assert result.after < 0.35 * result.before
    operators = fused(tmp_path / "q.onnx", tmp_path)
    assert operators["QLinearConv"] == 3 and operators["QGemm"] == 2 and operators["QLinearAdd"] == 1
    assert not {"Conv", "FusedConv", "Gemm", "Relu", "Add"} & set(operators)
    model = onnx.load(tmp_path / "q.onnx")
    kinds = {i.name: i.data_type for i in model.graph.initializer}
    assert onnx.TensorProto.INT8 in kinds.values()  # weights: faster than uint8, and no pair of them is cut off
    assert {kinds[n.input[2]] for n in model.graph.node if n.op_type == "QuantizeLinear"} == {onnx.TensorProto.UINT8}


def test_convolutions_of_rows_that_stay_floats_are_those_of_pictures(tmp_path: Path) -> None:
    """ONNX Runtime's kernels for these are faster; an activation after one stays part of it."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv1d(1, 16, 9, 2, 4, dilation=1), nn.LeakyReLU(), nn.Conv1d(16, 16, 9, padding="same"),
                        nn.ReLU(), nn.ConvTranspose1d(16, 2, 4))  # fmt: skip
    tonnx.export(net.eval(), torch.zeros(2, 1, 64), tmp_path / "f.onnx", input_names=["x"],
                 dynamic_axes={"x": {0: "n"}})  # fmt: skip
    data = RNG.standard_normal((32, 1, 64)).astype(np.float32)
    result = tonnx.quantize(tmp_path / "f.onnx", tmp_path / "q.onnx", data=data)
    assert result.verification is not None and result.verification.ok
    model = onnx.load(tmp_path / "q.onnx")
    attributes = [a for node in model.graph.node if node.op_type == "Conv" for a in node.attribute]
    strides = [a.ints for a in attributes if a.name == "strides"]
    assert sorted(map(len, strides)) == [1, 2]
    makers = {name: node.op_type for node in model.graph.node for name in node.output}
    assert [makers[node.input[0]] for node in model.graph.node if node.op_type == "Squeeze"] == ["LeakyRelu"]
    checked = tonnx.verify(tmp_path / "q.onnx", str(tmp_path / "f.onnx"), {"x": data}, values=False)
    assert checked.quantisation is not None and checked.quantisation.only


class Tiny(nn.Module):
    """A first layer and a last one for which integers are of no use, a depthwise one, and one before an activation."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.deep = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, groups=8)
        self.wide, self.hidden, self.head = nn.Conv2d(8, 16, 3), nn.Linear(256, 16), nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.wide(torch.relu(self.deep(torch.relu(self.first(x))))))
        return self.head(torch.relu(self.hidden(x.flatten(1))))


def test_layers_that_gain_nothing_stay_floats(tmp_path: Path) -> None:
    torch.manual_seed(0)
    tonnx.export(Tiny().eval(), torch.zeros(2, 3, 8, 8), tmp_path / "f.onnx", input_names=["x"], verify=False)
    result = tonnx.quantize(tmp_path / "f.onnx", tmp_path / "q.onnx", data=DATA)
    assert result.calibrated is not None
    assert [why.split()[0] for why in result.calibrated.floats.values()] == ["sums", "fewer"]
    operators = fused(tmp_path / "q.onnx", tmp_path)
    # The Relu between the two products is part of the first, although the second needs no integers.
    assert (operators["QLinearConv"], operators["QGemm"], operators["Gemm"], operators["FusedGemm"]) == (2, 1, 1, 0)
    kinds = {i.name: i.data_type for i in onnx.load(tmp_path / "q.onnx").graph.initializer}
    assert kinds["deep.weight_quantized"] == onnx.TensorProto.INT8  # its kernel has no pairs
    deep = next(layer.stored for layer in result.calibrated.layers if layer.weight == "deep.weight")
    assert np.abs(deep.integers.astype(int)).max() > 120
    everywhere = tonnx.quantize(tmp_path / "f.onnx", data=DATA, runtime=None, method="minmax", verify=False)
    assert everywhere.calibrated is not None and not everywhere.calibrated.floats


@pytest.mark.parametrize(("taps", "pad", "stride", "dilation"), [(3, 1, 1, 1), (5, 2, 2, 1), (3, 2, 1, 2)])
def test_zeros_around_a_picture_are_no_part_of_its_mean(taps: int, pad: int, stride: int, dilation: int) -> None:
    conv = nn.Conv1d(1, taps, taps, stride, pad, dilation, bias=False)
    conv.weight.data = torch.eye(taps)[:, None]  # channel i: what the filter's place i sees
    wanted = conv(torch.ones(1, 1, 9)).detach().numpy().mean((0, 2))
    x = ir.Value(name="x", shape=ir.Shape([1, 1, 9]))
    attributes = {"pads": [pad, pad], "strides": [stride], "dilations": [dilation]}
    node = ir.Node("", "Conv", [x], [ir.AttrInt64s(name, numbers) for name, numbers in attributes.items()])
    np.testing.assert_allclose(_inside(node, 0, taps, 9), wanted, atol=1e-6)


def test_for_no_runtime_all_integers_are_signed(net: Path, tmp_path: Path) -> None:
    tonnx.quantize(net, tmp_path / "q.onnx", data=DATA, runtime=None, method="minmax", verify=False)
    kinds = Counter(i.data_type for i in onnx.load(tmp_path / "q.onnx").graph.initializer)
    assert kinds[onnx.TensorProto.INT8] and not kinds[onnx.TensorProto.UINT8]


@pytest.mark.parametrize("method", ["mse", "minmax", "percentile", "entropy"])
def test_methods(net: Path, method: str) -> None:
    result = tonnx.quantize(net, data=iter([{"x": DATA[:16]}, DATA[16:32], (DATA[32:],)]), method=method, verify=False)
    assert result.calibrated is not None and result.calibrated.method == method
    assert len(result.calibrated.layers) == 5


def test_a_calibration_opens_two_sessions(net: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is looked at, which also says what is right, and one in which both ways to find ranges are tried."""
    opened: list[ir.Model] = []

    def counted(model: ir.Model, **options: bool) -> Any:
        opened.append(model)
        return run_of(model, **options)

    monkeypatch.setattr(calibrated, "run_of", counted)
    result = tonnx.quantize(net, data=DATA, verify=False)
    assert len(opened) == 2
    assert result.calibrated is not None
    original = onnxruntime.InferenceSession(str(net), providers=["CPUExecutionProvider"])
    wanted = original.run(None, dict(result.calibrated.kept[0]))[0]
    output = next(iter(result.calibrated.wanted[0].values()))
    np.testing.assert_allclose(output, wanted, rtol=1e-4, atol=1e-5)


def test_what_is_tried_is_what_is_written(net: Path) -> None:
    """The same steps as inputs, beside floats that the stored integers stand for, give what the file gives."""
    model = ir.load(net)
    calibrated.prepared(model)
    names = [layer.name for layer in candidates(model)]
    steps = {name: Step.of((-3.0, 5.0)) for name in steps_needed(candidates(model))}
    tried, written = model.clone(), model.clone()
    trial = write_trial(tried, names, 8, {}, {})
    write_static(written, names, steps, {})
    feeds = {"x": DATA[:4]}
    one = run_of(tried, fused_integers=False)({**feeds, **trial.feeds(steps)})
    other = run_of(written, fused_integers=False)(feeds)
    for name, array in other.items():
        np.testing.assert_allclose(one[name], array, atol=2e-2 * np.abs(array).max())
        assert np.square(one[name] - array).mean() < 1e-5 * np.square(array).mean()


def test_what_is_tried_may_name_its_share(net: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrated, "_TRIED", {"percentile 90": 1.0, "minmax": 1e9})
    tried = tonnx.quantize(net, data=DATA, verify=False).calibrated
    asked = tonnx.quantize(net, data=DATA, method="percentile", percentile=90, verify=False).calibrated
    assert tried is not None and asked is not None and tried.method == "percentile 90"
    assert [float(layer.step.scale) for layer in tried.layers] == [float(layer.step.scale) for layer in asked.layers]


def test_an_iterator_may_use_its_memory_again(net: Path) -> None:
    def batches() -> Iterator[np.ndarray]:
        memory = np.zeros((8, 3, 8, 8), np.float32)
        for start in range(0, 48, 8):
            memory[:] = DATA[start : start + 8]
            yield memory

    again = tonnx.quantize(net, data=batches(), verify=False).calibrated
    assert again is not None
    for feeds, number in zip(again.kept, (1, 3, 5), strict=True):
        np.testing.assert_array_equal(feeds["x"], DATA[8 * number : 8 * number + 8])


class Masked(nn.Module):
    """Attention whose scores a mask is added to."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        return self.out(torch.softmax(q @ k.transpose(1, 2) + mask[:, None], -1) @ v)


def test_masks_may_be_infinite(tmp_path: Path) -> None:
    """Nor does the proof turn them around, which would hide all that they leave."""
    torch.manual_seed(0)
    x, mask = torch.randn(12, 6, 32), torch.zeros(12, 6)
    mask[:, 4:] = -torch.inf
    tonnx.export(Masked().eval(), (x, mask), tmp_path / "f.onnx", input_names=["x", "mask"], verify=False)
    data = [{"x": x.numpy() * loud, "mask": mask.numpy()} for loud in (1, 0.9, 0.7)]
    result = tonnx.quantize(tmp_path / "f.onnx", data=data)
    assert result.verification is not None and result.verification.ok
    assert result.calibrated is not None and len(result.calibrated.layers) == 2
    feeds = data[0]
    both = [run_of(model) for model in (result.model, ir.load(tmp_path / "f.onnx"))]
    outputs = [next(iter(run(feeds).values())) for run in both]
    assert is_rounding(feeds, *outputs, lambda arrays: tuple(next(iter(run(arrays).values())) for run in both))


@pytest.mark.parametrize(("rows", "batches"), [([32, 32, 32], 2), ([1, 1], 2), ([100, 8], 1), ([40, 40, 40], 2)])
def test_methods_are_tried_on_some_rows(rows: list[int], batches: int) -> None:
    keeper = calibrated._Keeper()
    for number, count in enumerate(rows):
        keeper.add(2 * number + 1, {"x": np.zeros((count, 2), np.float32)}, {"y": np.zeros(count)})
    assert len(keeper.first(64)) == batches


@pytest.mark.parametrize("scales", [(1, 1), (1, 40), (0, 3), (0, 0)])
def test_histograms_of_parts_are_one(scales: tuple[float, float]) -> None:
    whole, *parts = (Histogram() for _ in range(3))
    for scale, part in zip(scales, parts, strict=True):
        values = RNG.standard_normal(3000).astype(np.float32) * np.float32(scale)
        for one in (whole, part):
            one.add(values, float(values.min()), float(values.max()))
    both = parts[0].with_those_of(parts[1])
    assert (both.width, both.zeros, both.low, both.high) == (whole.width, whole.zeros, whole.low, whole.high)
    np.testing.assert_array_equal(both.counts, whole.counts)


def test_sixteen_bits_are_closer(net: Path) -> None:
    eight, sixteen = (
        tonnx.quantize(net, data=DATA, method="minmax", activations=bits, opset_version=21).losses[0].signal_to_noise
        for bits in (8, 16)
    )
    assert sixteen > eight + 1


def test_products_that_round_as_they_go(net: Path, tmp_path: Path) -> None:
    result = tonnx.quantize(net, tmp_path / "q.onnx", activations="dynamic")
    assert result.verification is not None and result.verification.ok
    assert {layer.why for layer in result.layers if layer.stored is None} == {"only products are"}
    operators = fused(tmp_path / "q.onnx", tmp_path)
    assert operators["DynamicQuantizeMatMul"] == 2 and not operators["Gemm"]
    with pytest.raises(tonnx.InvalidArgument, match="dynamic activations"):
        tonnx.quantize(net, activations="dynamic", data=DATA)


def test_costly_layers_stay_floats(net: Path) -> None:
    whole = tonnx.quantize(net, data=DATA, method="minmax", max_loss=1.0)
    assert whole.calibrated is not None and not whole.calibrated.floats
    limit = whole.calibrated.curve[0].loss * 0.7
    result = tonnx.quantize(net, data=DATA, method="minmax", max_loss=limit)
    found = result.calibrated
    assert found is not None and 0 < len(found.floats) < 5
    assert set(found.floats.values()) == {"it costs too much"}
    chosen = next(point for point in found.curve if set(point.floats) == set(found.floats))
    assert chosen.loss <= limit < found.curve[0].loss
    assert "layers in float" in str(result)


class Halved(nn.Module):
    """What the second layer reads has the step of the first one's result, if that is one of integers as well."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.last = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.one(x))
        return self.last(torch.relu(self.two(x[:, :4])))


def test_each_layer_is_tried_alone(tmp_path: Path) -> None:
    """Also where it shares a step with others in the whole network."""
    torch.manual_seed(0)
    data = RNG.standard_normal((16, 8, 8, 8)).astype(np.float32)
    tonnx.export(Halved().eval(), torch.zeros(2, 8, 8, 8), tmp_path / "f.onnx", input_names=["x"],
                 dynamic_axes={"x": {0: "n"}}, verify=False)  # fmt: skip
    settings: dict[str, Any] = {"data": data, "method": "minmax", "verify": False}
    many = tonnx.quantize(tmp_path / "f.onnx", max_loss=1e-6, **settings).calibrated
    assert many is not None and len(many.sensitivity) == 3
    for name, cost in many.sensitivity.items():
        others = [other for other in many.sensitivity if other != name]
        alone = tonnx.quantize(tmp_path / "f.onnx", skip=others, max_loss=1.0, **settings).calibrated
        assert alone is not None
        assert alone.curve[0].loss == pytest.approx(cost, rel=0.2)


def test_a_metric_of_the_user(net: Path) -> None:
    attempts: list[tuple[int, ...]] = []

    def metric(run: Any) -> float:
        attempts.append(next(iter(run({"x": DATA[:4]}).values())).shape)
        return 1.0 if len(attempts) in (1, 5) else 0.0  # the original, and the attempt with two layers in floats

    result = tonnx.quantize(net, data=DATA, method="minmax", max_loss=0.5, metric=metric, verify=False)
    assert result.calibrated is not None and len(result.calibrated.floats) == 2
    assert set(attempts) == {(4, 40)}


def test_memory_does_not_grow_and_ends_are_exact() -> None:
    histogram = Histogram()
    for scale in (1, 3, 0.1, 40, 2):
        values = RNG.standard_normal(5000).astype(np.float32) * np.float32(scale)
        histogram.add(values, float(values.min()), float(values.max()))
        assert histogram.counts.size == 4096 and histogram.values.size <= 8192 + 4096
    assert histogram.counts.sum() + histogram.zeros == 25000
    low, high = histogram.range("mse")
    assert histogram.low < low < -1 and 1 < high < histogram.high
    assert histogram.error((low, high)) < histogram.error((histogram.low, histogram.high))


def test_values_on_a_grid_are_kept_exactly() -> None:
    histogram = Histogram()
    pixels = RNG.integers(0, 256, 4000).astype(np.float32) / np.float32(255)
    histogram.add(pixels, 0.0, 1.0)
    assert histogram.range("mse") == (0.0, 1.0)


@pytest.mark.parametrize(("shape", "axis"), [((8, 3, 3, 3), 0), ((64, 32), 1), ((6, 5), 0), ((4, 1, 5), 0)])
def test_no_pair_of_weights_is_cut_off(shape: tuple[int, ...], axis: int) -> None:
    array = RNG.standard_normal(shape).astype(np.float32)
    plain, paired = (by_channel(array, axis, Form(8, 0, paired=paired)) for paired in (False, True))
    assert are_safe(paired.integers, axis) and not are_safe(np.full(shape, 65, np.int8), axis)
    assert np.square(paired.floats() - array).sum() < 5 * np.square(plain.floats() - array).sum()


@pytest.mark.parametrize(
    ("shape", "places", "safe"),
    [
        ((1, 4, 3), [(0, 0), (0, 1)], True),  # side by side in the filter, not for the kernel: channels come last
        ((1, 4, 3), [(0, 0), (1, 0)], False),
        ((1, 4, 3), [(1, 0), (2, 0)], True),
        ((1, 3, 3), [(2, 0), (0, 1)], False),  # an odd number of channels: from one place to the next
        ((1, 1, 4), [(0, 0), (0, 1)], False),
    ],
)
def test_pairs_are_those_of_the_kernel(shape: tuple[int, ...], places: list[tuple[int, int]], safe: bool) -> None:
    integers = np.zeros(shape, np.int8)
    for channel, tap in places:
        integers[0, channel, tap] = 127
    assert are_safe(integers, 0) is safe


class Block(nn.Module):
    """Squeeze and excitation with swish, and a residual sum, as EfficientNet has them."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.back = nn.Conv2d(16, 32, 3, padding=1), nn.Conv2d(32, 16, 1)
        self.squeeze, self.excite = nn.Conv2d(32, 8, 1), nn.Conv2d(8, 32, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = nn.functional.silu(self.wide(x))
        gate = self.excite(nn.functional.silu(self.squeeze(y.mean((2, 3), keepdim=True))))
        return x + self.back(y * torch.sigmoid(gate))


class Branches(nn.Module):
    """Layers side by side and a pool, as Inception has them."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.near, self.far, self.pooled = (nn.Conv2d(inputs, 16, size, padding=size // 2) for size in (1, 3, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pooled = nn.functional.max_pool2d(x, 3, 1, 1)
        return torch.cat([self.near(x), self.far(x), self.pooled(pooled)], 1)


def branches() -> nn.Module:
    ends = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, 5)
    return nn.Sequential(nn.Conv2d(3, 16, 5), nn.ReLU(), Branches(16), nn.MaxPool2d(2), Branches(48), *ends)


def summed_sounds() -> nn.Module:
    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv1d(16, 16, 3, padding=1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(x + self.conv(x))

    return nn.Sequential(nn.Conv1d(3, 16, 3), Sum(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(16, 5))


@pytest.mark.parametrize(
    ("build", "data", "floats"),
    [
        # The sum is not what a layer reads, but only its mean counts.
        (lambda: nn.Sequential(nn.Conv2d(3, 16, 5), Block(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5)),
         DATA, {"Gemm"}),
        (summed_sounds, DATA.reshape(len(DATA), 3, -1), {"Gemm"}),
        (branches, DATA, {"Gemm"}),
        # A mean that is the result is no result of 8 bits.
        (lambda: nn.Sequential(nn.Conv2d(3, 16, 5), nn.AdaptiveAvgPool2d(1), nn.Flatten()), DATA,
         {"GlobalAveragePool"}),
    ],
)  # fmt: skip
def test_what_is_computed_between_layers_is_integers(
    build: Callable[[], nn.Module], data: np.ndarray, floats: set[str], tmp_path: Path
) -> None:
    torch.manual_seed(0)
    tonnx.export(build().eval(), torch.zeros(2, *data.shape[1:]), tmp_path / "f.onnx", input_names=["x"], verify=False)
    result = tonnx.quantize(tmp_path / "f.onnx", tmp_path / "q.onnx", data=data)
    assert result.verification is not None and result.verification.ok
    operators = fused(tmp_path / "q.onnx", tmp_path)
    computing = {"Conv", "FusedConv", "Add", "Mul", "Sigmoid", "Relu", "Gemm", "FusedGemm", "GlobalAveragePool",
                 "Concat"}  # fmt: skip
    assert computing & set(operators) == floats
    assert operators["QuantizeLinear"] == operators["DequantizeLinear"] == 1


def test_pools_of_floats_are_not_taken_of_integers(tmp_path: Path) -> None:
    """The first layer stays one of floats; pools of integers that no integer kernel made are slow."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), Branches(16))
    tonnx.export(net.eval(), torch.zeros(2, 3, 8, 8), tmp_path / "f.onnx", input_names=["x"], verify=False)
    tonnx.quantize(tmp_path / "f.onnx", tmp_path / "q.onnx", data=DATA)
    model = onnx.load(tmp_path / "q.onnx")
    makers = {name: node.op_type for node in model.graph.node for name in node.output}
    assert [makers[node.input[0]] for node in model.graph.node if node.op_type == "MaxPool"] == ["Relu"]


def test_a_last_layer_of_short_sums_stays_one_of_floats(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 16, 5), nn.ReLU(), nn.Conv2d(16, 16, 1), nn.Conv2d(16, 2, 1), nn.Sigmoid())
    tonnx.export(net.eval(), torch.zeros(2, 3, 8, 8), tmp_path / "f.onnx", input_names=["x"], verify=False)
    result = tonnx.quantize(tmp_path / "f.onnx", data=DATA, verify=False)
    assert result.calibrated is not None
    assert {name: why[:10] for name, why in result.calibrated.floats.items()} == {"/3/Conv": "sums of 16"}


def not_finite() -> np.ndarray:
    array = DATA.copy()
    array[20, 0, 0, 0] = np.nan
    return array


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data": []}, "no samples"),
        ({"data": "nowhere/"}, "no file or folder"),
        ({"data": DATA[:0]}, "no numbers for x"),
        ({"to": "int4", "inputs": {"x": np.full((1, 3, 8, 8), np.nan, np.float32)}}, "NaN for x"),
        ({"data": not_finite()}, "NaN for x"),
        ({"data": np.where(np.isnan(not_finite()), np.inf, DATA)}, "the data has numbers that are not finite"),
        ({"data": DATA[:, :2]}, "axis 1 is 3"),
        ({"data": DATA.astype(np.float64)}, "was given as float64"),
        ({"data": 3}, "data cannot be int"),
        ({"data": DATA, "skip": ["no*"]}, r"no layer has a name like 'no\*'"),
        ({"data": DATA, "skip": ["*"]}, "no layer that could multiply integers"),
        ({"data": DATA, "activations": 4}, "8 or 16 bits"),
        ({"data": DATA, "activations": 16, "opset_version": 18}, "need opset 21"),
        ({"data": DATA, "method": "best"}, "method must be"),
        ({"data": DATA, "to": "int4", "max_loss": 0.1}, "only weights are integers"),
        ({"data": DATA, "rounding": "nearest"}, "needs no data"),
        ({"rounding": "gptq"}, "needs data"),
        ({"rounding": "best"}, "rounding must be"),
        ({"data": DATA, "samples": 0}, "at least 1"),
        ({"data": DATA, "max_loss": -1}, "must not be negative"),
        ({"data": DATA, "metric": lambda run: 1.0}, "metric needs max_loss"),
        ({"data": DATA, "max_loss": 0.1, "metric": lambda run: 1 / 0}, "the metric failed\n.*ZeroDivisionError"),
        ({"data": DATA, "max_loss": 0.1, "metric": lambda run: "good"}, "the metric failed"),
        ({"data": DATA, "max_loss": 0.1, "metric": lambda run: np.nan}, "the metric gave nan"),
        ({"max_loss": 0.1}, "max_loss needs data"),
    ],
)
def test_refused(net: Path, options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(tonnx.InvalidArgument) as refusal:
        tonnx.quantize(net, tmp_path / "q.onnx", **options)
    import re

    assert re.search(message, str(refusal.value))
    assert not list(tmp_path.iterdir())


def pictures(folder: Path) -> Iterator[Path]:
    from PIL import Image

    for number in range(4):
        path = folder / f"{number}.png"
        Image.fromarray(RNG.integers(0, 256, (10, 10, 3)).astype(np.uint8)).save(path)
        yield path


def test_command(net: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "photos").mkdir()
    assert len(list(pictures(tmp_path / "photos"))) == 4
    recipe = tmp_path / "r.json"
    recipe.write_text(json.dumps({"before": [{"resize": {"size": [8, 8]}}, {"scale": 0.01}, {"layout": "nchw"}]}))
    output = tmp_path / "q.onnx"
    options = ["--data", str(tmp_path / "photos"), "--recipe", str(recipe), "--method", "minmax", "--skip", "head*"]
    assert main(["quantize", str(net), *options, "--json", "-o", str(output)]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["calibration"]["method"] == "minmax" and len(data["calibration"]["layers"]) == 4
    assert data["verification"]["ok"] and output.stat().st_size == data["size"]
    np.savez(tmp_path / "s.npz", x=DATA)
    options = ["--data", str(tmp_path / "s.npz"), "--samples", "8", "--method", "mse", "--no-verify"]
    assert main(["quantize", str(net), *options, "-o", str(output)]) == 0
