"""Small whole models: attention, a recogniser of text in pictures, decoders that go on until they are done."""

from __future__ import annotations

import numpy as np
import paddle
from paddle import nn

from tests.frontends.paddle.flow.table import N, f, i, net

WORDS = ([None, None, 8], "float32", "x")


def picture(count: int, width: int) -> np.ndarray:
    return np.round(f(count, 3, 32, width), 1)  # few different values: they take little room


@net(WORDS, runs=[[f(2, 5, 8)], [f(1, 3, 8)]])
class MultiHeadAttention(nn.Layer):
    def __init__(self):
        super().__init__()
        self.a = nn.MultiHeadAttention(8, 2)

    def forward(self, x):
        return self.a(x, x, x)


@net(
    WORDS,
    ([None, 1, None, None], "float32", "mask"),
    runs=[
        [f(2, 5, 8), np.where(f(2, 1, 5, 5) > -0.5, 0, -1e9).astype("float32")],
        [f(1, 3, 8), np.zeros((1, 1, 3, 3), "float32")],
    ],
)
class TransformerEncoder(nn.Layer):
    def __init__(self):
        super().__init__()
        self.a = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 2)
        self.b = nn.TransformerEncoderLayer(8, 4, 16, activation="gelu", normalize_before=True)

    def forward(self, x, mask):
        return self.b(self.a(x, mask))


@net(WORDS, ([None, None, 8], "float32", "y"), runs=[[f(2, 5, 8), f(2, 3, 8)], [f(1, 2, 8), f(1, 4, 8)]])
class Transformer(nn.Layer):
    def __init__(self):
        super().__init__()
        self.a = nn.Transformer(8, 2, 1, 1, 16)

    def forward(self, x, y):
        n = paddle.shape(y)[1]
        mask = paddle.triu(paddle.full([n, n], -1e9, "float32"), 1)
        return self.a(x, y, None, mask, None)


@net(WORDS, runs=[[f(2, 3, 8)], [f(1, 5, 8)]])
class DecoderSteps(nn.Layer):
    """A decoder with caches, three steps."""

    def __init__(self):
        super().__init__()
        self.a = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16), 1)

    def forward(self, x):
        cache = self.a.gen_cache(x)
        y = x[:, :1]
        outs = []
        for _ in range(3):
            y, cache = self.a(y, x, None, None, cache)
            outs.append(y)
        return paddle.concat(outs, axis=1)


@net(WORDS, N, runs=[[f(2, 5, 8), i(4)], [f(1, 3, 8), i(1)]])
class DecoderLoop(nn.Layer):
    """As many steps as the input says: the caches grow in a loop."""

    def __init__(self):
        super().__init__()
        self.a = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16), 2)
        self.emb, self.out = nn.Embedding(12, 8), nn.Linear(8, 12)

    def forward(self, x, n):
        cache = self.a.gen_cache(x)
        token = paddle.ones([paddle.shape(x)[0], 1], "int64")
        tokens = token * 1
        k = paddle.zeros([1], "int64")
        while k < n:
            y, cache = self.a(self.emb(token), x, None, None, cache)
            token = paddle.argmax(self.out(y), axis=-1)
            tokens = paddle.concat([tokens, token], axis=1)
            k = k + 1
        return tokens


@net(([None, 3, 32, None], "float32", "image"), runs=[[picture(1, 24)], [picture(2, 40)]])
class CRNN(nn.Layer):
    def __init__(self):
        super().__init__()

        def block(inputs, outputs, *pool):
            conv = nn.Conv2D(inputs, outputs, 3, padding=1, bias_attr=False)
            return nn.Sequential(conv, nn.BatchNorm2D(outputs), nn.ReLU(), nn.MaxPool2D(*pool))

        self.features = nn.Sequential(
            block(3, 4, 2, 2), block(4, 6, 2, 2), block(6, 8, (2, 1), (2, 1)), nn.Conv2D(8, 8, (4, 1)), nn.ReLU()
        )
        self.lstm = nn.LSTM(8, 6, num_layers=2, direction="bidirect")
        self.head = nn.Linear(12, 11)

    def forward(self, x):
        y = self.features(x).squeeze(2).transpose([0, 2, 1])
        y, _ = self.lstm(y)
        return nn.functional.softmax(self.head(y), axis=2)


@net(([None, None, 6], "float32", "x"), N, runs=[[f(2, 5, 6), i(6)], [f(1, 3, 6), i(2)], [f(3, 3, 6), i(12)]])
class Greedy(nn.Layer):
    """One token after another, until the limit or until all rows have ended."""

    def __init__(self):
        super().__init__()
        self.enc, self.emb, self.cell, self.out = nn.GRU(6, 8), nn.Embedding(10, 8), nn.GRUCell(8, 8), nn.Linear(8, 10)

    def forward(self, x, n):
        _, h = self.enc(x)
        h = h[0]
        token = paddle.full([paddle.shape(x)[0]], 1, "int64")
        tokens = token.unsqueeze(1)
        done = token == 0
        k = paddle.zeros([1], "int64")
        while k < n:
            _, h = self.cell(self.emb(token), h)
            token = paddle.argmax(self.out(h), axis=-1)
            tokens = paddle.concat([tokens, token.unsqueeze(1)], axis=1)
            done = paddle.logical_or(done, token == 3)
            k = k + 1
            if paddle.all(done):
                break
        return tokens, h


@net(([None, 8], "float32", "x"), runs=[[f(2, 8)], [f(1, 8)]])
class BeamSearch(nn.Layer):
    def __init__(self):
        super().__init__()
        emb, out, cell = nn.Embedding(10, 8), nn.Linear(8, 10), nn.GRUCell(8, 8)
        self.parts = nn.LayerList([emb, out, cell])
        self.decoder = nn.BeamSearchDecoder(cell, 0, 1, beam_size=2, embedding_fn=emb, output_fn=out)

    def forward(self, x):
        out, _ = nn.dynamic_decode(self.decoder, inits=x, max_step_num=4)
        return out


@net(
    ([None, None], "int64", "ids"),
    N,
    runs=[[np.array([[1, 5, 2, 8], [0, 3, 3, 7]]), i(4)], [np.array([[6, 4]]), i(2)]],
)
class Generate(nn.Layer):
    """A language model that goes on writing: everything about a step depends on how far it is."""

    def __init__(self):
        super().__init__()
        self.words, self.places, self.out = nn.Embedding(9, 8), nn.Embedding(32, 8), nn.Linear(8, 9)
        self.block = nn.TransformerEncoderLayer(8, 2, 16, normalize_before=True)

    def forward(self, ids, n):
        k = paddle.zeros([1], "int64")
        score = paddle.zeros([paddle.shape(ids)[0]], "float32")
        while k < n:
            length = paddle.shape(ids)[1]
            h = self.words(ids) + self.places(paddle.arange(length))
            mask = paddle.triu(paddle.full([length, length], -1e9), 1)
            logits = self.out(self.block(h, mask)[:, -1])
            best, chosen = paddle.topk(nn.functional.log_softmax(logits), 1)
            score = score + best.squeeze(-1)
            ids = paddle.concat([ids, chosen], axis=1)
            k = k + 1
        return ids, score


@net(([None], "int64", "x"), runs=[[i(1, 1, 2, 0, 2, 2, 3, 0)], [i(0, 0)], [i(5)]])
class CTC(nn.Layer):
    """Repeats and blanks are left out: a loop in which only some passes add something."""

    def forward(self, x):
        out = paddle.full([1], -1, "int64")
        last = paddle.full([1], 0, "int64")
        for k in range(x.shape[0]):
            t = x[k].reshape([1])
            if t != 0 and t != last:
                out = paddle.concat([out, t])
            last = t
        return out
