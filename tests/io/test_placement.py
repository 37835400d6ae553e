"""Where the writer puts weights: in the file or beside it, without a copy of them in memory."""

from __future__ import annotations

import io
import tracemalloc
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from tests.io.harness import big, make_model, matmul_model, names, run
from tonnx.errors import TonnxError
from tonnx.io import write

# Placement


def test_external_on_request_is_aligned_and_small_tensors_stay_inside(tmp_path: Path) -> None:
    sizes = [10, 1000, 700, 300_000, 256]  # of float32: 1,200,000 bytes start on a page
    model = make_model(*(ir.Tensor(big(1, size)) for size in sizes))
    write.write(model, tmp_path / "m.onnx", external_data=True)
    entries = {
        tensor.name: {entry.key: entry.value for entry in tensor.external_data}
        for tensor in onnx.load(tmp_path / "m.onnx", load_external_data=False).graph.initializer
    }
    assert entries.pop("t0") == {}
    assert {entry["location"] for entry in entries.values()} == {"m.onnx.data"}
    assert [int(entry["length"]) for entry in entries.values()] == [4 * size for size in sizes[1:]]
    assert [int(entry["offset"]) for entry in entries.values()] == [0, 4032, 8192, 8192 + 1_200_000]
    onnx.checker.check_model(str(tmp_path / "m.onnx"))


@pytest.mark.parametrize("external_data", [None, False, True])
def test_over_the_limit(external_data: bool | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weight = big()
    monkeypatch.setattr(write, "MAX_SINGLE_FILE", 50_000)
    if external_data is False:
        with pytest.raises(TonnxError, match="too big"):
            write.write(matmul_model(weight), tmp_path / "m.onnx", external_data=False)
        assert names(tmp_path) == []
        return
    write.write(matmul_model(weight), tmp_path / "m.onnx", external_data=external_data)
    assert names(tmp_path) == ["m.onnx", "m.onnx.data"]
    assert (tmp_path / "m.onnx.data").stat().st_size == weight.nbytes
    run(tmp_path / "m.onnx", weight)


def test_under_the_limit_or_without_big_tensors_there_is_one_file(tmp_path: Path) -> None:
    write.write(matmul_model(big()), tmp_path / "m.onnx")
    write.write(matmul_model(big(4, 4)), tmp_path / "n.onnx", external_data=True)
    assert names(tmp_path) == ["m.onnx", "n.onnx"]


def test_file_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Short(io.RawIOBase):
        """Takes a few bytes at a time, as a raw file or a pipe may."""

        def __init__(self) -> None:
            self.data = bytearray()

        def writable(self) -> bool:
            return True

        def write(self, data: memoryview) -> int:  # type: ignore[override]
            self.data += data[:1000]
            return min(len(data), 1000)

    weight = big()
    model, short = matmul_model(weight), Short()
    buffer = io.BytesIO(b"before")
    buffer.seek(0, io.SEEK_END)
    size = write.write(model, buffer)
    data = buffer.getvalue().removeprefix(b"before")
    assert len(data) == size
    assert write.to_bytes(model) == data
    assert write.write(model, short) == size  # type: ignore[arg-type]
    assert short.data == data
    with open(tmp_path / "m.onnx", "wb") as file:
        write.write(model, file)
    assert (tmp_path / "m.onnx").read_bytes() == data
    run(data, weight)

    with pytest.raises(TonnxError, match="external data"):
        write.write(model, io.BytesIO(), external_data=True)
    with pytest.raises(TonnxError, match="text"):
        write.write(model, io.StringIO())  # type: ignore[arg-type]
    monkeypatch.setattr(write, "MAX_SINGLE_FILE", 1000)
    with pytest.raises(TonnxError, match="too big"):
        write.write(model, io.BytesIO())


@pytest.mark.parametrize("layout", ["contiguous", "transposed"])
@pytest.mark.parametrize("external_data", [False, True])
def test_no_copy_of_the_weights_is_made(layout: str, external_data: bool, tmp_path: Path) -> None:
    """numpy and Python count their memory in tracemalloc; protobuf does not, so the process counts too."""
    weights = [np.ones((2048, 4096), np.float32) for _ in range(2)]  # of 32 MiB
    model = make_model(*(ir.Tensor(weight.T if layout == "transposed" else weight) for weight in weights))
    write.write(make_model(ir.Tensor(big())), tmp_path / "warm.onnx")
    resident = reset_peak()
    tracemalloc.start()
    write.write(model, tmp_path / "m.onnx", external_data=external_data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * 2**20
    if resident is not None:
        assert peak_memory() - resident < 30 * 2**20


def peak_memory() -> int:
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def reset_peak() -> int | None:
    """Linux forgets the peak when 5 is written here; elsewhere tracemalloc has to do."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
        return peak_memory()
    except OSError:
        return None
