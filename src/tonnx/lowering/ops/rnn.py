"""Recurrent layers: native LSTM, GRU and RNN nodes, batch and time dynamic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from tonnx.ir.build import Builder, T
from tonnx.lowering import sizes
from tonnx.lowering.ops.linear import linear
from tonnx.lowering.rules import lower


@dataclass(frozen=True)
class Kind:
    """A recurrent layer of ONNX, as PyTorch and Paddle have it."""

    op_type: str
    gates: tuple[int, ...]
    """Where PyTorch keeps the gates that ONNX lists in its order: LSTM i o f c from i f g o; GRU z r h from r z n."""
    activation: str | None = None


LSTM, GRU = Kind("LSTM", (0, 3, 1, 2)), Kind("GRU", (1, 0, 2))
RNN_TANH, RNN_RELU = Kind("RNN", (0,), "Tanh"), Kind("RNN", (0,), "Relu")
KINDS = {"LSTM": LSTM, "GRU": GRU, "RNN_TANH": RNN_TANH, "RNN_RELU": RNN_RELU}


@lower("tonnx.lstm", kind=LSTM)
@lower("tonnx.gru", kind=GRU)
@lower("tonnx.rnn_tanh", kind=RNN_TANH)
@lower("tonnx.rnn_relu", kind=RNN_RELU)
@lower("tonnx.packed")
def recurrent(
    op: Builder,
    x: ir.Value,
    hx: Sequence[ir.Value],
    params: Sequence[ir.Value],
    has_biases: bool,
    num_layers: int,
    bidirectional: bool,
    batch_first: bool = False,
    lengths: ir.Value | None = None,
    *,
    kind: Kind | str,
) -> list[ir.Value]:
    """All layers of a recurrent module, one after another: its output, and the last states.

    ``params`` are, for each layer and in it for each direction, the weights of the input and of the state, then both
    biases. A packed sequence is padded; ``lengths`` are those of the sequences of a batch.
    """
    kind = KINDS[kind.upper()] if isinstance(kind, str) else kind
    sequence = op.Transpose(x, perm=[1, 0, 2]) if batch_first else x
    # Runtimes have these kernels for float32 only.
    weights, states = ([op.cast(value, T.FLOAT) for value in values] for values in (params, hx))
    is_projected = len(hx) == 2 and hx[0].shape[-1] != hx[1].shape[-1]  # type: ignore[index]
    stack = _Stack(kind, weights, has_biases, num_layers, 2 if bidirectional else 1, lengths)
    output, *last = (_projected if is_projected else _native)(op, op.cast(sequence, T.FLOAT), states, stack)
    results = [op.Transpose(output, perm=[1, 0, 2]) if batch_first else output, *last]
    return [op.cast(value, x.dtype) for value in results]


@dataclass(frozen=True)
class _Stack:
    """Layers one on the other."""

    kind: Kind
    params: Sequence[ir.Value]
    has_biases: bool
    count: int
    directions: int
    lengths: ir.Value | None


def _native(op: Builder, x: ir.Value, hx: Sequence[ir.Value], stack: _Stack) -> list[ir.Value]:
    """By ONNX's own layers, over [time, batch, features]."""
    kind, directions, lengths = stack.kind, stack.directions, stack.lengths
    per_direction = 4 if stack.has_biases else 2
    hidden = int(stack.params[1].shape[-1])  # type: ignore[index, arg-type]
    last_states: list[list[ir.Value]] = [[] for _ in hx]
    for layer in range(stack.count):
        at = layer * directions * per_direction
        w, r, b = _packed(op, kind, stack.params[at : at + directions * per_direction], per_direction, hidden)
        begin = [_slice_of_state(op, state, layer * directions, directions) for state in hx]
        results = getattr(op, kind.op_type)(
            x,
            w,
            r,
            b,
            None if lengths is None else op.cast(lengths, T.INT32),
            *begin,
            hidden_size=hidden,
            direction="bidirectional" if directions == 2 else "forward",
            linear_before_reset=1 if kind.op_type == "GRU" else None,
            activations=[kind.activation] * directions if kind.activation else None,
            _outputs=1 + len(hx),
        )
        x = _join_directions(op, results[0], directions)
        for collected, state in zip(last_states, results[1:], strict=True):
            collected.append(state)
    return [x, *(_stacked(op, states) for states in last_states)]


def _stacked(op: Builder, parts: Sequence[ir.Value]) -> ir.Value:
    return parts[0] if len(parts) == 1 else op.Concat(*parts, axis=0)


# An LSTM whose state is projected to fewer numbers at every step: ONNX has none, so it is a Scan

Step = Callable[[Builder, Sequence[ir.Value], ir.Value], list[ir.Value]]
Layer = Callable[[ir.Value, Sequence[ir.Value], int, int], list[ir.Value]]
"""Its output and last states, from its input, first states, number and direction."""


def stepped(
    op: Builder,
    begin: Sequence[ir.Value],
    sequence: ir.Value,
    direction: int,
    step: Step,
    lengths: ir.Value | None = None,
) -> list[ir.Value]:
    """``step`` over the first axis of ``sequence``, backwards if ``direction`` is 1: all outputs, and the last states.

    Beyond the length of its sequence, a state stays as it is and the output is 0.
    """
    time, *item = sequence.shape.dims  # type: ignore[union-attr]
    dims = [list(state.shape.dims) for state in begin]  # type: ignore[union-attr]
    inputs = [("state", T.FLOAT, d) for d in dims]
    scanned = [sequence] if lengths is None else [sequence, _within(op, sequence, lengths)]
    kinds = [("item", T.FLOAT, item), ("within", T.BOOL, [item[0], 1])][: len(scanned)]
    body = op.inner("step", [*inputs, *kinds])  # type: ignore[list-item]
    states, now, within = body.graph.inputs[: len(begin)], body.graph.inputs[len(begin)], body.graph.inputs[-1]
    results = step(body, states, now)
    output = body.Identity(results[0])
    if lengths is not None:
        results = [body.Where(within, new, old) for new, old in zip(results, states, strict=True)]
        output = body.Where(within, output, op.constant(0.0, T.FLOAT))
    body.graph.outputs.extend([*results, output])
    *last, all_outputs = op.node(
        "Scan",
        [*begin, *scanned],
        [
            ir.AttrGraph("body", body.graph),
            ir.AttrInt64("num_scan_inputs", len(scanned)),
            ir.AttrInt64s("scan_input_directions", [direction] * len(scanned)),
            ir.AttrInt64s("scan_output_directions", [direction]),
        ],
        [*((T.FLOAT, d) for d in dims), (T.FLOAT, [time, *dims[0]])],
    )
    return [all_outputs, *last]


def _within(op: Builder, sequence: ir.Value, lengths: ir.Value) -> ir.Value:
    """[time, batch, 1]: whether a sequence has such a place."""
    places = op.Reshape(sizes.arange(op, op.size(sequence, 0)), [-1, 1, 1])
    return op.Less(places, op.Reshape(op.cast(lengths, T.INT64), [1, -1, 1]))


def by_direction(
    op: Builder, x: ir.Value, hx: Sequence[ir.Value], num_layers: int, directions: int, layer: Layer
) -> list[ir.Value]:
    """Layers one after another, each direction of each by itself: the output, and the last states."""
    last_states: list[list[ir.Value]] = [[] for _ in hx]
    for number in range(num_layers):
        outputs = []
        for direction in range(directions):
            at = number * directions + direction
            output, *states = layer(x, [op.Gather(state, at, axis=0) for state in hx], at, direction)
            outputs.append(output)
            for collected, state in zip(last_states, states, strict=True):
                collected.append(op.Unsqueeze(state, [0]))
        x = outputs[0] if directions == 1 else op.Concat(*outputs, axis=-1)
    return [x, *(_stacked(op, states) for states in last_states)]


def _projected(op: Builder, x: ir.Value, hx: Sequence[ir.Value], stack: _Stack) -> list[ir.Value]:
    per_direction = 5 if stack.has_biases else 3

    def layer(x: ir.Value, begin: Sequence[ir.Value], at: int, direction: int) -> list[ir.Value]:
        w_ih, w_hh, *biases, w_hr = stack.params[at * per_direction : (at + 1) * per_direction]
        b_ih, b_hh = biases or (None, None)

        def step(op: Builder, states: Sequence[ir.Value], item: ir.Value) -> list[ir.Value]:
            hidden, cell = stepped_once(op, stack.kind, states, item, linear(op, states[0], w_hh, b_hh))
            return [linear(op, hidden, w_hr, None), cell]

        return stepped(op, begin, linear(op, x, w_ih, b_ih), direction, step, stack.lengths)

    return by_direction(op, x, hx, stack.count, stack.directions, layer)


# One step of a recurrent layer


def stepped_once(
    op: Builder, kind: Kind, states: Sequence[ir.Value], from_x: ir.Value, from_h: ir.Value
) -> list[ir.Value]:
    """The states after a step, from what the input and the state give to all gates."""
    if kind is LSTM:
        i, f, g, o = op.Split(op.Add(from_x, from_h), axis=-1, num_outputs=4, _outputs=4)
        cell = op.Add(op.Mul(op.Sigmoid(f), states[1]), op.Mul(op.Sigmoid(i), op.Tanh(g)))
        return [op.Mul(op.Sigmoid(o), op.Tanh(cell)), cell]
    if kind is GRU:
        (xr, xz, xn), (hr, hz, hn) = (op.Split(v, axis=-1, num_outputs=3, _outputs=3) for v in (from_x, from_h))
        reset, update = op.Sigmoid(op.Add(xr, hr)), op.Sigmoid(op.Add(xz, hz))
        new = op.Tanh(op.Add(xn, op.Mul(reset, hn)))
        return [op.Add(op.Mul(op.Sub(states[0], new), update), new)]
    return [getattr(op, kind.activation or "Tanh")(op.Add(from_x, from_h))]


@lower("aten.lstm_cell", kind=LSTM)
@lower("aten.gru_cell", kind=GRU)
@lower("aten.rnn_tanh_cell", kind=RNN_TANH)
@lower("aten.rnn_relu_cell", kind=RNN_RELU)
def cell(
    op: Builder,
    x: ir.Value,
    hx: ir.Value | Sequence[ir.Value],
    w_ih: ir.Value,
    w_hh: ir.Value,
    b_ih: ir.Value | None = None,
    b_hh: ir.Value | None = None,
    *,
    kind: Kind,
) -> ir.Value | list[ir.Value]:
    states = [hx] if isinstance(hx, ir.Value) else list(hx)
    after = stepped_once(op, kind, states, linear(op, x, w_ih, b_ih), linear(op, states[0], w_hh, b_hh))
    return after[0] if len(after) == 1 else after


def _packed(
    op: Builder, kind: Kind, weights: Sequence[ir.Value], per_direction: int, hidden: int
) -> tuple[ir.Value, ir.Value, ir.Value | None]:
    """One layer's weights in ONNX's layout: a leading axis of directions, gates in ONNX's order."""
    w, r, b = [], [], []
    for at in range(0, len(weights), per_direction):
        w.append(op.Unsqueeze(_reordered(op, kind, weights[at], hidden), [0]))
        r.append(op.Unsqueeze(_reordered(op, kind, weights[at + 1], hidden), [0]))
        if per_direction == 4:
            both = [_reordered(op, kind, bias, hidden) for bias in weights[at + 2 : at + 4]]
            b.append(op.Unsqueeze(op.Concat(*both, axis=0), [0]))
    return _stacked(op, w), _stacked(op, r), _stacked(op, b) if b else None


def _reordered(op: Builder, kind: Kind, weight: ir.Value, hidden: int) -> ir.Value:
    if len(kind.gates) == 1:
        return weight
    blocks = [op.Slice(weight, [g * hidden], [(g + 1) * hidden], [0]) for g in kind.gates]
    return op.Concat(*blocks, axis=0)


def _slice_of_state(op: Builder, state: ir.Value, start: int, count: int) -> ir.Value:
    """The initial state of one layer. Where it is zero, which is ONNX's default, a pass takes it out."""
    if state.shape is not None and state.shape[0] == count:
        return state
    return op.Slice(state, [start], [start + count], [0])


def _join_directions(op: Builder, y: ir.Value, directions: int) -> ir.Value:
    """[time, directions, batch, hidden] → [time, batch, directions · hidden]."""
    if directions == 1:
        return op.Squeeze(y, [1])
    swapped = op.Transpose(y, perm=[0, 2, 1, 3])
    time, batch, _, hidden = swapped.shape.dims  # type: ignore[union-attr]
    return op.Reshape(swapped, [0, 0, -1], _shape=[time, batch, directions * int(hidden)])
