"""The photographs, how they are made small, and how a reconstruction is judged.

Training and demo share this file, so that the network is tested on the degradation it was trained for.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import skimage
from numpy.typing import NDArray
from PIL import Image

from net import SCALE

# Only files that are part of the scikit-image wheel: read by path, so nothing is ever downloaded.
PHOTO_DIR = Path(skimage.__file__).parent / "data"

# Every photograph of things at a human scale. Left out: `chelsea`, which is the test; telescope, microscope
# and retina pictures and the motion-blurred clock, whose statistics differ; drawings, text and test charts.
TRAINING_PHOTOS = (
    "astronaut.png",
    "brick.png",
    "camera.png",
    "coffee.png",
    "coins.png",
    "grass.png",
    "gravel.png",
    "moon.png",
    "motorcycle_left.png",
    "motorcycle_right.png",
    "rocket.jpg",
)
TEST_PHOTO = "chelsea.png"


def open_photo(name: str) -> Image.Image:
    """The photograph, cropped at the right and bottom to a multiple of `SCALE`."""
    image = Image.open(PHOTO_DIR / name)
    return crop_to_scale(image if image.mode == "L" else image.convert("RGB"))


def crop_to_scale(image: Image.Image) -> Image.Image:
    return image.crop((0, 0, image.width - image.width % SCALE, image.height - image.height % SCALE))


def luma(image: Image.Image) -> Image.Image:
    return image if image.mode == "L" else image.convert("YCbCr").getchannel("Y")


def shrink(image: Image.Image) -> Image.Image:
    """The low-resolution picture: bicubic with antialiasing, which is what Pillow does when it shrinks."""
    return image.resize((image.width // SCALE, image.height // SCALE), Image.Resampling.BICUBIC)


def enlarge(image: Image.Image) -> Image.Image:
    """The baseline that the network has to beat."""
    return image.resize((image.width * SCALE, image.height * SCALE), Image.Resampling.BICUBIC)


def to_unit(image: Image.Image) -> NDArray[np.float32]:
    """An 8-bit luma as the network's input: `[1, 1, height, width]` in 0..1."""
    return np.asarray(image, np.float32)[None, None] / np.float32(255)


def from_unit(batch: NDArray[np.float32]) -> Image.Image:
    """The first picture of the network's output as an 8-bit luma."""
    return Image.fromarray(np.rint(batch[0, 0] * 255).clip(0, 255).astype(np.uint8))


def psnr(picture: Image.Image, truth: Image.Image) -> float:
    """Peak signal-to-noise ratio in dB over all pixels of two 8-bit lumas."""
    error = np.asarray(picture, np.float64) - np.asarray(truth, np.float64)
    return float(10 * np.log10(255**2 / np.mean(error**2)))
