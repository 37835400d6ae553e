"""Recurrent layers and cells."""

from __future__ import annotations

from typing import Any

import numpy as np
from paddle import nn

from tests.frontends.paddle.flow.table import STEPS, f, i, net

SIZES = [[f(2, 5, 3)], [f(1, 1, 3)], [f(3, 7, 3)]]
LENGTHS = ([None], "int64", "n")
H, C = ([4, None, 4], "float32", "h"), ([4, None, 4], "float32", "c")


def _layer(name: str, kind: str, *args: Any, **options: Any) -> None:
    class Layer(nn.Layer):
        def __init__(self):
            super().__init__()
            self.r = getattr(nn, kind)(*args, **options)

        def forward(self, x):
            return self.r(x)

    Layer.__name__ = name
    net(STEPS, runs=SIZES)(Layer)


for _kind in ("SimpleRNN", "LSTM", "GRU"):
    _layer(_kind, _kind, 3, 4)
    _layer(f"{_kind}Both", _kind, 3, 4, num_layers=2, direction="bidirect", dropout=0.3)
_layer("RNNRelu", "SimpleRNN", 3, 4, num_layers=2, activation="relu")
_layer("LSTMTimeFirst", "LSTM", 3, 4, num_layers=2, time_major=True)


@net(([2, 5, 3], "float32", "x"), runs=[[f(2, 5, 3)]])
class FixedSizes(nn.Layer):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.LSTM(3, 4, direction="bidirect"), nn.GRU(8, 4)

    def forward(self, x):
        y, _ = self.a(x)
        return self.b(y)[0]


@net(STEPS, LENGTHS, runs=[[f(3, 5, 3), i(5, 2, 3)], [f(2, 4, 3), i(1, 4)]])
class Lengths(nn.Layer):
    def __init__(self):
        super().__init__()
        self.a = nn.LSTM(3, 4, direction="bidirect")
        self.b = nn.GRU(8, 3, num_layers=2)
        self.c = nn.SimpleRNN(3, 2, direction="bidirect")

    def forward(self, x, n):
        y, (h, c) = self.a(x, None, n)
        z, s = self.b(y, None, n)
        w, _ = self.c(z, None, n)
        return y, h, c, z, s, w


@net(STEPS, ([None], "int32", "n"), runs=[[f(3, 5, 3), np.array([5, 2, 3], "int32")]])
class Lengths32(nn.Layer):
    def __init__(self):
        super().__init__()
        self.a = nn.LSTM(3, 4, direction="bidirect")

    def forward(self, x, n):
        return self.a(x, None, n)


@net(STEPS, H, C, runs=[[f(3, 5, 3), f(4, 3, 4), f(4, 3, 4)], [f(1, 2, 3), f(4, 1, 4), f(4, 1, 4)]])
class InitialStates(nn.Layer):
    def __init__(self):
        super().__init__()
        self.a = nn.LSTM(3, 4, num_layers=2, direction="bidirect")
        self.b = nn.GRU(8, 4, num_layers=2, direction="bidirect")

    def forward(self, x, h, c):
        y, (p, q) = self.a(x, (h, c))
        z, s = self.b(y, h)
        return z, p, q, s


@net(
    ([None, 3], "float32", "x"),
    ([None, 4], "float32", "h"),
    ([None, 4], "float32", "c"),
    runs=[[f(3, 3), f(3, 4), f(3, 4)], [f(1, 3), f(1, 4), f(1, 4)]],
)
class Cells(nn.Layer):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.LSTMCell(3, 4), nn.GRUCell(3, 4), nn.SimpleRNNCell(3, 4)

    def forward(self, x, h, c):
        y, (h1, c1) = self.a(x, (h, c))
        z, h2 = self.b(x, h1)
        w, _ = self.c(x, h2)
        return y, c1, z, w


@net(([None, 4, 3], "float32", "x"), runs=[[f(2, 4, 3)], [f(3, 4, 3)]])
class CellUnrolled(nn.Layer):
    def __init__(self):
        super().__init__()
        self.r = nn.RNN(nn.LSTMCell(3, 4))

    def forward(self, x):
        return self.r(x)


@net(STEPS, runs=[[f(2, 4, 3)], [f(3, 1, 3)], [f(1, 6, 3)]])
class CellLoop(nn.Layer):
    def __init__(self):
        super().__init__()
        self.r = nn.RNN(nn.GRUCell(3, 4), is_reverse=True)

    def forward(self, x):
        return self.r(x)


@net(STEPS, LENGTHS, runs=[[f(2, 4, 3), i(4, 2)], [f(3, 3, 3), i(1, 2, 3)]])
class CellsBothWays(nn.Layer):
    def __init__(self):
        super().__init__()
        self.r = nn.BiRNN(nn.GRUCell(3, 4), nn.GRUCell(3, 4))
        self.s = nn.RNN(nn.LSTMCell(8, 2))

    def forward(self, x, n):
        y, (h, g) = self.r(x, None, n)
        return h, g, self.s(y, None, n)[0]


class _Cell(nn.RNNCellBase):
    def __init__(self):
        super().__init__()
        self.w, self.u = nn.Linear(3, 4), nn.Linear(4, 4)

    @property
    def state_shape(self):
        return (4,)

    def forward(self, x, h):
        h = nn.functional.tanh(self.w(x) + self.u(h))
        return h, h


@net(STEPS, runs=[[f(2, 4, 3)], [f(3, 3, 3)]])
class OwnCell(nn.Layer):
    def __init__(self):
        super().__init__()
        self.r = nn.RNN(_Cell())

    def forward(self, x):
        return self.r(x)
