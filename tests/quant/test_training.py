"""Models of `tonnx.quant.prepare`: every kind of layer is calibrated, trained, exported, and has its file's steps."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tonnx
from tonnx.errors import InvalidArgument
from tonnx.proof.trials.rounding import without_rounding
from tonnx.quant import Config, calibrate, compare, constrain, freeze, prepare
from tonnx.quant.training import proof


class Of(nn.Module):
    """A function of the inputs, with layers."""

    def __init__(self, function: Callable[..., Any], *layers: nn.Module) -> None:
        super().__init__()
        self.layers, self.function = nn.ModuleList(layers), function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x, *self.layers)


class Residual(nn.Module):
    """Convolutions with normalisations, a shared ReLU, a sum, pools and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, padding=1)
        self.conv = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.relu = nn.ReLU(inplace=True)
        self.head = nn.Linear(8 * 16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.relu(self.stem(x))
        x = self.relu(self.norm(self.conv(x)) + x)
        return self.head(F.max_pool2d(x, 2).flatten(1))


def functions(x: torch.Tensor) -> torch.Tensor:
    joined = torch.cat([x + 1.5 * x.roll(1, 0), x * torch.sigmoid(x), torch.tanh(x)], 1)
    return joined @ x.T.repeat(3, 1)


def attention(x: torch.Tensor) -> torch.Tensor:
    weights = F.softmax(torch.bmm(x, x.transpose(1, 2)), -1)
    return F.gelu(weights @ x) + F.silu(x)


ROWS, SEQUENCE, IMAGE, VOLUME = (4, 6), (2, 4, 10), (2, 4, 8, 8), (2, 3, 4, 6, 6)
LINGER = Config(
    symmetric_activations=True, per_channel=False, power_of_two=True, rounding="up", scales="max", weight_bits=4
)
LEARNED = Config(scales="learned", weight_bits=4, activation_bits=16)
TQT = Config(scales="learned", power_of_two=True, symmetric_activations=True)
COARSE = Config(scales="percentile", weight_bits=2, symmetric_weights=False, fold_batch_norm=False)

CASES: dict[str, tuple[nn.Module, tuple[int, ...], Config]] = {
    "linear, norm": (nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU()), ROWS, Config()),
    "linear of 3 axes": (nn.Sequential(nn.Linear(10, 5), nn.ReLU6(), nn.Linear(5, 3)), SEQUENCE, LEARNED),
    "conv1d": (nn.Sequential(nn.Conv1d(4, 6, 3), nn.BatchNorm1d(6), nn.ReLU6()), SEQUENCE, LINGER),
    "conv2d in groups": (nn.Sequential(nn.Conv2d(4, 6, 3, groups=2), nn.ReLU()), IMAGE, TQT),
    "conv3d": (nn.Sequential(nn.Conv3d(3, 4, 2), nn.BatchNorm3d(4)), VOLUME, Config()),
    "conv_transpose1d": (nn.Sequential(nn.ConvTranspose1d(4, 6, 3, stride=2), nn.BatchNorm1d(6)), SEQUENCE, Config()),
    "conv_transpose2d": (
        nn.Sequential(nn.ConvTranspose2d(4, 6, 3, groups=2), nn.BatchNorm2d(6), nn.ReLU()), IMAGE, COARSE,
    ),
    "norms alone": (nn.Sequential(nn.BatchNorm2d(4), nn.LayerNorm(8)), IMAGE, Config()),
    "pools": (
        nn.Sequential(nn.Conv2d(4, 4, 1), nn.MaxPool2d(2), nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(1)), IMAGE, Config(),
    ),
    "embedding": (Of(lambda x, table, layer: layer(table(x.abs().long())), nn.Embedding(9, 6), nn.Linear(6, 4)), ROWS,
                  Config()),
    "glu": (nn.GLU(1), SEQUENCE, Config()),
    "gru": (Of(lambda x, layer: layer(x), nn.GRU(10, 5, 2, bidirectional=True)), SEQUENCE, Config()),
    "lstm": (Of(lambda x, layer: layer(x)[0], nn.LSTM(10, 5, batch_first=True)), SEQUENCE, LINGER),
    "functions": (Of(functions), ROWS, Config()),
    "attention layer": (nn.TransformerEncoderLayer(10, 2, 16, batch_first=True), SEQUENCE, Config()),
    "attention": (Of(attention), SEQUENCE, Config(symmetric_activations=True)),
    # Ties, which powers of two have many of: kernels round them after the zero point was added.
    "pools and sums of powers of two": (
        Of(lambda x, layer, pool: torch.cat([pool(F.relu(layer(x)) + 0.3), pool(torch.tanh(x) + x)], 1),
           nn.Conv2d(4, 4, 1), nn.AvgPool2d(2)), IMAGE, Config(power_of_two=True),
    ),
    "a number alone": (Of(lambda x, layer: layer(x) + 0.5 * x.mean(), nn.Linear(6, 4)), ROWS, Config()),
}  # fmt: skip


def data(shape: tuple[int, ...], seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def trained(net: nn.Module, config: Config | None, x: torch.Tensor) -> nn.Module:
    """Calibrated, and trained for a step, in which all parameters get gradients."""
    torch.manual_seed(0)
    model = prepare(net, config)
    calibrate(model, [x, x.roll(1, 0)])
    parameters = list(model.parameters())
    result = model.train()(x)
    if parameters:
        (result[0] if isinstance(result, tuple) else result).square().mean().backward()
        assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in parameters)
        torch.optim.SGD(parameters, 0.01).step()
    return model.eval()


@pytest.mark.parametrize("name", CASES)
def test_layers_have_the_integers_of_their_file(name: str, tmp_path: Path) -> None:
    net, shape, config = CASES[name]
    x = data(shape)
    model = trained(net, config, x)
    path = tmp_path / "net.onnx"
    result = tonnx.export(model, (x,), path, opset_version=21)
    assert result.verification is not None and result.verification.ok
    integers = compare(model, path, x)
    assert any("integers of" in note for note in result.notes)  # as part of the proof
    assert integers.rows and integers.off_by_more == integers.off_by_one == 0
    proto = onnx.load(path)
    floats = [t.name for t in proto.graph.initializer if t.data_type == onnx.TensorProto.FLOAT and len(t.dims) > 1]
    assert not floats
    assert any(node.op_type == "Floor" for node in proto.graph.node) == (config.rounding == "up")


def test_other_integers_are_no_export(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    x = data(ROWS)
    model = trained(nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)), Config(), x)
    own = proof._places
    monkeypatch.setattr(proof, "_places", lambda proto: {k: [(n, z + 2) for n, z in v] for k, v in own(proto).items()})
    with pytest.raises(tonnx.VerificationFailed, match="the file has other integers than the model") as failure:
        tonnx.export(model, (x,), tmp_path / "net.onnx")
    assert "by more" in str(failure.value) and not (tmp_path / "net.onnx").exists()


@pytest.fixture(scope="module")
def residual() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(1)
    x = data((4, 1, 8, 8))
    return trained(Residual(), Config(), x), x


def test_onnx_runtime_computes_in_integers(residual: tuple[nn.Module, torch.Tensor], tmp_path: Path) -> None:
    model, x = residual
    path = tmp_path / "net.onnx"
    tonnx.export(model, (x,), path, opset_version=17)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    kinds = [node.op_type for node in onnx.load(tmp_path / "optimised.onnx").graph.node]
    assert kinds.count("QLinearConv") == 2 and kinds.count("QLinearAdd") == 1 and kinds.count("QGemm") == 1
    assert kinds.count("QuantizeLinear") == 1 and kinds.count("DequantizeLinear") == 1 and "Conv" not in kinds
    biases = [t for t in onnx.load(path).graph.initializer if t.data_type == onnx.TensorProto.INT32]
    assert len(biases) == 3
    integers = compare(model, path, data((4, 1, 8, 8), 5))
    assert integers.ok and integers.numbers > 5_000, str(integers)


def test_a_file_that_computes_otherwise_is_found(residual: tuple[nn.Module, torch.Tensor], tmp_path: Path) -> None:
    model, x = residual
    path = tmp_path / "net.onnx"
    tonnx.export(model, (x,), path, opset_version=17)
    proto = onnx.load(path)
    bias = next(t for t in proto.graph.initializer if t.data_type == onnx.TensorProto.INT32)
    bias.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(bias) * 3, bias.name))
    onnx.save(proto, path)
    assert not compare(model, path, x).ok


def test_weights_of_few_bits_are_stored_in_four(tmp_path: Path) -> None:
    x = data((2, 64))
    model = trained(nn.Sequential(nn.Linear(64, 32)), Config(weight_bits=3, scales="learned"), x)
    path = tmp_path / "net.onnx"
    tonnx.export(model, (x,), path, opset_version=21)
    weight = next(t for t in onnx.load(path).graph.initializer if list(t.dims) == [32, 64])
    assert weight.data_type in (onnx.TensorProto.INT4, onnx.TensorProto.UINT4)
    assert compare(model, path, x).ok
    assert len(np.unique(onnx.numpy_helper.to_array(weight))) <= 8


def test_halves_are_rounded_as_asked(tmp_path: Path) -> None:
    x = torch.tensor([[0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 127.0]])
    for rounding, wanted in (("even", [0, 2, 2, 0, -2, -2, 127]), ("up", [1, 2, 3, 0, -1, -2, 127])):
        model = prepare(nn.Hardsigmoid(), Config(symmetric_activations=True, power_of_two=True, rounding=rounding))
        calibrate(model, [x])
        (quantiser,) = (q for name, q in model.named_modules() if name.endswith("input_0"))
        assert quantiser(x)[0].tolist() == wanted
        path = tmp_path / f"{rounding}.onnx"
        tonnx.export(model.eval(), (x,), path, opset_version=13)
        assert compare(model, path, x).off_by_one == 0
        smooth = without_rounding(str(path))  # in which neither form of rounding is left
        assert smooth is not None and "Clip" in [n.op_type for n in smooth.graph.node if "input" in n.input]


# What is the user's stays as it is


def test_the_model_and_torch_stay_as_they_are() -> None:
    net = Residual()
    before = copy.deepcopy(net.state_dict())
    x = data((4, 1, 8, 8))
    wanted = net.eval()(x)
    net.train()
    model = prepare(net)
    calibrate(model, [x])
    with pytest.raises(RuntimeError):
        model(data((1, 3, 8, 8)))
    assert type(net) is Residual and net.training and not net._forward_hooks and list(net.state_dict()) == list(before)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert torch.equal(net.eval()(x), wanted)
    assert not torch.overrides._get_current_function_mode_stack()
    assert isinstance(model, Residual) and model is not net
    assert prepare(net, inplace=True) is net and type(net) is not Residual


def test_copies_and_pickles_go_on() -> None:
    x = data((4, 1, 8, 8))
    model = trained(Residual(), Config(scales="learned"), x)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other(x), model(x))
        with torch.no_grad():
            other.stem.weight.mul_(3)
        assert not torch.equal(other(x), model(x))


# Statistics, and what follows the data


def test_folded_normalisations_keep_the_statistics_that_they_would_have_had() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(4, 6, 3, bias=True), nn.BatchNorm2d(6))
    x = data(IMAGE)
    folded, apart = prepare(net), prepare(net, Config(fold_batch_norm=False))
    for model in (folded, apart):
        calibrate(model, [x])
        for seed in range(3):
            model.train()(data(IMAGE, seed))
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        torch.testing.assert_close(getattr(folded[1], name), getattr(apart[1], name), rtol=0.05, atol=0.01)
    freeze(folded)(x)
    still = copy.deepcopy(folded.state_dict())
    folded(data(IMAGE, 9) * 5)
    changed = {name for name, value in folded.state_dict().items()
               if isinstance(value, torch.Tensor) and not torch.equal(value, still[name])}  # fmt: skip
    assert changed == {"1.num_batches_tracked"}


def test_ranges_come_from_all_batches() -> None:
    batches = [torch.full((1, 4), 1.0), torch.full((1, 4), 3.0), torch.full((1, 4), 2.0)]
    wanted = {"max": 3.0, "moving": 1.0 + 0.1 * 2.0 + 0.1 * 0.8}
    for scales, high in wanted.items():
        model = prepare(nn.Tanh(), Config(scales=scales))
        assert calibrate(model, iter(batches)) == 3
        assert float(model.tonnx_quant.sites["tanh"]["input_0"].scale) * 255 == pytest.approx(high, rel=1e-5)
    spread = torch.linspace(-1, 1, 100_001)[None]
    spread[0, 0] = -100.0
    model = prepare(nn.Tanh(), Config(scales="percentile", percentile=99.9))
    calibrate(model, [spread, spread])
    quantiser = model.tonnx_quant.sites["tanh"]["input_0"]
    assert float(quantiser.scale) * 255 == pytest.approx(2.0, rel=0.2)


def test_learned_scales_learn() -> None:
    model = prepare(nn.Linear(6, 3), Config(scales="learned"))
    calibrate(model, [data(ROWS)])
    before = {n: p.detach().clone() for n, p in model.named_parameters() if n.endswith("log_scale")}
    optimiser = torch.optim.Adam(model.parameters(), 0.05)
    for _ in range(3):
        optimiser.zero_grad()
        model.train()(data(ROWS)).square().sum().backward()
        optimiser.step()
    model.eval()
    after = dict(model.named_parameters())
    assert len(before) == 3 and all(not torch.equal(after[name], value) for name, value in before.items())
    quantiser = model.tonnx_quant.sites["linear"]["output"]
    assert torch.equal(quantiser.scale, torch.exp2(quantiser.log_scale.detach()))


# Settings


def test_settings_by_name_and_pattern() -> None:
    config = Config(
        layers={
            "stem": {"weight_bits": 4, "activation_bits": 16},
            "re*": {"activation_bits": 16},
            "head": {"per_channel": False},
        },
        skip=("add",),
    )
    model = prepare(Residual(), config)
    calibrate(model, [data((4, 1, 8, 8))])
    sites = model.tonnx_quant.sites
    assert (sites["stem"]["weight"].low, sites["stem"]["weight"].axis) == (-8, 0)
    assert sites["relu"]["output"].high == 65535 and sites["head"]["output"].high == 255
    assert sites["head"]["weight"].axis is None and sites["head"]["weight"].low == -128 and "add" not in sites


def test_yaml(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    file = tmp_path / "quant.yaml"
    file.write_text("weight_bits: 4\nscales: learned\nskip: [stem]\nlayers:\n  head: {weight_bits: 8}\n", "utf-8")
    config = Config(weight_bits=4, scales="learned", skip=("stem",), layers={"head": {"weight_bits": 8}})
    assert Config.read(file) == config == Config.read(config.data())
    file.write_text("weight_bit: 4", "utf-8")
    with pytest.raises(InvalidArgument, match="no setting 'weight_bit'") as error:
        Config.read(file)
    assert "weight_bits" in str(error.value)


def run_nothing(model: nn.Module, batch: Any) -> None:
    """A forward that forgets the model."""


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "bits of weights": (lambda: Config(weight_bits=9), "weight_bits cannot be 9"),
    "bits of activations": (lambda: Config(activation_bits=4), "activation_bits cannot be 4"),
    "bits of a bias": (lambda: Config(bias_bits=16), "bias_bits cannot be 16"),
    "bits of a layer": (lambda: Config(layers={"a": {"weight_bits": 1}}), r"layers\['a'\]: weight_bits cannot be 1"),
    "a setting of a layer": (lambda: Config(layers={"a": {"bits": 4}}), r"layers\['a'\] has no setting 'bits'"),
    "scales": (lambda: Config(scales="mean"), "scales must be max, moving, percentile or learned"),
    "bits of what has no weights": (
        lambda: prepare(Residual(), Config(layers={"relu": {"weight_bits": 4}})), "'relu' cannot have weight_bits=4",
    ),
    "bits of a function": (
        lambda: calibrate(prepare(Residual(), Config(layers={"add": {"weight_bits": 4}})), [data((2, 1, 8, 8))]),
        "'add' cannot have weight_bits=4",
    ),
    "no such layer": (lambda: prepare(Residual(), Config(skip=("haed",))), "'haed' matches no layer of the model"),
    "no such pattern": (lambda: prepare(Residual(), {"layers": {"x*": {}}}), r"'x\*' matches no layer"),
    "a function that never runs": (
        lambda: calibrate(prepare(Residual(), Config(skip=("softmax",))), [data((2, 1, 8, 8))]),
        "'softmax' matches no layer that the model runs",
    ),
    "no data": (lambda: calibrate(prepare(Residual()), []), "there is no calibration data"),
    "NaN": (lambda: calibrate(prepare(Residual()), [data((2, 1, 8, 8)), data((2, 1, 8, 8)) * float("nan")]),
            "batch 2 of the calibration data has NaN"),
    "a tensor for batches": (lambda: calibrate(prepare(Residual()), data((2, 1, 8, 8))), "must be a list"),
    "a forward that does not run": (
        lambda: calibrate(prepare(Residual()), [data((2, 1, 8, 8))], run_nothing), "did not run the model",
    ),
    "never calibrated": (lambda: prepare(Residual()).eval()(data((2, 1, 8, 8))), "has never seen data"),
    "exported at once": (
        lambda: tonnx.export(prepare(Residual()), (data((2, 1, 8, 8)),)), "has never seen data",
    ),
    "prepared twice": (lambda: prepare(prepare(Residual())), "prepared already"),
    "not prepared": (lambda: calibrate(Residual(), []), "not prepared"),
    "no module": (lambda: prepare(len), "must be a torch.nn.Module"),  # type: ignore[arg-type]
    "a batch that does not fit": (
        lambda: calibrate(prepare(nn.Linear(4, 2)), [torch.zeros(1, 4), torch.zeros(1, 3)]), "does not take batch 2"),
    "limits": (lambda: constrain(Residual(), activations=-1), "activations must be a number above 0"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    call, message = REFUSED[name]
    with pytest.raises(tonnx.TonnxError, match=message):
        call()


# Checkpoints


def test_a_checkpoint_holds_everything(residual: tuple[nn.Module, torch.Tensor]) -> None:
    model, x = residual
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    fresh = prepare(Residual(), Config())
    fresh.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(fresh.eval()(x), model(x))


def test_a_checkpoint_of_another_config_is_refused(residual: tuple[nn.Module, torch.Tensor]) -> None:
    model, _ = residual
    other = prepare(Residual(), Config(weight_bits=4))
    before = {name: value.clone() for name, value in other.state_dict().items() if isinstance(value, torch.Tensor)}
    with pytest.raises(InvalidArgument, match="another configuration") as error:
        other.load_state_dict(model.state_dict())
    assert "weight_bits is 8 there and 4 here" in str(error.value)
    assert all(torch.equal(other.state_dict()[name], value) for name, value in before.items())
    other.load_state_dict(Residual().state_dict())  # of a float model: there is no scale yet that would not fit
    with pytest.raises(InvalidArgument, match="not quantised"):
        copy.deepcopy(model).load_state_dict(Residual().state_dict())


# The first stage


def test_constrain_cuts_weights_and_results(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(6, 5))
    with torch.no_grad():
        net[0].weight[0, 0] = 100.0
    x = data(ROWS)
    narrow = constrain(net, activations=2.0, weights=3.0)
    end = 3.0 * net[0].weight.detach().abs().mean()
    wanted = F.linear(x, net[0].weight.clamp(-end, end), net[0].bias).clamp(-2, 2)
    torch.testing.assert_close(narrow(x), wanted)
    model = prepare(narrow)
    calibrate(model, [x * 10])
    weight, output = (model.tonnx_quant.sites["0"][role] for role in ("weight", "output"))
    assert float(weight.scale.max()) * 127 <= end * 1.001 and float(output.scale) * 255 <= 4.001
    tonnx.export(model.eval(), (x,), tmp_path / "net.onnx", opset_version=17)
    assert compare(model, tmp_path / "net.onnx", x).ok
