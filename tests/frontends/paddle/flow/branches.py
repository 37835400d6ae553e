"""Branches: values that only one side has, shapes that differ, early returns, conditions that are known."""

# ruff: noqa: SIM108 - statements are what Paddle traces here

from __future__ import annotations

import numpy as np
import paddle
from paddle import nn

from tests.frontends.paddle.flow.table import DOWN, FIXED, UP, N, X, f, i, net

BOTH = [[UP], [DOWN]]


@net(X, runs=BOTH)
class If(nn.Layer):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(3, 4)

    def forward(self, x):
        if x.mean() > 0:
            y = self.a(x)
        else:
            y = self.b(x) * 2
        return y


@net(X, runs=BOTH)
class IfShapes(nn.Layer):
    def forward(self, x):
        if x.mean() > 0:
            y = x * 2
        else:
            y = paddle.concat([x, x], axis=0)
        return y + 1


@net(FIXED, runs=[[UP], [-UP]])
class IfFixedShapes(nn.Layer):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 4)

    def forward(self, x):
        if x.mean() > 0:
            y = x * 2
        else:
            y = paddle.concat([x, x], axis=0)
        return self.a(y + 1)


@net(FIXED, runs=[[UP], [-UP]])
class IfRanks(nn.Layer):
    def forward(self, x):
        if x.mean() > 0:
            y = x.mean(0)
        else:
            y = x
        return (y * 2).sum()


@net(X, runs=[[UP], [DOWN], [UP * 10], [DOWN * 10]])
class IfNested(nn.Layer):
    def forward(self, x):
        z = x
        if x.mean() > 0:
            if x.max() > 5:
                y = x * 2
                z = x + 1
            else:
                y = x - 1
        else:
            y = x + 3
            if x.min() < -5:
                y = y * 4
        return y, z


@net(X, runs=BOTH)
class EarlyReturn(nn.Layer):
    def forward(self, x):
        if x.mean() > 0:
            return x * 2
        y = x - 1
        return y * y


@net(X, runs=BOTH)
class IfOnly(nn.Layer):
    def forward(self, x):
        if x.mean() > 0:
            x = x * 2
        return x


@net(X, N, runs=[[UP, i(1)], [DOWN, i(0)], [DOWN, i(7)]])
class Logical(nn.Layer):
    def forward(self, x, n):
        if n > 0 and x.mean() > 0:
            y = x + 1
        elif n == 0 or x.mean() > 2:
            y = x - 1
        else:
            y = x
        return y if n > 5 else y * 2


@net(X, N, runs=[[UP, i(6)], [DOWN, i(1)]])
class Undefined(nn.Layer):
    """One side leaves a variable without a value, which is then not read."""

    def forward(self, x, n):
        if n > 3:
            z = x * 2
            flag = paddle.ones([1], "int64")
        else:
            flag = paddle.zeros([1], "int64")
        if flag > 0:
            z = z + 1
        else:
            z = x
        return z


@net(X, N, runs=[[UP, i(3)], [DOWN, i(0)]])
class ElementOfList(nn.Layer):
    def forward(self, x, n):
        y = None
        if n > 1:
            y = x * 2
        else:
            y = x + 5
        z = [y, x]
        if n > 2:
            z[0] = x
        return z[0] + z[1]


@net(X, runs=BOTH)
class Cond(nn.Layer):
    def forward(self, x):
        return paddle.static.nn.cond(x.sum() > 0, lambda: (x + 1, x * 2), lambda: (x - 1, x * 3))


@net(X, N, runs=[[UP, i(1)], [DOWN, i(2)], [UP, i(3)], [UP, i(9)]])
class SwitchCase(nn.Layer):
    def forward(self, x, n):
        return paddle.static.nn.switch_case(n, {1: lambda: x + 1, 2: lambda: x * 2, 3: lambda: x - 1})


@net(X, runs=[[UP], [DOWN], [UP * 9]])
class Case(nn.Layer):
    def forward(self, x):
        m = x.mean()
        return paddle.static.nn.case([(m > 1, lambda: x + 1), (m > 0, lambda: x * 2)], default=lambda: x - 5)


@net(X, runs=BOTH)
class Known(nn.Layer):
    """Both the branch and the number of passes are known when the model is converted."""

    def forward(self, x):
        k = paddle.full([1], 3, "int64")
        if k > 2:
            y = x + 1
        else:
            y = x - 1
        j = paddle.full([1], 0, "int64")
        while j < k:
            y = y * 2
            j += 1
        return y


@net(X, runs=[[UP], [DOWN], [f(7, 3)]])
class ByShape(nn.Layer):
    def forward(self, x):
        if x.shape[0] > 2:
            y = x[:2]
        else:
            y = paddle.concat([x, x])
        while y.shape[0] < 6:
            y = paddle.concat([y, y])
        return y


@net(X, N, runs=[[UP, i(6)], [DOWN, i(3)]])
class LoopsInIf(nn.Layer):
    def forward(self, x, n):
        if x.sum() > 0:
            k = paddle.zeros([1], "int64")
            y = x
            while k < n:
                y = y * 1.5
                k = k + 1
        else:
            y = x
            for j in range(n):
                y = y - j.astype("float32")
        return y


@net(X, N, runs=[[UP, i(3)], [DOWN, i(0)]])
class Asserting(nn.Layer):
    def forward(self, x, n):
        assert n >= 0
        if n > 1:
            print(x)
            x = x + 1
        return x


@net(([None, 3, 8, 8], "float32", "x"), runs=[[np.abs(f(2, 3, 8, 8))], [-np.abs(f(1, 3, 8, 8))]])
class ConvInIf(nn.Layer):
    def __init__(self):
        super().__init__()
        self.a = nn.Sequential(nn.Conv2D(3, 4, 3, padding=1), nn.BatchNorm2D(4), nn.ReLU())
        self.b = nn.Sequential(nn.Conv2D(3, 4, 3, stride=2, padding=1), nn.BatchNorm2D(4))

    def forward(self, x):
        if x.mean() > 0:
            y = self.a(x)
        else:
            y = nn.functional.interpolate(self.b(x), scale_factor=2)
        return y.mean(axis=[2, 3])


@net(X, runs=[[UP], [DOWN], [f(3, 3)]])
class TwiceByOne(nn.Layer):
    """Two branches on one condition, one after the other."""

    def forward(self, x):
        c = x.mean() > 0
        if c:
            y = x + 1
        else:
            y = x - 1
        z = y * 2
        if c:
            w = z + y
        else:
            w = z - y
        return w, z
