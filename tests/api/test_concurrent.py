"""Several exports at once, in odd places, and interrupted: right files, and afterwards everything is as it was."""

from __future__ import annotations

import asyncio
import linecache
import logging
import multiprocessing
import random
import signal
import sys
import threading
import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import tonnx
from tests.api.concurrent import Branching, Convolved, Recurrent, all_in_threads, export, in_threads
from tonnx.errors import CaptureError
from tonnx.frontends import patching
from tonnx.frontends.patching import ABSENT, How
from tonnx.frontends.torch.capture.explain import Frozen
from tonnx.frontends.torch.capture.patches.table import FOREIGN, OF_TORCH_EXPORT
from tonnx.frontends.torch.reference.mode import FAST_PATH, NO_DROPOUT

fork = pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork on this system")
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded", "ignore:.*torch.jit.*deprecated")


def state(*models: nn.Module) -> dict[str, Any]:
    """All that an export may change for a while, by name."""
    found: dict[str, Any] = {}
    for patch in (*FOREIGN, *OF_TORCH_EXPORT, *NO_DROPOUT, *Frozen().patches(), FAST_PATH):
        if (owner := patch.resolved()) is not ABSENT:
            held = getattr(owner, patch.name).__code__ if patch.how is How.CODE else vars(owner).get(patch.name)
            found[str(patch)] = held
    for i, model in enumerate(models):
        found[f"flags {i}"] = [module.training for module in model.modules()]
        found[f"attributes {i}"] = [sorted(vars(module)) for module in model.modules()]
        found[f"state {i}"] = [value.tolist() for value in model.state_dict().values()]
        found[f"code {i}"] = type(model).forward.__code__
    found |= {
        "changes": list(patching._changes),
        "locked": patching.patched_here(),
        "gradients": torch.is_grad_enabled(),
        "dtype": torch.get_default_dtype(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "random": torch.get_rng_state().tolist(),
        "random of python": random.getstate(),
        "random of numpy": np.random.get_state()[1].tolist(),  # type: ignore[union-attr, index]
        "warnings": list(warnings.filters),
        "stderr": sys.stderr,
        "filters": list(logging.getLogger("torch.export._trace").filters),
        "exporting": torch.onnx.is_in_onnx_export(),
        "handler": signal.getsignal(signal.SIGINT),
    }
    return found


def is_unchanged(before: dict[str, Any], *models: nn.Module) -> None:
    after = state(*models)
    assert [name for name in before if before[name] != after[name]] == []


# Threads


def test_all_models_at_once_in_a_fresh_process() -> None:
    """Spawned: the operators are not registered there yet, and nothing is imported."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply_async(all_in_threads).get(timeout=500) == []


def test_all_models_at_once() -> None:
    before = state()
    assert all_in_threads() == []
    is_unchanged({**before, "random": torch.get_rng_state().tolist()})  # the inputs are drawn


def test_one_model_in_two_threads() -> None:
    model = Convolved().train()
    before = state(model)
    waited: list[str] = []
    results = in_threads(
        [
            lambda: export("conv", model, progress=waited.append),
            lambda: export("conv", model, progress=waited.append),
            lambda: export("conv", model, training="TRAINING", progress=waited.append),
        ]
    )
    assert [type(result) for result in results] == [tonnx.ExportResult] * 3, results
    kinds = [{node.op_type for node in result.model.graph} for result in results]
    assert ["Dropout" in ops for ops in kinds] == [False, False, True]
    assert waited.count("wait") >= 1
    is_unchanged({**before, "random": torch.get_rng_state().tolist()}, model)


def test_inference_beside_exports() -> None:
    """A thread that only runs models meets PyTorch's own functions, and its own code, all the time."""
    models: list[tuple[nn.Module, Tensor]] = [
        (Recurrent().eval(), torch.rand(2, 5, 3)),
        (Convolved().eval(), torch.rand(2, 3, 8)),
        (Branching().eval(), torch.rand(2, 3)),
    ]
    with torch.no_grad():
        expected = [model(x) for model, x in models]
    stop, problems, runs = threading.Event(), [], [0]

    def infer() -> None:
        while not stop.is_set() and not problems:
            for (model, x), answer in zip(models, expected, strict=True):
                try:
                    with torch.no_grad():
                        now = model(x)
                    # torch.export itself switches oneDNN off for the process: the last digit may differ.
                    right = type(now) is Tensor and torch.allclose(now, answer, atol=1e-6)
                    if not right or torch.onnx.is_in_onnx_export():
                        problems.append(model)
                except Exception as error:  # whatever it is, it is ours
                    problems.append(error)
            runs[0] += 1

    thread = threading.Thread(target=infer)
    thread.start()
    try:
        for name in ("lstm", "conv", "branch"):
            export(name)
    finally:
        stop.set()
        thread.join()
    assert problems == [] and runs[0] > 3


# Loops and cells


def test_inside_a_running_loop() -> None:
    async def main() -> list[tonnx.ExportResult]:
        here = export("branch")
        return [here, *await asyncio.gather(*(asyncio.to_thread(export, name) for name in ("lstm", "grid")))]

    assert len(asyncio.run(main())) == 3


CELL = '''
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return torch.relu(x)
        return x - 1

class Wrong(torch.nn.Module):
    def forward(self, x):
        return x * len(bytes(int(x.sum())))
'''


@pytest.mark.parametrize("file", ["<ipython-input-7-0a1b2c3d4e5f>", "<python-input-3>"])
def test_in_a_cell(file: str) -> None:
    """As notebooks and prompts do it: no file, the source is known to `linecache`, and a loop is running."""
    main = types.ModuleType("__main__")
    linecache.cache[file] = (len(CELL), None, CELL.splitlines(True), file)

    async def cell() -> tonnx.ExportResult:
        exec(compile(CELL, file, "exec"), vars(main))
        return tonnx.export(main.Net(), torch.ones(2, 3), dynamic_axes={"x": [0]})

    try:
        result = asyncio.run(cell())
        assert result.verification is not None and result.verification.ok
        (branch,) = [node for node in result.model.graph if node.op_type == "If"]
        sources = {
            node.metadata_props.get("tonnx.source", "")
            for side in branch.attributes.values()
            for node in side.as_graph()
        }
        assert f"{file}:7" in sources, sources
        with pytest.raises(CaptureError) as caught:
            tonnx.export(main.Wrong(), torch.ones(2))
        assert str(caught.value.where).startswith(f"{file}:12: return x * len(bytes(int(x.sum())))")
    finally:
        del linecache.cache[file]


# Processes


def _worker(queue: Any) -> None:
    torch.set_num_threads(1)
    before = state()
    queue.put([name for name in ("lstm", "branch") if not export(name)])
    queue.put([key for key, value in state().items() if key != "random" and before[key] != value])


def _forked() -> list[Any]:
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=_worker, args=(queue,))
    process.start()
    try:
        answers = [queue.get(timeout=200), queue.get(timeout=200)]
        process.join(60)
        return [*answers, process.exitcode]
    finally:
        process.kill()


@fork
def test_forked_after_an_export() -> None:
    export("lstm")
    assert _forked() == [[], [], 0]


class Waits(nn.Module):
    """Stops in the middle of its capture."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 4)
        object.__setattr__(self, "events", (threading.Event(), threading.Event()))

    def forward(self, x: Tensor) -> Tensor:
        inside, go_on = self.events
        inside.set()
        assert go_on.wait(300)
        return self.lstm(x)[0]


@fork
def test_forked_in_the_middle_of_another_threads_export() -> None:
    model, answers = Waits(), []
    thread = threading.Thread(target=lambda: answers.append(tonnx.export(model, torch.rand(2, 3))))
    thread.start()
    assert model.events[0].wait(200)
    try:
        assert _forked() == [[], [], 0]
    finally:
        model.events[1].set()
        thread.join()
    assert answers[0].verification.ok


# Ctrl-C

LIBRARY = torch.library.Library("tonnx_concurrent", "FRAGMENT")
LIBRARY.define("twice(Tensor x) -> Tensor")
LIBRARY.impl("twice", lambda x: x * 2, "CPU")
torch.library.register_fake("tonnx_concurrent::twice", lambda x: torch.empty_like(x), lib=LIBRARY)
TWICE = torch.ops.tonnx_concurrent.twice


class Interrupted(nn.Module):
    """Ctrl-C at one of its runs: the capture, the look at other sizes, the reference of the proof."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.branching, self.lstm, self.drop = Branching(), nn.LSTM(3, 3), nn.Dropout(0.5)
        self.left, self.runs = [at], []

    def forward(self, x: Tensor) -> Tensor:
        COUNT.append(x)
        if len(COUNT) == self.left[0]:
            raise KeyboardInterrupt
        y = self.lstm(self.branching(self.drop(x)))[0]
        if y.sum() > 0:
            y = TWICE(y)
        return y


COUNT: list[Any] = []


def _rule(op: Any, x: Any) -> Any:
    return x * 2.0


def _interrupts(op: Any, x: Any) -> Any:
    raise KeyboardInterrupt


def _at_stage(stage: str) -> Callable[[str], None]:
    def progress(name: str) -> None:
        if name == stage:
            raise KeyboardInterrupt

    return progress


INTERRUPTS: dict[str, tuple[int, dict[str, Any]]] = {
    **{f"run {at}": (at, {}) for at in (1, 2, 3, 4, 5, 6)},
    "rule": (0, {"custom_translation_table": {TWICE: _interrupts}}),
    **{stage: (0, {"progress": _at_stage(stage)}) for stage in ("capture", "lower", "optimise", "legalise", "verify")},
    "script": (1, {"capture": "trace"}),
    "training": (4, {"training": "TRAINING"}),
}


@pytest.mark.parametrize("where", INTERRUPTS)
def test_interrupted(where: str) -> None:
    at, options = INTERRUPTS[where]
    model, x = Interrupted(at).train(), torch.rand(2, 3)
    COUNT.clear()
    options = {"custom_translation_table": {TWICE: _rule}, **options}
    if options.get("capture") == "trace":
        del options["custom_translation_table"]
    before = state(model)
    with pytest.raises(KeyboardInterrupt):
        tonnx.export(model, x, dynamic_axes={"x": [0]}, **options)
    is_unchanged(before, model)


# One inside another


def test_an_export_inside_a_rule() -> None:
    inner: list[tonnx.ExportResult] = []

    def rule(op: Any, x: Any) -> Any:
        inner.append(export("lstm"))
        return x * 2.0

    class Outer(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return TWICE(x) if x.sum() > 0 else x

    before = state()
    result = tonnx.export(Outer(), torch.ones(2, 3), custom_translation_table={TWICE: rule})
    assert result.verification is not None and result.verification.ok and inner
    is_unchanged({**before, "random": torch.get_rng_state().tolist()})


def test_an_export_inside_a_model() -> None:
    """A model that exports another one as it runs, with the outer capture's patches and without."""
    inner: list[Any] = []

    class Outer(Branching):
        def forward(self, x: Tensor) -> Tensor:
            with torch.utils._python_dispatch._disable_current_modes():
                inner.append(tonnx.export(Branching(), torch.ones(2, 3), dynamic_axes={"x": [0]}, verify=False))
            return super().forward(x)

    model = Outer()
    before = state(model)
    result = tonnx.export(model, torch.ones(2, 3), dynamic_axes={"x": [0]}, verify="quick")  # each run exports
    assert result.verification is not None and result.verification.ok
    assert len({str([node.op_type for node in one.model.graph]) for one in inner}) == 1
    is_unchanged({**before, "random": torch.get_rng_state().tolist()}, model)


