"""Open pictures with care: what is not one, is too large or has colours that would be guessed gets one clear line."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnx.errors import InvalidArgument, needed

if TYPE_CHECKING:
    from PIL.Image import Image

MOST_PIXELS = 100_000_000
"""A picture of 10,000 × 10,000: 300 MB as RGB."""

SUFFIXES = frozenset(".jpg .jpeg .png .bmp .gif .webp .tif .tiff .ppm .pgm .pbm".split())

_PLAIN = {"1": "L", "L": "L", "RGB": "RGB"}


def open_picture(path: str | os.PathLike[str], most_pixels: int = MOST_PIXELS) -> Image:
    """A picture as ``L`` or ``RGB``, turned upright."""
    pil = needed("PIL", "pictures need Pillow", "pip install 'tonnx[image]'")
    from PIL import ImageOps

    name = os.fspath(path)
    if not Path(name).is_file():
        raise InvalidArgument(f"there is no file {name}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", pil.Image.DecompressionBombWarning)
            with _own_limit(pil), pil.Image.open(name) as file:
                _check_size(file.size, name, most_pixels)
                mode = file.mode
                picture = ImageOps.exif_transpose(file)
                picture.load()
    except pil.UnidentifiedImageError as error:
        raise InvalidArgument(f"{name} is not a picture", why="its contents are of no known format") from error
    except InvalidArgument:
        raise
    except (OSError, SyntaxError, ValueError) as error:  # what Pillow raises on damaged files
        raise InvalidArgument(f"{name} cannot be read as a picture", why=str(error)) from error
    return plain(picture, name, mode)


def plain(picture: Image, name: str = "the picture", mode: str | None = None) -> Image:
    """A picture as ``L`` or ``RGB`` where that loses nothing; other modes are refused."""
    mode = mode or picture.mode
    if mode in _PLAIN:
        return picture.convert(_PLAIN[mode])
    if mode in ("RGBA", "LA", "PA", "P", "RGBa", "La"):
        full = picture.convert("RGBA")
        if full.getchannel("A").getextrema()[0] == 255:
            return full.convert("L" if mode in ("LA", "La") else "RGB")
        raise InvalidArgument(
            f"{name} has transparent parts (mode {mode})",
            why="what lies behind them would be a guess",
            hint="put it on a background first, for example Image.alpha_composite",
        )
    raise InvalidArgument(
        f"{name} has the mode {mode}",
        why="it does not become RGB without a choice of colour profile or range",
        hint="convert it first: Image.open(…).convert('RGB')",
    )


@contextlib.contextmanager
def _own_limit(pil: Any) -> Iterator[None]:
    """Without Pillow's limit, which is checked too early to be raised for one picture: ours is checked right after."""
    before, pil.Image.MAX_IMAGE_PIXELS = pil.Image.MAX_IMAGE_PIXELS, None
    try:
        yield
    finally:
        pil.Image.MAX_IMAGE_PIXELS = before


def _check_size(size: tuple[int, int], name: str, most_pixels: int) -> None:
    width, height = size
    if width * height > most_pixels:
        raise InvalidArgument(
            f"{name} is too large: {width} × {height}",
            why=f"more than {most_pixels:,} pixels would be decoded",
            hint="make it smaller first, or raise the limit (--max-pixels)",
        )
