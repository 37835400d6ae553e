"""Train a network on handwritten digits, quantise it in three ways, and say what each of them costs.

    python examples/quantised_digits/demo.py

The pictures come with scikit-learn. Writes the four files into `out` beside this file.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from sklearn.datasets import load_digits
from torch import nn

import tonnx
from tonnx.quant import Config

OUT = Path(__file__).with_name("out")
OPSET = 21


class Block(nn.Module):
    """Two convolutions beside a way around them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels))
        self.second = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.second(torch.relu(self.first(x))) + x)


class Digits(nn.Module):
    """A small residual network: pictures of 8 × 8 to ten numbers."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, width, 3, padding=1, bias=False), nn.BatchNorm2d(width))
        self.one = Block(width)
        self.down = nn.Sequential(nn.Conv2d(width, 2 * width, 2, stride=2, bias=False), nn.BatchNorm2d(2 * width))
        self.two = Block(2 * width)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(2 * width, 10)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        x = self.one(torch.relu(self.stem(pictures)))
        x = self.two(torch.relu(self.down(x)))
        return self.head(self.pool(x).flatten(1))


def data() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Pictures and digits: every other one to learn from, the rest to be tested with."""
    digits = load_digits()
    pictures = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 8 - 1
    targets = torch.tensor(digits.target)
    return pictures[::2], targets[::2], pictures[1::2], targets[1::2]


def shifted(pictures: torch.Tensor) -> torch.Tensor:
    """Each batch moved by up to a pixel."""
    down, right = torch.randint(-1, 2, (2,)).tolist()
    return torch.roll(pictures, (down, right), (2, 3))


def train(net: nn.Module, epochs: int, rate: float, teacher: nn.Module | None = None) -> nn.Module:
    """An ordinary training loop: it is the same for floats and for quantised numbers."""
    pictures, targets, *_ = data()
    optimiser = torch.optim.AdamW(net.parameters(), rate, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, epochs * 15)
    for epoch in range(epochs):
        net.train()
        if teacher is not None and epoch == epochs * 2 // 3:
            tonnx.quant.freeze(net)  # the ranges and statistics stand still from here on
        for rows in torch.randperm(len(pictures)).chunk(15):
            x = shifted(pictures[rows])
            scores = net(x)
            loss = nn.functional.cross_entropy(scores, targets[rows], label_smoothing=0.05)
            if teacher is not None:
                with torch.no_grad():
                    wanted = teacher(x).softmax(1)
                loss = loss + nn.functional.cross_entropy(scores, wanted)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
    return net.eval()


def quantised(net: nn.Module, config: Config, epochs: int, rate: float) -> nn.Module:
    """A copy of the network that is calibrated with the pictures, and trained on if there are epochs for it."""
    copy = tonnx.quant.prepare(net, config)
    tonnx.quant.calibrate(copy, data()[0].split(64))
    return train(copy, epochs, rate, teacher=net) if epochs else copy.eval()


def exported(name: str, net: nn.Module) -> list[str]:
    """Export and prove; a row of the table: accuracy, size, milliseconds, and how the integers compare."""
    *_, pictures, targets = data()
    path = OUT / f"{name}.onnx"
    result = tonnx.export(net, (pictures[:64],), path, opset_version=OPSET, dynamic_axes={"pictures": {0: "batch"}})
    assert result.verification is not None and result.verification.ok
    session = onnxruntime.InferenceSession(path, _one_thread(), providers=["CPUExecutionProvider"])
    feed = {session.get_inputs()[0].name: pictures.numpy()}
    accuracy = float((session.run(None, feed)[0].argmax(1) == targets.numpy()).mean())
    size, latency = path.stat().st_size / 1000, _milliseconds(session, feed)
    row = [name, f"{100 * accuracy:.2f} %", f"{size:.0f} kB", f"{latency:.1f} ms"]
    if name == "float":
        return [*row, ""]
    integers = tonnx.quant.compare(net, path, pictures)
    print(f"{name}: {integers}")
    return [*row, f"{integers.off_by_one} of {integers.numbers:,} off by a step, {integers.off_by_more} by more"]


def _one_thread() -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return options


def _milliseconds(session: onnxruntime.InferenceSession, feed: dict[str, np.ndarray]) -> float:
    """Of the processor, for all test pictures at once; the best of seven runs."""
    seconds = []
    for _ in range(7):
        start = time.process_time()
        session.run(None, feed)
        seconds.append(time.process_time() - start)
    return 1000 * min(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=24, help="of the float network; the others have half of them")
    epochs = parser.parse_args().epochs
    OUT.mkdir(exist_ok=True)
    torch.manual_seed(0)
    start = time.perf_counter()
    net = train(Digits(), epochs, 4e-3)
    print(f"float: trained in {time.perf_counter() - start:.0f} s", flush=True)
    rows = [exported("float", net)]
    ways = {
        "calibrated": (Config(scales="percentile"), 0, 0.0),
        "trained-8bit": (Config(), epochs // 2, 5e-4),
        "trained-4bit": (Config(weight_bits=4, scales="learned"), epochs // 2, 2e-3),
    }
    for name, (config, own_epochs, rate) in ways.items():
        start = time.perf_counter()
        rows.append(exported(name, quantised(net, config, own_epochs, rate)))
        print(f"{name}: made in {time.perf_counter() - start:.0f} s", flush=True)
    titles = ["", "accuracy", "size", "latency of 898 pictures", "integers, beside PyTorch"]
    widths = [max(len(row[i]) for row in [titles, *rows]) for i in range(len(titles))]
    print()
    for row in [titles, *rows]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


if __name__ == "__main__":
    main()
