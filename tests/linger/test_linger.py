"""Scripts that were written for linger, with another import; the pages of its documentation as they stand."""

from __future__ import annotations

import warnings
from pathlib import Path

import onnx
import pytest
import torch
from torch import nn

import tonnx.linger as linger
from tonnx.errors import InvalidArgument
from tonnx.quant import compare


class SuperResolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.relu = nn.ReLU()
        self.conv1 = nn.Conv2d(1, 8, 5, 1, 2)
        self.norm = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 4, 3, 1, 1)
        self.shuffle = nn.PixelShuffle(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.shuffle(self.conv2(self.relu(self.norm(self.conv1(x)))))


def trained(model: nn.Module) -> nn.Module:
    """linger's users train in a loop of their own, without calibration."""
    optimiser = torch.optim.SGD(model.parameters(), 1e-3)
    for _ in range(2):
        optimiser.zero_grad()
        model.train()(torch.randn(4, 1, 8, 8)).square().mean().backward()
        optimiser.step()
    return model.eval()


def test_the_page_about_export(tmp_path: Path) -> None:
    torch.manual_seed(0)
    torch_model = SuperResolution()
    linger.init(torch_model)
    trained(torch_model)
    x = torch.randn(2, 1, 8, 8)
    file = tmp_path / "super_resolution.onnx"
    with torch.no_grad():
        result = linger.onnx.export(torch_model,               # model being run
                          x,                         # model input (or a tuple for multiple inputs)
                          file,   # where to save the model (can be a file or file-like object)
                          export_params=True,        # store the trained parameter weights inside the model file
                          opset_version=12,          # the ONNX version to export the model to
                          do_constant_folding=True,  # whether to execute constant folding for optimization
                          input_names = ['input'],   # the model's input names
                          output_names = ['output'], # the model's output names
                          dynamic_axes={'input' : {0 : 'batch_size'},    # variable lenght axes
                                        'output' : {0 : 'batch_size'}})  # fmt: skip
    assert result.verification is not None and result.verification.ok
    proto = onnx.load(file)
    assert {entry.domain for entry in proto.opset_import} <= {"", "ai.onnx"} and proto.opset_import[0].version == 12
    assert any(node.op_type == "Floor" for node in proto.graph.node)
    integers = compare(torch_model, file, x)
    assert integers.off_by_one == integers.off_by_more == 0  # powers of two: the arithmetic of both is exact
    linger.onnx.export(torch_model, x, tmp_path / "fallback.onnx", opset_version=11, input_names=["input"],
                       operator_export_type="ONNX_ATEN_FALLBACK", is_update_dequant=True)  # fmt: skip


def test_a_model_that_never_ran_is_calibrated_by_the_example() -> None:
    result = linger.onnx.export(linger.init(SuperResolution()), torch.randn(1, 1, 8, 8))
    assert any("never trained or calibrated" in note for note in result.notes) and result.opset == 12


def test_layers_by_wish() -> None:
    net = SuperResolution()
    linger.trace_layers(net, net, torch.randn(1, 1, 8, 8), fuse_bn=False)
    linger.disable_quant(net.conv2)
    linger.quant_module(net.conv1, data_bits=16, parameter_bits=4)
    linger.init(net)
    with linger.calibration():
        net(torch.randn(1, 1, 8, 8))
        net(torch.randn(2, 1, 8, 8))
    sites = net.tonnx_quant.sites
    assert "conv2" not in sites and sites["conv1"].folds is None
    assert (sites["conv1"]["weight"].high, sites["conv1"]["output"].high) == (7, 32767)
    with pytest.raises(InvalidArgument, match="has run already"):
        linger.quant_module(net.conv1, weight_bits=8)


@pytest.mark.parametrize(
    ("options", "quantised"),
    [
        ({"disable_module": (nn.Conv2d,)}, {"norm", "relu"}),
        ({"disable_submodel": ("conv*",)}, {"norm", "relu"}),
        ({"quant_modules": nn.Conv2d}, {"conv1", "conv2", "norm"}),
        ({}, {"conv1", "conv2", "norm", "relu"}),
    ],
)
@pytest.mark.parametrize("limited", [False, True])
def test_layers_by_type_and_name(options: dict, quantised: set[str], limited: bool) -> None:
    net = linger.normalize_layers(SuperResolution()) if limited else SuperResolution()
    net = trained(linger.init(net, **options))
    assert set(net.tonnx_quant.sites) == quantised


YAML = """
clamp_info: {clamp_activation_value: 4, clamp_bias_value: null, clamp_factor_value: 7, clamp_weight_value: null}
device: cuda
open_quant: true
platform: venusA
quant_info:
  a_calibrate_name: top_10
  activate_bits: 8
  is_perchannel: false
  is_symmetry: true
  qat_method: TQT
  round_mode: floor_add
  weight_bits: 8
part1:
  name: [conv2]
  quant_info: {weight_bits: 4, activate_bits: 16}
"""


def test_a_file_of_settings(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    file = tmp_path / "cfg.yaml"
    file.write_text(YAML, "utf-8")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        net = linger.init(SuperResolution(), config_file=file)
    told = " ".join(str(warning.message) for warning in caught)
    assert "device changes nothing here" in told and "platform changes nothing here" in told
    net.load_state_dict(SuperResolution().state_dict())  # as linger's guide does, after init
    trained(net)
    config, sites = net.tonnx_quant.config, net.tonnx_quant.sites
    assert (config.scales, config.rounding, config.power_of_two) == ("learned", "up", True)
    assert (sites["conv2"]["weight"].high, sites["conv2"]["output"].high) == (7, 32767)
    assert net.tonnx_quant.constraint.activations == 4
    linger.config_save_to_yaml(tmp_path / "saved.yaml")
    again = trained(linger.init(SuperResolution(), config_file=tmp_path / "saved.yaml"))
    assert again.tonnx_quant.config == config
    file.write_text(YAML.replace("floor_add", "ceil"), "utf-8")
    with pytest.raises(InvalidArgument, match="round_mode: ceil is not supported"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        linger.init(SuperResolution(), config_file=file)


@pytest.mark.parametrize("stage", [linger.constrain, linger.normalize_layers])
def test_two_stages(stage: object) -> None:
    net = SuperResolution()
    linger.disable_normalize(net.conv2)
    assert stage(net) is net  # type: ignore[operator]
    with torch.no_grad():
        net.conv1.bias.fill_(100.0)
        net.conv2.bias.fill_(100.0)
    assert float(net.conv2(torch.zeros(1, 8, 8, 8)).detach().max()) == 100.0
    trained(net)
    linger.init(net)
    trained(net)
    assert net.tonnx_quant.constraint.activations == 8 and net.tonnx_quant.constraint.skip == ("conv2",)
