"""The model with the sums inside it rounded otherwise, as another implementation of its operators rounds them."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from tonnx.frontends.torch.reference.mode import watched

_SUMS = frozenset(
    (
        *("mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "convolution", "_convolution"),
        *("mkldnn_convolution", "_slow_conv2d_forward", "mkldnn_rnn_layer", "_softmax", "_log_softmax", "logsumexp"),
        *("native_layer_norm", "native_group_norm", "native_batch_norm", "_native_batch_norm_legit"),
        *("_native_batch_norm_legit_no_training", "_batch_norm_with_update", "rms_norm", "_fused_rms_norm"),
        *("mean", "sum", "var", "std", "var_mean", "std_mean", "linalg_vector_norm", "norm", "cumsum"),
        *("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_attention_math"),
        *("_fft_c2c", "_fft_r2c", "_fft_c2r", "_cdist_forward", "_euclidean_dist"),
    )
)
"""Operators that add up many products: in which order is nobody's to say, and the last bits show it."""

TIMES = 4
"""How often a model is asked with its sums rounded otherwise."""

_STEPS = {torch.float32: (2.0**-22, torch.int32, 0xFF), torch.float64: (2.0**-51, torch.int64, 0xFFFF)}
"""For each dtype: the size of a rounding, its bits as integers, and those that are zero in a short number."""


def rounded(number: int | None) -> contextlib.AbstractContextManager[None]:
    """Sums are rounded otherwise meanwhile, as the number says; None: as they are."""
    return watched(None if number is None else Rounded(number))


class Rounded(TorchDispatchMode):
    """Moves what those operators give by about one rounding, this way or that by ``seed``.

    Small whole numbers and their halves stay: those are counts and places, which every order of adding gives exactly.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._draw = torch.Generator().manual_seed(seed)  # the model's own random numbers are left alone

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        results = func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__ not in _SUMS:
            return results
        return pytree.tree_map_only(torch.Tensor, self._moved, results)

    def _moved(self, value: torch.Tensor) -> torch.Tensor:
        if value.dtype not in _STEPS or value.device.type != "cpu" or not value.numel():
            return value
        step, integers, low_bits = _STEPS[value.dtype]
        signs = torch.randint(0, 2, value.shape, generator=self._draw, dtype=value.dtype) * 2 - 1
        moved = value * (1 + step * signs)
        return torch.where((value.contiguous().view(integers) & low_bits) != 0, moved, value)
