"""What is drawn: only the distribution can be compared."""

import numpy as np
import paddle
import paddle.nn.functional as F

from tests.frontends.paddle.operators.table import LIKE, ints, random, raw

X = np.zeros((3, 400), "float32")
UNIT = {"low": 0.0, "high": 1.0, "mean": 0.5, "within": 0.06}

random(
    "uniform", lambda x: paddle.uniform([3, 400], min=-2.0, max=3.0) + x * 0, X, low=-2, high=3, mean=0.5, within=0.3
)
random("rand_dynamic", lambda x: paddle.rand(paddle.shape(x)), X, **UNIT)
random("randn", lambda x: paddle.randn([3, 400]) + x * 0, X, low=-7, high=7, mean=0, within=0.2)
random("normal", lambda x: paddle.normal(2.0, 3.0, paddle.shape(x)), X, low=-20, high=24, mean=2, within=0.6)
random(
    "gaussian_f64", lambda x: paddle.standard_normal(paddle.shape(x), "float64"), X, low=-7, high=7, mean=0, within=0.2
)
random(
    "randint", lambda x: paddle.randint(-3, 5, [3, 400]) + x, ints(3, 400, hi=1), low=-3, high=4, mean=0.5, within=0.4
)
random("randint_d", lambda x: paddle.randint(0, 9, paddle.shape(x), "int32"), X, low=0, high=8, mean=4, within=0.5)
random(
    "randperm",
    lambda x: paddle.randperm(50) + x,
    ints(50, hi=1),
    dyn=(),
    low=0,
    high=49,
    mean=24.5,
    within=0.01,
    permutation=True,
)
random(
    "bernoulli", lambda x: paddle.bernoulli(x), np.full((3, 400), 0.3, "float32"), low=0, high=1, mean=0.3, within=0.08
)
random(
    "multinomial",
    lambda x: paddle.multinomial(x, 300, True),
    np.float32([[0.2, 0.3, 0.5]]),
    low=0,
    high=2,
    mean=1.3,
    within=0.2,
)
random(
    "multinomial_once",
    lambda x: paddle.multinomial(x, 5),
    np.full((2, 9), 0.1, "float32"),
    low=0,
    high=8,
    mean=4,
    within=3.0,
)
random("gumbel", lambda x: F.gumbel_softmax(x), np.zeros((3, 400), "float32"), low=0, high=1, mean=1 / 400, within=1e-4)
raw(
    "old_uniform_batch_size_like",
    "uniform_random_batch_size_like",
    {"Input": X},
    {"Out": "float32"},
    {"shape": [-1, 500], "min": -1.0, "max": 1.0, "dtype": 5},
)
LIKE["old_uniform_batch_size_like"] = {"like": {"low": -1, "high": 1, "mean": 0, "within": 0.15}}
raw(
    "old_truncated_gaussian",
    "truncated_gaussian_random",
    {},
    {"Out": "float32"},
    {"shape": [30, 40], "mean": 1.0, "std": 0.5, "dtype": 5},
)
LIKE["old_truncated_gaussian"] = {"like": {"low": 0, "high": 2, "mean": 1, "within": 0.1}}
