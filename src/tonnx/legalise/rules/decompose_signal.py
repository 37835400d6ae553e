"""Windows and Fourier transforms: with sizes known, a transform is a product with a fixed matrix."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from tonnx.ir.build import Builder, T
from tonnx.legalise.node_view import Blocked, NodeView
from tonnx.legalise.table import down, up
from tonnx.legalise.versioned_ops import arange, cut, evaluated, fixed, unsqueeze

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
    matrix = evaluated(node)
    if matrix is None:
        raise Blocked("its inputs are computed at run time, and nothing older makes mel weights")
    return op.constant(matrix)


@down("DFT", 17)
def fourier_transform(op: Builder, node: NodeView) -> ir.Value:
    """x·(cos, ∓sin) along one axis."""
    x = node.need("input")
    rank = node.rank("input")
    axis = node.attr("axis", 1) % rank
    inverse, onesided = bool(node.attr("inverse", 0)), bool(node.attr("onesided", 0))
    size, parts = fixed(x, axis), fixed(x, rank - 1)
    length = node.ints("dft_length")
    if size is None or parts is None:
        raise Blocked("the size of the axis that it transforms is not known")
    n = length[0] if length else 2 * (size - 1) if inverse and onesided else size
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
