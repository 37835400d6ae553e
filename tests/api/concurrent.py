"""Small models, and one export of each: for threads and processes, which import this."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tonnx


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.lstm(x)[0]


class Warped(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        theta = torch.eye(2, 3).expand(x.shape[0], 2, 3) * 0.9
        grid = F.affine_grid(theta, [x.shape[0], x.shape[1], 4, 4], align_corners=False)
        return F.grid_sample(x, grid, align_corners=False)


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        if x.sum() > 0:
            y = y * 2
        for row in range(x.shape[0]):
            y = y + row
        return y


class Convolved(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.drop = nn.Conv1d(3, 4, 3, padding=1), nn.BatchNorm1d(4), nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return F.max_pool1d(self.drop(self.norm(self.conv(x))), 2)


@torch.jit.script
def scripted(x: Tensor) -> Tensor:
    return x + 1 if bool(x.sum() > 0) else x - 1


MODELS: dict[str, tuple[Callable[[], Any], tuple[int, ...], list[int]]] = {
    "conv": (Convolved, (2, 3, 8), [0, 2]),
    "lstm": (Recurrent, (2, 5, 3), [0, 1]),
    "grid": (Warped, (2, 1, 5, 5), [0]),
    "branch": (Branching, (2, 3), [0]),
    "script": (lambda: scripted, (2, 3), [0]),
}


def export(name: str, model: Any = None, **options: Any) -> tonnx.ExportResult:
    """Export one of the models, in the way that it needs; the proof compares it with PyTorch."""
    make, shape, axes = MODELS[name]
    result = tonnx.export(model or make(), torch.rand(shape), dynamic_axes={"x": axes}, **options)
    assert result.verification is not None and result.verification.ok, name
    return result


def in_threads(jobs: list[Callable[[], Any]]) -> list[Any]:
    """All at once; what each gives, or the exception that it ends with."""
    results: list[Any] = [None] * len(jobs)
    start = threading.Barrier(len(jobs))

    def run(i: int) -> None:
        start.wait()
        try:
            results[i] = jobs[i]()
        except BaseException as error:
            results[i] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def all_in_threads() -> list[str]:
    """Export all models at once; what went wrong. The first exports of a process also register operators."""
    results = in_threads([lambda name=name: export(name) for name in MODELS])  # type: ignore[misc]
    return [repr(result) for result in results if not isinstance(result, tonnx.ExportResult)]
