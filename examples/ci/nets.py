"""Two networks for the example of a zoo."""

from torch import nn


def mnist(width: int) -> nn.Module:
    """A small network for digits."""
    layers = [nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(width * 196, 10)]
    return nn.Sequential(*layers).eval()


def mnist_small() -> nn.Module:
    """With 8 channels."""
    return mnist(8)


def mnist_wide() -> nn.Module:
    """With 64 channels."""
    return mnist(64)
