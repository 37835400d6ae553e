"""Still more programs: what a border changes about who holds what, lists at run time, texts, whole algorithms."""

# ruff: noqa: C419, UP004, UP006, UP031, UP032, UP035, UP045, SIM114 (what TorchScript understands)

from __future__ import annotations

import math
from typing import List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor, nn

from tests.frontends.torch.script.harness import Program
from tests.frontends.torch.script.programs import BATCH, MINUS, MIXED, MORE, PLUS

ALL = [(PLUS,), (MINUS,), (MIXED,), (MORE,), (PLUS[:1],)]


def branch(x: Tensor, k: int) -> Tensor:
    if x.sum() > 0:
        return x * k
    return x - k


def forked(x: Tensor):
    fs: List[torch.jit.Future[Tensor]] = []
    for k in range(3):
        fs.append(torch.jit.fork(branch, x, k))
    a = torch.jit.fork(branch, -x, 7)
    return [torch.jit.wait(f) for f in fs], torch.jit.wait(a)


def optional_in_loop(x: Tensor):
    best: Optional[Tensor] = None
    at: Optional[int] = None
    for i in range(x.size(0)):
        r = x[i]
        if best is None:
            best = r
            at = i
        elif bool(r.sum() > best.sum()):
            best = r
            at = i
    assert best is not None
    assert at is not None
    return best, at


def written_data(x: Tensor):
    y = x * 2
    y.data[0] = 5.0
    return y, x.data.sum()


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mem", torch.zeros(4))
        self.count = 0

    def forward(self, x: Tensor) -> Tuple[Tensor, Tensor, int]:
        for i in range(x.size(0)):
            if x[i].sum() > 0:
                self.mem = self.mem * 0.9 + x[i]
                self.count += 1
            else:
                self.mem.mul_(0.5)
        return x + self.mem, self.mem, self.count


def of_lists(x: Tensor):
    s = [x.size(0), x.size(1), int(x.max()), -3]
    f = [float(x.max()), 0.5]
    srt = sorted(s)
    return (
        min(s),
        max(s),
        sum(s),
        min(x.size(0), 2),
        max(2, x.size(0), int(x.sum())),
        srt[0],
        srt[-1],
        any([x.size(0) > 2, False]),
        all([x.size(0) > 2, bool(x.sum() > 0)]),
        min(f),
        max(f),
        sum(f),
        len(s),
        s.index(-3),
        s.count(4),
        (-3) in s,
    )


def list_methods(x: Tensor):
    q = [3, 1, x.size(0)]
    q.insert(1, 9)
    q.extend([7, 8])
    v = q.pop()
    w = q.pop(0)
    i = q.index(9)
    q.sort()
    q.reverse()
    z = q.copy()
    q.remove(9)
    q[0] = 100
    del q[1]
    z += [1]
    z2 = z + q
    q.clear()
    y = [1, 2, 3, 4, 5]
    return v, w, i, z[0], z2, len(q), y[1:3], y[::-1], y[::2], [0] * 3, y == [1, 2, 3, 4, 5]


def list_tensor_state(x: Tensor):
    st = [torch.zeros(4), torch.zeros(4)]
    for i in range(x.size(0)):
        k = i % 2
        st[k] = st[k] + x[i]
        if x[i].sum() < 0:
            st[1 - k] = st[k]
    return st


def texts(x: Tensor):
    s = "left,right"
    parts = s.split(",")
    t = x
    for q in parts:
        if q.startswith("l"):
            t = t + 1
        elif q.upper() == "RIGHT":
            t = t * 2
    name = "{}-{}".format("a", 3)
    if name == "a-3" and "ab" + "c" == "abc" and len(name) == 3 and "%d" % 3 == "3":
        t = t + 5
    return t


def ragged_lists(x: Tensor):
    rows: List[Tensor] = []
    lens: List[int] = []
    for i in range(x.size(0)):
        r = x[i][x[i] > 0]
        if r.numel() == 0:
            continue
        rows.append(r)
        lens.append(r.numel())
    if len(rows) == 0:
        return torch.zeros(0), torch.zeros(0, dtype=torch.long)
    return torch.cat(rows), torch.tensor(lens)


def math_functions(x: Tensor):
    n = x.size(0)
    a = math.sqrt(n) + math.log(n + 1) + math.exp(-n) + math.pow(n, 2) + math.sin(n) + math.cos(0.5 * n) + math.tanh(n)
    b = math.floor(n / 2) + math.ceil(n / 2)
    c = (
        math.log10(n + 3)
        + math.atan2(n, 2.0)
        + math.asinh(n)
        + math.log1p(n)
        + math.erf(n)
        + math.radians(n)
        + math.fabs(-n)
        if n > 0
        else 0.0
    )
    d = math.fmod(n, 2.5) + math.copysign(2.0, -n) + math.degrees(1.0 * n) + math.pi * n + math.e
    return x * a, b, c, d, math.isnan(a), math.isinf(a)


def mask_writes(x: Tensor):
    y = x.clone()
    y[x > 0] = -1.0
    y[x < -4] = x.sum()
    idx = torch.nonzero(x.sum(1) > 0)[:, 0]
    y[idx] = y[idx] * 2
    z = x.clone()
    z[x > 0] += 3
    z[(x > 2) & (x < 5)] = z[(x > 2) & (x < 5)].flip(0)
    w = x.clone()
    w[:, torch.tensor([True, False, True, False])] = 0
    return y, z, w


class Result(NamedTuple):
    a: Tensor
    n: int
    rest: List[Tensor]


def named_with_list(x: Tensor):
    a = x
    n = 0
    if x.sum() > 0:
        a = x * 2
        n = x.size(0)
    return Result(a, n, [x[0], x.sum(1)])


def list_or_write(x: Tensor):
    xs = [x * 1, x * 2]
    d = {"a": x * 3}
    if x.sum() > 0:
        xs[1] = x * 5
        d["a"] = x + 1
    else:
        xs[0].mul_(2)
        d["a"].add_(7)
    return xs[0], xs[1], d["a"]


def list_appended_or_written(x: Tensor):
    xs = [x * 1]
    if x.sum() > 0:
        xs.append(x * 5)
    else:
        xs[0].mul_(2)
    return torch.cat(xs)


def view_or_write(x: Tensor):
    a = x * 1
    v = a[0]
    if x.sum() > 0:
        a[0] = 3
    elif x.max() > 5:
        v[1] = -9
    else:
        a.mul_(2)
    return a, v


@torch.jit.script
class Best(object):
    def __init__(self):
        self.t = torch.zeros(4)
        self.parts: List[Tensor] = []
        self.best = torch.jit.annotate(Optional[Tensor], None)

    def add(self, r: Tensor) -> bool:
        self.t += r
        self.parts.append(r * 2)
        b = self.best
        if b is None:
            self.best = r
            return True
        if bool(r.sum() > b.sum()):
            self.best = r
            return True
        return False


def accumulators(x: Tensor):
    acc = Best()
    n = 0
    for i in range(x.size(0)):
        if acc.add(x[i]):
            n += 1
    b = acc.best
    assert b is not None
    return acc.t, torch.stack(acc.parts), b, n


def sorted_at_run_time(x: Tensor):
    ks = [int(x[0, 0]), 5, x.size(0), 9]
    ks.sort()
    a = ks[0]
    ks.sort(reverse=True)
    ls: List[float] = []
    for i in range(x.size(0)):
        ls.append(float(x[i].sum()))
    s = sorted(ls)
    ls.sort(reverse=bool(x.sum() > 0))
    return (
        a,
        ks,
        ls[0],
        s[0],
        torch.tensor(s),
        s[-1],
        max(ls),
        min(ls),
        sum(ls),
        len(ls),
        any([v > 0 for v in ls]),
        all([v > 0 for v in ls]),
    )


def popped_at_run_time(x: Tensor):
    ks = [1, 2, 3, 4]
    k = 1 if x.sum() > 0 else 2
    v = ks.pop(k)
    ks.insert(k, 50)
    ks.remove(4)
    return v, ks, len(ks)


def while_on_list_length(x: Tensor):
    q = [0]
    visited: List[int] = []
    while len(q) > 0 and len(visited) < 6:
        v = q.pop(0)
        visited.append(v)
        if v * 2 + 1 < x.size(0) * 2:
            q.append(v * 2 + 1)
        if v * 2 + 2 < x.size(0) * 2:
            q.append(v * 2 + 2)
    return torch.tensor(visited), len(q)


def str_format_known(x: Tensor):
    d = {"k_0": x, "k_1": x * 2, "k_2": x * 3}
    t = torch.zeros(4)
    for i in range(3):
        t = t + d["k_{}".format(i)].sum(0) + d[f"k_{i}"].sum(0) + d["k_" + str(i)].sum(0) + d["k_%d" % i].sum(0)
    return t


def halve(x: Tensor):
    y = torch.cat([x, x, x, x])
    n = 0
    while y.size(0) > 1:
        h = y.size(0) // 2
        rest = y[2 * h :]
        y = y[:h] + y[h : 2 * h]
        if rest.size(0) > 0:
            y = torch.cat([y, rest])
        n += 1
    return y, n


def knapsack(x: Tensor):
    cap = 8
    best = torch.zeros(cap + 1)
    for i in range(x.size(0)):
        w = int(x[i, 0].abs()) % 4 + 1
        v = x[i, 1]
        for c in range(cap, w - 1, -1):
            cand = best[c - w] + v
            if cand > best[c]:
                best[c] = cand
    return best


def ctc_greedy(x: Tensor):
    ids = x.argmax(1)
    prev = -1
    out: List[int] = []
    for i in range(ids.size(0)):
        k = int(ids[i])
        if k != prev and k != 0:
            out.append(k)
        prev = k
    return torch.tensor(out, dtype=torch.long), len(out)


def bool_list(x: Tensor):
    f: List[bool] = []
    for i in range(x.size(0)):
        f.append(bool(x[i].sum() > 0))
    return any(f), all(f), torch.tensor(f), f[0], f[-1], f.count(True)


def known_before_grown(x: Tensor) -> Tuple[Tensor, int]:
    rows: List[Tensor] = []
    sizes: List[int] = []
    for i in range(x.size(0)):
        rows.append(x[i] * i)
        sizes.append(i)
    first, counts = [x[0], x[0] + 1], [7, 8]
    return torch.stack(first + rows), sum(counts + sizes)


def grown_in_a_branch(x: Tensor) -> int:
    """A list of unknown length that one side makes and then changes: what it is at the end counts."""
    if x.sum() > 0:
        sizes = list(range(x.size(0)))
        sizes.append(40)
    else:
        sizes = [1, 2]
    return sum(sizes)


def none_again(x: Tensor) -> Tensor:
    """None, then perhaps a tensor, then perhaps None again."""
    last: Optional[Tensor] = None
    total = x[0] * 0
    for i in range(x.size(0)):
        if last is not None:
            total = total + last
        if x[i].sum() > 0:
            last = x[i]
        elif i > 1:
            last = None
    return total if last is None else total + last


PROGRAMS: dict[str, Program] = {
    "none_again": Program(none_again, ALL, BATCH, has=("Loop", "If")),
    "known_before_grown": Program(known_before_grown, ALL, BATCH, has=("Loop",)),
    "grown_in_a_branch": Program(grown_in_a_branch, ALL, BATCH, has=("If",)),
    "forked": Program(forked, ALL, BATCH),
    "optional_in_loop": Program(optional_in_loop, ALL, BATCH),
    "written_data": Program(written_data, ALL, BATCH),
    "Counting": Program(Counting, ALL, BATCH),
    "of_lists": Program(of_lists, ALL, BATCH),
    "list_methods": Program(list_methods, ALL, BATCH),
    "list_tensor_state": Program(list_tensor_state, ALL, BATCH),
    "texts": Program(texts, ALL, BATCH),
    "ragged_lists": Program(ragged_lists, ALL, BATCH, lowest=13),
    "math_functions": Program(math_functions, ALL, BATCH),
    "mask_writes": Program(mask_writes, ALL, BATCH),
    "named_with_list": Program(named_with_list, ALL, BATCH),
    "list_or_write": Program(list_or_write, ALL, BATCH),
    "list_appended_or_written": Program(list_appended_or_written, ALL, BATCH),
    "view_or_write": Program(view_or_write, ALL, BATCH),
    "accumulators": Program(accumulators, ALL, BATCH),
    "sorted_at_run_time": Program(sorted_at_run_time, ALL, BATCH),
    "popped_at_run_time": Program(popped_at_run_time, ALL, BATCH),
    "while_on_list_length": Program(while_on_list_length, ALL, BATCH),
    "str_format_known": Program(str_format_known, ALL, BATCH),
    "halve": Program(halve, ALL, BATCH),
    "knapsack": Program(knapsack, ALL, BATCH),
    "ctc_greedy": Program(ctc_greedy, ALL, BATCH),
    "bool_list": Program(bool_list, ALL, BATCH),
}
