"""Covariances, histograms, parts of numbers; the loss of alignments; statistics that a batch normalisation keeps."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from tests.lowering.harness import Case, check, table

torch.manual_seed(0)
r = torch.randn
inf, nan = float("inf"), float("nan")
POINTS = r(40, 2)
WEIGHTS = torch.rand(7)
COUNTS = torch.tensor([1, 2, 1, 3, 1, 0, 2])
FLOATS = torch.tensor([0.0, -0.0, 1.0, -1.0, 2.0, 3.7, 1e-3, 1e-40, -3e-38, 3e38, -2.0, 1024.0, inf, -inf, nan])
LENGTHS = torch.tensor([2, 0, 4])
INTS = torch.tensor([0, 1, -12, 18, 35, -49, 1 << 40, 3 << 41])
LOG_PROBS = r(12, 3, 6).log_softmax(-1)
TEXTS = torch.tensor([[1, 2, 2, 3], [4, 4, 4, 1], [5, 1, 1, 1]])  # 0 is no letter, so none is drawn


def losses(log_probs: torch.Tensor, targets: torch.Tensor, steps: torch.Tensor, lengths: torch.Tensor) -> tuple:
    kinds = ("none", "mean", "sum")
    return tuple(F.ctc_loss(log_probs, targets, steps, lengths, reduction=kind) for kind in kinds)


def batch_norm(x: torch.Tensor, mean: torch.Tensor, var: torch.Tensor) -> tuple[torch.Tensor, ...]:
    mean, var = mean.clone(), var.clone()
    y, *_ = torch.ops.aten._native_batch_norm_legit(x, None, None, mean, var, True, 0.1, 1e-5)
    z, *_ = torch.ops.aten._batch_norm_with_update(x * 2, torch.ones(4), torch.zeros(4), mean, var, 0.3, 1e-5)
    return y, z, mean, var


def written(x: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x.narrow(1, start, 2).mul_(3)
    return x


CASES = [
    Case("cov", lambda x: (torch.cov(x), x[0].cov(correction=0), x[:1].cov(), x.int().cov()), [r(4, 7)], {0: [1]}),
    Case("cov, weights", lambda x, c, w: (torch.cov(x, fweights=c), x.cov(correction=2, fweights=c, aweights=w)),
         [r(3, 7), COUNTS, WEIGHTS], opset=11, left_out="negative|cannot"),
    Case("corrcoef", lambda x: (torch.corrcoef(x), x[0].corrcoef()), [r(4, 7)], {0: [1]}),
    Case("histogram", lambda x: torch.histogram(x, 5), [r(30)], {0: [0]}),
    Case("histogram, of one number", lambda x: torch.histogram(x, 3), [torch.ones(4)]),
    Case("histogram, range", lambda x, w: torch.histogram(x, 4, range=(-1.0, 1.0), weight=w, density=True),
         [r(30), torch.rand(30)], opset=11),
    Case("histogram, edges", lambda x: torch.histogram(x, torch.tensor([-1.0, -0.5, 0.2, 1.0])), [r(5, 6)], "all"),
    Case("histogram, of points", lambda x: torch.histogramdd(x, [3, 2], density=True), [POINTS], {0: [0]}),
    Case("gcd", torch.gcd, [INTS[:, None], INTS], {0: [0], 1: [0]}, opset=11),
    Case("lcm", lambda a, b: torch.lcm(a, b), [INTS[:6, None].int(), INTS[:5].int()]),
    Case("frexp", torch.frexp, [FLOATS], {0: [0]}, opset=11),
    Case("frexp, float64", torch.frexp, [torch.tensor([1e-320, -1e300, 0.75, 8.0], dtype=torch.float64)]),
    Case("next after", lambda a, b: (torch.nextafter(a, b) - a) * 2.0**100, [FLOATS[:9, None], FLOATS]),
    Case("ctc", losses, [LOG_PROBS, TEXTS, torch.tensor([12, 3, 8]), torch.tensor([4, 4, 2])], {0: [0]}, opset=11,
         left_out="Expected input_lengths"),
    Case("ctc, texts in a row", lambda p, t: F.ctc_loss(p, t, (12, 9, 8), (4, 1, 3), blank=5, zero_infinity=True),
         [LOG_PROBS, torch.tensor([1, 2, 2, 3, 4, 1, 0, 1])]),
    Case("ctc, one text", lambda p, t: F.ctc_loss(p, t, torch.tensor(12), torch.tensor(4)),
         [LOG_PROBS[:, 0], TEXTS[0]]),
    Case("narrow", lambda x, i: (x.narrow(1, i, 2), torch.narrow(x, 0, i - 3, 1)), [r(3, 5, 2), torch.tensor(1)],
         {0: [2]}),
    Case("narrow, written", written, [r(3, 5), torch.tensor(2)]),
    Case("gaussian", lambda x, y, v: (F.gaussian_nll_loss(x, y, v, full=True), F.gaussian_nll_loss(x, y, v[:, 0])),
         [r(3, 4), r(3, 4), torch.rand(3, 1)]),
    Case("segments", lambda x: tuple(torch.segment_reduce(x, kind, lengths=LENGTHS, unsafe=True, initial=first)
                                     for kind, first in (("sum", None), ("mean", None), ("max", 0.5), ("prod", 2))),
         [r(6, 3)], {0: [1]}, opset=11),
    Case("batch norm, written", batch_norm, [r(6, 4, 3), r(4), torch.rand(4)], {0: [0]}),
    Case("likelihood, each",
         lambda x, t, w: (F.nll_loss(x, t, w, reduction="none"), F.cross_entropy(x, t, reduction="none")),
         [r(4, 6), torch.tensor([1, 0, 5, 2]), torch.rand(6)], {0: {0: "n"}, 1: {0: "n"}}),
    Case("margins", lambda x, t: tuple(F.multilabel_margin_loss(x, t, reduction=to) for to in ("none", "mean", "sum")),
         [r(2, 3), torch.tensor([[1, -1, 0], [-1, 2, 0]])], {0: {0: "n"}, 1: {0: "n"}}, opset=11),
    Case("margins, of one row", F.multilabel_margin_loss, [r(3), torch.tensor([1, 2, -1])]),
]  # fmt: skip


@table(CASES)
@pytest.mark.filterwarnings("ignore")
def test_statistics(case: Case) -> None:
    check(case)
