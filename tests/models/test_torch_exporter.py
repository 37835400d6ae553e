"""Files that PyTorch's own exporter wrote, retargeted far down and up. Long: `make test-models`."""

from __future__ import annotations

import contextlib
import io
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

import tonnx
from tests.models import zoo

pytestmark = pytest.mark.models

MODELS = ("resnet50", "vit_tiny_patch16_224", "convnext_tiny", "bert", "gpt2")
RELATIVE = 1e-5
"""Of the largest output: single numbers near 0 have no relative accuracy."""


def exported(example: zoo.Example, opset: int, path: Path) -> None:
    """By ``torch.onnx.export(dynamo=True)``, with dynamic dimensions."""
    pytest.importorskip("onnxscript")
    dynamic = {name: dict.fromkeys(axes, torch.export.Dim.DYNAMIC) for name, axes in example.dynamic.items()}
    args = tuple(torch.cat([x, x]) if x.shape[0] == 1 else x for x in example.args)  # a size of 1 is not dynamic there
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        torch.onnx.export(
            example.model,
            args,
            path,
            kwargs=example.kwargs,
            dynamic_shapes=dynamic,
            opset_version=opset,
            dynamo=True,
            verbose=False,
        )


def computed(path: Path, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    return list(onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, feeds))


@pytest.mark.parametrize("source", [18, 20])
@pytest.mark.parametrize("name", MODELS)
def test_files_of_torch(name: str, source: int, tmp_path: Path) -> None:
    example = zoo.example(name)
    original = tmp_path / "original.onnx"
    exported(example, source, original)
    written = onnx.load(original, load_external_data=False)
    assert {entry.version for entry in written.opset_import if entry.domain == ""} == {source}
    data = {file.name: file.stat().st_mtime_ns for file in tmp_path.iterdir()}
    tensors = {**dict(zip((x.name for x in written.graph.input), example.args, strict=False)), **example.kwargs}
    feeds = {x.name: tensors[x.name].numpy() for x in written.graph.input}
    wanted = computed(original, feeds)
    for opset in (11, 9, 24):
        out = tmp_path / f"opset{opset}.onnx"
        result = tonnx.retarget(original, opset, out, inputs=feeds, atol=zoo.atol(example))
        assert result.verification is not None and result.verification.ok
        made = onnx.load(out, load_external_data=False)
        assert {(entry.domain, entry.version) for entry in made.opset_import if entry.domain == ""} == {("", opset)}
        assert [x.name for x in made.graph.output] == [x.name for x in written.graph.output]
        for got, want in zip(computed(out, feeds), wanted, strict=True):
            assert np.abs(got - want).max() <= RELATIVE * np.abs(want).max(), f"{name} {source} → {opset}"
    assert all((tmp_path / file).stat().st_mtime_ns == time for file, time in data.items())
