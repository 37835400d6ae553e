"""Which of PyTorch's functions are quantised, and what they mean for numbers that lie on the steps of a scale.

Layers arrive as functions, too: ``torch.nn.Linear`` calls ``F.linear``. One table serves modules and functions alike.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F

WEIGHTED = ("linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
"""Layers with a weight and a bias, for which there are integer kernels."""
RECURRENT = ("lstm", "gru")
OPERANDS = {
    "add": 2, "sub": 2, "mul": 2, "matmul": 2, "bmm": 2, "sigmoid": 1, "tanh": 1, "softmax": 1, "gelu": 1, "silu": 1,
    "glu": 1, "avg_pool": 1, "batch_norm": 1, "layer_norm": 1, "leaky_relu": 1, "hardswish": 1, "hardsigmoid": 1,
    "elu": 1, "prelu": 1, "mean": 1, "group_norm": 1,
}  # fmt: skip
"""Functions whose first operands and result are quantised."""
CLIPPED = ("relu", "relu6", "hardtanh")
"""These only cut a range: what comes in on the steps of a scale goes out on them, zero being one."""
NORMS = {"batch_norm": 3, "layer_norm": 2, "group_norm": 2}
"""Where a normalisation has its weight."""

WITH_WEIGHTS = (*WEIGHTED, *RECURRENT, *NORMS, "embedding", "attention")

_SPELLINGS: dict[str, str] = {
    "add": "add add_ __add__ __iadd__ __radd__",
    "sub": "sub sub_ subtract __sub__ __isub__ __rsub__ rsub",
    "mul": "mul mul_ multiply __mul__ __imul__ __rmul__",
    "matmul": "matmul mm __matmul__ __rmatmul__",
    "bmm": "bmm",
    "cat": "cat concat concatenate",
    "sigmoid": "sigmoid sigmoid_",
    "tanh": "tanh tanh_",
    "softmax": "softmax",
    "gelu": "gelu",
    "silu": "silu",
    "glu": "glu",
    "relu": "relu relu_",
    "relu6": "relu6 relu6_",
    "hardtanh": "hardtanh hardtanh_",
    "leaky_relu": "leaky_relu leaky_relu_",
    "elu": "elu elu_",
    "prelu": "prelu",
    "hardswish": "hardswish",
    "hardsigmoid": "hardsigmoid",
    "mean": "mean",
    "avg_pool": "avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d",
    "batch_norm": "batch_norm",
    "layer_norm": "layer_norm",
    "group_norm": "group_norm",
    "embedding": "embedding",
    "attention": "multi_head_attention_forward",
    **{name: name for name in (*WEIGHTED, *RECURRENT)},
}
_MOVED = """
view reshape view_as reshape_as flatten unflatten permute transpose transpose_ swapaxes swapdims movedim t T mT squeeze
unsqueeze squeeze_ unsqueeze_ contiguous __getitem__ narrow select chunk split tensor_split split_with_sizes unbind
expand expand_as repeat tile clone flip roll gather index_select max_pool1d max_pool2d max_pool3d adaptive_max_pool1d
adaptive_max_pool2d adaptive_max_pool3d max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices dropout
dropout_ dropout1d dropout2d dropout3d feature_dropout channel_shuffle pixel_shuffle pixel_unshuffle
"""
"""What moves numbers and does not change them; a dropout does so where it counts, in evaluation."""

_OWNERS: tuple[Any, ...] = (torch, torch.Tensor, F, torch._C._nn, torch._C._VariableFunctions, torch._VF)


@cache
def kinds() -> dict[Callable[..., Any], str]:
    """What a function is, by itself: a key of `OPERANDS` or of the other tables, or ``moved``."""
    table: dict[Callable[..., Any], str] = {}
    for kind, names in {**_SPELLINGS, "moved": _MOVED}.items():
        for owner in _OWNERS:
            for name in names.split():
                function = getattr(owner, name, None)
                if function is not None:
                    table[getattr(function, "__get__", function) if name in ("T", "mT") else function] = kind
    return table


def kind_of(function: Callable[..., Any]) -> str | None:
    kind = kinds().get(function)
    if kind is None and (original := getattr(function, "__wrapped__", None)) is not None:
        return kind_of(original)  # what stands in for it during a capture, under its name
    if kind is None and isinstance(function, torch._ops.OpOverload) and function.namespace == "tonnx":
        name = function._opname  # what stands in for a recurrent layer during a capture
        return name if name in RECURRENT else None
    return kind


def function_names() -> tuple[str, ...]:
    """The kinds that a layer's name may end with."""
    return tuple(_SPELLINGS)
