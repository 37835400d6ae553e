"""One model, from the user's arguments to an ONNX graph at CANON and a function that runs the original."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from tonnx.build import Builder, Names
from tonnx.errors import CaptureError, InvalidArgument
from tonnx.frontends.torch.bind import to_onnx_dtype
from tonnx.frontends.torch.capture import Captured, capture, describe, inference_mode
from tonnx.frontends.torch.signature import Call, apply_dynamic_axes, apply_dynamic_shapes, bind_call
from tonnx.frontends.torch.symbolic import DimNames
from tonnx.frontends.torch.walk import Walk, number_as_value
from tonnx.frontends.torch.weights import as_numpy
from tonnx.target import CANON


@dataclass
class Converted:
    """A model at CANON, and what is needed to prove it."""

    model: ir.Model
    reference: Callable[[dict[str, np.ndarray]], list[np.ndarray]]
    example: dict[str, np.ndarray]
    dynamic: dict[str, dict[int, str]]
    limits: dict[str, tuple[int, int | None]]
    timings: dict[str, float] = field(default_factory=dict)


def convert(
    model: torch.nn.Module | ExportedProgram,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    dynamic_axes: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
) -> Converted:
    """Capture and lower."""
    timings: dict[str, float] = {}
    start = time.perf_counter()
    if isinstance(model, ExportedProgram):
        if dynamic_axes or dynamic_shapes:
            raise InvalidArgument(
                "an ExportedProgram has its dynamic dimensions already",
                hint="give dynamic_shapes to torch.export.export, or export the torch.nn.Module",
            )
        module, call = _program_call(model, args, kwargs, input_names)
        captured = describe(model, call)
        output_axes: dict[str, dict[int, str]] = {}
    else:
        module = _as_module(model)
        call = bind_call(module, args, kwargs, input_names)
        apply_dynamic_shapes(call, dynamic_shapes, module)
        output_axes = apply_dynamic_axes(call, dynamic_axes, list(output_names or []))
        with inference_mode(module):
            captured = capture(module, call)
    timings["capture"] = time.perf_counter() - start
    start = time.perf_counter()
    lowered, kept = _lower(captured, list(output_names or []), output_axes)
    timings["lower"] = time.perf_counter() - start
    return Converted(
        model=lowered,
        reference=_reference(module, call, kept),
        example={leaf.name: as_numpy(leaf.tensor) for leaf in call.leaves},
        dynamic={leaf.name: {a: d.name for a, d in leaf.dynamic.items()} for leaf in call.leaves if leaf.dynamic},
        limits=captured.limits,
        timings=timings,
    )


def _as_module(model: Any) -> torch.nn.Module:
    if isinstance(model, torch.nn.Module):
        return model
    if callable(model):

        class Function(torch.nn.Module):
            forward = staticmethod(model)

        return Function()
    raise InvalidArgument(
        f"cannot export a {type(model).__name__}", hint="pass a torch.nn.Module or a torch.export.ExportedProgram"
    )


def _program_call(
    program: ExportedProgram, args: Any, kwargs: Mapping[str, Any] | None, input_names: Sequence[str] | None
) -> tuple[torch.nn.Module, Call]:
    """The example of a program, and its dynamic dimensions under PyTorch's names."""
    module = program.module()
    if args is None or (isinstance(args, tuple) and not args and not kwargs):
        if program.example_inputs is None:
            raise InvalidArgument("this program has no example inputs", hint="pass them as args")
        args, kwargs = program.example_inputs
    call = bind_call(None, args, kwargs, None)
    names = [s.arg.name for s in program.graph_signature.input_specs if s.arg.name in program.graph_signature.user_inputs]
    for leaf, name in zip(call.leaves, names, strict=False):
        leaf.name = name
    from tonnx.frontends.torch.signature import DimSpec, _rename

    _rename(call.leaves, input_names)
    placeholders = {n.name: n for n in program.graph.nodes if n.op == "placeholder"}
    for leaf, name in zip(call.leaves, names, strict=False):
        for axis, size in enumerate(placeholders[name].meta["val"].shape):
            if not isinstance(size, int):
                leaf.dynamic[axis] = DimSpec(str(size))
    return module, call


def _lower(
    captured: Captured, output_names: list[str], output_axes: dict[str, dict[int, str]]
) -> tuple[ir.Model, list[int]]:
    """The ONNX model, and which of the flattened outputs it has (None is not one)."""
    program = captured.program
    paths = _output_names(program)
    names = Names(leaf.name for leaf in captured.inputs.values())
    for name in output_names:
        if not names.reserve(name):
            raise InvalidArgument(f"the name {name!r} is given to two inputs or outputs")
    graph = ir.Graph([], [], nodes=[], opset_imports={"": CANON}, name="main")
    op = Builder(graph, names=names)
    dims = DimNames(captured.names)
    inputs = _inputs(captured, graph, dims)
    with op:
        results = Walk(op, dims).program(program, inputs)
        kept = [i for i, r in enumerate(results) if r is not None]
        if len(output_names) > len(kept):
            raise InvalidArgument(f"output_names has {len(output_names)} names, but the model has {len(kept)} outputs")
        _check_output_axes(output_axes, [*output_names, *paths[len(output_names) :]])
        for place, i in enumerate(kept):
            value = results[i] if isinstance(results[i], ir.Value) else number_as_value(op, results[i])
            name = output_names[place] if place < len(output_names) else names.unique(paths[i])
            _add_output(op, value, name, output_axes.get(name, {}))
    return ir.Model(graph, ir_version=10, producer_name="tonnx", functions=[]), kept


def _inputs(captured: Captured, graph: ir.Graph, dims: DimNames) -> dict[str, ir.Value]:
    placeholders = {n.name: n for n in captured.program.graph.nodes if n.op == "placeholder"}
    inputs = {}
    for placeholder, leaf in captured.inputs.items():
        fake = placeholders[placeholder].meta["val"]
        shape = dims.of_tensor(fake)
        for axis, dim in leaf.dynamic.items():
            shape[axis] = ir.SymbolicDim(dim.name)
        value = ir.Value(name=leaf.name, type=ir.TensorType(to_onnx_dtype(fake.dtype)), shape=ir.Shape(shape))
        graph.inputs.append(value)
        inputs[placeholder] = value
    return inputs


def _add_output(op: Builder, value: ir.Value, name: str, axes: dict[int, str]) -> None:
    """Every output is a value of its own: an input passed through, a constant or a repetition gets an Identity."""
    producer = value.producer()
    if producer is None or value.is_graph_output() or value.const_value is not None or producer.graph is not op.graph:
        (value,) = op.node("Identity", [value], [], [(value.dtype, value.shape.dims if value.shape is not None else None)])
    value.name = name
    if axes and value.shape is not None:
        shape = list(value.shape.dims)
        for axis, dim in axes.items():
            if not -len(shape) <= axis < len(shape):
                raise InvalidArgument(f"the output {name!r} has no axis {axis}", why=f"its rank is {len(shape)}")
            if isinstance(shape[axis], int):
                continue  # the model fixes it: claiming otherwise would be wrong, and helps nobody
            shape[axis] = ir.SymbolicDim(dim)
        value.shape = ir.Shape(shape)
    op.graph.outputs.append(value)


def _check_output_axes(axes: dict[str, dict[int, str]], names: list[str]) -> None:
    for name in axes:
        if name not in names:
            raise InvalidArgument(
                f"dynamic_axes names {name!r}, which is neither an input nor an output",
                why=f"the outputs are {', '.join(names)}",
            )


def _output_names(program: ExportedProgram) -> list[str]:
    """A name for each flattened output: the key in a dict or named tuple, else ``output``."""
    spec = program.call_spec.out_spec
    if spec is None:
        return ["output"] * len(program.graph_signature.user_outputs)
    tree = pytree.tree_unflatten(list(range(spec.num_leaves)), spec)
    paths = pytree.tree_flatten_with_path(tree)[0]
    if len(paths) == 1 and not paths[0][0]:
        return ["output"]
    names = []
    for path, _ in paths:
        keys = [str(getattr(p, "key", getattr(p, "name", getattr(p, "idx", "")))) for p in path]
        names.append("_".join(keys) if not keys[0].isdigit() else "_".join(["output", *keys]))
    return ["output"] if names == ["output_0"] else names


def _reference(module: torch.nn.Module, call: Call, kept: list[int]) -> Callable[[dict[str, np.ndarray]], list[np.ndarray]]:
    """The original model on numpy arrays."""

    def run(feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
        tensors = [_from_numpy(feeds[leaf.name], leaf.tensor) for leaf in call.leaves]
        args, kwargs = call.with_tensors(tensors)
        with torch.random.fork_rng(devices=[]), _evaluated(module):
            result = module(*args, **kwargs)
        leaves = pytree.tree_leaves(result)
        return [_to_numpy(leaves[i]) for i in kept]

    return run


def _evaluated(module: torch.nn.Module) -> Any:
    # The module of an ExportedProgram refuses eval(): it has one mode only.
    return torch.no_grad() if isinstance(module, torch.fx.GraphModule) else inference_mode(module)


def _from_numpy(array: np.ndarray, like: torch.Tensor) -> torch.Tensor:
    """A fresh tensor: models may write to their inputs."""
    array = np.array(array, order="C", copy=True)
    if array.dtype.kind == "V" or array.dtype.name in ("bfloat16",) or array.dtype.name.startswith("float8"):
        width = torch.int16 if array.dtype.itemsize == 2 else torch.uint8
        integers = array.view(np.int16 if array.dtype.itemsize == 2 else np.uint8)
        return torch.from_numpy(integers).to(like.device).view(width).view(like.dtype)
    return torch.from_numpy(array).to(like.device)


def _to_numpy(value: Any) -> np.ndarray:
    if isinstance(value, torch.Tensor):
        return as_numpy(value.contiguous())
    if isinstance(value, bool):
        return np.asarray(value)
    if isinstance(value, int):
        return np.asarray(value, dtype=np.int64)
    if isinstance(value, float):
        return np.asarray(value, dtype=np.float32)
    raise CaptureError(f"the model returns a {type(value).__name__}, which is not a tensor")
