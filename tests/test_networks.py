"""Whole small networks, at every kind of opset, with all dimensions dynamic that the network allows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch
from torch import nn

import tonnx
from tests import networks

OPSETS = (7, 9, 11, 13, 17, 18, 20, 23, 26)


@dataclass
class Net:
    build: Callable[[], nn.Module]
    inputs: tuple[torch.Tensor, ...]
    dynamic: dict[str, dict[int, str]]
    lowest: int = 7
    names: list[str] = field(default_factory=lambda: ["x"])


IMAGE = {0: "batch", 2: "height", 3: "width"}
SEQUENCE = {0: "batch", 1: "time"}
NETS = {
    "super resolution": Net(networks.SuperResolution, (torch.randn(1, 1, 8, 8),), {"x": IMAGE}),
    "super resolution in place": Net(
        lambda: networks.SuperResolution(inplace=True), (torch.randn(1, 1, 8, 8),), {"x": IMAGE}
    ),
    "conv bn relu": Net(networks.conv_bn_relu, (torch.randn(1, 3, 8, 8),), {"x": IMAGE}),
    "bn conv relu": Net(networks.bn_conv_relu, (torch.randn(1, 3, 8, 8),), {"x": IMAGE}),
    "bn relu": Net(networks.bn_relu, (torch.randn(1, 3, 8, 8),), {"x": IMAGE}),
    "silu": Net(networks.silu_net, (torch.randn(1, 3, 8, 8),), {"x": IMAGE}),
    "two outputs": Net(
        networks.TwoOutputs,
        (torch.randn(1, 4), torch.randn(1, 2)),
        {"x": {0: "batch"}, "h": {0: "batch"}},
        7,
        ["x", "h"],
    ),
    "unet": Net(networks.UNet, (torch.randn(1, 3, 20, 16),), {"x": IMAGE}, 11),
    "unet of fixed size": Net(networks.UNet, (torch.randn(1, 3, 20, 16),), {"x": {0: "batch"}}),
    "segmentation": Net(networks.Segmentation, (torch.randn(1, 3, 20, 16),), {"x": IMAGE}, 11),
    "lstm": Net(lambda: nn.LSTM(4, 5, 2, batch_first=True), (torch.randn(2, 3, 4),), {"x": SEQUENCE}),
    "gru": Net(lambda: nn.GRU(4, 5, bidirectional=True, batch_first=True), (torch.randn(2, 3, 4),), {"x": SEQUENCE}),
    "transformer": Net(
        networks.Seq2Seq,
        (torch.randn(2, 4, 16), torch.randn(2, 3, 16)),
        {"source": {0: "batch", 1: "s"}, "target": {0: "batch", 1: "t"}},
        9,
        ["source", "target"],
    ),
    "attention": Net(
        lambda: nn.MultiheadAttention(8, 2, batch_first=True),
        tuple(torch.randn(2, 5, 8) for _ in range(3)),
        dict.fromkeys("qkv", SEQUENCE),
        9,
        list("qkv"),
    ),
}


@pytest.mark.parametrize(("name", "opset"), [(n, o) for n in NETS for o in OPSETS if o >= NETS[n].lowest])
def test_network(name: str, opset: int) -> None:
    net = NETS[name]
    torch.manual_seed(0)
    result = tonnx.export(
        net.build(), net.inputs, None, input_names=net.names, dynamic_axes=net.dynamic, opset_version=opset
    )
    assert result.model.opset_imports == {"": opset}
    assert result.verification is not None and result.verification.ok
    dims = {
        name: {a: result.model.graph.inputs[i].shape[a].value for a in net.dynamic[name]}
        for i, name in enumerate(net.names)
    }
    assert dims == net.dynamic


def test_batch_norm_is_folded_and_said_so() -> None:
    result = tonnx.export(networks.conv_bn_relu(), torch.randn(1, 3, 8, 8))
    assert [node.op_type for node in result.model.graph] == ["Conv", "Relu"]
    assert any("folded 1 BatchNormalization into Conv" in note for note in result.notes)


def test_batch_norm_stays_when_asked() -> None:
    result = tonnx.export(networks.conv_bn_relu(), torch.randn(1, 3, 8, 8), fuse_conv_bn=False)
    assert [node.op_type for node in result.model.graph] == ["Conv", "BatchNormalization", "Relu"]
    assert not result.notes
