"""Packed sequences: recurrent layers over sequences of different lengths."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import tonnx

X = torch.randn(3, 5, 4)


class Packed(nn.Module):
    def __init__(self, layer: nn.Module, in_order: bool = False, **padding: Any) -> None:
        super().__init__()
        self.layer, self.in_order, self.padding = layer, in_order, padding

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> Any:
        first = self.layer.batch_first
        packed = pack_padded_sequence(x, lengths, batch_first=first, enforce_sorted=self.in_order)
        output, hidden = self.layer(packed)
        return (*pad_packed_sequence(output, batch_first=first, **self.padding), hidden)


CASES: list[tuple[str, nn.Module, list[int], dict[str, Any]]] = [
    ("LSTM, both directions", nn.LSTM(4, 6, batch_first=True, bidirectional=True), [2, 5, 3], {}),
    ("GRU, two layers", nn.GRU(4, 6, 2, batch_first=True), [2, 5, 3], {}),
    ("RNN, in order", nn.RNN(4, 6, batch_first=True), [4, 3, 2], {"in_order": True}),
    ("RNN with relu, time first", nn.RNN(4, 6, nonlinearity="relu"), [1, 3, 2, 2, 3], {}),
    ("padded to a length", nn.LSTM(4, 6, batch_first=True), [2, 4, 3], {"total_length": 5, "padding_value": -1.0}),
]


@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
def test_packed(case: Any) -> None:
    _, layer, lengths, options = case
    model, n = Packed(layer, **options), torch.tensor(lengths)
    batch = 0 if layer.batch_first else 1
    forward = type(layer).forward
    result = tonnx.export(model, (X, n), dynamic_axes={"x": {batch: "b"}, "lengths": {0: "b"}})
    assert result.verification is not None and result.verification.ok and not result.verification.only_example
    assert type(layer).forward is forward
    node = next(node for node in result.model.graph if node.op_type in ("LSTM", "GRU", "RNN"))
    assert node.inputs[4] is not None  # sequence_lens


def test_packed_and_projected() -> None:
    model = Packed(nn.LSTM(4, 6, batch_first=True, bidirectional=True, proj_size=3))
    axes = {"x": {0: "b"}, "lengths": {0: "b"}}
    result = tonnx.export(model, (X, torch.tensor([2, 5, 3])), dynamic_axes=axes)
    assert result.verification is not None and result.verification.ok and not result.verification.only_example
    assert "Scan" in {node.op_type for node in result.model.graph}


def test_padded_to_the_length_of_the_input() -> None:
    class Whole(nn.Module):
        """As long as the input is, which may be more than the longest of the sequences, and less than their number."""

        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.GRU(4, 6, batch_first=True)

        def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
            packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            return pad_packed_sequence(self.layer(packed)[0], batch_first=True, total_length=x.size(1))[0]

    for shape, lengths in (((3, 5, 4), [2, 4, 3]), ((5, 3, 4), [2, 3, 1, 1, 1])):
        axes = {"x": {0: "b", 1: "n"}, "lengths": {0: "b"}}
        result = tonnx.export(Whole(), (torch.randn(shape), torch.tensor(lengths)), dynamic_axes=axes)
        assert result.verification is not None and result.verification.ok and not result.verification.only_example
