"""How a checkpoint of transformers prepares pictures, in the words of tonnx's recipes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_FILTERS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
"""By Pillow's numbers."""

_KNOWN = frozenset("do_resize do_center_crop do_rescale do_normalize do_convert_rgb".split())


class NotUnderstood(Exception):
    """What a preprocessor_config.json asks for beyond resizing, cropping and scaling."""


def picture_steps(settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The steps before the network. Raises `NotUnderstood`."""
    others = sorted(name for name, value in settings.items() if name.startswith("do_") and value and name not in _KNOWN)
    if others or settings.get("crop_pct"):
        raise NotUnderstood(", ".join(others) or "crop_pct")
    steps: list[dict[str, Any]] = [{"color": "rgb"}]
    if settings.get("do_resize"):
        number = int(settings.get("resample", 2))
        steps.append({"resize": {**_size(settings.get("size"), "size"), "filter": _FILTERS[number]}})
    if settings.get("do_center_crop"):
        steps.append({"crop": _size(settings.get("crop_size"), "crop_size")["size"]})
    if settings.get("do_rescale", True):
        steps.append({"scale": float(settings.get("rescale_factor", 1 / 255))})
    if settings.get("do_normalize"):
        steps.append({"normalize": {"mean": settings["image_mean"], "std": settings["image_std"]}})
    return [*steps, {"layout": "nchw"}]


def _size(size: Any, name: str) -> dict[str, Any]:
    if isinstance(size, int):
        return {"size": [size, size]}
    if isinstance(size, Mapping) and size.keys() >= {"height", "width"}:
        return {"size": [size["height"], size["width"]]}
    if isinstance(size, Mapping) and set(size) == {"shortest_edge"} and name == "size":
        return {"short": size["shortest_edge"]}
    raise NotUnderstood(f"{name} {size!r}")
