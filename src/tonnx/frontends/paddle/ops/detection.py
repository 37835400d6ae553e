"""Detection heads: boxes from what a network says of them, and the boxes that they start from."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.frontends.paddle.lower.boxes import corners, in_pixels, joined, overlaps
from tonnx.frontends.paddle.lower.rules import Floats, Ints, Value, lower
from tonnx.ir.build import Builder, Size, T
from tonnx.lowering import sizes
from tonnx.lowering.ops import conv as torch_conv


def _real(op: Builder, size: Size, dtype: ir.DataType) -> ir.Value:
    """A size as a real number of rank 0."""
    return op.cast(op.scalar(size), dtype)


def _steps(op: Builder, count: Size, dtype: ir.DataType) -> ir.Value:
    return op.cast(sizes.arange(op, count), dtype)


# YOLO


@lower("yolo_box")
def yolo_box(
    op: Builder,
    x: Value,
    img_size: Value,
    *,
    anchors: Ints,
    class_num: int,
    conf_thresh: float,
    downsample_ratio: int,
    clip_bbox: bool = True,
    scale_x_y: float = 1.0,
    iou_aware: bool = False,
    iou_aware_factor: float = 0.5,
) -> tuple[ir.Value, ir.Value]:
    """Boxes (pictures, boxes, 4) and scores (pictures, boxes, classes); zeros where the confidence is too small."""
    dtype = x.dtype or T.FLOAT
    count = len(anchors) // 2
    batch, _, height, width = op.sizes(x)
    aware: ir.Value | None = None
    if iou_aware:  # the first channels say how well each box fits
        aware, x = op.Split(x, op.vector([count, count * (5 + class_num)]), axis=1, _outputs=2)
        aware = op.Unsqueeze(aware, [2])
    # (picture, anchor, channel, row, column), so that rows and columns broadcast
    cells = op.reshape(x, [batch, count, 5 + class_num, height, width])
    place, extent, sure, classes = op.Split(cells, [2, 2, 1, class_num], axis=2, _outputs=4)
    confidence = op.Sigmoid(sure)
    if aware is not None:
        confidence = op.Pow(confidence, 1 - iou_aware_factor) * op.Pow(op.Sigmoid(aware), iou_aware_factor)
    believed = op.Not(op.Less(confidence, conf_thresh))
    grid = _grid(op, height, width, dtype)
    cells_in_all = op.cast(op.vector([width, height]), dtype)
    picture = op.reshape(op.cast(op.Gather(img_size, [1, 0], axis=1), dtype), [batch, 1, 2, 1, 1])
    per_cell = op.Reshape(cells_in_all, [1, 1, 2, 1, 1])
    centre = op.Sigmoid(place) * scale_x_y - (scale_x_y - 1) / 2 if scale_x_y != 1 else op.Sigmoid(place)
    centre = (centre + grid) * picture / per_cell
    prior = op.constant(np.reshape(np.asarray(anchors, np.float64), (1, count, 2, 1, 1)), dtype)
    half = op.Exp(extent) * prior * picture / (per_cell * float(2 * downsample_ratio))
    low, high = centre - half, centre + half
    if clip_bbox:
        low, high = op.Max(low, 0.0), op.Min(high, picture - 1.0)
    nothing = op.constant(0, dtype)
    boxes = op.Where(believed, op.Concat(low, high, axis=2), nothing)
    scores = op.Where(believed, confidence * op.Sigmoid(classes), nothing)
    number = op.product([count, height, width])
    boxes, scores = (op.Transpose(x, perm=[0, 1, 3, 4, 2]) for x in (boxes, scores))
    return op.reshape(boxes, [batch, number, 4]), op.reshape(scores, [batch, number, class_num])


def _grid(op: Builder, height: Size, width: Size, dtype: ir.DataType) -> ir.Value:
    """Column and row of each cell: (1, 1, 2, rows, columns)."""
    across = op.reshape(_steps(op, width, dtype), [1, 1, 1, 1, width])
    down = op.reshape(_steps(op, height, dtype), [1, 1, 1, height, 1])
    shape = op.vector([1, 1, 1, height, width])
    return op.Concat(op.Expand(across, shape), op.Expand(down, shape), axis=2)


# Boxes relative to others


@lower("box_coder")
def box_coder(
    op: Builder,
    prior_box: Value,
    prior_box_var: Value | None = None,
    target_box: Value | None = None,
    *,
    code_type: str = "encode_center_size",
    box_normalized: bool = True,
    axis: int = 0,
    variance: Floats = (),
) -> ir.Value:
    assert target_box is not None
    more = 0.0 if box_normalized else 1.0
    spread = op.constant(list(variance), prior_box.dtype) if len(variance) else prior_box_var
    encodes = code_type.startswith("encode")
    at = 0 if encodes or axis == 0 else 1  # priors lie along the columns, or along the rows
    prior = op.Unsqueeze(prior_box, [at])
    if spread is not None and op.rank(spread) == 2:
        spread = op.Unsqueeze(spread, [at])
    x1, y1, x2, y2 = corners(op, prior)
    low, size = joined(op, x1, y1), joined(op, x2 - x1, y2 - y1)
    size = size + more if more else size
    centre = low + size / 2.0
    if encodes:
        return _encoded(op, op.Unsqueeze(target_box, [1]), centre, size, spread, more)
    code = op.Mul(target_box, spread) if spread is not None else target_box
    move, grow = op.Split(code, axis=-1, num_outputs=2, _outputs=2)
    middle, half = move * size + centre, op.Exp(grow) * size / 2.0
    return joined(op, middle - half, middle + half - more if more else middle + half)


def _encoded(
    op: Builder, target: ir.Value, centre: ir.Value, size: ir.Value, spread: ir.Value | None, more: float
) -> ir.Value:
    low, high = op.Split(target, axis=-1, num_outputs=2, _outputs=2)
    own = high - low + more if more else high - low
    code = joined(op, ((low + high) / 2.0 - centre) / size, op.Log(op.Abs(own / size)))
    return code if spread is None else op.Div(code, spread)


@lower("iou_similarity")
def iou_similarity(op: Builder, x: Value, y: Value, *, box_normalized: bool = True) -> ir.Value:
    return overlaps(op, in_pixels(op, x, not box_normalized), in_pixels(op, y, not box_normalized))


@lower("box_clip")
def box_clip(op: Builder, input: Value, im_info: Value) -> ir.Value:
    """Into the picture, whose size is given as height, width and the scale that it was enlarged by."""
    if op.rank(input) != 3 and op.size(im_info, 0) != 1:
        raise UnsupportedArgument(
            "box_clip for several pictures", why="which box is of which picture is not in the tensor (LoD)"
        )
    height, width, scale = op.Split(im_info, [1, 1, 1], axis=-1, _outputs=3)
    last = joined(op, op.Round(width / scale), op.Round(height / scale)) - 1.0
    last = joined(op, last, last)
    if op.rank(input) == 3:
        last = op.Unsqueeze(last, [1])
    return op.Max(op.Min(input, last), 0.0)


@lower("polygon_box_transform")
def polygon_box_transform(op: Builder, input: Value) -> ir.Value:
    """Distances from a pixel of a map four times smaller, as places: x in even channels, y in odd ones."""
    assert input.dtype is not None
    batch, channels, height, width = op.sizes(input)
    grid = op.reshape(_grid(op, height, width, input.dtype), [1, 1, 2, height, width])
    pairs = op.reshape(input, [batch, sizes.divide(op, channels, 2), 2, height, width])
    return op.reshape(op.Sub(grid * 4.0, pairs), op.sizes(input))


# Boxes to start from


def _priors(
    op: Builder, centres: tuple[ir.Value, ir.Value], low: np.ndarray, high: np.ndarray, dtype: ir.DataType
) -> ir.Value:
    """A box for each cell and kind: (rows, columns, kinds, 4); ``low`` and ``high`` are offsets (kinds, (x, y))."""
    across, down = centres
    shape = op.vector([op.size(down, 0), op.size(across, 0), 1, 1])
    centre = joined(
        op, op.Expand(op.Unsqueeze(across, [0, 2, 3]), shape), op.Expand(op.Unsqueeze(down, [1, 2, 3]), shape)
    )
    return joined(op, centre + op.constant(low, dtype), centre + op.constant(high, dtype))


def _on_image(
    op: Builder,
    input: ir.Value,
    image: ir.Value,
    steps: tuple[float, float],
    offset: float,
    low: np.ndarray,
    high: np.ndarray,
) -> ir.Value:
    """`_priors` around the middle of every cell of a map, as parts of the image; a step of 0 follows from the sizes."""
    dtype, lengths = input.dtype or T.FLOAT, op.sizes(image)[:1:-1]  # width and height
    centres = []
    for count, length, step in zip(op.sizes(input)[:1:-1], lengths, steps, strict=True):
        span = op.constant(step, dtype) if step else _real(op, length, dtype) / _real(op, count, dtype)
        centres.append((_steps(op, count, dtype) + offset) * span)
    boxes = _priors(op, (centres[0], centres[1]), low, high, dtype)
    return boxes / op.cast(op.vector(lengths * 2), boxes.dtype)


def _variances(op: Builder, boxes: ir.Value, variances: Floats) -> ir.Value:
    values = op.constant(list(variances), boxes.dtype)
    return op.Expand(values, op.vector(op.sizes(boxes)))


def _ratios(asked: Floats, flip: bool) -> list[float]:
    ratios = [1.0]
    for ratio in asked:
        if all(abs(ratio - other) >= 1e-6 for other in ratios):
            ratios += [ratio, 1 / ratio] if flip else [ratio]
    return ratios


@lower("prior_box")
def prior_box(
    op: Builder,
    input: Value,
    image: Value,
    *,
    min_sizes: Floats,
    max_sizes: Floats = (),
    aspect_ratios: Floats = (1.0,),
    variances: Floats = (0.1, 0.1, 0.2, 0.2),
    flip: bool = False,
    clip: bool = False,
    step_w: float = 0.0,
    step_h: float = 0.0,
    offset: float = 0.5,
    min_max_aspect_ratios_order: bool = False,
) -> tuple[ir.Value, ir.Value]:
    halves: list[tuple[float, float]] = []
    for i, smallest in enumerate(min_sizes):
        shaped = [(r, (smallest * math.sqrt(r) / 2, smallest / math.sqrt(r) / 2)) for r in _ratios(aspect_ratios, flip)]
        square = [(math.sqrt(smallest * max_sizes[i]) / 2,) * 2] if len(max_sizes) else []
        if min_max_aspect_ratios_order:
            halves += [(smallest / 2,) * 2, *square, *(half for r, half in shaped if abs(r - 1) >= 1e-6)]
        else:
            halves += [*(half for _, half in shaped), *square]
    reach = np.asarray(halves, np.float64)
    boxes = _on_image(op, input, image, (step_w, step_h), offset, -reach, reach)
    boxes = op.Clip(boxes, 0.0, 1.0) if clip else boxes
    return boxes, _variances(op, boxes, variances)


@lower("density_prior_box", unused="clip")
def density_prior_box(
    op: Builder,
    input: Value,
    image: Value,
    *,
    densities: Ints,
    fixed_sizes: Floats,
    fixed_ratios: Floats,
    variances: Floats = (0.1, 0.1, 0.2, 0.2),
    step_w: float = 0.0,
    step_h: float = 0.0,
    offset: float = 0.5,
    flatten_to_2d: bool = False,
) -> tuple[ir.Value, ir.Value]:
    rows, columns, height, width = *op.sizes(input)[2:], *op.sizes(image)[2:]
    if not (step_w and step_h) and not all(isinstance(size, int) for size in (rows, columns, height, width)):
        raise UnsupportedArgument("density_prior_box without steps on sizes that are known only at run time")
    wide, high = step_w or int(width) / int(columns), step_h or int(height) / int(rows)  # type: ignore[arg-type]
    step = int((wide + high) * 0.5)
    low, up = [], []
    for density, fixed in zip(densities, fixed_sizes, strict=True):
        shift = step // density
        first = -step / 2 + shift / 2
        for ratio in fixed_ratios:
            half = np.asarray([fixed * math.sqrt(ratio) / 2, fixed / math.sqrt(ratio) / 2])
            for place in range(density * density):
                centre = first + shift * np.asarray([place % density, place // density])
                low.append(centre - half)
                up.append(centre + half)
    boxes = _on_image(op, input, image, (wide, high), offset, np.stack(low), np.stack(up))
    boxes = op.Clip(boxes, 0.0, 1.0)  # with clip or without: every box is cut at the border
    spread = _variances(op, boxes, variances)
    return (op.reshape(boxes, [-1, 4]), op.reshape(spread, [-1, 4])) if flatten_to_2d else (boxes, spread)


@lower("anchor_generator")
def anchor_generator(
    op: Builder,
    input: Value,
    *,
    anchor_sizes: Floats,
    aspect_ratios: Floats,
    variances: Floats = (0.1, 0.1, 0.2, 0.2),
    stride: Floats,
    offset: float = 0.5,
) -> tuple[ir.Value, ir.Value]:
    dtype = input.dtype or T.FLOAT
    reach = []
    for ratio in aspect_ratios:
        wide = math.floor(math.sqrt(stride[0] * stride[1] / ratio) + 0.5)
        high = math.floor(wide * ratio + 0.5)
        reach += [[(s / stride[0] * wide - 1) / 2, (s / stride[1] * high - 1) / 2] for s in anchor_sizes]
    rows, columns = op.sizes(input)[2:]
    across = _steps(op, columns, dtype) * stride[0] + offset * (stride[0] - 1)
    down = _steps(op, rows, dtype) * stride[1] + offset * (stride[1] - 1)
    far = np.asarray(reach)
    boxes = _priors(op, (across, down), -far, far, dtype)
    return boxes, _variances(op, boxes, variances)


# Windows as a sequence


@lower("im2sequence", unused="out_stride")
def im2sequence(op: Builder, x: Value, *, kernels: Ints, strides: Ints = (1, 1), paddings: Ints = (0,) * 4) -> ir.Value:
    """Each window is a row: (pictures · windows, channels · kernel)."""
    up, left, down, right = paddings
    if any(paddings):
        x = op.Pad(x, [0, 0, up, left, 0, 0, down, right])
    if not any(isinstance(size, ir.Value) for size in op.sizes(x)[1:]) or tuple(kernels) != (1, 1):
        windows = torch_conv.im2col(op, x, list(kernels), [1, 1], [0, 0], list(strides))
        rows = op.Transpose(windows, perm=[0, 2, 1])
    else:
        rows = op.Transpose(op.Slice(x, [0, 0], [sizes.END] * 2, [2, 3], list(strides)), perm=[0, 2, 3, 1])
    return op.reshape(rows, [-1, op.product([op.size(x, 1), *kernels])])
