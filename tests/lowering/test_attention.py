"""Attention: masks, causal, scale, grouped queries, odd ranks."""

import torch
import torch.nn.functional as F
from torch import nn

from tests.lowering.harness import Case, check, table

sdpa = F.scaled_dot_product_attention


def qkv(*batch: int, q: int = 5, k: int = 7, e: int = 4) -> list[torch.Tensor]:
    return [torch.randn(*batch, q, e), torch.randn(*batch, k, e), torch.randn(*batch, k, e)]


DYN = {0: {0: "b", 2: "q"}, 1: {0: "b", 2: "k"}, 2: {0: "b", 2: "k"}}
SELF = {i: {0: "b", 2: "s"} for i in range(3)}
BOOL = torch.rand(5, 7) > 0.3
BOOL[:, 0] = True

CASES = [
    Case("plain", sdpa, qkv(2, 3), dynamic=DYN),
    Case("causal", lambda q, k, v: sdpa(q, k, v, is_causal=True), qkv(2, 3, k=5), dynamic=SELF),
    Case("causal cross", lambda q, k, v: sdpa(q, k, v, is_causal=True), qkv(2, 3), dynamic=DYN),
    Case("scale", lambda q, k, v: sdpa(q, k, v, scale=0.3), qkv(2, 3), dynamic=DYN),
    Case("bool mask", lambda q, k, v, m: sdpa(q, k, v, m), [*qkv(2, 3), BOOL], dynamic={i: {0: "b"} for i in range(3)}),
    Case("float mask", lambda q, k, v, m: sdpa(q, k, v, m), [*qkv(2, 3), torch.randn(2, 1, 5, 7)]),
    Case("mask of three axes", lambda q, k, v, m: sdpa(q, k, v, m), [*qkv(2, 3), torch.randn(3, 5, 7)]),
    Case("nothing to see", lambda q, k, v, m: sdpa(q, k, v, m), [*qkv(2, 3), torch.zeros(5, 7, dtype=torch.bool)]),
    Case("three axes", sdpa, qkv(2), dynamic={i: {0: "b"} for i in range(3)}),
    Case("two axes", sdpa, qkv()),
    Case(
        "five axes", lambda q, k, v, m: sdpa(q, k, v, m), [*qkv(2, 3, 2), BOOL], dynamic={i: {0: "b"} for i in range(3)}
    ),
    Case("value of another width", sdpa, [torch.randn(2, 3, 5, 4), torch.randn(2, 3, 7, 4), torch.randn(2, 3, 7, 6)]),
    Case(
        "grouped queries",
        lambda q, k, v: sdpa(q, k, v, enable_gqa=True),
        [torch.randn(2, 6, 5, 4), torch.randn(2, 2, 7, 4), torch.randn(2, 2, 7, 4)],
        dynamic=DYN,
    ),
    Case("batch broadcast", sdpa, [torch.randn(2, 3, 5, 4), torch.randn(1, 3, 7, 4), torch.randn(1, 3, 7, 4)]),
    Case("float16", sdpa, [t.half() for t in qkv(2, 3)], dynamic=DYN),
    Case(
        "multihead",
        nn.MultiheadAttention(8, 2, batch_first=True),
        [torch.randn(2, 5, 8)] * 3,
        dynamic={i: {0: "b", 1: "s"} for i in range(3)},
    ),
    Case(
        "encoder layer",
        nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
        [torch.randn(2, 5, 8)],
        dynamic={0: [0, 1]},
    ),
]


@table(CASES)
def test_attention(case: Case) -> None:
    check(case)
