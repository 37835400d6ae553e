"""Recurrent layers that are quantised as they go: the state is quantised anew at every step, so they are Scans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.ir.build import Builder, T
from tonnx.lowering.ops.linear import linear
from tonnx.lowering.ops.quant import fake_quantise
from tonnx.lowering.ops.quantized import Pack, linear_dynamic, linear_half
from tonnx.lowering.ops.rnn import GRU, KINDS, LSTM, Kind, by_direction, recurrent, stepped, stepped_once
from tonnx.lowering.rules import lower


@lower("aten.quantized_lstm.input", kind=LSTM, unused="has_biases dtype use_dynamic")
@lower("aten.quantized_gru.input", kind=GRU, unused="has_biases dtype use_dynamic")
def quantized_rnn(
    op: Builder,
    x: ir.Value,
    hx: Sequence[ir.Value] | ir.Value,
    params: Sequence[Pack],
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
    *,
    kind: Kind,
) -> list[ir.Value]:
    """All layers: the output, and the last states."""
    if train and dropout:
        raise UnsupportedArgument("a quantised recurrent layer in training")
    begin = [hx] if isinstance(hx, ir.Value) else list(hx)
    if not params[0].settings["dynamic"]:  # 16 bits: the usual layers, whose weights were rounded once
        weights = [v for pack in params for v in _plain(op, pack)]
        return recurrent(op, x, begin, weights, True, num_layers, bidirectional, batch_first, kind=kind)
    sequence = op.Transpose(x, perm=[1, 0, 2]) if batch_first else x
    output, *states = _layers(op, kind, sequence, begin, params, num_layers, 2 if bidirectional else 1)
    return [op.Transpose(output, perm=[1, 0, 2]) if batch_first else output, *states]


def _plain(op: Builder, pack: Pack) -> list[ir.Value]:
    ih, hh = pack.cell
    biases = [part.bias if part.bias is not None else _zeros(op, part.weight) for part in (ih, hh)]
    return [ih.weight, hh.weight, *biases]


def _zeros(op: Builder, weight: ir.Value) -> ir.Value:
    return op.constant([0.0] * int(weight.shape[0]), T.FLOAT)  # type: ignore[index, arg-type]


def _layers(
    op: Builder, kind: Kind, x: ir.Value, hx: Sequence[ir.Value], params: Sequence[Pack], count: int, directions: int
) -> list[ir.Value]:
    def layer(x: ir.Value, begin: Sequence[ir.Value], at: int, direction: int) -> list[ir.Value]:
        ih, hh = params[at].cell
        reduced = params[at].settings["reduce_range"]

        def step(op: Builder, states: Sequence[ir.Value], item: ir.Value) -> list[ir.Value]:
            return stepped_once(op, kind, states, item, linear_dynamic(op, states[0], hh, reduced, after=""))

        # The input as a whole, once.
        return stepped(op, begin, linear_dynamic(op, x, ih, reduced, after=""), direction, step)

    return by_direction(op, x, hx, count, directions, layer)


@lower("tonnx.quantised_rnn")
def fake_quantised_rnn(
    op: Builder,
    x: ir.Value,
    hx: Sequence[ir.Value],
    params: Sequence[ir.Value],
    has_biases: bool,
    num_layers: int,
    bidirectional: bool,
    batch_first: bool,
    kind: str,
    scales: Sequence[ir.Value],
    zero_points: Sequence[ir.Value],
    lows: Sequence[int],
    highs: Sequence[int],
    half_up: bool,
) -> list[ir.Value]:
    """As `tonnx.quant.prepare` has it: of real numbers, each state on the steps of its own scale."""
    each, layers = 4 if has_biases else 2, KINDS[kind.upper()]

    def on_steps(op: Builder, states: Sequence[ir.Value]) -> list[ir.Value]:
        steps = zip(states, scales, zero_points, lows, highs, strict=True)
        return [fake_quantise(op, state, *step, 0, half_up) for state, *step in steps]  # type: ignore[arg-type]

    def layer(x: ir.Value, begin: Sequence[ir.Value], at: int, direction: int) -> list[ir.Value]:
        w_ih, w_hh, *biases = params[at * each : (at + 1) * each]
        b_ih, b_hh = biases or (None, None)

        def step(op: Builder, states: Sequence[ir.Value], item: ir.Value) -> list[ir.Value]:
            return on_steps(op, stepped_once(op, layers, states, item, linear(op, states[0], w_hh, b_hh)))

        return stepped(op, begin, linear(op, x, w_ih, b_ih), direction, step)

    sequence = op.Transpose(x, perm=[1, 0, 2]) if batch_first else x
    output, *states = by_direction(op, sequence, on_steps(op, hx), num_layers, 2 if bidirectional else 1, layer)
    return [op.Transpose(output, perm=[1, 0, 2]) if batch_first else output, *states]


# One step


def _cell_gates(op: Builder, x: ir.Value, w: Pack, bias: ir.Value | None) -> ir.Value:
    own = replace(w, bias=bias if w.bias is None else w.bias, cell=[])
    return linear_dynamic(op, x, own, True, after="")


@lower("quantized.quantized_lstm_cell_dynamic")
def lstm_cell(
    op: Builder, x: ir.Value, hx: Sequence[ir.Value], w_ih: Pack, w_hh: Pack, bias_ih: ir.Value, bias_hh: ir.Value
) -> list[ir.Value]:
    return stepped_once(op, LSTM, hx, _cell_gates(op, x, w_ih, bias_ih), _cell_gates(op, hx[0], w_hh, bias_hh))


@lower("quantized.quantized_gru_cell_dynamic")
def gru_cell(
    op: Builder, x: ir.Value, hx: ir.Value, w_ih: Pack, w_hh: Pack, b_ih: ir.Value, b_hh: ir.Value
) -> ir.Value:
    return stepped_once(op, GRU, [hx], _cell_gates(op, x, w_ih, b_ih), _cell_gates(op, hx, w_hh, b_hh))[0]


# What torch.export sees: the same with plain tensors


@lower("tonnx.linear_dynamic")
def plain_linear_dynamic(
    op: Builder,
    x: ir.Value,
    weight: ir.Value,
    scale: ir.Value | None,
    zero: ir.Value | None,
    bias: ir.Value | None,
    axis: int,
    reduce_range: bool,
    relu: bool,
) -> ir.Value:
    pack, after = Pack(weight, scale, zero, axis, bias, {}, []), "relu" if relu else ""
    if scale is None:
        return linear_half(op, x, pack, after=after)
    return linear_dynamic(op, x, pack, reduce_range, after=after)
