"""Models that compute with gradients themselves: what autograd calls is part of the file."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import tonnx


class Forces(nn.Module):
    """The energy of atoms by their distances, and its gradient; gradients are on wherever it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 8), nn.SiLU(), nn.LayerNorm(8), nn.Linear(8, 1))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        x.requires_grad_(True)
        distances = ((x[:, None] - x[None]).pow(2).sum(-1) + 1e-6).sqrt()
        shells = torch.exp(-((distances[..., None] - torch.arange(4)) ** 2))
        energy = (self.inner(shells)[..., 0] * (1 - torch.eye(x.shape[0]))).sum()
        return {"energy": energy, "forces": -torch.autograd.grad([energy], [x])[0]}


class Curvature(nn.Module):
    """Gradients of gradients; they are switched on by the model."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            x = x.clone().requires_grad_()
            slopes = torch.autograd.grad(self.inner(x).sum(), x, create_graph=True)[0]
            parts = (torch.autograd.grad(slopes[:, i].sum(), x, retain_graph=True)[0][:, i] for i in range(3))
            return slopes, sum(parts)  # type: ignore[return-value]


class Saliency(nn.Module):
    """Which pixels matter: back through convolutions of several kinds, whose last rows no window may reach."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(3, 4, 3, stride=2, padding=1, groups=1), nn.ReLU(), nn.BatchNorm2d(4),
            nn.ConvTranspose2d(4, 4, 3, stride=2, groups=2), nn.MaxPool2d(2), nn.Flatten(2),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            x = x[..., None].expand(-1, -1, 9)[:, None].repeat(1, 3, 1, 1).detach().requires_grad_()
            return torch.autograd.grad(self.inner(x).softmax(-1).amax(-1).sum() + x[..., 1, 2].sum(), x)[0]


class Explained(nn.Module):
    """As captum does it: gradients of each row's score, which a hook on a tensor changes on their way."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            x = x.clone().requires_grad_()
            inner = self.first(x)
            inner.register_hook(lambda gradient: gradient * inner.sigmoid())
            scores = self.last(inner.tanh())[:, 1]
            return torch.autograd.grad(outputs=torch.unbind(scores), inputs=x)[0]


@pytest.mark.parametrize("model", [Forces(), Curvature(), Saliency(), Explained()], ids=lambda m: type(m).__name__)
def test_gradients_are_part_of_the_file(model: nn.Module) -> None:
    weights = {name: weight.clone() for name, weight in model.state_dict().items()}
    x = torch.randn(4, 3 if not isinstance(model, Saliency) else 8)
    result = tonnx.export(model, (x,), dynamic_axes={"x": {0: "n"}})
    assert result.capture == ("control flow rewritten" if isinstance(model, Explained) else "recorder")
    assert result.verification is not None and result.verification.ok
    assert len({trial.sizes["n"] for trial in result.verification.trials if trial.skipped is None}) > 1
    assert not x.requires_grad and all(weight.grad is None for weight in model.parameters())
    assert all(torch.equal(weights[name], weight) for name, weight in model.state_dict().items())
