"""A layer whose sums are rounded otherwise: what the proof asks before it calls a difference a fault."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle import nn

from tonnx.frontends.paddle.reference.eager import Eager
from tonnx.frontends.paddle.reference.rounded import TIMES
from tonnx.frontends.paddle.signature import bind

SUMS = {
    "a linear layer": nn.Linear(6, 6),
    "a convolution": nn.Conv1D(3, 4, 3),
    "a product": lambda x: paddle.matmul(x, x.transpose([0, 2, 1])),
    "the operator of products": lambda x: x @ x.transpose([0, 2, 1]),
    "a mean": lambda x: x.mean(-1),
    "a softmax": lambda x: nn.functional.softmax(x),
    "a norm": nn.LayerNorm(6),
}


@pytest.mark.parametrize("model", SUMS.values(), ids=SUMS)
def test_sums_are_moved_by_a_rounding(model: object) -> None:
    x = np.random.default_rng(0).random((2, 3, 6), np.float32) / 3
    call = bind(getattr(model, "forward", model), [x], None, None)
    names = {leaf.name: leaf.name for leaf in call.leaves}
    feeds = dict.fromkeys(names, x)
    (plain,) = Eager(model, call, names)(feeds)
    others = [Eager(model, call, names, rounding=number)(feeds)[0] for number in range(TIMES)]
    for other in others:
        assert (other != plain).any()
        np.testing.assert_allclose(other, plain, rtol=2e-5, atol=1e-6)
    assert (others[0] != others[1]).any()
    np.testing.assert_array_equal(Eager(model, call, names)(feeds)[0], plain)


def test_counts_stay() -> None:
    call = bind(lambda x: (x > 0).astype("float32").sum(-1), [np.ones((2, 5), np.float32)], None, None)
    (counts,) = Eager(lambda x: (x > 0).astype("float32").sum(-1), call, {"x": "x"}, rounding=1)({"x": np.ones((2, 5))})
    np.testing.assert_array_equal(counts, [5, 5])
