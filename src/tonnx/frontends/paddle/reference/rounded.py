"""A Paddle layer with the sums inside it rounded otherwise, as another implementation of its operators rounds them."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import paddle

from tonnx.frontends.patching import Patch

_SUMS = (
    *("conv1d", "conv2d", "conv3d", "depthwise_conv2d", "conv2d_transpose", "conv3d_transpose", "linear", "linear_v2"),
    *("matmul", "bmm", "mv", "dot", "addmm", "einsum", "softmax", "log_softmax", "logsumexp", "mean", "sum", "cumsum"),
    *("batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm", "var", "std", "norm", "p_norm", "rnn"),
    *("fft_c2c", "fft_r2c", "fft_c2r", "pool2d", "flash_attn"),
)
"""Operators that add up many products: in which order is nobody's to say, and the last bits show it."""

_BY_NAME = ("matmul", "bmm", "dot", "sum", "logsumexp")
"""Those of them that Paddle's modules import by name, and call as theirs."""

TIMES = 4
"""How often a layer is asked with its sums rounded otherwise."""

_STEPS = {"float32": (2.0**-22, np.uint32, 0xFF), "float64": (2.0**-51, np.uint64, 0xFFFF)}
"""For each dtype: the size of a rounding, its bits as integers, and those that are zero in a short number."""


def rounded(seed: int) -> list[Patch]:
    """What those operators give is moved by about one rounding, this way or that by ``seed``.

    Small whole numbers and their halves stay: those are counts and places, which every order of adding gives exactly.
    """
    change = partial(_run, np.random.default_rng(seed))
    reason = "the sums of the reference are rounded otherwise"
    owners = ("paddle", "paddle.Tensor", "paddle.tensor.linalg", "paddle.tensor.math")
    places = [("paddle._C_ops", name) for name in _SUMS] + [(owner, name) for owner in owners for name in _BY_NAME]
    places.append(("paddle.Tensor", "__matmul__"))
    return [Patch(owner, name, change, reason, optional=True) for owner, name in places]


def _run(draw: np.random.Generator, original: Any, *args: Any, **kwargs: Any) -> Any:
    return paddle.utils.map_structure(partial(_moved, draw), original(*args, **kwargs))


def _moved(draw: np.random.Generator, value: Any) -> Any:
    kind = str(value.dtype).rpartition(".")[2] if isinstance(value, paddle.Tensor) and value.size else ""
    if kind not in _STEPS:
        return value
    step, integers, low_bits = _STEPS[kind]
    array = value.numpy()
    signs = draw.integers(0, 2, array.shape).astype(array.dtype) * 2 - 1
    moved = array * (1 + step * signs)
    return paddle.to_tensor(np.where(array.view(integers) & low_bits, moved, array).astype(array.dtype))
