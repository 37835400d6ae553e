"""int8 stored as uint8: the same numbers, and nothing left that a kernel which adds pairs in 16 bits cuts off."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from torch import nn
from torch.ao import quantization as aq

import tonnx
from tonnx.io import read as reading
from tonnx.io import write
from tonnx.passes.unsigned import store_unsigned
from tonnx.proof.session import Session, check_model

pytestmark = pytest.mark.filterwarnings("ignore")
RNG = np.random.default_rng(0)
INT8, UINT8, FLOAT, INT32 = TensorProto.INT8, TensorProto.UINT8, TensorProto.FLOAT, TensorProto.INT32

WEIGHT = RNG.integers(-128, 128, (4, 4)).astype(np.int8)
# Pairs fit from row to row, not within a row.
FITS = np.array([[100, 100, 90, -9], [20, 28, -120, 127], [-100, 64, 1, 2], [5, 64, 2, 126]], np.int8)
FILTER = RNG.integers(80, 128, (2, 4, 1, 1)).astype(np.int8)
CONSTANTS = {
    "w": WEIGHT, "fits": FITS, "turned": FITS.T.copy(),
    "filter": FILTER, "deep": np.full((4, 1, 3, 3), 120, np.int8),
    "s": np.float32(0.02), "z": np.int8(0), "minus": np.int8(-3), "ub": np.uint8(100),
    "steps": np.linspace(0.01, 0.04, 4, dtype=np.float32), "zeros": np.zeros(4, np.int8), "low": np.int8(-100),
    "high": np.int8(90), "rows": np.array([2, 0]), "yes": np.array(True), "three": np.int64(3), "s2": np.ones(2, "f"),
}  # fmt: skip


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, ["" if name == "-" else name for name in inputs.split()], outputs.split(), **attributes)


def file(
    nodes: list[onnx.NodeProto], x: tuple[int, list[int]], outputs: dict[str, int], functions: Any = (), **more: Any
) -> onnx.ModelProto:
    used = {name for one in _all(nodes) for name in one.input}
    constants = [numpy_helper.from_array(np.asarray(a), n) for n, a in {**CONSTANTS, **more}.items() if n in used]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", *x)],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()], constants,
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=list(functions))


def _all(nodes: Any) -> Iterator[onnx.NodeProto]:
    for one in nodes:
        yield one
        for attribute in one.attribute:
            yield from _all(attribute.g.node)


def body(nodes: list[onnx.NodeProto], inputs: dict[str, int], outputs: dict[str, int]) -> onnx.GraphProto:
    infos = [
        [helper.make_tensor_value_info(name, kind, [3, 4] if kind == FLOAT else []) for name, kind in some.items()]
        for some in (inputs, outputs)
    ]
    return helper.make_graph(nodes, "body", *infos)


def q(inputs: str, output: str) -> onnx.NodeProto:
    return node("QuantizeLinear", inputs, output)


def d(inputs: str, output: str, **attributes: Any) -> onnx.NodeProto:
    return node("DequantizeLinear", inputs, output, **attributes)


def mul(inputs: str, output: str) -> onnx.NodeProto:
    return node("MatMul", inputs, output)


QUANTIZED = [q("x s minus", "q"), d("q s minus", "d")]
REAL = (FLOAT, [3, 4])
INNER = [
    helper.make_node("Constant", [], ["cw"], value=numpy_helper.from_array(WEIGHT)),
    d("cw s", "cd"),
]
LOOP = body(
    [d("w s z", "d"), mul("h d", "more"), node("Identity", "go", "still")],
    {"i": TensorProto.INT64, "go": TensorProto.BOOL, "h": FLOAT}, {"still": TensorProto.BOOL, "more": FLOAT},
)  # fmt: skip
FUNCTION = helper.make_function(
    "own", "Layer", ["a", "s"], ["b"], [
        helper.make_node("Constant", [], ["cw"], value=numpy_helper.from_array(WEIGHT)),
        helper.make_node("Constant", [], ["cz"], value=numpy_helper.from_array(np.int8(0))),
        d("cw s cz", "cd"), mul("a cd", "b"),
    ], [helper.make_opsetid("", 21)],
)  # fmt: skip

# name: the file, how many tensors become uint8, which int8 are left
CASES: dict[str, tuple[onnx.ModelProto, int, set[str]]] = {
    "weights": (file([d("w s z", "d"), mul("x d", "y")], REAL, {"y": FLOAT}), 1, set()),
    "no zero point": (file([d("w s", "d"), mul("x d", "y")], REAL, {"y": FLOAT}), 1, set()),
    "by channel": (
        file([d("w steps zeros", "d", axis=0), mul("x d", "y")], REAL, {"y": FLOAT}),
        1, set()),
    "by channel, no zero points": (
        file([d("w steps", "d", axis=1), mul("x d", "y")], REAL, {"y": FLOAT}), 1, set()),
    "activations": (file([*QUANTIZED, node("Relu", "d", "y")], REAL, {"y": FLOAT}), 1, set()),
    "a range of their own": (
        file([q("x s z", "q"), node("Clip", "q low high", "c"), d("c s z", "y")],
             REAL, {"y": FLOAT}), 2, set()),
    "cut on one side": (
        file([q("x s z", "q"), node("Clip", "q - high", "c"), d("c s", "y")],
             REAL, {"y": FLOAT}), 2, set()),
    "shared by two layers": (
        file([*QUANTIZED, d("w s minus", "e"), d("w steps zeros", "f", axis=0),
              mul("d e", "g"), mul("g f", "y")], REAL, {"y": FLOAT}), 2, set()),
    "read elsewhere as well": (
        file([d("w s z", "d"), mul("x d", "y"), node("Gather", "w rows", "part")],
             REAL, {"y": FLOAT, "part": INT8}), 1, {"w", "part"}),
    "the integers are an output": (
        file([q("x s minus", "q"), d("q s minus", "y")], REAL,
             {"y": FLOAT, "q": INT8}), 0, {"q", "minus"}),
    "the integers are computed with": (
        file([q("x s z", "q"), node("Transpose", "q", "t"), d("t s z", "y")],
             REAL, {"y": FLOAT}), 0, {"q", "t", "z"}),
    "in a loop": (
        file([node("Loop", "three yes x", "y", body=LOOP)], REAL, {"y": FLOAT}), 1, set()),
    "in a branch": (
        file([node("If", "yes", "y", then_branch=body([*INNER, mul("x cd", "a")], {}, {"a": FLOAT}),
                   else_branch=body([node("Relu", "x", "b")], {}, {"b": FLOAT}))], REAL, {"y": FLOAT},
             s=np.float32(0.1)), 1, set()),
    "in a function": (
        file([node("Layer", "x s", "y", domain="own")], REAL, {"y": FLOAT}, functions=[FUNCTION]), 1, set()),
    "MatMulInteger": (file([node("MatMulInteger", "x w ub", "y")], (UINT8, [3, 4]), {"y": INT32}), 1, set()),
    "MatMulInteger, zero points": (
        file([node("MatMulInteger", "x w ub minus", "y")], (UINT8, [3, 4]), {"y": INT32}), 1, set()),
    "MatMulInteger, transposed": (
        file([node("Transpose", "w", "t"), node("MatMulInteger", "x t ub", "y")], (UINT8, [3, 4]), {"y": INT32}),
        1, set()),
    "MatMulInteger of int8": (
        file([node("MatMulInteger", "x w z", "y")], (INT8, [3, 4]), {"y": INT32}), 0, {"x", "w", "z"}),
    "ConvInteger": (
        file([node("ConvInteger", "x filter ub", "y")], (UINT8, [1, 4, 5, 5]), {"y": INT32}), 0, {"filter"}),
    "QLinearMatMul": (
        file([node("QLinearMatMul", "x s ub w s z s ub", "y")], (UINT8, [3, 4]), {"y": UINT8}), 1, set()),
    "pairs that fit": (file([d("fits s z", "d"), mul("x d", "y")], REAL, {"y": FLOAT}), 0, {"fits", "z"}),
    "pairs that fit only if they are others": (
        file([d("fits s z", "d"), node("Gemm", "x d", "y", transB=1)], REAL, {"y": FLOAT}), 1, set()),
    "pairs that fit, turned": (
        file([d("turned s z", "d"), node("Gemm", "x d", "y", transB=1)], REAL, {"y": FLOAT}), 0, {"turned", "z"}),
    "pairs that fit in one layer only": (
        file([d("fits s z", "d"), mul("x d", "h"), node("Gemm", "h d", "y", transB=1)], REAL, {"y": FLOAT}), 1, set()),
    "pairs that fit, QLinearMatMul": (
        file([node("QLinearMatMul", "x s ub fits s z s ub", "y")], (UINT8, [3, 4]), {"y": UINT8}), 0, {"fits", "z"}),
    "depthwise": (
        file([d("deep s z", "d"), node("Conv", "x d", "y", group=4)], (FLOAT, [1, 4, 5, 5]), {"y": FLOAT}), 0,
        {"deep", "z"}),
    "two channels for each": (
        file([d("deep s z", "d"), node("Conv", "x d", "y", group=2)], (FLOAT, [1, 2, 5, 5]), {"y": FLOAT}), 1, set()),
    "QLinearConv": (
        file([node("QLinearConv", "x s ub filter s2 zz s ub", "y")], (UINT8, [1, 4, 5, 5]), {"y": UINT8},
             zz=np.zeros(2, np.int8)), 1, set()),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_same_numbers(name: str) -> None:
    proto, count, left = CASES[name]
    model = reading.reader(proto)()
    reading.infer(model)
    assert store_unsigned(model) == count
    graphs = [model.graph, *model.graph.subgraphs(), *(f.graph for f in model.functions.values())]
    values = [v for g in graphs for v in (*g.inputs, *g.initializers.values(), *(v for n in g for v in n.outputs))]
    assert {v.name for v in values if v.dtype == ir.DataType.INT8 and (v.uses() or v.is_graph_output())} == left
    shifted = onnx.load_model_from_string(write.to_bytes(model))
    check_model(shifted.SerializeToString())
    kind = proto.graph.input[0].type.tensor_type
    shape = [dim.dim_value for dim in kind.shape.dim]
    integers = {UINT8: (0, 256, np.uint8), INT8: (-128, 128, np.int8)}.get(kind.elem_type)
    x = RNG.normal(size=shape).astype("f")
    if integers is not None:
        x = RNG.integers(*integers[:2], shape).astype(integers[2])
    for before, after in zip(*(ReferenceEvaluator(m).run(None, {"x": x}) for m in (proto, shifted)), strict=True):
        assert before.dtype == after.dtype
        np.testing.assert_array_equal(before, after)


# Kernels as they are on x86 without VNNI, whatever the processor at hand


def multiplied(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """uint8 [m, k] · 8 bits [k, n] as ONNX Runtime's kernels have it: beside int8, pairs are added in 16 bits."""
    a, b = a.astype(np.int64), b if b.dtype == np.uint8 else np.pad(b, ((0, b.shape[0] % 2), (0, 0)))
    if b.dtype == np.uint8:
        return a @ b.astype(np.int64)
    a = np.pad(a, ((0, 0), (0, b.shape[0] - a.shape[1])))
    products = a[:, :, None] * b.astype(np.int64)[None]
    pairs = products.reshape(a.shape[0], -1, 2, b.shape[1]).sum(2)
    return np.clip(pairs, -(2**15), 2**15 - 1).sum(1)


def layer_product(a: np.ndarray, a_zero: Any, b: np.ndarray, b_zero: Any) -> tuple[np.ndarray, np.ndarray]:
    """What such a kernel makes of a product of integers with zero points, and what it is."""
    if a.dtype == np.int8:  # ONNX Runtime makes uint8 of them, on x86
        a, a_zero = (a.view(np.uint8) ^ 128), np.int64(a_zero) + 128
    rows, columns = (part.astype(np.int64).sum(axis, keepdims=True) for part, axis in ((a, 1), (b, 0)))
    a_zero, b_zero = np.int64(a_zero), np.asarray(b_zero, np.int64)
    kernel = multiplied(a, b) - a_zero * columns - rows * b_zero + a.shape[1] * a_zero * b_zero
    return kernel, (a.astype(np.int64) - a_zero) @ (b.astype(np.int64) - b_zero)


def products(proto: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Each product of integers with constant ones in a file: as such a kernel has it, and as it is."""
    makers = {name: one for one in proto.graph.node for name in one.output}
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    operands = []
    for one in proto.graph.node:
        if one.op_type == "MatMulInteger":
            zero = one.input[3] if len(one.input) > 3 else ""
            operands.append((one.input[0], one.input[2], stored[one.input[1]], stored.get(zero, 0)))
        elif one.op_type in ("Conv", "Gemm", "MatMul"):
            x, w = _dequantized(makers, one.input[0]), makers[one.input[1]]
            weight, zero = stored[w.input[0]], stored[w.input[2]]
            if one.op_type == "Conv" or any(a.name == "transB" and a.i for a in one.attribute):
                weight = weight.reshape(len(weight), -1).T
            operands.append((x.input[0], x.input[2], weight, zero))
    watched = onnx.ModelProto.FromString(proto.SerializeToString())
    names = {name for a, zero, _, _ in operands for name in (a, zero) if name not in stored}
    watched.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    values = {**stored, **Session(watched.SerializeToString(), optimised=False).run(feeds)}
    return [layer_product(_columns(values[a], w), values[zero], w, wz) for a, zero, w, wz in operands]


def _dequantized(makers: dict[str, onnx.NodeProto], name: str) -> onnx.NodeProto:
    while makers[name].op_type != "DequantizeLinear":  # Reshape, Flatten
        name = makers[name].input[0]
    return makers[name]


def _columns(integers: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Windows of a picture, which is as large as the filter here, or rows."""
    return integers.reshape(-1, weight.shape[0])


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.quant, self.dequant = aq.QuantStub(), aq.DeQuantStub()
        self.conv, self.relu, self.linear = nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Linear(16, 4)
        for layer in (self.conv, self.linear):  # all weights of a channel of one sign: the worst for sums
            layer.weight.data.abs_().clamp_(min=0.9 * float(layer.weight.abs().max()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dequant(self.linear(self.relu(self.conv(self.quant(x))).flatten(1)))


def static(backend: str) -> nn.Module:
    """8 bits of activations with either: a range that is not halved, or values beyond the observed one."""
    model = Net().eval()
    model.qconfig = aq.QConfig(
        activation=aq.MinMaxObserver.with_args(dtype=torch.quint8, reduce_range=False),
        weight=aq.default_per_channel_weight_observer if backend == "by channel" else aq.default_weight_observer,
    )
    torch.backends.quantized.engine = "fbgemm"
    aq.prepare(model, inplace=True)
    model(torch.rand(4, 8, 3, 3))
    return aq.convert(model, inplace=True)


def by_the_way() -> nn.Module:
    torch.backends.quantized.engine = "fbgemm"
    layer = nn.Linear(72, 8)
    layer.weight.data.abs_().clamp_(min=0.9 * float(layer.weight.abs().max()))
    model = aq.quantize_dynamic(nn.Sequential(nn.Flatten(), layer), {nn.Linear})
    model[1].version = None  # 8 bits of activations, as old layers have them
    return model


NETWORKS = {"by tensor": lambda: static(""), "by channel": lambda: static("by channel"), "dynamic": by_the_way}


@pytest.mark.parametrize("name", NETWORKS)
def test_kernels_that_saturate(name: str) -> None:
    torch.manual_seed(0)
    model, x = NETWORKS[name](), torch.rand(2, 8, 3, 3)
    made = {}
    for runtime in ("ort-cpu", None):
        target = io.BytesIO()
        tonnx.export(model, x, target, input_names=["x"], verify=False, runtime=runtime)
        made[runtime] = products(onnx.load_model_from_string(target.getvalue()), {"x": x.numpy()})
    assert any((kernel != meant).any() for kernel, meant in made[None])  # or the test would show nothing
    for (kernel, meant), (_, before) in zip(made["ort-cpu"], made[None], strict=True):
        np.testing.assert_array_equal(kernel, meant)
        np.testing.assert_array_equal(meant, before)


@pytest.mark.parametrize(("runtime", "kind", "zero"), [("ort-cpu", "UINT8", 128), (None, "INT8", 0)])
def test_the_runtime_is_chosen(runtime: str | None, kind: str, zero: int) -> None:
    torch.manual_seed(0)
    result = tonnx.export(static("by channel"), torch.rand(2, 8, 3, 3), runtime=runtime, verify=False)
    readers = {n.inputs[0].name: n for n in result.model.graph if n.op_type == "DequantizeLinear"}  # type: ignore[union-attr]
    weight = readers["conv.weight"]
    assert [weight.inputs[i].dtype.name for i in (0, 2)] == [kind, kind]  # type: ignore[union-attr]
    assert (weight.inputs[2].const_value.numpy() == zero).all()  # type: ignore[union-attr]
    assert any("stored as uint8" in note for note in result.notes) is (runtime is not None)


def test_a_runtime_that_is_not_known() -> None:
    with pytest.raises(tonnx.TonnxError, match=r"no runtime profile 'tensorrt'[\s\S]*'ort-cpu' or 'ort', or None"):
        tonnx.export(nn.ReLU(), torch.ones(1), runtime="tensorrt")


def test_a_file_from_elsewhere() -> None:
    proto = CASES["MatMulInteger, zero points"][0]
    kept, fitted = (tonnx.retarget(proto, 21, runtime=runtime).model for runtime in (None, "ort-cpu"))
    assert [m.graph.initializers["w"].dtype.name for m in (kept, fitted)] == ["INT8", "UINT8"]  # type: ignore[union-attr]
