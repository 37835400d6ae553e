"""Loops: over numbers and tensors, with break, continue and return, carrying what grows and what is not defined yet."""

# ruff: noqa: SIM108 - statements are what Paddle traces here

from __future__ import annotations

import paddle
from paddle import nn

from tests.frontends.paddle.flow.table import DOWN, FIXED, STEPS, UP, N, X, f, i, net


@net(X, N, runs=[[UP, i(3)], [DOWN, i(0)], [UP, i(1)]])
class ForRange(nn.Layer):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 3)

    def forward(self, x, n):
        for k in range(n):
            x = self.a(x) + k.astype("float32")
        return x


@net(X, N, runs=[[UP, i(3)], [DOWN, i(0)], [UP, i(7)]])
class While(nn.Layer):
    def forward(self, x, n):
        k = paddle.zeros([1], "int64")
        total = x
        while k < n:
            if paddle.mean(total) > 0:
                total = total - x * 2.0
            else:
                total = total + x
            k = k + 1
        return total, k


@net(X, N, runs=[[UP, i(10)], [DOWN, i(10)], [UP * 0.1, i(3)], [UP, i(0)]])
class Break(nn.Layer):
    def forward(self, x, n):
        y = x
        k = paddle.zeros([1], "int64")
        while k < n:
            k = k + 1
            y = y + x
            if y.sum() > 10:
                break
        return y, k


@net(X, N, runs=[[UP, i(10)], [DOWN, i(5)]])
class Continue(nn.Layer):
    def forward(self, x, n):
        y = x
        for k in range(n):
            if k % 2 == 0:
                continue
            y = y + x * k.astype("float32")
        return y


@net(X, N, runs=[[UP, i(6)], [DOWN, i(4)], [UP, i(2)]])
class ReturnInLoop(nn.Layer):
    def forward(self, x, n):
        y = x
        for _ in range(n):
            y = y + x
            if y.sum() > 6:
                return y * 10
        return y - 1


@net(X, N, runs=[[UP, i(4)], [DOWN, i(3)], [DOWN, i(0)]])
class NestedLoops(nn.Layer):
    def forward(self, x, n):
        total = paddle.zeros([1], "float32")
        for a in range(n):
            for b in range(a + 1):
                total = total + x.sum() * b.astype("float32")
        return total


@net(X, N, runs=[[UP, i(6)], [DOWN, i(3)]])
class NestedBreaks(nn.Layer):
    def forward(self, x, n):
        s = paddle.zeros([1], "float32")
        a = paddle.zeros([1], "int64")
        while a < n:
            b = paddle.zeros([1], "int64")
            while b < n:
                b = b + 1
                if b > a:
                    break
                if b == 2:
                    continue
                s = s + x.sum() * b.astype("float32")
            a = a + 1
            if s > 100:
                break
        return s, a


@net(X, N, runs=[[UP, i(4)], [DOWN, i(3)], [DOWN, i(1)]])
class Grow(nn.Layer):
    def forward(self, x, n):
        out = x
        k = paddle.zeros([1], "int64")
        while k < n:
            out = paddle.concat([out, x * 2], axis=0)
            k = k + 1
        return out


@net(FIXED, N, runs=[[UP, i(3)], [-UP, i(0)]])
class GrowFixed(nn.Layer):
    """The program calls the sizes of what grows fixed."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 4)

    def forward(self, x, n):
        out = x * 1
        k = paddle.zeros([1], "int64")
        while k < n:
            out = paddle.concat([out, x * 2], axis=0)
            k = k + 1
        return self.a(out), paddle.shape(out)[0] * 2, out.reshape([-1, 1]), out.flatten()


@net(STEPS, runs=[[f(2, 5, 3)], [f(3, 1, 3)]])
class ForRow(nn.Layer):
    def forward(self, x):
        s = paddle.zeros([3], "float32")
        for row in x:
            s = s * 0.5 + row.sum(axis=0)
        return s


@net(X, N, runs=[[UP, i(6)], [DOWN, i(3)]])
class Steps(nn.Layer):
    def forward(self, x, n):
        s = x
        for k in range(1, n, 2):
            s = s + k.astype("float32")
        return s


@net(X, N, runs=[[UP, i(3)], [DOWN, i(0)]])
class WhileLoop(nn.Layer):
    def forward(self, x, n):
        k = paddle.full([1], 0, "int64")
        _, y = paddle.static.nn.while_loop(lambda k, y: k < n, lambda k, y: [k + 1, y * 2 + x], [k, x])
        return y


@net(X, runs=[[UP], [DOWN], [UP * 100]])
class ByData(nn.Layer):
    def forward(self, x):
        steps = paddle.zeros([], "int32")
        while paddle.abs(x).sum() < 100:
            x = x * 2
            steps += 1
        return x, steps


@net(X, N, runs=[[UP, i(6)], [DOWN, i(2)]])
class DefinedInLoop(nn.Layer):
    def forward(self, x, n):
        k = paddle.zeros([1], "int64")
        while k < n:
            z = x * k.astype("float32")
            k = k + 1
        return z + 1


@net(X, runs=[[UP], [DOWN]])
class ManyPasses(nn.Layer):
    """How many is known, but too many to write them all down."""

    def forward(self, x):
        k = paddle.zeros([1], "int64")
        while k < 500:
            x = x * 1.001 + 0.01
            k = k + 1
        return x, k


@net(([None, 4, 3], "float32", "x"), N, runs=[[f(2, 4, 3), i(4)], [f(1, 4, 3), i(2)]])
class WriteInLoop(nn.Layer):
    def forward(self, x, n):
        y = paddle.zeros_like(x)
        for k in range(n):
            y[:, k] = x[:, k] * 2
        return y


@net(X, N, runs=[[UP, i(6)], [DOWN, i(3)]])
class Carried(nn.Layer):
    """A dictionary, a tuple and a flag."""

    def forward(self, x, n):
        state = {"a": x, "b": x * 2}
        pair = (x, x + 1)
        going = paddle.ones([1], "bool")
        k = paddle.zeros([1], "int32")
        while going:
            state["a"] = state["a"] + state["b"]
            pair = (pair[1], pair[0])
            k = k + 1
            going = k < n.astype("int32")
        return state["a"], pair[0], k


@net(X, N, runs=[[UP, i(3)], [DOWN, i(0)]])
class Numbers(nn.Layer):
    """Numbers of Python that become tensors in the loop."""

    def forward(self, x, n):
        s, c, k = 0.0, 0, 0
        while k < n:
            s = s + x.sum()
            c = c + 2
            k = k + 1
        return x * s + c


@net(STEPS, N, runs=[[f(2, 5, 3), i(3)], [f(1, 2, 3), i(0)]])
class RecurrentInLoop(nn.Layer):
    def __init__(self):
        super().__init__()
        self.a, self.c = nn.LSTM(3, 3), nn.GRUCell(3, 3)

    def forward(self, x, n):
        h = x[:, 0]
        k = paddle.zeros([1], "int64")
        while k < n:
            x, (states, _) = self.a(x)
            _, h = self.c(h, states[0])
            k = k + 1
        return x, h


@net(X, runs=[[UP], [DOWN], [f(5, 3)]])
class Largest(nn.Layer):
    def forward(self, x):
        best, where = paddle.full([1], -1e9), paddle.full([1], -1, "int64")
        for k in range(x.shape[0]):
            v = x[k].sum().reshape([1])
            if v > best:
                best = v
                where = paddle.full([1], 0, "int64") + k
        return best, where


@net(X, runs=[[UP], [DOWN]])
class KnownInKnown(nn.Layer):
    """Both numbers of passes are known: the inner loop is written down, the outer one not any more."""

    def forward(self, x):
        a = paddle.zeros([1], "int64")
        while a < 30:
            b = paddle.zeros([1], "int64")
            while b < 10:
                x = x * 0.99 + b.astype("float32") * 0.01
                b = b + 1
            a = a + 1
        return x
