"""What stands in for PyTorch's own code during a capture: above all one operator for an unrolled recurrent layer.

torch.export keeps ``aten.lstm`` and its like as one operator, but finds its result's shape by unrolling the loop over
time, which freezes the time axis. For the length of a capture the functions that the layers call are replaced by
operators that say the shape directly.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import cache
from typing import Any

import torch

from tonnx.errors import UnsupportedArgument

_KINDS = ("lstm", "gru", "rnn_tanh", "rnn_relu")


def _fake(x: torch.Tensor, hx: list[torch.Tensor], bidirectional: bool) -> list[torch.Tensor]:
    directions = 2 if bidirectional else 1
    hidden = hx[0].shape[-1]
    output = x.new_empty([*x.shape[:-1], hidden * directions])
    return [output, *[torch.empty_like(state) for state in hx]]


@cache
def _operators() -> dict[str, Any]:
    """``tonnx::lstm(input, hx, params, has_biases, num_layers, bidirectional, batch_first)`` and the other three."""
    library = torch.library.Library("tonnx", "FRAGMENT")
    made = {}
    for kind in _KINDS:
        library.define(
            f"{kind}(Tensor input, Tensor[] hx, Tensor[] params, bool has_biases, int num_layers, "
            "bool bidirectional, bool batch_first) -> Tensor[]"
        )

        def fake(
            x: torch.Tensor,
            hx: list[torch.Tensor],
            params: list[torch.Tensor],
            has_biases: bool,
            num_layers: int,
            bidirectional: bool,
            batch_first: bool,
        ) -> list[torch.Tensor]:
            return _fake(x, hx, bidirectional)

        torch.library.register_fake(f"tonnx::{kind}", fake, lib=library)
        made[kind] = getattr(torch.ops.tonnx, kind).default
    made["library"] = library  # unloading the library would take its operators along
    return made


def _stand_in(kind: str, original: Any) -> Any:
    operators = _operators()

    def call(x: Any, *rest: Any, **kwargs: Any) -> Any:
        # Packed sequences come as (data, batch_sizes, hx, ...): those keep PyTorch's own way.
        if kwargs or len(rest) != 8 or not isinstance(rest[1], (tuple, list)):
            return original(x, *rest, **kwargs)
        hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first = rest
        if train and dropout and num_layers > 1:
            raise UnsupportedArgument(
                f"dropout between the layers of a recurrent network (dropout={dropout}) cannot be written for training",
                hint="use layers of num_layers=1 with torch.nn.Dropout between them, or dropout=0",
            )
        states = list(hx) if isinstance(hx, (tuple, list)) else [hx]
        # A projected LSTM has states of two widths; its result is as wide as the first.
        results = operators[kind](x, states, list(params), has_biases, num_layers, bidirectional, batch_first)
        return tuple(results)

    return call


def _is_causal(mask: Any, is_causal: bool | None = None, size: int | None = None) -> bool:
    """nn.Transformer looks into the mask for whether it is causal: a hint for speed, and a branch on a tensor's values.

    Without the hint the mask itself is used, which is right for every mask.
    """
    return bool(is_causal)


def _max_pool1d(
    x: torch.Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> torch.Tensor:
    """PyTorch's own reads the length as a plain number, which would freeze it; over a row of pixels it does not."""

    def row(size: Any, beside: int) -> Any:
        return (beside, size[0] if isinstance(size, (list, tuple)) else size)

    window, step = row(kernel_size, 1), row(kernel_size if stride is None or stride == [] else stride, 1)
    pooled = torch.max_pool2d(x.unsqueeze(-2), window, step, row(padding, 0), row(dilation, 1), ceil_mode)
    return pooled.squeeze(-2)


@cache
def _affine_grid(kernel: Any) -> Any:
    """``tonnx::affine_grid``: PyTorch's own wants plain numbers for the size, which would freeze it."""
    library = torch.library.Library("tonnx", "FRAGMENT")
    library.define("affine_grid(Tensor theta, SymInt[] size, bool align_corners) -> Tensor")
    library.impl("affine_grid", lambda theta, size, align: kernel(theta, size, align), "CompositeExplicitAutograd")

    def fake(theta: torch.Tensor, size: Any, align_corners: bool) -> torch.Tensor:
        return torch.empty([size[0], *size[2:], len(size) - 2], dtype=theta.dtype, device=theta.device)

    torch.library.register_fake("tonnx::affine_grid", fake, lib=library)
    return torch.ops.tonnx.affine_grid, library  # unloading the library would take its operators along


@contextlib.contextmanager
def stand_ins() -> Iterator[None]:
    """Replace what torch.export cannot look through, for the length of a capture."""
    # torch._VF is a module object whose __getattr__ falls through to the C functions: setting shadows them.
    kernels = {kind: getattr(torch._VF, kind) for kind in _KINDS}
    detect, max_pool1d = torch.nn.modules.transformer._detect_is_causal_mask, torch.max_pool1d
    grid = torch.affine_grid_generator
    try:
        for kind, kernel in kernels.items():
            setattr(torch._VF, kind, _stand_in(kind, kernel))
        torch.nn.modules.transformer._detect_is_causal_mask = _is_causal
        torch.max_pool1d = _max_pool1d
        torch.affine_grid_generator = _affine_grid(grid)[0]
        yield
    finally:
        torch.affine_grid_generator = grid
        torch.max_pool1d = max_pool1d
        torch.nn.modules.transformer._detect_is_causal_mask = detect
        for kind in kernels:
            delattr(torch._VF, kind)
