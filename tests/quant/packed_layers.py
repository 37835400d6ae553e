"""Linear layers as the formats of GPTQ and AWQ hold them: eight integers of 4 bits in each int32."""

from __future__ import annotations

import torch
from torch import nn

SHIFTS = torch.arange(0, 32, 4, dtype=torch.int32)
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""The column of each nibble of an int32, the lowest first."""


def packed(integers: torch.Tensor, axis: int, order: tuple[int, ...] = tuple(range(8))) -> torch.Tensor:
    """Eight along an axis in one."""
    columns = integers.long().movedim(axis, -1)
    eights = columns.reshape(*columns.shape[:-1], -1, 8)[..., list(order)]
    words = (eights << SHIFTS.long()).sum(-1)
    return torch.where(words >= 2**31, words - 2**32, words).int().movedim(-1, axis)


class Gptq(nn.Module):
    """``shuffled``: rows belong to groups in no order, as with ``desc_act``."""

    def __init__(
        self, inputs: int, outputs: int, group: int = 32, *, half: bool = False, shuffled: bool = False
    ) -> None:
        super().__init__()
        groups = inputs // group
        self.integers = torch.randint(0, 16, (inputs, outputs))
        self.zero_points = torch.randint(1, 16, (groups, outputs))
        scales = torch.rand(groups, outputs) * 0.02 + 0.001
        index = torch.arange(inputs) // group
        self.register_buffer("qweight", packed(self.integers, 0))
        self.register_buffer("qzeros", packed(self.zero_points - 1, 1))
        self.register_buffer("scales", scales.half() if half else scales)
        self.register_buffer("g_idx", (index[torch.randperm(inputs)] if shuffled else index).int())
        self.bias = nn.Parameter(torch.randn(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        zeros = torch.bitwise_right_shift(self.qzeros.unsqueeze(2).expand(-1, -1, 8), SHIFTS.view(1, 1, 8))
        zeros = (torch.bitwise_and(zeros.to(torch.int8), 15) + 1).reshape(self.scales.shape)
        weight = torch.bitwise_right_shift(self.qweight.unsqueeze(1).expand(-1, 8, -1), SHIFTS.view(1, 8, 1))
        weight = torch.bitwise_and(weight.to(torch.int8), 15).reshape(-1, weight.shape[2])
        floats = self.scales[self.g_idx.long()] * (weight - zeros[self.g_idx.long()])
        return torch.matmul(x, floats.to(x.dtype)) + self.bias


class Awq(nn.Module):
    def __init__(self, inputs: int, outputs: int, group: int = 32, *, half: bool = False) -> None:
        super().__init__()
        groups = inputs // group
        self.group = group
        self.integers = torch.randint(0, 16, (inputs, outputs))
        self.zero_points = torch.randint(0, 16, (groups, outputs))
        scales = torch.rand(groups, outputs) * 0.02 + 0.001
        self.register_buffer("qweight", packed(self.integers, 1, AWQ_ORDER))
        self.register_buffer("qzeros", packed(self.zero_points, 1, AWQ_ORDER))
        self.register_buffer("scales", scales.half() if half else scales)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inverse = [AWQ_ORDER.index(place) for place in range(8)]
        columns = torch.arange(self.scales.shape[1]).view(-1, 8)[:, inverse].reshape(-1)
        weight, zeros = (
            torch.bitwise_right_shift(words[:, :, None], SHIFTS[None, None, :]).to(torch.int8).view(len(words), -1)
            for words in (self.qweight, self.qzeros)
        )
        weight, zeros = (torch.bitwise_and(part[:, columns], 15) for part in (weight, zeros))
        scales, zeros = (part.repeat_interleave(self.group, dim=0) for part in (self.scales, zeros))
        return torch.matmul(x, ((weight - zeros) * scales).to(x.dtype))
