"""Steps after the network: from its outputs for one picture to lines of text, a picture, or a file of numbers.

A step changes the `Answer` that it is given. ``array`` is the output at hand: the first one, until ``output`` picks
another. Outputs have no batch dimension here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tonnx.errors import InvalidArgument
from tonnx.run.before import Prepared
from tonnx.run.detections import label_of, read_labels
from tonnx.run.recipe import Recipe

if TYPE_CHECKING:
    from PIL.Image import Image

STEPS: dict[str, Callable[..., None]] = {}


@dataclass
class Answer:
    """What the network said of one picture."""

    outputs: dict[str, np.ndarray]
    array: np.ndarray
    prepared: Prepared | None = None
    folder: Path | None = None
    lines: list[str] = field(default_factory=list)
    """For people."""
    data: dict[str, Any] = field(default_factory=dict)
    """The same for programs."""
    picture: Image | None = None
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    """To be written as ``.npy``."""

    def names(self, labels: Any) -> list[str] | None:
        return None if labels is None else read_labels(labels, self.folder)

    def original(self, step: str) -> Prepared:
        if self.prepared is None:
            raise InvalidArgument(f"{step} needs a picture as input, not arrays")
        return self.prepared


def step(function: Callable[..., None]) -> Callable[..., None]:
    """Enter a step under its own name."""
    STEPS[function.__name__] = function
    return function


def conclude(outputs: dict[str, np.ndarray], prepared: Prepared | None, recipe: Recipe) -> Answer:
    """The steps after the network, on its outputs for one picture. Without any, all outputs are kept."""
    answer = Answer(outputs, next(iter(outputs.values())), prepared, recipe.folder)
    for item in recipe.after:
        with item.fault():
            STEPS[item.name](answer, **item.options)
    if not recipe.after:
        answer.arrays = dict(outputs)
    return answer


@step
def output(answer: Answer, name: str) -> None:
    """Go on with the output of this name."""
    answer.array = named(answer, name)


def named(answer: Answer, name: str) -> np.ndarray:
    if name not in answer.outputs:
        raise InvalidArgument(f"the model has no output {name!r}", why=f"it has {', '.join(answer.outputs)}")
    return answer.outputs[name]


@step
def softmax(answer: Answer, axis: int = -1) -> None:
    """Scores to probabilities."""
    array = real(answer, "softmax").astype(np.float64)
    array = np.exp(array - array.max(axis=_axis(array, axis, "softmax"), keepdims=True))
    answer.array = (array / array.sum(axis=axis, keepdims=True)).astype(np.float32)


@step
def sigmoid(answer: Answer) -> None:
    """Scores to independent probabilities."""
    array = real(answer, "sigmoid").astype(np.float64)
    answer.array = (0.5 * (1 + np.tanh(0.5 * array))).astype(np.float32)  # in this form nothing overflows


@step
def top_k(answer: Answer, k: int = 5, labels: Any = None) -> None:
    scores = real(answer, "top_k").reshape(-1)
    names = answer.names(labels)
    if names is not None and len(names) != scores.size:
        raise InvalidArgument(f"top_k: there are {len(names)} labels, but the network has {scores.size} classes")
    best = np.argsort(-scores, kind="stable")[:k]
    answer.data["top_k"] = [
        {"class": int(i), "label": label_of(names, int(i)), "score": float(scores[i])} for i in best
    ]
    answer.lines += [f"{scores[i]:.4f}  {label_of(names, int(i))}" for i in best]


@step
def argmax(answer: Answer, axis: int = 0) -> None:
    array = real(answer, "argmax")
    answer.array = array.argmax(axis=_axis(array, axis, "argmax"))


@step
def mask(answer: Answer, labels: Any = None, alpha: float = 0.6) -> None:
    """A map of classes (or scores, classes first) as colours over the picture; ``alpha: 1`` shows the colours alone."""
    from PIL import Image

    classes = answer.array
    if classes.ndim == 3:
        classes = real(answer, "mask").argmax(axis=0) if classes.shape[0] > 1 else classes[0]
    if classes.ndim != 2:
        raise InvalidArgument(f"mask: a map of classes has two dimensions, this has the shape {answer.array.shape}")
    classes = classes.astype(np.int64)
    names = answer.names(labels)
    original = answer.original("mask").original.convert("RGB")
    state = answer.original("mask")
    colours, seen = (
        state.on_original(Image.fromarray(layer))
        for layer in (_palette()[classes % 256], np.full(classes.shape, 255, np.uint8))
    )
    answer.picture = Image.composite(Image.blend(original, colours, alpha), original, seen)
    classes = classes[state.shown(classes.shape)]  # what was padded is no part of the picture
    values, counts = np.unique(classes, return_counts=True)
    shares = sorted(zip(values.tolist(), (counts / classes.size).tolist(), strict=True), key=lambda pair: -pair[1])
    answer.data["classes"] = [{"class": c, "label": label_of(names, c), "share": share} for c, share in shares]
    answer.lines += [f"{share:7.2%}  {label_of(names, c)}" for c, share in shares]


@step
def picture(
    answer: Answer,
    scale: float = 255.0,
    mean: Any = 0.0,
    std: Any = 1.0,
    layout: str = "nchw",
    colors: str = "rgb",
    chroma: bool = False,
) -> None:
    """The output as a picture. With ``chroma`` it is a luma, and gets the colours of the picture that went in."""
    from PIL import Image

    array = real(answer, "picture").astype(np.float32)
    if array.ndim == 2:
        array = array[None] if layout == "nchw" else array[..., None]
    if array.ndim != 3:
        raise InvalidArgument(f"picture: it needs channels, height and width, this has the shape {answer.array.shape}")
    array = array.transpose(1, 2, 0) if layout == "nchw" else array
    array = array * np.asarray(std, np.float32) + np.asarray(mean, np.float32)
    pixels = np.clip(np.rint(array * scale), 0, 255).astype(np.uint8)
    if pixels.shape[2] not in (1, 3):
        raise InvalidArgument(f"picture: a picture has 1 or 3 channels, not {pixels.shape[2]}")
    if pixels.shape[2] == 1:
        image = Image.fromarray(pixels[..., 0])
        if chroma:
            _, cb, cr = answer.original("picture").like_network(image.size).convert("YCbCr").split()
            image = Image.merge("YCbCr", (image, cb, cr)).convert("RGB")
    elif colors == "ycbcr":
        image = Image.fromarray(pixels, "YCbCr").convert("RGB")
    else:
        image = Image.fromarray(np.ascontiguousarray(pixels[..., ::-1] if colors == "bgr" else pixels), "RGB")
    answer.picture = image


@step
def text(answer: Answer, alphabet: Any, blank: int = 0) -> None:
    """Scores of characters by time (a CTC recogniser's) as text: the best of each, repetitions and blanks left out."""
    scores = real(answer, "text")
    if scores.ndim != 2:
        raise InvalidArgument(f"text: scores have time and characters, this has the shape {scores.shape}")
    characters = list(alphabet) if isinstance(alphabet, str) and not alphabet.endswith(".txt") else None
    characters = characters if characters is not None else read_labels(alphabet, answer.folder)
    if scores.shape[1] != len(characters) + 1:
        raise InvalidArgument(
            f"text: the network tells {scores.shape[1] - 1} characters apart, the alphabet has {len(characters)}"
        )
    best = scores.argmax(axis=1).tolist()
    kept = [c for i, c in enumerate(best) if c != blank and (i == 0 or c != best[i - 1])]
    answer.data["text"] = "".join(characters[c - (c > blank)] for c in kept)
    answer.lines.append(answer.data["text"])


@step
def boxes(
    answer: Answer,
    columns: Sequence[str] = ("class", "score", "x1", "y1", "x2", "y2"),
    boxes: str | None = None,
    scores: str | None = None,
    classes: str | None = None,
    pixels: str = "network",
    score: float = 0.5,
    nms: float | None = None,
    labels: Any = None,
) -> None:
    """Found objects, drawn on the picture. See `detections.read` for the forms of output that are understood."""
    from tonnx.run import detections

    state = answer.original("boxes")
    names = answer.names(labels)
    outputs = {
        "boxes": named(answer, boxes) if boxes else None,
        "scores": named(answer, scores) if scores else None,
        "classes": named(answer, classes) if classes else None,
    }
    objects = detections.read(answer.array, columns, **outputs)
    objects = detections.strongest(objects, score, nms)
    objects = detections.on_original(objects, state, pixels)
    answer.data["boxes"] = [{"label": label_of(names, d.kind), **d.data()} for d in objects]
    answer.lines += [f"{d.score:.4f}  {label_of(names, d.kind)}  {d.where()}" for d in objects]
    answer.picture = detections.drawn(state.original, objects, names)


@step
def save(answer: Answer, name: str | None = None) -> None:
    """Keep the array at hand as numbers, in a ``.npy`` file."""
    answer.arrays[name or "output"] = answer.array


def real(answer: Answer, step: str) -> np.ndarray:
    """The array at hand, free of NaN: a NaN would win or lose every comparison in silence."""
    array = answer.array
    if array.dtype.kind == "f" and np.isnan(array).any():
        raise InvalidArgument(f"{step}: the network's output has NaN", why="the input or the weights are damaged")
    return array


def _axis(array: np.ndarray, axis: int, step: str) -> int:
    if not -array.ndim <= axis < array.ndim:
        raise InvalidArgument(f"{step}: there is no axis {axis}", why=f"the output has the shape {array.shape}")
    return axis


def _palette() -> np.ndarray:
    """256 colours, neighbours far apart: the bits of the class number go to the high bits of the channels in turn."""
    colours = np.zeros((256, 3), np.uint8)
    for c in range(256):
        for bit in range(8):
            colours[c, bit % 3] |= ((c >> bit) & 1) << (7 - bit // 3)
    return colours
