"""Files cut off or with bits turned over: whatever is wrong with them, it is said as an error of tonnx's own."""

from __future__ import annotations

import io
import random
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, load_model_from_string, numpy_helper

import tonnx
from tonnx.errors import TonnxError


def _file() -> bytes:
    """A small one with attributes of several kinds, an initializer, documentation and metadata."""
    weight = numpy_helper.from_array(np.ones((3, 2), np.float32), "w")
    nodes = [
        helper.make_node("Constant", [], ["c"], value_floats=[1.0, 2.0], doc_string="pkg.torch.operator: aten.add"),
        helper.make_node("MatMul", ["x", "w"], ["t"], name="product"),
        helper.make_node("Add", ["t", "c"], ["u"]),
        helper.make_node("Softmax", ["u"], ["v"], axis=-1),
        helper.make_node("ReduceSum", ["v"], ["y"], keepdims=1),
    ]
    sizes = {"x": 3, "y": 1}
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size]) for name, size in sizes.items()]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def _harmed(data: bytes, seed: int) -> bytes:
    rng, harmed = random.Random(seed), bytearray(data)
    if seed % 4 == 0:
        return bytes(harmed[: rng.randrange(len(harmed))])
    for _ in range(rng.randrange(1, 4)):
        harmed[rng.randrange(len(harmed))] ^= 1 << rng.randrange(8)
    return bytes(harmed)


@pytest.mark.parametrize("seeds", range(0, 300, 50), ids=str)
@pytest.mark.filterwarnings("ignore")
def test_retarget(seeds: int, tmp_path: Path) -> None:
    data, refused = _file(), 0
    for seed in range(seeds, seeds + 50):
        path = tmp_path / f"{seed}.onnx"
        path.write_bytes(_harmed(data, seed))
        for source in (path, path.read_bytes()):
            try:
                tonnx.retarget(source, 11, verify=False)
            except TonnxError as error:
                refused += 1
                assert "fault of tonnx" not in str(error), f"seed {seed}: {error}"
    assert refused > 20


TEXTS = ("pkg.torch.operator", "product", "ReduceSum", "keepdims", "kept", "maker", "the reason")


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("use", [tonnx.report, tonnx.retarget, tonnx.load], ids=lambda use: use.__name__)
def test_texts_that_are_not_utf8(text: str, use: Any, tmp_path: Path) -> None:
    model = load_model_from_string(_file())
    model.producer_name = "maker"
    model.metadata_props.add(key="kept", value="the reason")
    data, path = model.SerializeToString(), tmp_path / "a.onnx"
    assert text.encode() in data
    path.write_bytes(data.replace(text.encode(), b"\xa0" * len(text)))
    try:
        use(path, *([11] if use is tonnx.retarget else [tmp_path / "page.html"] if use is tonnx.report else []))
    except TonnxError as error:
        assert "fault of tonnx" not in str(error)


@pytest.mark.filterwarnings("ignore")
def test_archives(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    class Layers(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[name-defined]
            return torch.nn.functional.relu(x.flatten(1)) * 2

    stream, path, refused = io.BytesIO(), tmp_path / "a.pt", 0
    torch.jit.save(torch.jit.script(Layers()), stream)
    data = stream.getvalue()
    with zipfile.ZipFile(stream) as archive:
        lines = next(member for member in archive.infolist() if member.filename.endswith(".debug_pkl"))
    middle = lines.header_offset + 30 + len(lines.filename) + lines.compress_size // 2
    path.write_bytes(data[:middle] + b"\xff\xff\xff" + data[middle + 3 :])
    with pytest.raises(tonnx.InvalidArgument, match=r"damaged: .*\.debug_pkl"):
        tonnx.export(path, (torch.ones(2, 3),), verify=False)
    for seed in range(40):
        # The table at the end, which names and places of members stand in; and all of the file.
        start = len(data) * 3 // 4 if seed % 2 else 0
        path.write_bytes(data[:start] + _harmed(data[start:], seed))
        try:
            tonnx.export(path, (torch.ones(2, 3),), verify=False)
        except TonnxError as error:
            refused += 1
            assert "fault of tonnx" not in str(error), f"seed {seed}: {error}"
    assert refused > 10
