"""Recurrent layers of which weights, inputs and states are quantised: the state at every step.

In training the steps are Python's. In evaluation, and so in a capture, the layer is one operator, which a file has as a
Scan (``lowering/ops/quant.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from tonnx.quant.training.operators import fake_quantise

State = Callable[[int, torch.Tensor], torch.Tensor]
"""The state of a number, 0 for the hidden one and 1 for an LSTM's cell, quantised."""


def run(
    kind: str,
    x: torch.Tensor,
    hx: Sequence[torch.Tensor],
    params: Sequence[torch.Tensor],
    has_biases: bool,
    num_layers: int,
    bidirectional: bool,
    batch_first: bool,
    quantise: State,
) -> list[torch.Tensor]:
    """All layers: the output, and the last states. ``params`` are as PyTorch has them, for each layer and direction."""
    x = x.transpose(0, 1) if batch_first else x
    directions, each = (2 if bidirectional else 1), (4 if has_biases else 2)
    begin = [quantise(number, state) for number, state in enumerate(hx)]
    last: list[list[torch.Tensor]] = [[] for _ in hx]
    for layer in range(num_layers):
        outputs = []
        for direction in range(directions):
            at = layer * directions + direction
            output, states = _direction(
                kind, x, [state[at] for state in begin], params[at * each : (at + 1) * each], bool(direction), quantise
            )
            outputs.append(output)
            for collected, state in zip(last, states, strict=True):
                collected.append(state)
        x = torch.cat(outputs, -1) if directions == 2 else outputs[0]
    return [x.transpose(0, 1) if batch_first else x, *(torch.stack(states) for states in last)]


def _direction(
    kind: str,
    x: torch.Tensor,
    states: list[torch.Tensor],
    params: Sequence[torch.Tensor],
    backwards: bool,
    quantise: State,
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    w_ih, w_hh, *biases = params
    b_ih, b_hh = biases or (None, None)
    from_x = F.linear(x, w_ih, b_ih)
    outputs = []
    for item in reversed(from_x.unbind(0)) if backwards else from_x.unbind(0):
        after = _step(kind, states, item, F.linear(states[0], w_hh, b_hh))
        states = [quantise(number, state) for number, state in enumerate(after)]
        outputs.append(states[0])
    return torch.stack(outputs[::-1] if backwards else outputs), states


def _step(kind: str, states: list[torch.Tensor], from_x: torch.Tensor, from_h: torch.Tensor) -> list[torch.Tensor]:
    if kind == "lstm":
        i, f, g, o = (from_x + from_h).chunk(4, -1)
        cell = torch.sigmoid(f) * states[1] + torch.sigmoid(i) * torch.tanh(g)
        return [torch.sigmoid(o) * torch.tanh(cell), cell]
    (xr, xz, xn), (hr, hz, hn) = from_x.chunk(3, -1), from_h.chunk(3, -1)
    reset, update = torch.sigmoid(xr + hr), torch.sigmoid(xz + hz)
    new = torch.tanh(xn + reset * hn)
    return [(states[0] - new) * update + new]


@torch.library.custom_op("tonnx::quantised_rnn", mutates_args=())
def quantised_rnn(
    x: torch.Tensor,
    hx: Sequence[torch.Tensor],
    params: Sequence[torch.Tensor],
    has_biases: bool,
    num_layers: int,
    bidirectional: bool,
    batch_first: bool,
    kind: str,
    scales: Sequence[torch.Tensor],
    zero_points: Sequence[torch.Tensor],
    lows: Sequence[int],
    highs: Sequence[int],
    half_up: bool,
) -> list[torch.Tensor]:
    def quantise(number: int, state: torch.Tensor) -> torch.Tensor:
        step = (scales[number], zero_points[number], lows[number], highs[number], 0, half_up)
        return fake_quantise(state, *step)

    results = run(kind, x, hx, params, has_biases, num_layers, bidirectional, batch_first, quantise)
    return [result.contiguous().clone() for result in results]


@quantised_rnn.register_fake
def _(
    x: torch.Tensor, hx: Sequence[torch.Tensor], params: Any, biases: bool, layers: int, bidirectional: bool, *_: Any
) -> list[torch.Tensor]:
    width = hx[0].shape[-1] * (2 if bidirectional else 1)
    return [x.new_empty([*x.shape[:-1], width]), *(torch.empty_like(state) for state in hx)]
