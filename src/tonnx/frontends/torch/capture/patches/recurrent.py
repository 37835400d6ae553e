"""Recurrent layers and others during a capture: one operator for what torch.export would unroll or fix the size of.

torch.export keeps ``aten.lstm`` and its like as one operator, but finds its result's shape by unrolling the loop over
time, which freezes the time axis. The operators that stand in for the layers' kernels say the shape directly.
"""

from __future__ import annotations

from typing import Any

import torch

from tonnx.errors import UnsupportedArgument
from tonnx.frontends.torch.capture.patches.library import operator


def layers(
    x: torch.Tensor, hx: list[torch.Tensor], params: Any, biases: bool, count: int, bidirectional: bool, *_: Any
) -> list[torch.Tensor]:
    """The shapes of the results. A projected LSTM has states of two widths; its output is as wide as the first."""
    width = hx[0].shape[-1] * (2 if bidirectional else 1)
    return [x.new_empty([*x.shape[:-1], width]), *[torch.empty_like(state) for state in hx]]


def recurrent(kind: str, original: Any, x: Any, *rest: Any, **kwargs: Any) -> Any:
    # Packed sequences come as (data, batch_sizes, hx, ...): those keep PyTorch's own way.
    if kwargs or len(rest) != 8 or not isinstance(rest[1], (tuple, list)):
        return original(x, *rest, **kwargs)
    hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first = rest
    if train and dropout and num_layers > 1:
        raise UnsupportedArgument(
            f"dropout between the layers of a recurrent network (dropout={dropout}) cannot be written for training",
            hint="use layers of num_layers=1 with torch.nn.Dropout between them, or dropout=0",
        )
    schema = (
        f"{kind}(Tensor input, Tensor[] hx, Tensor[] params, bool has_biases, int num_layers, "
        "bool bidirectional, bool batch_first) -> Tensor[]"
    )
    states = list(hx) if isinstance(hx, (tuple, list)) else [hx]
    return tuple(operator(schema, layers)(x, states, list(params), has_biases, num_layers, bidirectional, batch_first))


def is_causal(original: Any, mask: Any, is_causal: bool | None = None, size: int | None = None) -> bool:
    """Without the hint the mask itself is used, which is right for every mask."""
    return bool(is_causal)


def max_pool1d(
    original: Any,
    x: torch.Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> torch.Tensor:
    """Over a row of pixels."""

    def row(size: Any, beside: int) -> Any:
        return (beside, size[0] if isinstance(size, (list, tuple)) else size)

    window, step = row(kernel_size, 1), row(kernel_size if stride is None or stride == [] else stride, 1)
    pooled = torch.max_pool2d(x.unsqueeze(-2), window, step, row(padding, 0), row(dilation, 1), ceil_mode)
    return pooled.squeeze(-2)


def affine_grid(original: Any, theta: torch.Tensor, size: Any, align_corners: bool) -> Any:
    def grid(theta: torch.Tensor, size: Any, align_corners: bool) -> torch.Tensor:
        return torch.empty([size[0], *size[2:], len(size) - 2], dtype=theta.dtype, device=theta.device)

    schema = "affine_grid(Tensor theta, SymInt[] size, bool align_corners) -> Tensor"
    return operator(schema, grid, lambda *args: torch.ops.aten.affine_grid_generator(*args))(theta, size, align_corners)


def istft(original: Any, spectra: torch.Tensor, n_fft: int, *args: Any, **options: Any) -> torch.Tensor:
    """To a length that is known only at run time: the whole signal, cut or filled up with zeros."""
    names = ("hop_length", "win_length", "window", "center", "normalized", "onesided", "length", "return_complex")
    options |= dict(zip(names, args, strict=False))
    length = options.get("length")
    if not isinstance(length, torch.SymInt):
        result: torch.Tensor = original(spectra, n_fft, **options)
        return result
    start = n_fft // 2 if options.get("center", True) else 0
    whole = original(spectra, n_fft, **{**options, "length": None, "center": False})
    return torch.nn.functional.pad(whole, (0, length))[..., start : start + length]
