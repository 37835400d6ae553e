"""Steps before the network: from a picture to the array that the network takes.

A step changes the `Prepared` that it is given. Sizes are pictures' sizes in pixels. Until the first step that computes
(scale, normalize, layout, dtype) the picture is one of Pillow's, so that resizing is what the training code did.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tonnx.errors import InvalidArgument
from tonnx.run.recipe import Recipe, Step

if TYPE_CHECKING:
    from PIL.Image import Image

STEPS: dict[str, Callable[..., None]] = {}

NOT_ONE_SIZE = "resize takes one of size, short, long, height and factor"
_LAYOUTS = ("nchw", "nhwc", "chw", "hwc")


@dataclass
class Prepared:
    """A picture on its way to the network, and what the steps after the network need to know of it."""

    original: Image
    picture: Image
    array: np.ndarray | None = None
    layout: str = "nhwc"
    colors: str = "rgb"
    scale: tuple[float, float] = (1.0, 1.0)
    """Pixels of the network's picture for each of the original, in x and y."""
    offset: tuple[float, float] = (0.0, 0.0)
    """Where the original's corner lies in the network's picture."""
    network_size: tuple[int, int] = (0, 0)
    """Height and width of the picture that the network sees."""

    def pixels(self) -> np.ndarray:
        """The array, height × width × channels, made from the picture when first asked for."""
        if self.array is None:
            array = np.asarray(self.picture)
            array = array[..., None] if array.ndim == 2 else array
            self.array = array[..., ::-1] if self.colors == "bgr" else array
        return self.array

    def whole(self) -> bool:
        """Whether the network's picture shows the original from edge to edge: nothing was cropped or padded."""
        height, width = self.network_size
        shown = (self.original.width * self.scale[0], self.original.height * self.scale[1])
        return self.offset == (0, 0) and abs(shown[0] - width) < 0.5 and abs(shown[1] - height) < 0.5

    def on_original(self, layer: Image) -> Image:
        """A map over the network's picture, of any size, laid over the original; 0 where the network saw nothing."""
        from PIL import Image

        if self.whole():
            return layer.resize(self.original.size, Image.Resampling.NEAREST)
        x, y = layer.width / self.network_size[1], layer.height / self.network_size[0]
        across = (self.scale[0] * x, 0.0, self.offset[0] * x)
        down = (0.0, self.scale[1] * y, self.offset[1] * y)
        return layer.transform(self.original.size, Image.Transform.AFFINE, (*across, *down), Image.Resampling.NEAREST)

    def shown(self, shape: tuple[int, ...]) -> tuple[slice, slice]:
        """The part of a map over the network's picture that lies on the original."""
        spans = []
        for axis, side in ((1, self.original.height), (0, self.original.width)):
            cells = shape[1 - axis] / self.network_size[1 - axis]
            start, end = self.offset[axis] * cells, (self.offset[axis] + side * self.scale[axis]) * cells
            spans.append(slice(max(0, round(start)), max(round(start) + 1, round(end))))
        return spans[0], spans[1]

    def like_network(self, size: tuple[int, int]) -> Image:
        """The original, cropped and padded as the network's picture, but ``size`` large."""
        from PIL import Image

        picture = self.original.convert("RGB")
        if self.whole():
            return picture.resize(size, Image.Resampling.BICUBIC)
        x, y = self.network_size[1] / size[0], self.network_size[0] / size[1]
        across = (x / self.scale[0], 0.0, -self.offset[0] / self.scale[0])
        down = (0.0, y / self.scale[1], -self.offset[1] / self.scale[1])
        return picture.transform(size, Image.Transform.AFFINE, (*across, *down), Image.Resampling.BICUBIC)

    def only_picture(self, step: str) -> Image:
        """The picture, for steps that come before the arithmetic."""
        if self.array is not None:
            raise InvalidArgument(
                f"{step} must come before scale, normalize, layout and dtype", why="it works on pictures"
            )
        return self.picture


def step(function: Callable[..., None]) -> Callable[..., None]:
    """Enter a step under its own name."""
    STEPS[function.__name__] = function
    return function


def prepare(picture: Image, recipe: Recipe) -> Prepared:
    """The steps before the network, on one picture. The array has no batch dimension yet."""
    state = _taken(Prepared(picture, picture), recipe.embedded or recipe.before)
    axis = 1 if state.layout == "nchw" else 0
    height, width = state.pixels().shape[axis : axis + 2]
    if recipe.embedded:  # the file takes these steps itself: here they only tell where things come to lie
        whole = _taken(Prepared(picture, picture), recipe.before)
        state = replace(whole, scale=state.scale, offset=state.offset)
    state.network_size = (height, width)
    state.pixels()
    return state


def _taken(state: Prepared, steps: Sequence[Step]) -> Prepared:
    if not steps or steps[0].name != "color":
        color(state, "rgb")
    for item in steps:
        with item.fault():
            STEPS[item.name](state, **item.options)
    return state


@step
def color(state: Prepared, to: str = "rgb") -> None:
    """``rgb``, ``bgr``, ``gray``, ``ycbcr``, or ``luma``: the brightness alone."""
    picture = state.only_picture("color")
    modes = {"rgb": "RGB", "bgr": "RGB", "gray": "L", "ycbcr": "YCbCr", "luma": "YCbCr"}
    if to not in modes:
        raise InvalidArgument(f"color: there is no {to!r}", why=f"known are {', '.join(modes)}")
    state.colors = to
    state.picture = picture.convert("RGB").convert(modes[to]) if to in ("ycbcr", "luma") else picture.convert(modes[to])
    if to == "luma":
        state.picture = state.picture.getchannel("Y")


@step
def resize(
    state: Prepared,
    size: int | Sequence[int] | None = None,
    short: int | None = None,
    long: int | None = None,
    height: int | None = None,
    factor: float | None = None,
    filter: str = "bilinear",
    multiple_of: int = 1,
) -> None:
    """To ``size`` (a number, or height and width), or in proportion: to a short or long side, a height, by a factor."""
    picture = state.only_picture("resize")
    h, w = resized((picture.height, picture.width), size, short, long, height, factor, multiple_of)
    state.picture = picture.resize((w, h), resampling(filter))
    x, y = w / picture.width, h / picture.height
    state.scale = (state.scale[0] * x, state.scale[1] * y)
    state.offset = (state.offset[0] * x, state.offset[1] * y)


def resized(
    now: tuple[int, int],
    size: int | Sequence[int] | None,
    short: int | None,
    long: int | None,
    height: int | None,
    factor: float | None,
    multiple_of: int = 1,
) -> tuple[int, int]:
    asked = [value for value in (size, short, long, height, factor) if value is not None]
    if len(asked) != 1:
        raise InvalidArgument(NOT_ONE_SIZE)
    h, w = now
    if size is not None:
        h, w = _pair(size, "resize: size")
    else:
        if not isinstance(asked[0], (int, float)) or isinstance(asked[0], bool):
            raise InvalidArgument(f"resize: {asked[0]!r} is not a size")
        by = factor or (short / min(h, w) if short else long / max(h, w) if long else (height or 0) / h)
        if not by > 0:
            raise InvalidArgument(f"resize: {asked[0]!r} is not a size")
        h, w = max(1, round(h * by)), max(1, round(w * by))
    if multiple_of > 1:
        h, w = (max(multiple_of, round(side / multiple_of) * multiple_of) for side in (h, w))
    if h * w > 400_000_000:
        raise InvalidArgument(f"resize: {h} × {w} is too large")
    return h, w


def resampling(name: str) -> Any:
    """Pillow's filter of that name."""
    from PIL import Image

    filters = {f.name.lower(): f for f in Image.Resampling}
    if name not in filters:
        raise InvalidArgument(f"resize: there is no filter {name!r}", why=f"known are {', '.join(filters)}")
    return filters[name]


@step
def crop(state: Prepared, size: int | Sequence[int]) -> None:
    """The middle, ``size`` a number, or height and width."""
    picture = state.only_picture("crop")
    h, w = _pair(size, "crop: size")
    if h > picture.height or w > picture.width:
        raise InvalidArgument(
            f"crop: {h} × {w} does not fit into {picture.height} × {picture.width}", hint="resize or pad first"
        )
    top, left = round((picture.height - h) / 2), round((picture.width - w) / 2)
    state.picture = picture.crop((left, top, left + w, top + h))
    state.offset = (state.offset[0] - left, state.offset[1] - top)


@step
def pad(
    state: Prepared,
    size: int | Sequence[int] | None = None,
    multiple_of: int | None = None,
    value: int = 0,
    position: str = "center",
) -> None:
    """Up to ``size`` or to a multiple, around the picture or (``position: corner``) right and below."""
    picture = state.only_picture("pad")
    if (size is None) == (multiple_of is None):
        raise InvalidArgument("pad takes one of size and multiple_of")
    h, w = picture.height, picture.width
    if multiple_of is not None:
        target = tuple(-(-side // multiple_of) * multiple_of for side in (h, w))
    else:
        target = _pair(size, "pad: size")
    if target[0] < h or target[1] < w:
        raise InvalidArgument(f"pad: the picture is {h} × {w}, larger than {target[0]} × {target[1]}")
    if position not in ("center", "corner"):
        raise InvalidArgument(f"pad: there is no position {position!r}", why="known are center and corner")
    top, left = ((target[0] - h) // 2, (target[1] - w) // 2) if position == "center" else (0, 0)
    from PIL import Image

    fill = value if len(picture.getbands()) == 1 else (value,) * len(picture.getbands())
    state.picture = Image.new(picture.mode, (target[1], target[0]), fill)
    state.picture.paste(picture, (left, top))
    state.offset = (state.offset[0] + left, state.offset[1] + top)


@step
def scale(state: Prepared, factor: float = 1 / 255) -> None:
    """Multiply: from 0…255 to 0…1 by default."""
    state.array = state.pixels().astype(np.float32) * np.float32(factor)


@step
def normalize(state: Prepared, mean: Sequence[float] | float = 0.0, std: Sequence[float] | float = 1.0) -> None:
    """``(x - mean) / std`` in each channel."""
    array = state.pixels().astype(np.float32)
    channels = array.shape[channel_axis(state.layout)]
    shape = [1, 1, 1]
    shape[channel_axis(state.layout)] = -1
    shift, divisor = (_each(value, channels, name).reshape(shape) for value, name in ((mean, "mean"), (std, "std")))
    if not np.all(divisor):
        raise InvalidArgument("normalize: std is 0")
    state.array = (array - shift) / divisor


@step
def layout(state: Prepared, to: str = "nchw") -> None:
    """``nchw`` or ``nhwc``."""
    if to not in _LAYOUTS:
        raise InvalidArgument(f"layout: there is no {to!r}", why="known are nchw and nhwc")
    to = to if to.startswith("n") else f"n{to}"
    array = state.pixels()
    if to != state.layout:
        array = array.transpose(2, 0, 1) if to == "nchw" else array.transpose(1, 2, 0)
    state.array, state.layout = np.ascontiguousarray(array), to


@step
def dtype(state: Prepared, to: str = "float32") -> None:
    """The element type of the network's input."""
    try:
        kind = np.dtype(to)
    except TypeError as error:
        raise InvalidArgument(f"dtype: there is no {to!r}") from error
    if kind.kind not in "fiu":
        raise InvalidArgument(f"dtype: a picture has no elements of {to!r}")
    state.array = state.pixels().astype(kind)


def channel_axis(layout: str) -> int:
    """Which axis of an array without batch holds the channels."""
    return 0 if layout == "nchw" else 2


def _pair(size: Any, what: str) -> tuple[int, int]:
    pair: list[Any] = list(size) if isinstance(size, (list, tuple)) else [size, size]
    if len(pair) != 2 or not all(isinstance(side, int) and side > 0 for side in pair):
        raise InvalidArgument(f"{what} must be a number above 0, or height and width, not {size!r}")
    return pair[0], pair[1]


def _each(value: Any, channels: int, name: str) -> np.ndarray:
    array = np.atleast_1d(np.asarray(value, np.float32))
    if array.shape not in ((1,), (channels,)):
        raise InvalidArgument(f"normalize: {name} has {array.size} values, the picture {channels} channels")
    return np.broadcast_to(array, (channels,))
