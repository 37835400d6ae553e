"""Windows and Fourier transforms: a transform is a product with a matrix, which is fixed where sizes are known."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from tonnx.ir.build import Builder, T
from tonnx.legalise.node_view import Blocked, NodeView, constant_of, known
from tonnx.legalise.table import down, up
from tonnx.legalise.versioned_ops import arange, cut, evaluated, fixed, split, squeeze, unsqueeze

_COSINES = {"HannWindow": [0.5, -0.5], "HammingWindow": [25 / 46, -21 / 46], "BlackmanWindow": [0.42, -0.5, 0.08]}


@down(tuple(_COSINES), 17)
def window(op: Builder, node: NodeView) -> ir.Value:
    """A sum of cosines: ½ − ½·cos(2πn/N) and its like."""
    dtype, (constant, *factors) = T(node.attr("output_datatype", 1)), _COSINES[node.op_type]
    if (values := evaluated(node)) is not None:
        return op.constant(values)
    size = op.cast(node.need("size"), T.INT64)
    period = op.Cast(size, to=int(T.FLOAT))
    if not node.attr("periodic", 1):
        period = period - 1.0
    steps = op.Cast(arange(op, op.Reshape(size, [1])), to=int(T.FLOAT))
    angle = steps * (2 * math.pi) / period
    result = op.Cos(angle) * factors[0] + constant
    for i, factor in enumerate(factors[1:], 2):
        result = result + op.Cos(angle * float(i)) * factor
    return op.cast(result, dtype)


@down("MelWeightMatrix", 17)
def mel_weight_matrix(op: Builder, node: NodeView) -> ir.Value:
    """A constant, when its inputs are."""
    matrix = known(evaluated(node), "its inputs are computed at run time, and nothing older makes mel weights")
    return op.constant(matrix)


@down("DFT", 17)
def fourier_transform(op: Builder, node: NodeView) -> ir.Value:
    """x·(cos, ∓sin) along one axis."""
    x = node.need("input")
    rank = node.rank("input")
    axis = node.attr("axis", 1) % rank
    inverse, onesided = bool(node.attr("inverse", 0)), bool(node.attr("onesided", 0))
    size, parts = fixed(x, axis), fixed(x, rank - 1)
    if parts is None:
        raise Blocked("whether its input is complex is not known")
    length = None if (given := node["dft_length"]) is None else constant_of(given)
    if size is None or (given is not None and length is None):
        return _of_dynamic_size(op, node, axis, parts)
    n = int(length.item()) if length is not None else 2 * (size - 1) if inverse and onesided else size
    used = min(size, n // 2 + 1 if inverse and onesided else n)
    if used < size:
        x = cut(op, x, axis, 0, used)
    # (…, axis, …, parts) to (…, …, axis·parts): real and imaginary part of a sample are two terms of one sum.
    others = [a for a in range(rank - 1) if a != axis]
    x = op.Transpose(x, perm=[*others, axis, rank - 1])
    x = op.Reshape(x, [0] * len(others) + [used * parts])
    matrix = _inverse_real(used, n) if inverse and onesided else _matrix(used, n, parts, inverse, onesided)
    result = op.MatMul(x, op.constant(matrix.reshape(used * parts, -1), node.dtype("input")))
    result = op.Reshape(result, [0] * len(others) + list(matrix.shape[2:]))
    back = list(range(len(others)))
    back.insert(axis, len(others))
    return op.Transpose(result, perm=[*back, rank - 1])


def _of_dynamic_size(op: Builder, node: NodeView, axis: int, parts: int) -> ir.Value:
    """The same with waves that the run makes."""
    x, rank, dtype = node.need("input"), node.rank("input"), node.dtype("input")
    inverse, onesided = bool(node.attr("inverse", 0)), bool(node.attr("onesided", 0))
    half = inverse and onesided  # half a spectrum stands for the whole
    size = op.cast(op.vector([op.size(x, axis)]), T.INT64)
    n = size
    if (length := node["dft_length"]) is not None:
        n = op.cast(op.Reshape(length, [1]), T.INT64)
    elif half:
        n = (size - 1) * 2
    bins = op.Div(n, 2) + 1
    used = op.Min(size, bins if half else n)
    samples, waves = arange(op, used), arange(op, bins if onesided and not half else n)
    turns = op.Mod(unsqueeze(op, samples, 1) * waves, n)  # small angles are exact angles
    angle = op.cast(turns, T.FLOAT) * (2 * math.pi) / op.cast(n, T.FLOAT)
    cos, sin = op.cast(op.Cos(angle), dtype), op.cast(op.Sin(angle), dtype)
    if inverse:
        scale = op.constant(1.0, dtype) / op.cast(n, dtype)
        if half:  # inner frequencies count twice
            ends = [op.cast(op.Equal(samples * 2, end), dtype) for end in (op.constant([0], T.INT64), n)]
            scale = unsqueeze(op, (2.0 - ends[0] - ends[1]) * scale, 1)
        cos, sin = cos * scale, sin * scale
    else:
        sin = op.Neg(sin)
    others = [a for a in range(rank - 1) if a != axis]
    x = op.Transpose(cut(op, x, axis, 0, used), perm=[*others, axis, rank - 1])
    real, *imaginary = (squeeze(op, part, rank - 1) for part in split(op, x, rank - 1, [1] * parts))
    results = [op.MatMul(real, cos), op.MatMul(real, sin)][: 1 if half else 2]
    for part in imaginary:
        turned = [op.Neg(op.MatMul(part, sin)), op.MatMul(part, cos)]
        results = [one + other for one, other in zip(results, turned, strict=False)]
    result = op.Concat(*(unsqueeze(op, each, rank - 1) for each in results), axis=rank - 1)
    back = list(range(len(others)))
    back.insert(axis, len(others))
    return op.Transpose(result, perm=[*back, rank - 1])


def _matrix(used: int, n: int, parts: int, inverse: bool, onesided: bool) -> np.ndarray:
    """(samples, parts, frequencies, 2): what a sample adds to a frequency."""
    count = n // 2 + 1 if onesided else n
    turns = np.outer(np.arange(used), np.arange(count)) % n  # small angles are exact angles
    angle = turns * (2 * np.pi / n) * (1 if inverse else -1)
    cos, sin = np.cos(angle), np.sin(angle)
    rows = [np.stack([cos, sin], -1)] if parts == 1 else [np.stack([cos, sin], -1), np.stack([-sin, cos], -1)]
    return np.stack(rows, 1) / (n if inverse else 1)


def _inverse_real(used: int, n: int) -> np.ndarray:
    """(frequencies, 2, samples, 1): half a spectrum stands for the whole, so inner frequencies count twice."""
    turns = np.outer(np.arange(used), np.arange(n)) % n
    angle = turns * (2 * np.pi / n)
    twice = np.full((used, 1), 2.0)
    twice[0] = 1.0
    if n % 2 == 0 and used == n // 2 + 1:
        twice[-1] = 1.0
    return np.stack([np.cos(angle) * twice, -np.sin(angle) * twice], 1)[..., None] / n


@down("STFT", 17)
def short_time_fourier_transform(op: Builder, node: NodeView) -> ir.Value:
    """Windowed frames times the matrix of a Fourier transform: a convolution whose kernels are the waves."""
    signal, window = node.need("signal"), node["window"]
    parts = fixed(signal, 2) if node.rank("signal") == 3 else 1
    step, length = node.ints("frame_step"), node.ints("frame_length")
    n = length[0] if length else fixed(window, 0) if window is not None else fixed(signal, 1)
    if parts is None or n is None or step is None:
        raise Blocked("the length of its frames is not known")
    if node.rank("signal") == 2:
        signal = unsqueeze(op, signal, 2)
    matrix = _matrix(n, n, parts, False, bool(node.attr("onesided", 1)))  # (n, parts, frequencies, 2)
    frequencies = matrix.shape[2]
    # A kernel for the real and one for the imaginary part of every frequency, over the parts of the signal.
    kernels = op.constant(matrix.transpose(2, 3, 1, 0).reshape(2 * frequencies, parts, n), node.dtype("signal"))
    if window is not None:
        kernels = kernels * window
    waves = op.Conv(op.Transpose(signal, perm=[0, 2, 1]), kernels, strides=step, kernel_shape=[n])
    waves = op.Transpose(waves, perm=[0, 2, 1])
    return op.Reshape(waves, [0, 0, frequencies, 2])


# DFT: its axis became an input (20)


@down("DFT", 20)
def dft_axis_attribute(op: Builder, node: NodeView) -> ir.Value:
    """The axis becomes an attribute; its default was another one."""
    (axis,) = node.ints("axis") or [-2]
    return op.DFT(node["input"], node["dft_length"], axis=axis % node.rank("input"), **node.attributes())


@up("DFT", 20)
def dft_axis_input(op: Builder, node: NodeView) -> ir.Value:
    """The axis becomes an input; its default was 1."""
    axis = op.constant(node.attr("axis", 1), ir.DataType.INT64)
    return op.DFT(node["input"], node["dft_length"], axis, **node.attributes("axis"))
