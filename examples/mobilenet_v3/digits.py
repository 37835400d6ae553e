"""scikit-learn's handwritten digits as pictures: 8 × 8 pixels, of which the network sees 32 × 32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

SIZE = 32
MEAN, STD = 0.3, 0.35
LABELS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


def pictures() -> tuple[np.ndarray, np.ndarray]:
    """All pictures as uint8, and which digit each of them is. Every fifth is for testing."""
    found = load_digits()
    return np.rint(found.images * (255 / 16)).astype(np.uint8), found.target


def is_test(count: int) -> np.ndarray:
    """Which pictures the network has not been trained on."""
    return np.arange(count) % 5 == 0


def prepare(picture: np.ndarray) -> np.ndarray:
    """What the recipe beside this file says, in numpy and Pillow: the input of the network for one picture."""
    resized = Image.fromarray(picture).convert("RGB").resize((SIZE, SIZE), Image.Resampling.BILINEAR)
    scaled = np.asarray(resized).astype(np.float32) * np.float32(1 / 255)
    return ((scaled - np.float32(MEAN)) / np.float32(STD)).transpose(2, 0, 1)


def save_test_pictures(folder: Path, count: int) -> list[tuple[Path, int]]:
    """Some of the test pictures as files, and which digit each of them is."""
    images, targets = pictures()
    chosen = np.flatnonzero(is_test(len(images)))[:count]
    folder.mkdir(parents=True, exist_ok=True)
    saved = []
    for i in chosen:
        path = folder / f"digit_{i:04}.png"
        Image.fromarray(images[i]).save(path)
        saved.append((path, int(targets[i])))
    return saved
