"""A recipe's steps before the network, as ONNX nodes: the file then takes pictures as they are, uint8, channels last.

Resizing filters as Pillow does (antialiased) and rounds to whole levels as Pillow does, so the pixels that reach the
network are the same up to one level, where the two round a half in different ways.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir

from tonnx.errors import InvalidArgument, TonnxError, VerificationFailed
from tonnx.ir.build import Builder, Names, Size
from tonnx.ir.rewrite import names_in
from tonnx.ir.target import CANON, OLDEST_RUN, Target
from tonnx.proof.subject import Subject
from tonnx.run.before import NOT_ONE_SIZE, prepare
from tonnx.run.recipe import METADATA_KEY, Recipe, Step

T = ir.DataType
_SIZES = frozenset(("resize", "crop", "pad"))
_COMPUTES = frozenset(("scale", "normalize", "dtype"))
_CUBIC = -0.5  # Pillow's bicubic


def embed(model: ir.Model, subject: Subject, recipe: Recipe, target: Target) -> Subject:
    """Put the steps before the network; its example and its reference follow, as at the target's opset."""
    graph = model.graph
    port = _picture_input(graph)
    image = _image_input(port, recipe)
    first = next(iter(graph))
    names = Names(names_in(model))
    op = Builder(graph, names=names, before=first)
    place = list(graph.inputs).index(port)
    with op, op.origin("preprocessing", "recipe"):
        ready = _steps(op, image, recipe, port)
    graph.inputs[place] = image
    ir.convenience.replace_all_uses_with(port, ready)
    for at, output in enumerate(graph.outputs):
        if output is port:
            graph.outputs[at] = ready
    image.name, port.name = port.name, names.unique("network_input")
    store(model, replace(recipe, before=(Step("color", {"to": "rgb"}),), embedded=recipe.before))
    return _followed(subject, recipe, image, target)


def store(model: ir.Model, recipe: Recipe) -> None:
    """Keep a recipe in the model's metadata: ``tonnx run`` then needs nothing else."""
    model.metadata_props[METADATA_KEY] = recipe.to_json()


def _picture_input(graph: ir.Graph) -> ir.Value:
    pictures = [v for v in graph.inputs if v.shape is not None and v.shape.rank() == 4 and not v.is_initializer()]
    if len(pictures) != 1:
        raise InvalidArgument(
            "preprocessing cannot be embedded: it is not clear which input takes the picture",
            why=f"{len(pictures)} inputs have four dimensions",
        )
    return pictures[0]


def _layout(recipe: Recipe) -> str:
    layouts = [s.options.get("to", "nchw") for s in recipe.before if s.name == "layout"]
    return str(layouts[-1])[-3:] if layouts else "hwc"


def _image_input(port: ir.Value, recipe: Recipe) -> ir.Value:
    dims = list(port.shape or ())
    height, width = dims[2:] if _layout(recipe) == "chw" else dims[1:3]
    if any(step.name in _SIZES for step in recipe.before):
        height, width = ir.SymbolicDim("height"), ir.SymbolicDim("width")
    return ir.Value(name="image", type=ir.TensorType(T.UINT8), shape=ir.Shape([dims[0], height, width, 3]))


def _steps(op: Builder, image: ir.Value, recipe: Recipe, port: ir.Value) -> ir.Value:
    """The whole way; inside, pixels are float32 and channels come first, which is how runtimes resize."""
    x = op.Transpose(op.Cast(image, to=int(T.FLOAT)), perm=[0, 3, 1, 2])
    layout = "hwc"
    for step in recipe.before:
        if step.name == "layout":
            layout = str(step.options.get("to", "nchw"))[-3:]
        elif step.name == "dtype":
            x = op.cast(x, T.from_numpy(np.dtype(step.options.get("to", "float32"))))
        else:
            x = _STEPS[step.name](op, x, **step.options)
    if layout == "hwc":
        x = op.Transpose(x, perm=[0, 2, 3, 1])
    if not any(step.name in _COMPUTES for step in recipe.before):
        x = op.cast(x, T.UINT8)  # a picture as it is
    if x.dtype != port.dtype:
        raise InvalidArgument(
            f"the recipe gives {x.dtype.name.lower() if x.dtype else '?'}, but the input {port.name} is "
            f"{port.dtype.name.lower() if port.dtype else '?'}",
            hint="end the recipe's steps with dtype",
        )
    for axis, (size, port_size) in enumerate(zip(x.shape or (), port.shape or (), strict=True)):
        if isinstance(size, int) and isinstance(port_size, int) and size != port_size:
            raise InvalidArgument(f"the recipe gives {size} at axis {axis}, but the input {port.name} has {port_size}")
    return x


# The steps


def _color(op: Builder, x: ir.Value, to: str = "rgb") -> ir.Value:
    if to == "rgb":
        return x
    if to == "bgr":
        return op.Gather(x, [2, 1, 0], axis=1)
    if to in ("gray", "luma"):
        weights = np.array([0.299, 0.587, 0.114], np.float32).reshape(1, 3, 1, 1)
        return op.Floor(op.ReduceSum(x * weights, [1], keepdims=1) + 0.5)
    raise InvalidArgument(f"color: {to!r} cannot be embedded", why="rgb, bgr, gray and luma can")


def _resize(
    op: Builder,
    x: ir.Value,
    filter: str = "bilinear",
    multiple_of: int = 1,
    **to: Any,
) -> ir.Value:
    given = [(how, asked) for how, asked in to.items() if asked is not None]
    if len(given) != 1:
        raise InvalidArgument(NOT_ONE_SIZE)
    how, asked = given[0]
    modes = {"bilinear": "linear", "bicubic": "cubic", "nearest": "nearest"}
    if filter not in modes:
        raise InvalidArgument(f"resize: the filter {filter!r} cannot be embedded", why=f"{', '.join(modes)} can")
    if how == "size":
        pair = list(asked) if isinstance(asked, (list, tuple)) else [asked, asked]
        sides: list[Size] = [max(multiple_of, round(side / multiple_of) * multiple_of) for side in pair]
    else:
        h, w = (_number(op, op.size(x, axis)) for axis in (2, 3))
        by = op.constant([asked], T.DOUBLE)
        if how == "height":
            by = op.Div(by, h)
        elif how != "factor":
            by = op.Div(by, _larger(op, h, w) if how == "long" else op.Neg(_larger(op, op.Neg(h), op.Neg(w))))
        sides = [_rounded(op, op.Mul(side, by), multiple_of) for side in (h, w)]
    batch, channels, rows, _ = (op.size(x, axis) for axis in range(4))
    target = op.vector([batch, channels, *sides])
    if modes[filter] == "nearest":
        return op.Resize(x, None, None, target, mode="nearest", nearest_mode="round_prefer_ceil")
    # As Pillow does it: rows first, whole levels after each pass, and nothing from beyond the border.
    for sizes in (op.vector([batch, channels, rows, sides[1]]), target):
        resized = op.Resize(
            x,
            None,
            None,
            sizes,
            mode=modes[filter],
            antialias=1,
            exclude_outside=1,
            cubic_coeff_a=_CUBIC if filter == "bicubic" else None,
        )
        x = op.Clip(op.Floor(resized + 0.5), 0.0, 255.0)
    return x


def _number(op: Builder, size: Size) -> ir.Value:
    """A size as a float64 vector of one: float32 would round products of sizes."""
    return op.Cast(size if isinstance(size, ir.Value) else op.constant([size], T.INT64), to=int(T.DOUBLE))


def _larger(op: Builder, one: ir.Value, other: ir.Value) -> ir.Value:
    """The larger of two whole numbers; at opset 7, ONNX Runtime has no Max of float64."""
    return (one + other + op.Abs(one - other)) * 0.5


def _rounded(op: Builder, size: ir.Value, multiple_of: int) -> Size:
    whole = _larger(op, op.Round(size), op.constant([1.0], T.DOUBLE))
    if multiple_of > 1:
        step = op.constant([float(multiple_of)], T.DOUBLE)
        whole = _larger(op, op.Mul(op.Round(op.Div(whole, step)), step), step)
    return op.Cast(whole, to=int(T.INT64))


def _crop(op: Builder, x: ir.Value, size: Any) -> ir.Value:
    target = list(size) if isinstance(size, (list, tuple)) else [size, size]
    starts, ends = [], []
    for axis, side in zip((2, 3), target, strict=True):
        now = op.size(x, axis)
        if isinstance(now, int):
            start: Size = round((now - side) / 2)
            end: Size = round((now - side) / 2) + side
        else:
            start = op.Cast(op.Round((_number(op, now) - float(side)) / 2.0), to=int(T.INT64))
            end = op.Add(start, op.constant([side], T.INT64))
        starts.append(start)
        ends.append(end)
    shape = [*(x.shape.dims[:2] if x.shape is not None else ()), *target]
    return op.Slice(x, op.vector(starts), op.vector(ends), [2, 3], _shape=shape)


def _pad(
    op: Builder, x: ir.Value, size: Any = None, multiple_of: int | None = None, value: int = 0, position: str = "center"
) -> ir.Value:
    target_sizes = [None, None] if size is None else list(size) if isinstance(size, (list, tuple)) else [size, size]
    starts, ends = [], []
    for axis, side in zip((2, 3), target_sizes, strict=True):
        now = op.size(x, axis)
        have = now if isinstance(now, ir.Value) else op.constant([now], T.INT64)
        if side is None:
            of = op.constant([multiple_of], T.INT64)
            target = op.Mul(op.Div(op.Add(have, op.Sub(of, [1])), of), of)
        else:
            target = op.constant([side], T.INT64)
        free = op.Sub(target, have)
        start = op.Div(free, [2]) if position == "center" else op.constant([0], T.INT64)
        starts.append(start)
        ends.append(op.Sub(free, start))
    none = op.constant([0, 0], T.INT64)
    pads = op.Concat(none, *starts, none, *ends, axis=0)
    lead = list(x.shape.dims[:2]) if x.shape is not None else []
    shape = [*lead, *(side if side is not None else ir.SymbolicDim(None) for side in target_sizes)]
    return op.Pad(x, pads, float(value), _shape=shape)


def _normalize(op: Builder, x: ir.Value, mean: Any = 0.0, std: Any = 1.0) -> ir.Value:
    shift, divisor = (np.asarray(v, np.float32).reshape(1, -1, 1, 1) for v in (mean, std))
    return op.Div(op.Sub(x, op.constant(shift)), op.constant(divisor))


_STEPS: dict[str, Callable[..., ir.Value]] = {
    "color": _color,
    "resize": _resize,
    "crop": _crop,
    "pad": _pad,
    "scale": lambda op, x, factor=1 / 255: x * float(np.float32(factor)),
    "normalize": _normalize,
}


# The proof


def _followed(subject: Subject, recipe: Recipe, image: ir.Value, target: Target) -> Subject:
    """The example becomes a picture, and the reference the network on what the steps make of it.

    The steps run by themselves, so that the proof compares the network to the last digit; they are themselves
    compared with the recipe as `tonnx run` takes it, level by level.
    """
    from PIL import Image

    name = image.name or ""
    before = subject.example[name]
    picture = _scene_for(recipe, before)
    alone = _alone(recipe, before, target)
    _compare(recipe, picture, alone(picture))
    inner = subject.reference
    dims = list(image.shape or ())
    axes = {axis: str(d.value) for axis, d in enumerate(dims) if not isinstance(d, int) and d.value}

    def reference(inputs: dict[str, np.ndarray]) -> Sequence[np.ndarray]:
        assert inner is not None
        for one in inputs[name][:1]:
            prepare(Image.fromarray(one), recipe)  # a size that the recipe refuses is none to compare at
        return inner({**inputs, name: alone(inputs[name])})

    return replace(
        subject,
        reference=None if inner is None else reference,
        example={**subject.example, name: picture},
        dynamic={**subject.dynamic, name: axes},
    )


def _scene_for(recipe: Recipe, before: np.ndarray) -> np.ndarray:
    """Pictures from which the recipe makes what the network takes: larger ones, as a rule; smaller ones for padding."""
    from PIL import Image

    height, width = before.shape[2:] if _layout(recipe) == "chw" else before.shape[1:3]
    sizes = [(height, width)]
    if any(step.name in _SIZES for step in recipe.before):
        larger, smaller = (height + height // 3 + 5, width + width // 2 + 3), (height - height // 3, width - width // 4)
        sizes = [larger, smaller, (height, width)]
    failure: TonnxError | None = None
    for size in sizes:
        scene = _scene(len(before), *size)
        try:
            if prepare(Image.fromarray(scene[0]), recipe).pixels().shape == before.shape[1:]:
                return scene
        except TonnxError as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return _scene(len(before), *sizes[0])  # the network says no sizes, or the proof will say that they do not fit


def _scene(count: int, height: int, width: int) -> np.ndarray:
    """Pictures with slopes and edges: on noise, a bicubic filter that is cut off elsewhere is two levels off."""
    random = np.random.default_rng(0)
    coarse = random.integers(0, 256, (count, 4, 5, 3)).repeat(-(-height // 4), 1).repeat(-(-width // 5), 2)
    slope = np.linspace(0, 60, width).astype(np.int64)[None, None, :, None]
    return np.clip(coarse[:, :height, :width] + slope, 0, 255).astype(np.uint8)


def _alone(recipe: Recipe, before: np.ndarray, target: Target) -> Callable[[np.ndarray], np.ndarray]:
    """The steps at the opset of the file: written out for an old one, they may round a half the other way."""
    from tonnx.io import write
    from tonnx.legalise import legalise
    from tonnx.passes import clean_up
    from tonnx.proof.session import Session

    graph = ir.Graph([], [], nodes=[], opset_imports={"": CANON}, name="preprocessing")
    dims: list[Any] = [ir.SymbolicDim("n"), *[ir.SymbolicDim(None)] * 3]
    port = ir.Value(name="y", type=ir.TensorType(T.from_numpy(before.dtype)), shape=ir.Shape(dims))
    image = _image_input(port, recipe)
    graph.inputs.append(image)
    op = Builder(graph, names=Names(["image", "ready"]))
    with op:
        ready = _steps(op, image, recipe, port)
    ready.name = "ready"
    graph.outputs.append(ready)
    model = ir.Model(graph, ir_version=10)
    legalise(model, target if target.opset >= OLDEST_RUN else Target(OLDEST_RUN))
    clean_up(model)
    session = Session(write.to_bytes(model))
    return lambda pictures: session.run({"image": pictures})["ready"]


def _compare(recipe: Recipe, pictures: np.ndarray, actual: np.ndarray) -> None:
    """One level of difference is rounding; more is a fault."""
    from PIL import Image

    expected = np.stack([prepare(Image.fromarray(one), recipe).pixels() for one in pictures])
    if expected.shape != actual.shape:
        raise VerificationFailed(
            f"the embedded steps give the shape {actual.shape}, the recipe {expected.shape}", hint="please report it"
        )
    level = 1.0
    for step in recipe.before:
        if step.name == "scale":
            level *= abs(step.options.get("factor", 1 / 255))
        elif step.name == "normalize":
            level /= float(np.min(np.abs(step.options.get("std", 1.0))))
    worst = float(np.abs(expected.astype(np.float64) - actual.astype(np.float64)).max(initial=0.0))
    kind = expected.dtype
    rounding = float(np.finfo(kind).eps * np.abs(expected).max(initial=0.0)) if kind.kind == "f" else 0.0
    if worst > 1.02 * level + 1e-4 + rounding:
        raise VerificationFailed(f"the embedded steps differ from the recipe by {worst / level:.2f} levels of 255")
