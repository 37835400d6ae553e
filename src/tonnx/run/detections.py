"""Objects that a network found: read from its outputs, thinned out, moved to the original picture, drawn."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tonnx.errors import InvalidArgument, told_as
from tonnx.run.before import Prepared

if TYPE_CHECKING:
    from PIL.Image import Image

_COLUMNS = ("class", "score", "x1", "y1", "x2", "y2", "cx", "cy", "w", "h")


@dataclass(frozen=True)
class Detection:
    """One object; the box is left, top, right, bottom."""

    kind: int
    score: float
    box: tuple[float, float, float, float]

    def data(self) -> dict[str, Any]:
        return {"class": self.kind, "score": self.score, "box": list(self.box)}

    def where(self) -> str:
        return ", ".join(f"{side:.1f}" for side in self.box)


def read(
    rows: np.ndarray,
    columns: Sequence[str],
    boxes: np.ndarray | None = None,
    scores: np.ndarray | None = None,
    classes: np.ndarray | None = None,
) -> list[Detection]:
    """Detections from one output whose rows have these columns, or from two or three outputs.

    With ``boxes`` (n × 4) and ``scores``: n scores and ``classes``, or n × classes scores.
    """
    if boxes is not None and scores is not None:
        rows, columns = _joined(boxes, scores, classes, columns)
    if rows.ndim == 3 and rows.shape[0] == 1:
        rows = rows[0]
    for name in columns:
        if name not in _COLUMNS:
            raise InvalidArgument(f"boxes: there is no column {name!r}", why=f"known are {', '.join(_COLUMNS)}")
    if rows.ndim != 2 or rows.shape[1] != len(columns):
        raise InvalidArgument(
            f"boxes: the output has the shape {rows.shape}, not {len(columns)} columns", why=f"({', '.join(columns)})"
        )
    if np.isnan(rows).any():
        raise InvalidArgument("boxes: the network's output has NaN", why="the input or the weights are damaged")
    values = {name: rows[:, i].astype(np.float64) for i, name in enumerate(columns)}
    sides = _sides(values)
    kinds = values.get("class", np.zeros(len(rows)))
    strength = values.get("score", np.ones(len(rows)))
    return [
        Detection(int(kind), float(s), (float(box[0]), float(box[1]), float(box[2]), float(box[3])))
        for kind, s, box in zip(kinds, strength, sides, strict=True)
        if kind >= 0  # Paddle marks "nothing found" by the class -1
    ]


def _joined(
    boxes: np.ndarray, scores: np.ndarray, classes: np.ndarray | None, columns: Sequence[str]
) -> tuple[np.ndarray, Sequence[str]]:
    if classes is None:
        if scores.ndim != 2 or len(scores) != len(boxes):
            raise InvalidArgument(f"boxes: {len(boxes)} boxes, but scores of the shape {scores.shape}")
        classes, scores = scores.argmax(axis=1), scores.max(axis=1)
    if not len(boxes) == len(scores) == len(classes):
        raise InvalidArgument(f"boxes: {len(boxes)} boxes, {len(scores)} scores, {len(classes)} classes")
    sides = [name for name in columns if name not in ("class", "score")]
    return np.column_stack([classes, scores, boxes]), ("class", "score", *sides)


def _sides(values: dict[str, np.ndarray]) -> np.ndarray:
    if all(name in values for name in ("x1", "y1", "x2", "y2")):
        return np.stack([values["x1"], values["y1"], values["x2"], values["y2"]], 1)
    if all(name in values for name in ("cx", "cy", "w", "h")):
        half_w, half_h = values["w"] / 2, values["h"] / 2
        x, y = values["cx"], values["cy"]
        return np.stack([x - half_w, y - half_h, x + half_w, y + half_h], 1)
    raise InvalidArgument("boxes: the columns must have x1, y1, x2, y2 or cx, cy, w, h")


def strongest(detections: Sequence[Detection], score: float, nms: float | None) -> list[Detection]:
    """Those above a score, best first; with ``nms``, none that overlaps a better one of its class by more than that."""
    kept: list[Detection] = []
    for one in sorted(detections, key=lambda d: -d.score):
        if one.score < score:
            break
        if nms is None or all(other.kind != one.kind or overlap(other.box, one.box) <= nms for other in kept):
            kept.append(one)
    return kept


def overlap(a: Sequence[float], b: Sequence[float]) -> float:
    """The shared area in relation to the area of both."""
    width = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
    height = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    both = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - width * height
    return width * height / both if both > 0 else 0.0


def on_original(detections: Sequence[Detection], state: Prepared, pixels: str) -> list[Detection]:
    """Boxes in pixels of the picture that went in; ``pixels`` says what they are in now."""
    width, height = state.original.size
    if pixels == "original":
        return list(detections)
    if pixels not in ("network", "fraction"):
        raise InvalidArgument(f"boxes: there is no pixels={pixels!r}", why="known are network, original and fraction")
    net_height, net_width = state.network_size
    moved = []
    for one in detections:
        box = np.asarray(one.box)
        if pixels == "fraction":
            box = box * [net_width, net_height, net_width, net_height]
        box = (box - np.tile(state.offset, 2)) / np.tile(state.scale, 2)
        box = np.clip(box, 0, [width, height, width, height])
        moved.append(replace(one, box=(float(box[0]), float(box[1]), float(box[2]), float(box[3]))))
    return moved


def drawn(picture: Image, detections: Sequence[Detection], labels: Sequence[str] | None) -> Image:
    from PIL import ImageDraw, ImageFont

    sheet = picture.convert("RGB")
    draw = ImageDraw.Draw(sheet)
    size = max(12, min(sheet.size) // 40)
    font = ImageFont.load_default(size=size)
    line = max(2, min(sheet.size) // 200)
    for one in reversed(detections):  # the best on top
        colour = f"hsl({one.kind * 67 % 360}, 90%, 45%)"
        left, top, right, bottom = one.box
        if right <= left or bottom <= top:
            continue
        draw.rectangle((left, top, right, bottom), outline=colour, width=line)
        caption = f"{label_of(labels, one.kind)} {one.score:.2f}"
        place = (left + line, max(0, top - size - 4))
        draw.rectangle(draw.textbbox(place, caption, font=font), fill=colour)
        draw.text(place, caption, fill="white", font=font)
    return sheet


# Label files: one label a line, or a JSON list


def read_labels(source: Any, folder: Path | None = None) -> list[str]:
    """The labels: a list as it is, or the lines of a file, whose name may be relative to the recipe's folder."""
    if isinstance(source, Sequence) and not isinstance(source, str):
        return [str(label) for label in source]
    path = Path(str(source))
    if folder is not None and not path.is_absolute():
        path = folder / path
    with told_as(InvalidArgument, f"cannot read the label file {path}", OSError, UnicodeDecodeError, why=str):
        text = path.read_text(encoding="utf-8")
    if path.suffix.lower() == ".json":
        with told_as(InvalidArgument, f"the label file {path} is not JSON", json.JSONDecodeError, why=str):
            labels = json.loads(text)
        if not isinstance(labels, list):
            raise InvalidArgument(f"the label file {path} must hold a list")
        return [str(label) for label in labels]
    return text.splitlines()


def label_of(labels: Sequence[str] | None, index: int) -> str:
    """The label of a class, or its number."""
    if labels is None:
        return str(index)
    if not 0 <= index < len(labels):
        raise InvalidArgument(f"class {index} has no label", why=f"there are {len(labels)} labels")
    return labels[index]
