"""Writes in place: to fresh tensors, inputs and buffers, directly and through views."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from tests.lowering.harness import Case, check, table
from tonnx.errors import TonnxError

Tensor = torch.Tensor


def r(*shape: int) -> Tensor:
    return torch.arange(1, 1 + int(torch.Size(shape).numel()), dtype=torch.float32).reshape(shape) / 7


ALL = "all"
CASES: list[Case] = []


def case(*inputs: Tensor, dynamic: Any = None, **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a function as a case under its own name."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        CASES.append(Case(function.__name__, function, inputs, dynamic, **options))
        return function

    return enter


# Directly


@case(r(2, 3) - 0.5, dynamic=ALL)
def fresh_relu(x: Tensor) -> Tensor:
    return (x - 0.2).relu_()


@case(r(2, 3), dynamic=ALL)
def chain_on_fresh(x: Tensor) -> Tensor:
    y = x * 2
    y.add_(1).mul_(x).sub_(0.5)
    y += x
    return y


@case(r(2, 3), r(3), dynamic={0: [0]})
def add_alpha(x: Tensor, y: Tensor) -> Tensor:
    z = x.clone()
    z.add_(y, alpha=3)
    return z


@case(r(2, 3), dynamic=ALL)
def input_written_and_returned(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x + 1
    x.mul_(2)
    return x, y


@case(r(2, 3), dynamic=ALL)
def clone_keeps_the_old(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x * 1
    old = y.clone()
    y.zero_()
    return y, old


@case(r(2, 3), r(3), dynamic={0: [0]})
def copy_broadcasts_and_casts(x: Tensor, y: Tensor) -> Tensor:
    z = torch.zeros_like(x, dtype=torch.int64)
    z.copy_(y * 5)
    return z


@case(r(2, 3), torch.tensor([[True, False, True], [False, True, True]]))
def fills(x: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
    a, b, c, d = x.clone(), x.clone(), x.clone(), x.clone()
    a.fill_(3)
    b.masked_fill_(mask, -1.0)
    c.zero_()
    d.fill_(x[0, 0])
    return a, b, c, d


@case(torch.arange(6).reshape(2, 3), r(2, 3))
def keeps_its_dtype(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    a, b = x.clone(), x.half()
    a.mul_(2)
    b.add_(y)
    return a, b


@case(r(2, 3))
def same_tensor_by_two_names(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x * 2
    z = y.sigmoid_()
    z.add_(1)
    return y, z


@case(r(2, 3), torch.tensor([1, 0]))
def out_of_place_after_in_place(x: Tensor, n: Tensor) -> Tensor:
    y = torch.zeros(2, 3)
    y.index_put_((n,), x)
    y.index_add_(0, n, x)
    y.index_fill_(1, n, 0.25)
    y.scatter_(0, n[None], 9.0)
    return y * 2


@case(r(3, 4), torch.tensor([0, 2, 0]))
def index_put_accumulates(x: Tensor, n: Tensor) -> Tensor:
    y = torch.zeros(3, 4)
    y.index_put_((n,), x, accumulate=True)
    return y


@case(r(2, 3, 4), dynamic={0: [0]})
def nn_inplace(x: Tensor) -> Tensor:
    y = F.relu(x - 1, inplace=True)
    y = F.hardtanh(y, inplace=True)
    return F.dropout(y, training=False, inplace=True)


# Through views


@case(r(2, 3, 4), dynamic={0: [0, 2]})
def set_column(x: Tensor) -> Tensor:
    y = x.clone()
    y[:, 0] = 1
    return y


@case(r(2, 3, 4), r(2, 3, 2), dynamic={0: {0: "n"}, 1: {0: "n"}})
def add_to_slice(x: Tensor, y: Tensor) -> Tensor:
    z = x * 1
    z[..., 1:3] += y
    return z


@case(r(4, 5), dynamic=ALL)
def dynamic_slices(x: Tensor) -> Tensor:
    y = x * 1
    y[1:] = x[:-1]
    y[:, :-1] *= 2
    y[-1] = 0
    return y


@case(r(6, 5))
def stepped_slices(x: Tensor) -> Tensor:
    y = x * 1
    y[::2] = 0
    y[1::2, 1::3] += 10
    return y


@case(r(6, 5), dynamic=ALL)
def stepped_dynamic_slices(x: Tensor) -> Tensor:
    y = x * 1
    y[::2] = 0
    y[:, 1::2] *= -1
    y[:, x.shape[0] - 1 :: x.shape[0]] += 3
    return y


@case(r(2, 3), dynamic=ALL)
def masks(x: Tensor) -> tuple[Tensor, Tensor]:
    y, z = x * 1, x * 1
    y[y > 0.4] = 0.5
    z[z > 0.4] *= 2
    return y, z


@case(r(3, 4), dynamic=ALL)
def row_of_transposed(x: Tensor) -> Tensor:
    y = x * 1
    y.T[0] = 1
    return y


@case(r(2, 3, 4), dynamic={0: [0]})
def through_view(x: Tensor) -> Tensor:
    y = x * 1
    y.view(-1, 12)[:, 2] = 0
    y.flatten(1)[:, 5:7].mul_(3)
    y.permute(2, 0, 1)[1] += 1
    y.transpose(1, 2).unsqueeze(0)[:, :, 0] = 9
    y.movedim(0, -1).select(0, 2).neg_()
    return y


@case(r(4, 6), dynamic={0: [0]})
def through_parts(x: Tensor) -> Tensor:
    y = x * 1
    first, second = y.chunk(2, 1)
    first.mul_(2)
    second += first
    a, b, c = y.split([1, 2, 3], dim=1)
    c[:, 0] = 5
    b.copy_(a)
    y.narrow(1, 2, 2).add_(100)
    y.split(4, 1)[1].neg_()
    return y


@case(r(6, 2), dynamic={0: [0]})
def through_parts_of_a_dynamic_axis(x: Tensor) -> Tensor:
    y = x * 1
    first, second = y.chunk(2)
    second.mul_(2)
    first.add_(1)
    head, rest = y.split([2, y.shape[0] - 2])
    rest.neg_()
    y.narrow(0, y.shape[0] - 1, 1).zero_()
    y.narrow(1, -1, 1).add_(5)
    return y + head.sum()


@case(r(3, 4), dynamic=ALL)
def through_the_tensor_itself(x: Tensor) -> Tensor:
    y = x * 1
    y.detach().add_(1)
    y.contiguous().mul_(2)
    y.to(torch.float32)[0] = 0
    F.dropout(y, training=False)[:, 0].add_(3)
    y.expand_as(x).sub_(1)
    return y


@case(r(3, 4), dynamic={0: [1]})
def through_unbind(x: Tensor) -> Tensor:
    y = x * 1
    for n, row in enumerate(y.unbind(0)):
        row.add_(n)
    return y


@case(r(3, 3), dynamic=ALL)
def through_diagonal(x: Tensor) -> Tensor:
    y = x[:, :-1] * 1
    y.diagonal().zero_()
    y.diagonal(1).fill_(-1)
    return y


@case(r(3, 4), r(7, 3), r(2, 2, 2))
def fill_diagonal(x: Tensor, tall: Tensor, cube: Tensor) -> tuple[Tensor, ...]:
    y, z, both = x * 1, tall * 1, cube * 1
    y.fill_diagonal_(7.0)
    z[1:].fill_diagonal_(7.0, wrap=True)
    both.fill_diagonal_(0)
    return y, z, both


@case(r(4, 6), dynamic={0: [0]})
def views_read_after_the_write(x: Tensor) -> tuple[Tensor, ...]:
    y = x * 1
    row, column, flat, turned = y[0], y[:, 1], y.view(-1), y.t()
    nested = turned[2:4]
    y[:, 1:3] = -1
    return row * 1, column + 0, flat * 1, nested + 0, y


@case(r(4, 6), dynamic={0: [0]})
def view_written_base_and_sister_read(x: Tensor) -> tuple[Tensor, ...]:
    y = x * 1
    a, b = y[:, :4], y[:, 2:]
    a.mul_(10)
    b.add_(1)
    a[:, 0] = 0
    return a, b, y


@case(r(3, 5), dynamic=ALL, left_out="out of bounds")
def view_made_before_and_after(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x * 1
    before = y[1]
    y.add_(1)
    after = y[1]
    before.mul_(2)
    return after, y


@case(r(2, 8, 8), dynamic={0: [0]})
def loop_over_slices(x: Tensor) -> Tensor:
    y = torch.zeros_like(x)
    for n in range(0, 8, 4):
        for m in range(0, 8, 4):
            y[:, n : n + 4, m : m + 4] = x[:, n : n + 4, m : m + 4] * (n + m)
            y[:, n : n + 2] *= 0.5
    return y


@case(r(2, 8, 8))
def shifted_windows(x: Tensor) -> Tensor:
    mask = torch.zeros(1, 8, 8)
    count = 0
    for h in (slice(0, -4), slice(-4, -2), slice(-2, None)):
        for w in (slice(0, -4), slice(-4, -2), slice(-2, None)):
            mask[:, h, w] = count
            count += 1
    return x + mask


@case(r(2, 4), dynamic={0: [0]})
def grown_buffer(x: Tensor) -> Tensor:
    y = x.new_zeros(x.shape[0], 7)
    y[:, :4] = x
    y[:, -1:] = x[:, :1]
    return y


@case(r(2, 3, 4), torch.tensor([0, 2]), dynamic={0: [0]})
def indexed_writes(x: Tensor, n: Tensor) -> Tensor:
    y = x * 1
    y[:, n] = 4.0
    y[:, n, n] = y[:, n, 3]
    y[:, :, n] += 1
    return y


@case(r(3, 4))
def write_through_reshape_copy(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x * 1
    z = y.t().reshape(-1)  # a copy: y stays as it is
    z.zero_()
    return y, z


@case(r(3, 4), r(3, 4))
def swapped(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    a, b = x * 1, y * 1
    old = a[0].clone()
    a[0] = b[0]
    b[0] = old
    return a, b


@case(r(3, 1, 4), dynamic={0: [0]})
def changed_in_shape(x: Tensor) -> Tensor:
    y = x * 1
    y.squeeze_(1)
    y.unsqueeze_(0)
    y.transpose_(0, 1)
    return y + 1


@case(r(3, 4))
def dead_write(x: Tensor) -> Tensor:
    y = x * 1
    z = y + 1
    y[0] = 100
    return z


@case(r(3, 4), r(4))
def written_argument_is_read_too(x: Tensor, v: Tensor) -> Tensor:
    y = x * 1
    y[0].add_(y[1])
    y.mul_(y)
    y.addmm_(y, y[:, :4].new_ones(4, 4), alpha=0.5)
    y.addcmul_(y, v, value=2)
    y.clamp_(0, 50).lerp_(x, 0.5)
    return y


class Counter(torch.nn.Module):
    """Writes to its buffers while it computes."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.register_buffer("cache", torch.zeros(2, 4))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.steps += 1
        self.cache[0] = x[0]
        self.cache.mul_(2)
        return x + self.cache.sum() * self.steps, self.cache.clone()


CASES.append(Case("buffers", Counter(), [r(3, 4)], {0: [0]}))


@table(CASES)
def test_inplace(case: Case) -> None:
    check(case)


def test_a_number_written_to_a_slice_is_one_choice() -> None:
    def column(x: Tensor) -> Tensor:
        y = x * 1
        y[:, 1:] = 1
        return y

    result = check(Case("column", column, [r(2, 3)], {0: [0]}))
    assert [node.op_type for node in result.model.graph] == ["Where"]


def test_a_tensor_written_to_a_slice_is_one_concat() -> None:
    def column(x: Tensor) -> Tensor:
        y = x * 1
        y[:, 1:] = x.exp()[:, :-1]
        return y

    result = check(Case("column", column, [r(2, 3)], {0: [0]}))
    assert sorted(node.op_type for node in result.model.graph) == ["Concat", "Exp", "Slice", "Slice"]


def test_the_model_keeps_its_buffers() -> None:
    model = Counter()
    check(Case("buffers", model, [r(3, 4)]))
    assert int(model.steps) == 0
    assert not model.cache.any()


def test_a_write_through_other_bits_is_refused() -> None:
    def write(x: Tensor) -> Tensor:
        y = x * 1
        y.view(torch.int32).zero_()
        return y

    with pytest.raises(TonnxError, match="a write through"):
        check(Case("bits", write, [r(2, 3)]))
