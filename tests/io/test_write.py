"""The writer against onnx, ONNX Runtime and a parser of its own, over every dtype and kind of tensor."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from tests.io.harness import RNG, big, fields, make_model, matmul_model, names, run, values_of
from tonnx.io import write

NUMPY_TYPES = [
    np.float16, np.float32, np.float64, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32,
    np.uint64, np.bool_, np.complex64, np.complex128, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz, ml_dtypes.float8_e8m0fnu,
    ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.float4_e2m1fn, ml_dtypes.int2, ml_dtypes.uint2,
    ml_dtypes.float6_e2m3fn, ml_dtypes.float6_e3m2fn,
]  # fmt: skip
SHAPES = [(), (0,), (3, 0, 2), (1,), (5, 7), (7, 5), (3, 500)]


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
