"""The model with its sums rounded otherwise: what that moves, and what it must not move."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import tonnx
from tonnx.frontends.torch.reference.rounded import Rounded, rounded

ONES = torch.ones(4, 300)
FLAT = torch.full((1, 4, 16, 16), 0.1)


class Constants(torch.nn.Module):
    """Instance norms of what is constant where the input is zero: each amplifies roundings by hundreds."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.convolutions = torch.nn.ModuleList(
            torch.nn.Conv2d(channels, 6, 3, padding=1, padding_mode="replicate") for channels in (1, 6, 6, 6)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for convolution in self.convolutions:
            x = torch.nn.functional.instance_norm(convolution(x), eps=1e-8)
        return x


@pytest.mark.parametrize(
    "name, function, moves",
    [
        ("a product", lambda: torch.nn.functional.linear(FLAT, torch.full((3, 16), 0.3)), True),
        ("a norm of constants", lambda: torch.nn.functional.group_norm(torch.nn.functional.conv2d(FLAT, torch.full((4, 4, 1, 1), 0.3)), 2), True),  # noqa: E501
        ("a mean", lambda: FLAT.mean((2, 3)), True),
        ("counts", lambda: ONES.cumsum(1), False),
        ("places by a product", lambda: ONES.softmax(0).round() + torch.eye(4) @ ONES.cumsum(1), False),
        ("halves", lambda: (ONES / 2).sum(1), False),
        ("zeros", lambda: torch.nn.functional.linear(torch.zeros(2, 16), torch.full((3, 16), 0.3)), False),
        ("arithmetic that adds up nothing", lambda: (FLAT * 3 + 1).exp(), False),
    ],
)  # fmt: skip
def test_sums_move_and_counts_stay(name: str, function, moves: bool) -> None:  # type: ignore[no-untyped-def]
    plain = function()
    with Rounded(0):
        moved = function()
    assert (not torch.equal(plain, moved)) is moves, name
    assert torch.allclose(plain, moved, rtol=1e-3, atol=0.5)


def test_its_draws_are_not_the_models() -> None:
    torch.manual_seed(3)
    plain = torch.rand(4)
    torch.manual_seed(3)
    with Rounded(0):
        FLAT.mean()
        assert torch.equal(torch.rand(4), plain)


def test_a_file_is_not_refused_where_rounding_alone_decides(tmp_path: Path) -> None:
    """At zeros nothing is left but the roundings of equal numbers, many times amplified."""
    model, example, path = Constants(), (torch.randn(1, 1, 24, 40),), tmp_path / "net.onnx"
    tonnx.export(model, example, path)
    result = tonnx.verify(path, model, example, values=True)
    assert result.ok
    assert any(trial.label == "zeros" and trial.doubt for trial in result.verification.trials)


def test_what_compiles_a_part_of_itself_is_not_watched_and_works_afterwards() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,))

    with pytest.raises(RuntimeError, match="compiles a part"), rounded(0):
        model(ONES)
    assert torch.equal(model(ONES), ONES + 1)
