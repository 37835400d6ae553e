"""LSTM, GRU and RNN: batch first (14); of a known length, step by step, for targets by name that have none of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from tonnx.ir.build import Builder
from tonnx.legalise.node_view import Blocked, NodeView
from tonnx.legalise.table import down, substitute
from tonnx.legalise.versioned_ops import cut, number, squeeze, unsqueeze

_LONGEST = 256
"""Steps that are written down: a file has a dozen nodes for each."""
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_FUNCTIONS = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}
_PLAIN = frozenset(("Sigmoid", "Tanh", "Relu"))
"""Activations without parameters of their own."""

State = list[ir.Value | None]
"""The hidden state, and the cell of an LSTM; None is zeros."""


@substitute(tuple(_GATES))
def step_by_step(op: Builder, node: NodeView) -> list[ir.Value]:
    """All that an input adds to the gates at once, then a step for each point in time."""
    batch_first, x = bool(node.attr("layout", 0)), node.need("X")
    steps = _steps(node, 1 if batch_first else 0)
    x = op.Transpose(x, perm=[1, 0, 2]) if batch_first else x
    directions = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[_text(node)]
    outputs, lasts = [], []
    for i, backward in enumerate(directions):
        layer = _Layer.read(op, node, i)
        parts = _parts(op, x, layer, steps)
        states = _initial(op, node, i, batch_first)
        hidden: list[ir.Value] = []
        for part in reversed(parts) if backward else parts:
            states = layer.step(op, part, states)
            assert states[0] is not None
            hidden.append(states[0])
        if backward:
            hidden.reverse()
        rows = [unsqueeze(op, value, 0, 1) for value in hidden]
        outputs.append(op.Concat(*rows, axis=0) if len(rows) > 1 else rows[0])  # (time, 1, batch, hidden)
        lasts.append([unsqueeze(op, state, 0) for state in states if state is not None])
    results = [_joined(op, outputs, 1), *(_joined(op, list(parts), 0) for parts in zip(*lasts, strict=True))]
    if batch_first:
        results = [op.Transpose(v, perm=[2, 0, 1, 3] if i == 0 else [1, 0, 2]) for i, v in enumerate(results)]
    return results[: node.outputs]


def _text(node: NodeView) -> str:
    direction = node.attr("direction", "forward")
    return direction.decode() if isinstance(direction, bytes) else str(direction)


def _steps(node: NodeView, axis: int) -> int:
    dims = node.dims("X")
    steps = dims[axis] if dims is not None else None
    if not isinstance(steps, int):
        raise Blocked("its length is known only at run time")
    if not 0 < steps <= _LONGEST:
        raise Blocked(f"{steps} steps are more than are written down one by one ({_LONGEST})")
    lengths = node["sequence_lens"]
    known = None if lengths is None else node.const("sequence_lens")
    if known is not None and (known != steps).any():
        raise Blocked("sequences of a batch have lengths of their own")
    return steps


def _joined(op: Builder, values: Sequence[ir.Value], axis: int) -> ir.Value:
    return op.Concat(*values, axis=axis) if len(values) > 1 else values[0]


def _initial(op: Builder, node: NodeView, direction: int, batch_first: bool) -> State:
    states: State = []
    for name in ("initial_h", "initial_c") if node.op_type == "LSTM" else ("initial_h",):
        axis = 1 if batch_first else 0
        value = node[name]
        states.append(value and squeeze(op, cut(op, value, axis, direction, direction + 1), axis))
    return states


def _parts(op: Builder, x: ir.Value, layer: _Layer, steps: int) -> list[ir.Value]:
    """What the input adds to the gates, at each point in time: (batch, gates * hidden)."""
    size = op.sizes(x)[2]
    flat = op.Gemm(op.Reshape(x, op.vector([-1, size])), layer.weight, layer.input_bias, transB=1)
    apart = op.Reshape(flat, op.vector([steps, -1, layer.hidden * layer.gates]))
    return [squeeze(op, cut(op, apart, 0, t, t + 1), 0) for t in range(steps)]


@dataclass(frozen=True)
class _Layer:
    """One direction of a node."""

    kind: str
    hidden: int
    functions: list[str]
    weight: ir.Value
    recurrence: ir.Value
    input_bias: ir.Value
    state_bias: ir.Value | None
    """Of a GRU: what stands beside the state, and is not always added to the gates as it is."""
    linear_before_reset: bool

    @classmethod
    def read(cls, op: Builder, node: NodeView, direction: int) -> _Layer:
        kind, hidden = node.op_type, int(node.attr("hidden_size", 0))
        count = len(_FUNCTIONS[kind])
        named = [str(name.decode() if isinstance(name, bytes) else name) for name in node.attr("activations") or []]
        functions = (named or _FUNCTIONS[kind] * 2)[direction * count :][:count]
        extras = [name for name in ("clip", "input_forget", "activation_alpha", "activation_beta") if node.attr(name)]
        if extras or set(functions) - _PLAIN or not hidden or (kind == "LSTM" and node["P"] is not None):
            raise Blocked("it has peepholes, a clip, or activations of its own, which its steps are not written with")

        def own(name: str) -> ir.Value:
            return squeeze(op, cut(op, node.need(name), 0, direction, direction + 1), 0)

        weight, gates = own("W"), _GATES[kind]
        if node["B"] is None:
            bias = beside = number(op, 0, weight)
        else:
            both = own("B")
            bias, beside = cut(op, both, 0, 0, gates * hidden), cut(op, both, 0, gates * hidden)
        if kind != "GRU":
            bias = op.Add(bias, beside)
        before = bool(node.attr("linear_before_reset", 0))
        return cls(kind, hidden, functions, weight, own("R"), bias, None if node["B"] is None else beside, before)

    @property
    def gates(self) -> int:
        return _GATES[self.kind]

    def gate(self, op: Builder, x: ir.Value, first: int, last: int | None = None, axis: int = 1) -> ir.Value:
        return cut(op, x, axis, first * self.hidden, ((last or first) + 1) * self.hidden)

    def activation(self, op: Builder, which: int, x: ir.Value) -> ir.Value:
        return getattr(op, self.functions[which])(x)  # type: ignore[no-any-return]

    def step(self, op: Builder, part: ir.Value, states: State) -> State:
        return {"LSTM": self._lstm, "GRU": self._gru, "RNN": self._rnn}[self.kind](op, part, states)

    def _lstm(self, op: Builder, part: ir.Value, states: State) -> State:
        """The gates are input, output, forget and cell."""
        h, c = states
        total = part if h is None else op.Gemm(h, self.recurrence, part, transB=1)
        i, o, f = (self.activation(op, 0, self.gate(op, total, k)) for k in range(3))
        fresh = op.Mul(i, self.activation(op, 1, self.gate(op, total, 3)))
        cell = fresh if c is None else op.Add(op.Mul(f, c), fresh)
        return [op.Mul(o, self.activation(op, 2, cell)), cell]

    def _rnn(self, op: Builder, part: ir.Value, states: State) -> State:
        (h,) = states
        return [self.activation(op, 0, part if h is None else op.Gemm(h, self.recurrence, part, transB=1))]

    def _gru(self, op: Builder, part: ir.Value, states: State) -> State:
        """The gates are update, reset and hidden."""
        (h,) = states
        first = self.gate(op, part, 0, 1)
        if self.state_bias is not None:
            first = op.Add(first, self.gate(op, self.state_bias, 0, 1, axis=0))
        if h is not None:
            first = op.Gemm(h, self.gate(op, self.recurrence, 0, 1, axis=0), first, transB=1)
        update, reset = (self.activation(op, 0, self.gate(op, first, k)) for k in range(2))
        fresh = self._fresh(op, part, reset, h)
        rest = op.Mul(op.Sub(number(op, 1, update), update), fresh)
        return [rest if h is None else op.Add(rest, op.Mul(update, h))]

    def _fresh(self, op: Builder, part: ir.Value, reset: ir.Value, h: ir.Value | None) -> ir.Value:
        own, weight = self.gate(op, part, 2), self.gate(op, self.recurrence, 2, axis=0)
        bias = None if self.state_bias is None else self.gate(op, self.state_bias, 2, axis=0)
        seen = [] if h is None else [h if self.linear_before_reset else op.Mul(reset, h)]
        beside = [op.Gemm(state, weight, bias if bias is not None else number(op, 0, own), transB=1) for state in seen]
        if not beside and bias is not None:
            beside = [bias]
        for value in beside:
            own = op.Add(own, op.Mul(reset, value) if self.linear_before_reset else value)
        return self.activation(op, 1, own)


_FAMILY = ("LSTM", "GRU", "RNN")
_BATCH_FIRST = ("X", "initial_h", "initial_c")


@down(_FAMILY, 14, up="time first is the default")
def time_first(op: Builder, node: NodeView) -> tuple[ir.Value | None, ...] | None:
    """Batch first is transposed to time first, and back."""
    if not node.attr("layout", 0):
        return None
    inputs = [
        op.Transpose(value, perm=[1, 0, 2]) if value is not None and formal.name in _BATCH_FIRST else value
        for value, formal in zip(node.inputs, node.signature.inputs, strict=False)
    ]
    emit = getattr(op, node.op_type)
    outputs = emit(*inputs, _outputs=node.outputs, **node.attributes("layout"))
    results: list[ir.Value | None] = []
    for i, value in enumerate(outputs):
        if not node.used(i):
            results.append(None)
        else:  # time, direction, batch, hidden; the states have no time
            results.append(op.Transpose(value, perm=[2, 0, 1, 3] if i == 0 else [1, 0, 2]))
    return tuple(results)
