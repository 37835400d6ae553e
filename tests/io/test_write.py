"""The writer against onnx, ONNX Runtime and a parser of its own, over every dtype, placement and failure."""

from __future__ import annotations

import io
import os
import stat
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from tonnx.errors import TonnxError
from tonnx.io import write

RNG = np.random.default_rng(0)


def make_model(*tensors: ir.TensorProtocol, ir_version: int = 10) -> ir.Model:
    """x -> Identity -> y, with the tensors as initializers t0, t1, …"""
    x = ir.val("x", ir.DataType.FLOAT, ["n", 4])
    node = ir.node("Identity", [x], name="copy", outputs=[ir.val("y", ir.DataType.FLOAT, ["n", 4])])
    values = [
        ir.Value(name=f"t{i}", type=ir.TensorType(tensor.dtype), shape=tensor.shape, const_value=tensor)
        for i, tensor in enumerate(tensors)
    ]
    graph = ir.Graph(
        [x], node.outputs, nodes=[node], initializers=values, opset_imports={"": 18}, name="main"
    )
    return ir.Model(graph, ir_version=ir_version, producer_name="tonnx", metadata_props={"k": "v"})


def matmul_model(weight: np.ndarray | ir.TensorProtocol) -> ir.Model:
    """x @ w, so that a runtime's result depends on the weight's bytes."""
    tensor = ir.Tensor(weight) if isinstance(weight, np.ndarray) else weight
    rows, columns = tensor.shape.numpy()
    x = ir.val("x", ir.DataType.FLOAT, ["n", rows])
    w = ir.Value(name="w", type=ir.TensorType(tensor.dtype), shape=tensor.shape, const_value=tensor)
    node = ir.node("MatMul", [x, w], outputs=[ir.val("y", ir.DataType.FLOAT, ["n", columns])])
    graph = ir.Graph([x], node.outputs, nodes=[node], initializers=[w], opset_imports={"": 18}, name="main")
    return ir.Model(graph, ir_version=8)


def big(rows: int = 256, columns: int = 128) -> np.ndarray:
    return RNG.standard_normal((rows, columns)).astype(np.float32)


def run(path: str | Path | bytes, weight: np.ndarray) -> None:
    """ONNX Runtime computes with exactly this weight."""
    session = ort.InferenceSession(path if isinstance(path, bytes) else str(path))
    x = RNG.standard_normal((3, weight.shape[0])).astype(np.float32)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], x @ weight, rtol=1e-3, atol=1e-3)


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def fields(data: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Protobuf's wire format, read by hand: (number, content)."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value

    while at < len(data):
        number, kind = divmod(varint(), 8)
        if kind == 0:
            yield number, varint()
        else:
            assert kind == 2
            length = varint()
            assert at + length <= len(data)
            yield number, data[at : at + length]
            at += length
    assert at == len(data)


NUMPY_TYPES = [
    np.float16, np.float32, np.float64, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32,
    np.uint64, np.bool_, np.complex64, np.complex128, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz, ml_dtypes.float8_e8m0fnu,
    ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.float4_e2m1fn, ml_dtypes.int2, ml_dtypes.uint2,
    ml_dtypes.float6_e2m3fn, ml_dtypes.float6_e3m2fn,
]  # fmt: skip
SHAPES = [(), (0,), (3, 0, 2), (1,), (5, 7), (7, 5), (3, 500)]


def values_of(dtype: type, shape: tuple[int, ...]) -> np.ndarray:
    return RNG.integers(0, 2, shape).astype(np.float32).astype(dtype)


@pytest.mark.parametrize("external", [False, True])
@pytest.mark.parametrize("dtype", NUMPY_TYPES, ids=lambda dtype: dtype.__name__)
def test_every_dtype_and_shape(dtype: type, external: bool, tmp_path: Path) -> None:
    """onnx-ir's own encoding is the oracle: same bytes in every TensorProto; it reads the values back."""
    arrays = [values_of(dtype, shape) for shape in SHAPES]
    arrays.append(values_of(dtype, (6, 9)).T)  # a view that is not contiguous
    model = make_model(*map(ir.Tensor, arrays), ir_version=13)
    path = tmp_path / "m.onnx"
    total = write.write(model, path, external_data=external)
    assert total == sum(file.stat().st_size for file in tmp_path.iterdir())

    loaded = onnx.load(path)
    for tensor, array in zip(loaded.graph.initializer, arrays, strict=True):
        assert tuple(tensor.dims) == array.shape
        assert tensor.raw_data == ir.Tensor(array).tobytes()
    for value, array in zip(ir.load(path).graph.initializers.values(), arrays, strict=True):
        assert value.const_value is not None
        back = value.const_value.numpy()
        assert back.dtype == array.dtype
        np.testing.assert_array_equal(back.astype(np.complex128), array.astype(np.complex128))


def test_strings(tmp_path: Path) -> None:
    texts = np.array([["a", "", "größe"], ["x" * 2000, "é", "z"]])
    expected = [text.encode() for text in texts.ravel()]
    lazy = ir.LazyTensor(lambda: ir.tensor(texts), dtype=ir.DataType.STRING, shape=ir.Shape(texts.shape))
    empty = ir.StringTensor([], shape=ir.Shape([0]))
    model = make_model(ir.tensor(texts), ir.Tensor(texts), lazy, empty)
    write.write(model, tmp_path / "m.onnx", external_data=True)
    tensors = onnx.load(tmp_path / "m.onnx").graph.initializer
    assert [list(tensor.string_data) for tensor in tensors] == [expected] * 3 + [[]]
    assert not any(tensor.HasField("raw_data") for tensor in tensors)
    assert names(tmp_path) == ["m.onnx"]


def sources(tmp_path: Path) -> dict[str, Callable[[np.ndarray], ir.TensorProtocol]]:
    def external(array: np.ndarray) -> ir.ExternalTensor:
        (tmp_path / "source.bin").write_bytes(b"pad" + array.tobytes())
        return ir.ExternalTensor(
            "source.bin", 3, array.nbytes, ir.DataType.FLOAT, shape=ir.Shape(array.shape), name="",
            base_dir=str(tmp_path),
        )  # fmt: skip

    def mapped(array: np.ndarray) -> ir.ExternalTensor:
        tensor = external(array)
        tensor.numpy()
        return tensor

    def torch_tensor(array: np.ndarray) -> ir.TensorProtocol:
        import torch
        from onnx_ir import tensor_adapters

        parameter = torch.nn.Parameter(torch.from_numpy(array.T.copy()))
        return tensor_adapters.TorchTensor(parameter.T)

    return {
        "numpy": ir.Tensor,
        "transposed": lambda array: ir.Tensor(array.T.copy().T),
        "strided": lambda array: ir.Tensor(np.repeat(array, 2, axis=1)[:, ::2]),
        "broadcast": lambda array: ir.Tensor(np.broadcast_to(array[:1], array.shape)),
        "proto": lambda array: ir.serde.deserialize_tensor(onnx.numpy_helper.from_array(array)),
        "proto_floats": lambda array: ir.serde.deserialize_tensor(
            onnx.helper.make_tensor("", onnx.TensorProto.FLOAT, array.shape, array.ravel())
        ),
        "lazy": lambda array: ir.LazyTensor(
            lambda: ir.Tensor(array), dtype=ir.DataType.FLOAT, shape=ir.Shape(array.shape)
        ),
        "external": external,
        "mapped": mapped,
        "torch": torch_tensor,
    }


@pytest.mark.parametrize("external_data", [False, True])
@pytest.mark.parametrize("source", sources(Path()))
def test_every_kind_of_tensor(source: str, external_data: bool, tmp_path: Path) -> None:
    weight = big()
    if source == "broadcast":
        weight = np.broadcast_to(weight[:1], weight.shape)
    model = matmul_model(sources(tmp_path)[source](weight))
    write.write(model, tmp_path / "m.onnx", external_data=external_data)
    onnx.checker.check_model(str(tmp_path / "m.onnx"), full_check=True)
    loaded = onnx.load(tmp_path / "m.onnx")
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(loaded.graph.initializer[0]), weight)
    run(tmp_path / "m.onnx", weight)


@pytest.mark.parametrize("shape", [(1, 3, 50, 70), (40, 1, 70), (2, 900), (900, 2)])
def test_views_that_are_copied_in_pieces(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "_CHUNK", 256)
    array = big(1, int(np.prod(shape))).reshape(shape)
    tensors = [ir.Tensor(array.T), ir.Tensor(array[..., ::-1]), ir.Tensor(array.astype(ml_dtypes.int4).T)]
    loaded = onnx.load_from_string(write.to_bytes(make_model(*tensors)))
    assert [tensor.raw_data for tensor in loaded.graph.initializer] == [t.tobytes() for t in tensors]


def test_packed_4bit() -> None:
    packed = ir.PackedTensor(RNG.integers(0, 256, 50).astype(np.uint8), ir.DataType.UINT4, shape=[9, 11])
    loaded = onnx.load_from_string(write.to_bytes(make_model(packed)))
    assert loaded.graph.initializer[0].raw_data == packed.tobytes()


def test_the_rest_equals_onnx_ir_and_there_is_one_graph_field() -> None:
    model = make_model(ir.Tensor(big(), doc_string="doc", metadata_props={"m": "1"}), ir.Tensor(big()))
    weight = model.graph.initializers["t0"]
    weight.metadata_props["origin"] = "layer"
    weight.meta["quant_parameter_tensor_names"] = {"SCALE_TENSOR": "t1"}
    model.graph.node("copy").metadata_props["tonnx.module"] = "m.layer"
    data = write.to_bytes(model)

    expected = ir.to_proto(model)
    del expected.graph.value_info[:]  # type and shape of an initializer are in its tensor…
    ir.serde.serialize_value_into(expected.graph.value_info.add(), weight)  # …but not its metadata
    assert onnx.load_from_string(data) == expected

    top = list(fields(data))
    assert [number for number, _ in top].count(7) == 1
    graph = next(content for number, content in top if number == 7)
    assert isinstance(graph, bytes)
    assert [number for number, _ in fields(graph)].count(5) == 2


def test_the_callers_model_is_not_changed(tmp_path: Path) -> None:
    shared = ir.Tensor(big(), name="its own name")
    model = make_model(shared, shared)
    before = str(model)
    write.write(model, tmp_path / "m.onnx", external_data=True)
    assert str(model) == before
    assert shared.name == "its own name"
    assert all(value.const_value is shared for value in model.graph.initializers.values())
    assert all(value.graph is model.graph for value in model.graph.initializers.values())


@pytest.mark.parametrize("ir_version", [8, 10])
def test_metadata_needs_ir_version_10(ir_version: int) -> None:
    model = make_model(ir.Tensor(big(), metadata_props={"a": "b"}), ir_version=ir_version)
    node, value = model.graph.node("copy"), model.graph.inputs[0]
    node.metadata_props.update({"tonnx.module": "net.layer", "tonnx.source": "net.py:7", "other": "x"})
    value.metadata_props["a"] = model.graph.metadata_props["a"] = "b"
    loaded = onnx.load_from_string(write.to_bytes(model))
    onnx.checker.check_model(loaded, full_check=True)
    graph = loaded.graph
    holders = [graph, graph.node[0], graph.input[0], graph.initializer[0]]
    assert [bool(holder.metadata_props) for holder in holders] == [ir_version == 10] * 4
    assert graph.node[0].doc_string == ("module: net.layer\nsource: net.py:7" if ir_version < 10 else "")
    assert loaded.metadata_props[0].value == "v"  # the model's own exist in every version
    assert node.metadata_props
    assert not node.doc_string


def external_in_subgraph(folder: Path) -> ir.Model:
    """An If whose branches hold tensors in a file: one as Constant attribute, one as initializer."""
    (folder / "source.bin").write_bytes(np.arange(8, dtype=np.float32).tobytes())

    def tensor(name: str, offset: int) -> ir.ExternalTensor:
        return ir.ExternalTensor(
            "source.bin", offset, 16, ir.DataType.FLOAT, shape=ir.Shape([4]), name=name, base_dir=str(folder)
        )

    a, b = ir.val("a", ir.DataType.FLOAT, [4]), ir.val("b", ir.DataType.FLOAT, [4])
    constant = ir.node("Constant", [], {"value": tensor("", 0)}, outputs=[a])
    initializer = ir.Value(
        name="w", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([4]), const_value=tensor("w", 16)
    )
    identity = ir.node("Identity", [initializer], outputs=[b])
    identity.metadata_props["tonnx.module"] = "inner"
    then = ir.Graph([], constant.outputs, nodes=[constant], name="then")
    other = ir.Graph([], identity.outputs, nodes=[identity], initializers=[initializer], name="else")
    condition = ir.val("c", ir.DataType.BOOL, [])
    choose = ir.node(
        "If",
        [condition],
        {"then_branch": then, "else_branch": other},
        outputs=[ir.val("y", ir.DataType.FLOAT, [4])],
    )
    graph = ir.Graph([condition], choose.outputs, nodes=[choose], opset_imports={"": 18}, name="main")
    return ir.Model(graph, ir_version=8)


def test_external_tensors_of_subgraphs_and_attributes_are_embedded(tmp_path: Path) -> None:
    data = write.to_bytes(external_in_subgraph(tmp_path))
    assert b"tonnx.module" not in data
    assert b"module: inner" in data
    session = ort.InferenceSession(data)
    assert session.run(None, {"c": np.array(True)})[0].tolist() == [0, 1, 2, 3]
    assert session.run(None, {"c": np.array(False)})[0].tolist() == [4, 5, 6, 7]


def test_functions_are_written() -> None:
    x = ir.val("fx", ir.DataType.FLOAT, [4])
    node = ir.node("Relu", [x], metadata_props={"tonnx.module": "f"})
    body = ir.Graph([x], node.outputs, nodes=[node], opset_imports={"": 18})
    model = make_model()
    model.functions[("mine", "F", "")] = ir.Function("mine", "F", graph=body, attributes=[])
    model.graph.opset_imports["mine"] = 1
    model.ir_version = 8
    loaded = onnx.load_from_string(write.to_bytes(model))
    assert loaded.functions[0].name == "F"
    assert loaded.functions[0].node[0].doc_string == "module: f"


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


# Staging


def failing() -> ir.LazyTensor:
    def fail() -> ir.TensorProtocol:
        raise RuntimeError("no values today")

    return ir.LazyTensor(fail, dtype=ir.DataType.FLOAT, shape=ir.Shape([64, 64]))


def wrong_size() -> ir.LazyTensor:
    return ir.LazyTensor(lambda: ir.Tensor(big(8, 8)), dtype=ir.DataType.FLOAT, shape=ir.Shape([64, 64]))


def missing_file() -> ir.ExternalTensor:
    return ir.ExternalTensor("nowhere", 0, 16384, ir.DataType.FLOAT, shape=ir.Shape([64, 64]), name="")


@pytest.mark.parametrize("external_data", [False, True])
@pytest.mark.parametrize(
    ("tensor", "why"), [(failing, "no values today"), (wrong_size, "256 bytes"), (missing_file, "nowhere")]
)
def test_a_failure_in_the_middle_leaves_the_older_file(
    tensor: Callable[[], ir.TensorProtocol], why: str, external_data: bool, tmp_path: Path
) -> None:
    path = tmp_path / "m.onnx"
    weight = big()
    write.write(matmul_model(weight), path, external_data=external_data)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(TonnxError, match="initializer 't1'") as caught:
        write.write(make_model(ir.Tensor(big()), tensor()), path, external_data=external_data)
    assert why in str(caught.value.why)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    run(path, weight)


def test_what_cannot_be_encoded_says_so(tmp_path: Path) -> None:
    model = make_model(ir.Tensor(big()))
    model.graph.initializers["t0"].const_value = None
    with pytest.raises(TonnxError, match="'t0' has no value"):
        write.to_bytes(model)
    model = make_model()
    model.graph.node("copy").attributes["broken"] = ir.Attr("broken", ir.AttributeType.SPARSE_TENSOR, 1)
    with pytest.raises(TonnxError, match="could not be encoded") as caught:
        write.to_bytes(model)
    assert len(str(caught.value)) < 300


def test_staging(tmp_path: Path) -> None:
    weight = big()
    path = tmp_path / "m.onnx"
    with write.Staged(path) as staged:
        staged.write(matmul_model(weight))
        assert staged.path.name == "m.onnx"
        assert staged.path.parent.parent == tmp_path
        run(staged.path, weight)
        assert not path.exists()
    assert names(tmp_path) == []
    with write.Staged(path) as staged, write.Staged(path) as second:
        staged.write(matmul_model(weight), external_data=True)
        staged.write(matmul_model(weight))  # a second time, now without data
        second.write(matmul_model(big()))
        staged.commit()
    assert names(tmp_path) == ["m.onnx"]
    run(path, weight)


@pytest.mark.parametrize("external_data", [False, True])
def test_commit_under_another_name(external_data: bool, tmp_path: Path) -> None:
    weight = big()
    with write.Staged(tmp_path / "m.onnx") as staged:
        staged.write(matmul_model(weight), external_data=external_data)
        staged.commit_as(tmp_path / "m.failed.onnx")
    assert names(tmp_path) == ["m.failed.onnx"] + ["m.failed.onnx.data"] * external_data
    run(tmp_path / "m.failed.onnx", weight)


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("external_data", [False, True])
def test_rewriting_a_model_over_its_own_data_file(external_data: bool, linked: bool, tmp_path: Path) -> None:
    """The tensors come from the file that is replaced, and stay right afterwards, also at other offsets."""
    path, data = tmp_path / "m.onnx", tmp_path / "m.onnx.data"
    int4, empty = values_of(ml_dtypes.int4, (99, 101)), values_of(np.int8, (0, 3))
    arrays = [big(), big(1, 100), int4, big(512, 600), empty]
    ir.save(make_model(*map(ir.Tensor, arrays)), path, external_data=data.name, size_threshold_bytes=0)
    if linked:
        data.rename(tmp_path / "blob")
        data.symlink_to("blob")
    model = ir.load(path)
    values = list(model.graph.initializers.values())
    old = values[0].const_value
    values[3].const_value.numpy()  # type: ignore[union-attr]  # one is mapped already
    write.write(model, path, external_data=external_data)
    write.write(model, tmp_path / "again.onnx", external_data=external_data)
    if not external_data:
        data.unlink()  # an older export's, left alone; nothing refers to it any more
    for written in (path, tmp_path / "again.onnx"):
        for tensor, array in zip(onnx.load(written).graph.initializer, arrays, strict=True):
            assert tensor.raw_data == ir.Tensor(array).tobytes()
    if external_data:
        assert values[0].const_value is not old
        with pytest.raises(ValueError, match="invalidated"):
            old.numpy()  # type: ignore[union-attr]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
def test_permissions_follow_the_umask_or_the_older_file(tmp_path: Path) -> None:
    path, data = tmp_path / "m.onnx", tmp_path / "m.onnx.data"
    old = os.umask(0o027)
    try:
        write.write(matmul_model(big()), path, external_data=True)
    finally:
        os.umask(old)
    assert [stat.S_IMODE(file.stat().st_mode) for file in (path, data)] == [0o640, 0o640]
    path.chmod(0o604)
    write.write(matmul_model(big()), path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o604


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_stays_and_its_target_is_written(exists: bool, tmp_path: Path) -> None:
    weight = big()
    folder, link = tmp_path / "real", tmp_path / "m.onnx"
    folder.mkdir()
    if exists:
        (folder / "target.onnx").write_bytes(b"old")
    link.symlink_to("real/target.onnx")
    write.write(matmul_model(weight), link)
    assert link.is_symlink()
    assert names(folder) == ["target.onnx"]
    run(link, weight)
    with pytest.raises(TonnxError, match="link"):  # no reader would find the data file
        write.write(matmul_model(weight), link, external_data=True)
    run(link, weight)
    beside = folder / "beside.onnx"
    beside.symlink_to("target.onnx")
    write.write(matmul_model(weight), beside, external_data=True)
    run(beside, weight)


def test_paths_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TonnxError, match="missing") as caught:
        write.Staged(tmp_path / "missing" / "m.onnx")
    assert "does not exist" in str(caught.value.why)
    (tmp_path / "folder.onnx").mkdir()
    for path in (tmp_path / "folder.onnx", *([] if os.name == "nt" else [Path("/dev/null")])):
        with pytest.raises(TonnxError, match="cannot write") as caught:
            write.Staged(path)
        assert "not a regular file" in str(caught.value.why)

    def refuse(*_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    with pytest.raises(TonnxError, match=r"cannot write .*m\.onnx") as caught:
        write.write(matmul_model(big()), tmp_path / "m.onnx")
    assert caught.value.why == "Permission denied"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, mode: str) -> io.BufferedWriter:
        return open("/dev/full", "wb")

    monkeypatch.setattr(write, "open", full, raising=False)
    with pytest.raises(TonnxError, match=r"cannot write .*m\.onnx") as caught:
        write.write(matmul_model(big()), tmp_path / "m.onnx")
    assert "No space left" in str(caught.value.why)
    assert names(tmp_path) == []
