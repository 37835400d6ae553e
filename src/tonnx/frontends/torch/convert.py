"""One model, from the user's arguments to an ONNX graph at CANON and a function that runs the original."""

from __future__ import annotations

import contextlib
import inspect
import os
import pickle
import random
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from tonnx.errors import InvalidArgument, TonnxError
from tonnx.frontends.patching import interrupted_between_operators, patched
from tonnx.frontends.request import Converted, ModelRequest
from tonnx.frontends.torch import late_compiler
from tonnx.frontends.torch.call.counters import tie_counters
from tonnx.frontends.torch.call.dynamic import apply_dynamic_axes, apply_dynamic_shapes, settle_expressions
from tonnx.frontends.torch.call.program import name_dimensions, program_call
from tonnx.frontends.torch.call.results import add_input, add_results, result_names
from tonnx.frontends.torch.call.signature import FUNCTION, ModelCall, bind_call, checked_names, plain_arguments
from tonnx.frontends.torch.call.state import state_kept
from tonnx.frontends.torch.capture.patches.fake_quantisers import check_modules
from tonnx.frontends.torch.capture.program import Captured, describe
from tonnx.frontends.torch.capture.strategies import capture
from tonnx.frontends.torch.capture.torchscript import Scripted, is_script
from tonnx.frontends.torch.fx.trace import FxTrace
from tonnx.frontends.torch.fx.walk import FxWalk, lower_graph
from tonnx.frontends.torch.operators.bind import stored_dtype
from tonnx.frontends.torch.operators.decompose import rules_known
from tonnx.frontends.torch.operators.symbolic_sizes import DimNames
from tonnx.frontends.torch.operators.translation_table import checked_table
from tonnx.frontends.torch.operators.weights import as_numpy
from tonnx.frontends.torch.reference.eager import reference
from tonnx.frontends.torch.reference.kernels import FRAMEWORK, judge_of_kernels
from tonnx.frontends.torch.reference.mode import model_mode
from tonnx.frontends.torch.reference.rounded import TIMES
from tonnx.frontends.torch.settings import EVAL, Settings
from tonnx.frontends.torch.versions import process_patches
from tonnx.ir.build import Builder
from tonnx.proof.locate.trace import Trace
from tonnx.proof.subject import Reference, Subject
from tonnx.stages import Stages


def convert(request: ModelRequest, stages: Stages) -> Converted:
    table = checked_table(request.custom_translation_table)
    settings = Settings(request.target.opset, request.training, request.operator_export_type, table)
    late_compiler.prepare()
    with patched(process_patches()), interrupted_between_operators():
        with stages("capture"), rules_known(settings.rule):
            captured = _capture(request)
        with stages("lower"):
            model, kept, notes = _lower(captured, settings)
    subject = _subject(captured, model, kept, settings.training)
    graph = captured.graph
    return Converted(model, subject, [*graph.notes, *notes], graph.how, graph.passed_over)


@dataclass
class _Capture:
    """A module with its example, captured, and what its outputs are to be called."""

    module: torch.nn.Module
    call: ModelCall
    graph: Captured | Scripted
    output_names: list[str]
    output_axes: dict[str, dict[int, str]]


def _capture(request: ModelRequest) -> _Capture:
    model, names = request.model, checked_names("output_names", request.output_names)
    if isinstance(model, ExportedProgram):
        if request.dynamic_shapes:
            raise InvalidArgument(
                "an ExportedProgram has its dynamic dimensions already",
                hint="give dynamic_shapes to torch.export.export, or names for them as dynamic_axes",
            )
        call = program_call(model, request.args, request.kwargs, request.input_names)
        axes = name_dimensions(call, request.dynamic_axes, names)
        _check_collisions(call, names)
        captured_program = describe(model, call)
        for dim in (dim for leaf in call.leaves for dim in leaf.dynamic.values()):  # who made it, asked for its limits
            dim.minimum, dim.maximum = captured_program.limits.get(dim.name, dim.limits)
        return _Capture(model.module(), call, captured_program, names, axes)
    module = as_module(model)
    check_modules(module)
    call = bind_call(module, request.args, request.kwargs, request.input_names)
    apply_dynamic_shapes(call, request.dynamic_shapes, module)
    axes = apply_dynamic_axes(call, request.dynamic_axes, names)
    settle_expressions(call)
    _check_collisions(call, names)
    told = plain_arguments(call)
    # torch.export puts copies in the place of the lists and dicts that a module holds.
    with state_kept(module), model_mode(module, request.training), _draws_noted(told):
        told += tie_counters(module, call)
        captured = capture(request.capture, module, call, FxTrace)
    captured.notes[:0] = told
    return _Capture(module, call, captured, names, axes)


def _lower(capture: _Capture, settings: Settings) -> tuple[ir.Model, list[int], list[str]]:
    names, axes = capture.output_names, capture.output_axes
    if isinstance(capture.graph, Scripted):
        from tonnx.frontends.torch.script.convert import lower_script

        try:
            return lower_script(capture.graph, capture.module, capture.call, names, axes, settings, lower_graph)
        except TonnxError as error:
            if capture.graph.instead_of is not None:
                raise capture.graph.instead_of from error
            raise
    return _lower_program(capture.graph, names, axes, replace(settings, weight_names=capture.call.weights))


def _subject(capture: _Capture, model: ir.Model, kept: list[int], training: str) -> Subject:
    module, call, graph = capture.module, capture.call, capture.graph
    run = partial(reference, module, call, kept, training)
    trace: Callable[[], Trace]
    if isinstance(graph, Scripted):
        from tonnx.frontends.torch.script.trace import ScriptTrace

        trace = partial(ScriptTrace, graph.program, call, {leaf.name: leaf.name for leaf in call.leaves})
    else:
        trace = partial(FxTrace, graph)
    return Subject(
        reference=run(),
        example={leaf.name: as_numpy(leaf.tensor) for leaf in call.leaves},
        outputs=[str(value.name) for value in model.graph.outputs],
        dynamic={leaf.name: {a: d.name for a, d in leaf.dynamic.items()} for leaf in call.leaves if leaf.dynamic},
        limits={dim.name: dim.limits for leaf in call.leaves for dim in leaf.dynamic.values()},
        assumed={} if isinstance(graph, Scripted) else graph.limits,
        redrawn=run(redrawn=True),
        wide=run(wide=True),
        rounded=[run(rounding=number) for number in range(TIMES)],
        no_dropout=run(dropout=False) if training != EVAL and isinstance(graph, Captured) else None,
        saturates=judge_of_kernels(model),
        framework=FRAMEWORK,
        trace=trace,
        integers=_integers(module, run(), {leaf.name: as_numpy(leaf.tensor) for leaf in call.leaves}),
    )


def _integers(
    module: torch.nn.Module, model: Reference, example: Mapping[str, np.ndarray]
) -> Callable[[str | os.PathLike[str]], list[str]] | None:
    """Of a model that was trained for integers, those between its layers are compared as well."""
    if "tonnx.quant.training.sites" not in sys.modules:  # nobody prepared one
        return None
    from tonnx.quant.training.prepare import is_prepared
    from tonnx.quant.training.proof import prove_integers

    return partial(prove_integers, module, model, feeds=example) if is_prepared(module) else None


def as_module(model: Any) -> torch.nn.Module:
    """A module to export: the user's, the one inside a compiled one, or one around a function."""
    # Only who imported it can have compiled a model; it takes a second and 35 MB.
    if "torch._dynamo.eval_frame" in sys.modules and isinstance(model, torch._dynamo.eval_frame.OptimizedModule):
        model = model._orig_mod
    if is_script(model):
        from tonnx.frontends.torch.script.convert import Runnable

        return Runnable(model)
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
    return type(name, (torch.nn.Module,), {"forward": staticmethod(forward), FUNCTION: staticmethod(function)})()


@contextlib.contextmanager
def _draws_noted(notes: list[str]) -> Iterator[None]:
    """Say so if the model draws numbers that are not torch's: they are the same in every run of the file."""
    before, numpy_before = random.getstate(), _state_of_numpy()
    yield
    for name, drew in ("random", random.getstate() != before), ("numpy.random", _state_of_numpy() != numpy_before):
        if drew:
            notes.append(f"[!] the model draws from {name}: the file has the numbers of this one time (use torch.rand)")


def _state_of_numpy() -> bytes | None:
    """Of numpy's own generator, None if it has drawn nothing yet; it takes 2 MB, and hardly a model imports it."""
    if "numpy.random" not in sys.modules:
        return None
    state: Any = np.random.get_state()
    return pickle.dumps(state) if state[2] < _ALL_LEFT else None


_ALL_LEFT = 623  # where the generator is until its first draw, or behind that


def _check_collisions(call: ModelCall, output_names: list[str]) -> None:
    for name in (*(leaf.name for leaf in call.leaves), *call.weights.values()):
        if name in output_names:
            raise InvalidArgument(
                f"the name {name!r} is given to an input and to an output",
                hint="in an ONNX file every value has a name of its own",
            )


def _lower_program(
    captured: Captured, output_names: list[str], output_axes: dict[str, dict[int, str]], settings: Settings
) -> tuple[ir.Model, list[int], list[str]]:
    """The ONNX model; which of the flattened outputs it has (None is not one); what the user should know."""
    program = captured.program
    paths = _output_names(program)
    inputs_by_name = [leaf.name for leaf in captured.inputs.values()]
    op = Builder.of_model([*inputs_by_name, *output_names, *settings.weight_names.values()])
    dims = DimNames(captured.names)
    inputs = _inputs(captured, op.graph, dims)
    with op:
        results = FxWalk(op, dims, settings).program(program, inputs)
        leaves = list(captured.inputs.values())
        kept, notes = add_results(op, results, paths, leaves, output_names, output_axes)
        _forget_shared(captured.shared, op.graph.outputs, output_axes)
    return op.model(), kept, notes


def _forget_shared(shared: set[str], outputs: Sequence[ir.Value], asked: Mapping[str, Mapping[int, str]]) -> None:
    """Two dimensions that broadcast are one to torch.export: which of them an output has, only the run tells."""
    for value in outputs if shared else ():
        for axis, dim in enumerate(value.shape or ()):
            named = axis in asked.get(str(value.name), {})
            if isinstance(dim, ir.SymbolicDim) and not named and shared & set(re.findall(r"\w+", str(dim.value))):
                value.shape[axis] = ir.SymbolicDim(None)  # type: ignore[index]


def _inputs(captured: Captured, graph: ir.Graph, dims: DimNames) -> dict[str, ir.Value]:
    placeholders = {n.name: n for n in captured.program.graph.nodes if n.op == "placeholder"}
    inputs = {}
    for placeholder, leaf in captured.inputs.items():
        fake = placeholders[placeholder].meta["val"]
        inputs[placeholder] = add_input(graph, leaf, stored_dtype(fake.dtype), dims.of_tensor(fake))
    return inputs


def _output_names(program: ExportedProgram) -> list[str]:
    """A name for each flattened output: the key in a dict or named tuple, else ``output``."""
    spec = program.call_spec.out_spec
    if spec is None:
        return ["output"] * len(program.graph_signature.user_outputs)
    return result_names(pytree.tree_unflatten(list(range(spec.num_leaves)), spec))
