"""How ONNX Runtime computes a quantised layer on this processor: int8 weights, the same as uint8, and 7 bits of int8.

    python bench/integer_kernels.py [--write docs/quantised.md]

Times are the best of a second on one thread. Errors: of the results to those of float32, as a part of their deviation;
and to the same file run node by node, in steps of the output: more than one is a sum that was cut off.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from document import write_section
from onnx import TensorProto, helper, numpy_helper

SECONDS = 1.0
STEP = np.float32(8 / 255)
FORMS = {"float32": (0, ""), "int8": (127, "int8"), "uint8": (127, "uint8"), "int8 of 7 bits": (63, "int8")}


@dataclass(frozen=True)
class Layer:
    x: tuple[int, ...]
    weight: tuple[int, ...]
    group: int = 1
    dynamic: bool = False

    @property
    def axis(self) -> int:
        """The axis of the output channels in the weight."""
        return 0 if len(self.weight) == 4 else 1


LAYERS = {
    "3×3 convolution, 64 channels of 56×56": Layer((1, 64, 56, 56), (64, 64, 3, 3)),
    "1×1 convolution, 256 channels of 14×14": Layer((1, 256, 14, 14), (256, 256, 1, 1)),
    "3×3 convolution, 4 groups of 16": Layer((1, 64, 28, 28), (64, 16, 3, 3), group=4),
    "3×3 depthwise, 128 channels of 28×28": Layer((1, 128, 28, 28), (128, 1, 3, 3), group=128),
    "128 rows × matrix of 768×768": Layer((128, 768), (768, 768)),
    "the same, quantised as it goes": Layer((128, 768), (768, 768), dynamic=True),
    "1 row × matrix of 768×3072": Layer((1, 768), (768, 3072)),
}


def model_of(layer: Layer, most: int, kind: str, x: np.ndarray) -> onnx.ModelProto:
    """The layer between two ranges, with steps of its own for each channel."""
    rng = np.random.default_rng(1)
    inner = tuple(axis for axis in range(len(layer.weight)) if axis != layer.axis)
    weight = rng.normal(size=layer.weight) / np.sqrt(np.prod([layer.weight[axis] for axis in inner]))
    constants: dict[str, np.ndarray] = {"w": weight.astype(np.float32)}
    nodes, operands, result = [], ["x", "w"], "y"
    if kind:
        scale = np.abs(weight).max(None if layer.dynamic else inner) / most
        spread = np.reshape(scale, [-1 if axis == layer.axis and np.ndim(scale) else 1 for axis in range(weight.ndim)])
        integers, zero = np.rint(weight / spread).astype(np.int8), 0
        if kind == "uint8":
            integers, zero = integers.view(np.uint8) ^ np.uint8(128), 128
        step = np.float32((x.max() - x.min()) / 255)
        constants = {
            "w": integers, "ws": scale.astype(np.float32), "wz": np.full(np.shape(scale), zero, integers.dtype),
            "s": step, "z": np.uint8(np.rint(-x.min() / step)), "os": STEP, "oz": np.uint8(128),
        }  # fmt: skip
    if kind and layer.dynamic:
        nodes = [
            helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "as", "az"]),
            helper.make_node("MatMulInteger", ["q", "w", "az", "wz"], ["sums"]),
            helper.make_node("Cast", ["sums"], ["reals"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["as", "ws"], ["scale"]),
            helper.make_node("Mul", ["reals", "scale"], ["y"]),
        ]
    else:
        if kind:
            nodes = [
                helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
                helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
                helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=layer.axis),
            ]
            operands = ["d", "wd"]
        if len(layer.weight) == 4:
            pads = [layer.weight[2] // 2] * 4
            nodes.append(helper.make_node("Conv", operands, ["y"], group=layer.group, pads=pads))
        else:
            nodes.append(helper.make_node("MatMul", operands, ["y"]))
        if kind:
            nodes += [
                helper.make_node("QuantizeLinear", ["y", "os", "oz"], ["yq"]),
                helper.make_node("DequantizeLinear", ["yq", "os", "oz"], ["out"]),
            ]
            result = "out"
    graph = helper.make_graph(
        nodes, "layer", [helper.make_tensor_value_info("x", TensorProto.FLOAT, layer.x)],
        [helper.make_tensor_value_info(result, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def session(model: onnx.ModelProto, optimised: bool) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def best(run: onnxruntime.InferenceSession, x: np.ndarray) -> float:
    """Milliseconds."""
    times, end = [], time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        began = time.perf_counter()
        run.run(None, {"x": x})
        times.append(time.perf_counter() - began)
    return 1000 * min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table into this page")
    page = parser.parse_args().write
    lines = ["| layer | " + " | ".join(FORMS) + " |", "|---|" + "---|" * len(FORMS)]
    print(*lines, sep="\n")
    for name, layer in LAYERS.items():
        x = np.random.default_rng(0).normal(size=layer.x).astype(np.float32)
        cells, want = [], None
        for most, kind in FORMS.values():
            model = model_of(layer, most, kind, x)
            fast, plain = session(model, True), session(model, False)
            result, own = fast.run(None, {"x": x})[0], plain.run(None, {"x": x})[0]
            want = result if want is None else want
            cell = f"{best(fast, x):.2f} ms"
            if kind:
                steps = np.abs(result - own).max() / STEP
                cell += f", {np.sqrt(((result - want) ** 2).mean()) / want.std():.1%}"
                cell += f", {steps:.0f} steps" if steps > 1.5 else ""
            cells.append(cell)
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
        print(lines[-1], flush=True)
    if page is not None:
        write_section(page, "integer kernels", "Integer kernels", "\n".join(lines))


if __name__ == "__main__":
    main()
