"""Recurrent layers: batch and time dynamic, native nodes."""

import itertools

import torch
from torch import nn

from tests.lowering.harness import Case, check, table

BT = {0: {0: "batch", 1: "time"}}
TB = {0: {0: "time", 1: "batch"}}


class WithState(nn.Module):
    """A recurrent layer that gets its initial state."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor | None = None) -> object:
        return self.layer(x, h if c is None else (h, c))


def layer_cases() -> list[Case]:
    cases = []
    kinds = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}
    for (name, kind), layers, both, first in itertools.product(kinds.items(), (1, 2), (False, True), (False, True)):
        model = kind(4, 5, num_layers=layers, bidirectional=both, batch_first=first)
        label = f"{name} layers={layers} bidirectional={both} batch_first={first}"
        cases.append(Case(label, model, [torch.randn(3, 2, 4)], dynamic=BT if first else TB, has=[name.upper()]))
    return cases


def other_cases() -> list[Case]:
    x = torch.randn(3, 2, 4)
    state = torch.randn(1, 2, 5)
    shared = {0: {0: "time", 1: "batch"}, 1: {1: "batch"}}
    lstm_dims = {**shared, 2: {1: "batch"}}
    return [
        Case("lstm with state", WithState(nn.LSTM(4, 5)), [x, state, torch.randn(1, 2, 5)], dynamic=lstm_dims),
        Case("gru with state", WithState(nn.GRU(4, 5)), [x, state], dynamic=shared),
        Case("two layers with state", WithState(nn.GRU(4, 5, 2)), [x, torch.randn(2, 2, 5)], dynamic=shared),
        Case("no bias", nn.LSTM(4, 5, bias=False), [x], dynamic=TB),
        Case("projected", nn.LSTM(4, 5, proj_size=3), [x], dynamic=TB, has=["Scan"]),
        Case("projected, both ways", nn.LSTM(4, 5, 2, proj_size=3, bidirectional=True, bias=False), [x], dynamic=TB),
        Case("relu rnn", nn.RNN(4, 5, nonlinearity="relu", bidirectional=True), [x], dynamic=TB),
        Case("unbatched", nn.LSTM(4, 5), [torch.randn(3, 4)], dynamic={0: {0: "time"}}),
        Case("example of length 1", nn.GRU(4, 5, batch_first=True), [torch.randn(1, 1, 4)], dynamic=BT),
        Case("float64", nn.LSTM(4, 5).double(), [x.double()], dynamic=TB),
        Case("lstm cell", nn.LSTMCell(4, 5), [torch.randn(2, 4)], dynamic={0: [0]}),
        Case("gru cell", nn.GRUCell(4, 5), [torch.randn(2, 4)], dynamic={0: [0]}),
    ]


@table(layer_cases())
def test_recurrent_layer(case: Case) -> None:
    check(case)


@table(other_cases())
def test_recurrent(case: Case) -> None:
    check(case)
