"""One model, from the user's arguments to an ONNX graph at CANON and a function that runs the original."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx_ir as ir
import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from tonnx.build import DIM, Builder, Names
from tonnx.errors import InvalidArgument
from tonnx.frontends.converted import Converted, add_output
from tonnx.frontends.torch.bind import to_onnx_dtype
from tonnx.frontends.torch.capture import Captured, capture, describe, inference_mode
from tonnx.frontends.torch.dynamic import apply_dynamic_axes, apply_dynamic_shapes, unknown_axes_name
from tonnx.frontends.torch.program import name_dimensions, program_call
from tonnx.frontends.torch.reference import reference
from tonnx.frontends.torch.signature import Call, bind_call, checked_names
from tonnx.frontends.torch.symbolic import NUMBER, DimNames
from tonnx.frontends.torch.walk import Walk, number_as_value
from tonnx.frontends.torch.weights import as_numpy
from tonnx.profiles import ort
from tonnx.target import CANON


def convert(
    model: torch.nn.Module | ExportedProgram,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    dynamic_axes: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    announce: Callable[[str], None] | None = None,
) -> Converted:
    """Capture and lower. ``announce`` is told the stage that begins."""
    announce = announce or (lambda stage: None)
    timings: dict[str, float] = {}
    start = time.perf_counter()
    announce("capture")
    wanted_outputs = checked_names("output_names", output_names)
    if isinstance(model, ExportedProgram):
        if dynamic_shapes:
            raise InvalidArgument(
                "an ExportedProgram has its dynamic dimensions already",
                hint="give dynamic_shapes to torch.export.export, or names for them as dynamic_axes",
            )
        module, call = model.module(), program_call(model, args, kwargs, input_names)
        output_axes = name_dimensions(call, dynamic_axes, wanted_outputs)
        _check_collisions(call, wanted_outputs)
        captured = describe(model, call)
    else:
        module = as_module(model)
        call = bind_call(module, args, kwargs, input_names)
        apply_dynamic_shapes(call, dynamic_shapes, module)
        output_axes = apply_dynamic_axes(call, dynamic_axes, wanted_outputs)
        _check_collisions(call, wanted_outputs)
        with inference_mode(module):
            captured = capture(module, call)
    timings["capture"] = time.perf_counter() - start
    start = time.perf_counter()
    announce("lower")
    lowered, kept, notes = _lower(captured, wanted_outputs, output_axes)
    timings["lower"] = time.perf_counter() - start
    return Converted(
        model=lowered,
        reference=reference(module, call, kept),
        example={leaf.name: as_numpy(leaf.tensor) for leaf in call.leaves},
        dynamic={leaf.name: {a: d.name for a, d in leaf.dynamic.items()} for leaf in call.leaves if leaf.dynamic},
        limits=captured.limits,
        timings=timings,
        notes=[*captured.notes, *notes],
    )


def as_module(model: Any) -> torch.nn.Module:
    """A module to export: the user's, the one inside a compiled one, or one around a function."""
    if isinstance(model, torch._dynamo.eval_frame.OptimizedModule):
        model = model._orig_mod
    if isinstance(model, (torch.jit.ScriptModule, torch.jit.ScriptFunction)):
        raise InvalidArgument(
            "TorchScript modules cannot be exported", hint="export the torch.nn.Module it was made from"
        )
    if isinstance(model, torch.nn.Module):
        return model
    if isinstance(model, type) and issubclass(model, torch.nn.Module):
        name = model.__name__
        raise InvalidArgument(f"{name} is a class, not a model", hint=f"pass an instance: {name}(...)")
    if not callable(model) or isinstance(model, type):
        raise InvalidArgument(
            f"cannot export a {type(model).__name__}",
            hint="load the weights into a model first: model.load_state_dict(...)"
            if isinstance(model, dict)
            else "pass a torch.nn.Module or a torch.export.ExportedProgram",
        )
    return _around(model)


def _around(function: Callable[..., Any]) -> torch.nn.Module:
    try:
        inspect.signature(function)
    except ValueError:  # torch.relu and other builtins have none

        def forward(*inputs: Any) -> Any:
            return function(*inputs)
    else:
        forward = function  # type: ignore[assignment]
    name = getattr(function, "__name__", type(function).__name__)
    return type(name, (torch.nn.Module,), {"forward": staticmethod(forward)})()


def _check_collisions(call: Call, output_names: list[str]) -> None:
    for leaf in call.leaves:
        if leaf.name in output_names:
            raise InvalidArgument(
                f"the name {leaf.name!r} is given to an input and to an output",
                hint="in an ONNX file every value has a name of its own",
            )


def _lower(
    captured: Captured, output_names: list[str], output_axes: dict[str, dict[int, str]]
) -> tuple[ir.Model, list[int], list[str]]:
    """The ONNX model; which of the flattened outputs it has (None is not one); what the user should know."""
    program = captured.program
    paths = _output_names(program)
    inputs_by_name = [leaf.name for leaf in captured.inputs.values()]
    names = Names([*inputs_by_name, *output_names])
    graph = ir.Graph([], [], nodes=[], opset_imports={"": CANON}, name="main")
    op = Builder(graph, names=names, profile=ort.instead)
    dims = DimNames(captured.names)
    inputs = _inputs(captured, graph, dims)
    notes: list[str] = []
    with op:
        results = Walk(op, dims).program(program, inputs)
        kept = [i for i, r in enumerate(results) if r is not None]
        if len(output_names) > len(kept):
            raise InvalidArgument(f"output_names has {len(output_names)} names, but the model has {len(kept)} outputs")
        final = [*output_names, *(names.unique(paths[i]) for i in kept[len(output_names) :])]
        for name in output_axes:
            if name not in final:
                raise unknown_axes_name(name, inputs_by_name, final)
        taken = {dim.name: dim.name for leaf in captured.inputs.values() for dim in leaf.dynamic.values()}
        for i, name in zip(kept, final, strict=True):
            value = add_output(op, _as_value(op, results[i]), name)
            notes += _name_axes(value, output_axes.get(name, {}), taken)
    return ir.Model(graph, ir_version=10, producer_name="tonnx", functions=[]), kept, notes


def _as_value(op: Builder, result: Any) -> ir.Value:
    if not isinstance(result, ir.Value):
        return number_as_value(op, result)
    if DIM in result.meta:  # a size: of shape [1] inside the graph, a plain number for the user
        return op.Squeeze(result, [0])
    if NUMBER in result.meta:
        return op.Squeeze(op.cast(result, ir.DataType.FLOAT) if result.dtype == ir.DataType.DOUBLE else result, [0])
    return result


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


def _name_axes(value: ir.Value, axes: dict[int, str], taken: dict[str, str]) -> list[str]:
    """Give an output's dimensions the names that were asked for; says where the model does not allow it.

    ``taken`` are the names in use, with the size that each stands for: a name means one size in the whole file.
    """
    if not axes or value.shape is None:
        return []
    shape, notes = list(value.shape.dims), []
    for axis, name in axes.items():
        if not -len(shape) <= axis < len(shape):
            raise InvalidArgument(f"the output {value.name!r} has no axis {axis}", why=f"its rank is {len(shape)}")
        size = shape[axis]
        text = str(size if isinstance(size, int) else size.value)
        if not isinstance(size, int) and taken.setdefault(name, text) == text:
            shape[axis] = ir.SymbolicDim(name)
        else:
            notes.append(f"axis {axis} of the output {value.name} is {text} in the model; it is not called {name}")
    value.shape = ir.Shape(shape)
    return notes


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
