"""Recurrent layers: the native LSTM, GRU and RNN of ONNX."""

from __future__ import annotations

import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.frontends.paddle.lower.rules import Unused, Value, Values, lower
from tonnx.ir.build import Builder
from tonnx.lowering.ops.rnn import KINDS, recurrent


@lower("rnn", unused="input_size hidden_size")
def rnn(
    op: Builder,
    x: Value,
    pre_state: Values,
    weight_list: Values,
    sequence_length: Value | None = None,
    dropout_state_in: Unused | None = None,
    *,
    dropout_prob: float = 0.0,
    is_bidirec: bool = False,
    num_layers: int = 1,
    mode: str = "RNN_TANH",
    is_test: bool = False,
) -> tuple[ir.Value | None | list[ir.Value], ...]:
    """Time first. The list has the weights of all layers, then the biases of all layers, as PyTorch's gates are."""
    if dropout_prob and not is_test and num_layers > 1:
        raise UnsupportedArgument(
            f"{mode} with dropout {dropout_prob:.3g} stays active in inference and draws random numbers",
            hint="call layer.eval() before the model is saved",
        )
    if mode not in KINDS:
        raise UnsupportedArgument(f"rnn: the mode {mode!r} is not known")
    half = len(weight_list) // 2
    pairs = range(0, half, 2)
    ordered = [p for i in pairs for p in (*weight_list[i : i + 2], *weight_list[half + i : half + i + 2])]
    output, *states = recurrent(
        op, x, pre_state, ordered, True, num_layers, is_bidirec, lengths=sequence_length, kind=mode
    )
    return output, None, states, None
