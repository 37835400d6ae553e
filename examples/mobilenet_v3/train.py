"""Train the network on scikit-learn's digits. Writes `weights.npz`."""

from __future__ import annotations

import numpy as np
import paddle

import digits
from net import WEIGHTS, mobilenet

EPOCHS, BATCH = 30, 64


def shifted(batch: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Every picture moved by up to three pixels: there are few pictures, and digits may stand anywhere."""
    moves = random.integers(-3, 4, (len(batch), 2))
    return np.stack([np.roll(one, tuple(move), axis=(1, 2)) for one, move in zip(batch, moves, strict=True)])


def accuracy(model: paddle.nn.Layer, x: np.ndarray, y: np.ndarray) -> float:
    model.eval()
    with paddle.no_grad():
        return float((model(paddle.to_tensor(x)).numpy().argmax(1) == y).mean())


def main() -> None:
    paddle.seed(0)
    random = np.random.default_rng(0)
    images, targets = digits.pictures()
    inputs = np.stack([digits.prepare(image) for image in images])
    test = digits.is_test(len(images))
    x, y = inputs[~test], targets[~test]
    model = mobilenet()
    for layer in model.sublayers():
        if isinstance(layer, paddle.nn.BatchNorm2D):
            layer._momentum = 0.9  # of 0.99, statistics would lag behind: an epoch has 22 steps
    rate = paddle.optimizer.lr.CosineAnnealingDecay(2e-3, EPOCHS)
    optimiser = paddle.optimizer.AdamW(rate, parameters=model.parameters(), weight_decay=0.02)
    loss = paddle.nn.CrossEntropyLoss()
    for epoch in range(EPOCHS):
        model.train()
        for chosen in np.array_split(random.permutation(len(x)), len(x) // BATCH):
            batch = paddle.to_tensor(shifted(x[chosen], random).astype(np.float32))
            value = loss(model(batch), paddle.to_tensor(y[chosen]))
            value.backward()
            optimiser.step()
            optimiser.clear_grad()
        rate.step()
        right = accuracy(model, inputs[test], targets[test])
        print(f"epoch {epoch + 1:2}: loss {float(value):.3f}, test accuracy {right:.4f}", flush=True)
    weights = {name: value.numpy().astype(np.float16) for name, value in model.state_dict().items()}
    np.savez_compressed(WEIGHTS, **weights)


if __name__ == "__main__":
    main()
