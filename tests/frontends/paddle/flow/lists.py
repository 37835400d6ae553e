"""Lists of tensors: filled, read and changed inside and outside of loops and branches."""

from __future__ import annotations

import paddle
from paddle import nn
from paddle.tensor import array_length, array_read, array_write, create_array

from tests.frontends.paddle.flow.table import DOWN, STEPS, UP, N, X, f, i, net

SEQUENCES = [[f(2, 5, 3)], [f(3, 1, 3)]]


@net(STEPS, runs=SEQUENCES)
class Append(nn.Layer):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 4)

    def forward(self, x):
        outs = []
        for t in range(x.shape[1]):
            outs.append(self.a(x[:, t]))
        return paddle.stack(outs, axis=1)


@net(STEPS, runs=SEQUENCES)
class AppendConcat(nn.Layer):
    def forward(self, x):
        outs = []
        for t in range(paddle.shape(x)[1]):
            outs.append(x[:, t] * 2)
        return paddle.concat(outs, axis=1)


@net(([2, 4, 3], "float32", "x"), runs=[[f(2, 4, 3)]])
class AppendKnown(nn.Layer):
    def forward(self, x):
        outs = []
        for t in range(4):
            outs.append(x[:, t] * t)
        return paddle.stack(outs, axis=1), outs[2]


@net(X, N, runs=[[UP, i(5)], [DOWN, i(4)], [UP, i(1)]])
class AppendInIf(nn.Layer):
    def forward(self, x, n):
        outs = [x]
        for k in range(n):
            if k % 2 == 0:
                outs.append(x * k.astype("float32"))
        return paddle.concat(outs, axis=0)


@net(X, N, runs=[[UP, i(5)], [DOWN, i(4)], [UP, i(1)]])
class AppendShapes(nn.Layer):
    """Elements of different sizes: a sequence, from opset 13 on."""

    def forward(self, x, n):
        outs = [x]
        y = x
        k = paddle.zeros([1], "int64")
        while k < n:
            y = paddle.concat([y, x], axis=0)
            outs.append(y)
            k = k + 1
        return paddle.concat(outs, axis=0)


@net(STEPS, runs=SEQUENCES)
class TwoLists(nn.Layer):
    def forward(self, x):
        a, b = [], []
        for t in range(x.shape[1]):
            a.append(x[:, t])
            b.append(x[:, t].sum(axis=-1))
        return paddle.stack(a, 1) * 2, paddle.stack(b, 0), len(a) + paddle.zeros([1], "int64")


@net(STEPS, runs=[[f(2, 5, 3)], [f(3, 2, 3)]])
class ReadBackwards(nn.Layer):
    def forward(self, x):
        a = []
        for t in range(x.shape[1]):
            a.append(x[:, t] * 2)
        s = paddle.zeros_like(a[0])
        n = x.shape[1]
        for t in range(n):
            s = s * 0.5 + a[n - 1 - t]
        return s


@net(STEPS, runs=SEQUENCES)
class States(nn.Layer):
    """A list of a fixed length, whose elements a loop changes."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 3)

    def forward(self, x):
        states = [x[:, 0], x[:, 0] * 2]
        k = paddle.zeros([], "int64")
        while k < x.shape[1]:
            states[0] = self.a(states[1])
            states[1] = states[0] + x[:, k]
            k = k + 1
        return states[0], states[1]


@net(X, runs=[[UP], [DOWN]])
class Pop(nn.Layer):
    def forward(self, x):
        outs = [x, x + 1, x + 2]
        outs.append(x * 3)
        a = outs.pop()
        b = outs.pop(0)
        return a + b * 10 + outs[0] * 100, outs[-1]


@net(X, N, runs=[[UP, i(4)], [DOWN, i(3)], [DOWN, i(0)]])
class Array(nn.Layer):
    def forward(self, x, n):
        k = paddle.zeros([1], "int64")
        array = create_array("float32")
        array_write(x, k, array)
        while k < n:
            k = k + 1
            array_write(x * 2, k, array)
        return array_read(array, k), array_length(array)


@net(X, runs=[[UP], [DOWN]])
class ArrayKnown(nn.Layer):
    def forward(self, x):
        array = create_array("float32")
        for j in range(3):
            array_write(x * (j + 1), paddle.full([1], j, "int64"), array)
        return array_read(array, paddle.full([1], 1, "int64")) + 1, array_length(array)


@net(X, N, runs=[[UP, i(5)], [DOWN, i(4)], [UP, i(0)]])
class Fibonacci(nn.Layer):
    """Each element is made of the two before it."""

    def forward(self, x, n):
        k = paddle.full([1], 1, "int64")
        array = create_array("float32")
        array_write(x, paddle.full([1], 0, "int64"), array)
        array_write(x * 2, paddle.full([1], 1, "int64"), array)
        while k < n:
            a = array_read(array, k)
            b = array_read(array, k - 1)
            k = k + 1
            array_write(a + b, k, array)
        return array_read(array, k)


@net(X, N, runs=[[UP, i(2)], [DOWN, i(0)], [UP, i(1)]])
class Overwrite(nn.Layer):
    """An element that is chosen at run time is replaced."""

    def forward(self, x, n):
        array = create_array("float32")
        for j in range(3):
            array_write(x * j, paddle.full([1], j, "int64"), array)
        array_write(x + 7, n, array)
        k = paddle.zeros([1], "int64")
        s = x * 0
        while k < 3:
            s = s * 2 + array_read(array, k)
            k = k + 1
        return s, array_read(array, n)


@net(X, N, runs=[[UP, i(3)], [DOWN, i(1)]])
class AppendInTwoLoops(nn.Layer):
    def forward(self, x, n):
        outs, inner = [], []
        for a in range(n):
            s = x
            for b in range(a + 1):
                s = s * 2 + b.astype("float32")
                inner.append(s + 1)
            outs.append(s)
        return paddle.stack(outs, axis=0), paddle.stack(inner, axis=1)


@net(X, N, runs=[[UP, i(3)], [DOWN, i(0)], [UP, i(1)]])
class AppendInBothSides(nn.Layer):
    def forward(self, x, n):
        a = [x]
        if n > 1:
            a.append(x + 1)
            a.append(x + 2)
        else:
            a.append(x - 1)
        return paddle.concat(a, axis=0), a[1]


@net(X, N, runs=[[UP, i(3)], [DOWN, i(0)]])
class CarriedArray(nn.Layer):
    """The loop names the array among what it carries."""

    def forward(self, x, n):
        k = paddle.full([1], 0, "int64")
        array = array_write(x, k, create_array("float32"))

        def body(k, array):
            v = array_read(array, k)
            k = k + 1
            return [k, array_write(v * 2, k, array)]

        k, array = paddle.static.nn.while_loop(lambda k, array: k < n, body, [k, array])
        return array_read(array, k), array_length(array)
