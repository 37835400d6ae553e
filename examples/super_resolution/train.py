"""Train the super-resolution network on the photographs bundled with scikit-image.

    python examples/super_resolution/train.py

A few minutes on two CPU cores. Writes `weights.safetensors` beside this file.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor, nn

import photos
from net import SCALE, WEIGHTS, SuperResolutionNet

SEED = 0
BATCH = 16
CROP = 32  # low-resolution pixels; the receptive field is 11
PEAK_RATE = 1e-3

# Shrunken copies are sharper per pixel than the originals and triple the number of distinct textures.
ZOOMS = (1.0, 0.75, 0.5)

Pair = tuple[Tensor, Tensor]


def as_tensor(luma: Image.Image) -> Tensor:
    return torch.from_numpy(photos.to_unit(luma)[0])


def training_pairs() -> list[Pair]:
    """(low, high) lumas of every photograph at every zoom, as `[1, height, width]`."""
    pairs = []
    for name in photos.TRAINING_PHOTOS:
        original = photos.luma(photos.open_photo(name))
        for zoom in ZOOMS:
            size = (round(original.width * zoom), round(original.height * zoom))
            high = photos.crop_to_scale(original.resize(size, Image.Resampling.BICUBIC))
            low = photos.shrink(high)
            pairs.append((as_tensor(low), as_tensor(high)))
    return pairs


def random_patch(pairs: list[Pair], weights: np.ndarray, rng: np.random.Generator) -> Pair:
    """A crop at the same place of both resolutions, in one of the eight orientations of the square."""
    low, high = pairs[rng.choice(len(pairs), p=weights)]
    top = int(rng.integers(low.shape[1] - CROP + 1))
    left = int(rng.integers(low.shape[2] - CROP + 1))
    quarter_turns, mirrored = int(rng.integers(4)), bool(rng.integers(2))

    def cut(image: Tensor, scale: int) -> Tensor:
        rows = slice(top * scale, (top + CROP) * scale)
        columns = slice(left * scale, (left + CROP) * scale)
        patch = torch.rot90(image[:, rows, columns], quarter_turns, (1, 2))
        return patch.flip(2) if mirrored else patch

    return cut(low, 1), cut(high, SCALE)


def batches(pairs: list[Pair], steps: int, rng: np.random.Generator) -> Iterator[Pair]:
    """Every pixel is equally likely: a picture is drawn in proportion to its area."""
    areas = np.array([low.numel() for low, _ in pairs], np.float64)
    weights = areas / areas.sum()
    for _ in range(steps):
        patches = [random_patch(pairs, weights, rng) for _ in range(BATCH)]
        yield torch.stack([low for low, _ in patches]), torch.stack([high for _, high in patches])


def bicubic_phases() -> Tensor:
    """The nine 5x5 kernels that make the nine sub-pixels of bicubic enlargement (a = -0.5, as in Pillow)."""

    def cubic(t: float) -> float:
        t = abs(t)
        if t < 1:
            return 1.5 * t**3 - 2.5 * t**2 + 1
        return -0.5 * t**3 + 2.5 * t**2 - 4 * t + 2 if t < 2 else 0.0

    # Sub-pixel k of a pixel lies (k - 1) / 3 of a pixel right of (below) the pixel's own centre.
    taps = torch.tensor([[cubic(d - (k - 1) / SCALE) for d in range(-2, 3)] for k in range(SCALE)])
    return torch.einsum("iy,jx->ijyx", taps, taps).reshape(SCALE**2, 1, 5, 5)


@torch.no_grad()
def start_as_bicubic(net: SuperResolutionNet) -> None:
    """Let nine channels carry bicubic enlargement to the output; all others start without a say in it.

    The network then learns a correction from the first step, instead of learning to interpolate first.
    Luma is not negative, so the ReLUs let those channels pass.
    """
    phases = SCALE**2
    for conv in (net.conv1, net.conv2, net.conv3, net.conv4):
        nn.init.zeros_(conv.bias)
    net.conv1.weight[:phases] = bicubic_phases()
    for conv in (net.conv2, net.conv3, net.conv4):
        conv.weight[:phases] = 0
        nn.init.dirac_(conv.weight[:phases, :phases])


@torch.inference_mode()
def gain_over_bicubic(net: nn.Module, name: str) -> float:
    """How many dB the network is better than bicubic on one photograph."""
    truth = photos.luma(photos.open_photo(name))
    low = photos.shrink(truth)
    ours = photos.from_unit(net(torch.from_numpy(photos.to_unit(low))).numpy())
    return photos.psnr(ours, truth) - photos.psnr(photos.enlarge(low), truth)


def train(steps: int) -> SuperResolutionNet:
    torch.manual_seed(SEED)
    net = SuperResolutionNet()
    start_as_bicubic(net)
    net.to(memory_format=torch.channels_last)  # the faster layout for convolutions on a CPU
    optimiser = torch.optim.Adam(net.parameters(), lr=PEAK_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=steps)
    loss_of = nn.MSELoss()  # the mean squared error is what PSNR measures

    data = batches(training_pairs(), steps, np.random.default_rng(SEED))
    started, running = time.perf_counter(), 0.0
    report_every = max(1, steps // 20)
    for step, (low, high) in enumerate(data, start=1):
        optimiser.zero_grad()
        loss = loss_of(net(low), high)
        loss.backward()
        optimiser.step()
        schedule.step()
        running += loss.item()
        if step % report_every == 0:
            seconds = time.perf_counter() - started
            print(f"step {step:6}  loss {running / report_every:.6f}  {seconds:4.0f} s", flush=True)
            running = 0.0
    return net


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the super-resolution network of the demo.")
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--output", type=Path, default=WEIGHTS)
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    net = train(options.steps)
    for name in (*photos.TRAINING_PHOTOS, photos.TEST_PHOTO):
        held_out = "  (held out)" if name == photos.TEST_PHOTO else ""
        print(f"{name:20} {gain_over_bicubic(net, name):+.2f} dB over bicubic{held_out}")
    save_file({name: value.contiguous() for name, value in net.state_dict().items()}, options.output)
    print(f"wrote {options.output.name}")


if __name__ == "__main__":
    main()
