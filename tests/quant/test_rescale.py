"""Channels that are rescaled between layers: the network computes what it did, and loses less in integers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
import torch
from torch import nn

import tonnx
from tonnx.api.calibrated import prepared
from tonnx.io import write
from tonnx.proof.session import Session
from tonnx.quant.rescale import equalise, places, smooth

X = np.random.default_rng(0).standard_normal((48, 3, 8, 8)).astype(np.float32)
ROWS = np.random.default_rng(1).standard_normal((48, 6, 32)).astype(np.float32)


class Uneven(nn.Module):
    """Channels whose weights differ by magnitudes, which the layers after them make up for; one is depthwise."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3, groups=16), nn.LeakyReLU(0.1), nn.MaxPool2d(2),
            nn.Conv2d(16, 8, 1), nn.ReLU(), nn.Conv2d(8, 4, 1, groups=2), nn.Flatten(), nn.Linear(16, 5),
        )  # fmt: skip
        with torch.no_grad():
            for first, second in ((0, 2), (2, 5)):
                factors = torch.logspace(-1.5, 1.5, 16)[torch.randperm(16)]
                one, other = self.layers[first], self.layers[second]
                one.weight *= factors.view(-1, 1, 1, 1)
                one.bias *= factors
                other.weight /= factors.view(-1, 1, 1, 1) if second == 2 else factors.view(1, -1, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class Outliers(nn.Module):
    """A normalisation some of whose channels are much larger than the others, before three products and one."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.other = nn.LayerNorm(32), nn.LayerNorm(32)
        self.q, self.k, self.v = (nn.Linear(32, 32, bias=bias) for bias in (True, False, True))
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)
        with torch.no_grad():
            for norm in (self.norm, self.other):
                norm.weight[:3] = 60.0
                norm.bias += 0.1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        x = x + self.q(y) * 0.1 + torch.sigmoid(self.k(y)) * self.v(y)
        return x + self.down(torch.relu(self.up(self.other(x))))


def exported(model: nn.Module, x: np.ndarray, path: Path) -> Path:
    tonnx.export(model.eval(), torch.from_numpy(x[:4]), path, input_names=["x"], dynamic_axes={"x": {0: "n"}})
    return path


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    return exported(Uneven(), X, tmp_path_factory.mktemp("rescale") / "uneven.onnx")


@pytest.fixture(scope="module")
def outliers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    return exported(Outliers(), ROWS, tmp_path_factory.mktemp("rescale") / "outliers.onnx")


def output(model: ir.Model, x: np.ndarray) -> np.ndarray:
    return next(iter(Session(write.to_bytes(model)).run({"x": x}).values()))


def test_equalised_layers_compute_the_same(uneven: Path) -> None:
    model = ir.load(uneven)
    prepared(model)
    before = output(model, X)
    assert equalise(model) == 3  # not through Flatten
    np.testing.assert_allclose(output(model, X), before, rtol=1e-3, atol=1e-4)
    for place in places(model)[:2]:
        np.testing.assert_allclose(place.made_range(), place.read_range(), rtol=0.1)


def test_smoothed_layers_compute_the_same(outliers: Path) -> None:
    model = ir.load(outliers)
    prepared(model)
    before = output(model, ROWS)
    between = places(model)
    assert [len(place.readers) for place in between] == [3, 1, 1]
    ranges = {str(place.value.name): np.linspace(0, 100, place.made_range().size) for place in between}
    smooth(model, between, ranges, 0.5)
    np.testing.assert_allclose(output(model, ROWS), before, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("net", "data", "options", "note"),
    [
        ("uneven", X, {"equalise": True}, "channels of 3 values between layers were equalised"),
        ("outliers", ROWS, {"smooth": 0.5}, "5 of 5 products read smoothed channels"),
    ],
)
def test_less_is_lost(
    net: str, data: np.ndarray, options: dict[str, Any], note: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Half of the error, or less; and the file is proven."""
    path = request.getfixturevalue(net)
    plain = tonnx.quantize(path, data=data, method="minmax")
    better = tonnx.quantize(path, tmp_path / "q.onnx", data=iter(data.reshape(-1, 8, *data.shape[1:])), method="minmax",
                            **options)  # fmt: skip
    assert better.verification is not None and better.verification.ok
    assert note in better.notes
    assert better.losses[0].signal_to_noise > plain.losses[0].signal_to_noise + 6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data": X, "smooth": 1.5}, "between 0 and 1"),
        ({"equalise": True}, "equalise needs data"),
        ({"smooth": 0.5}, "smooth needs data"),
    ],
)
def test_refused(uneven: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(tonnx.InvalidArgument, match=message):
        tonnx.quantize(uneven, **options)
