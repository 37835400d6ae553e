"""A saved Paddle model as an ONNX graph at CANON. Needs neither paddle nor torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from tonnx.errors import InvalidArgument, TonnxError
from tonnx.frontends.dynamic_axes import axis_names, checked_axes, name_axes, unknown_axes_name
from tonnx.frontends.paddle.lower.dims import Inputs, apart, example, inputs_of, usual_sizes, zeros
from tonnx.frontends.paddle.lower.unify_batch_dims import fits, joined, one_by_one
from tonnx.frontends.paddle.lower.walk import ProgramWalk
from tonnx.frontends.paddle.read.load import Loaded, load
from tonnx.frontends.paddle.reference.predictor import first_that_runs, predictor
from tonnx.frontends.request import Converted, ModelRequest
from tonnx.ir.build import Builder
from tonnx.proof.subject import Reference, Subject
from tonnx.stages import Stages

if TYPE_CHECKING:
    from tonnx.proof.locate.trace import Trace

RTOL = 0.0
"""Paddle's own verdict: the largest difference is below 1e-5, or below that part of the largest value.

The default absolute tolerance is just that; nothing is allowed beyond it."""


PICTURES = ((64, 8), (224, 8), (320, 8), (640, 8), (224, 64), (224, 1024), (64, 16000))
"""Sides of pictures, and lengths of all else, that are tried until they are large enough for the model."""


def convert(request: ModelRequest, stages: Stages) -> Converted:
    with stages("read"):
        loaded = load(request.model, request.params)
    original = Original(lambda renamed: predictor(loaded, renamed), partial(_trace, loaded))
    return lower(loaded, request, stages, original)


@dataclass(frozen=True)
class Original:
    """What the file is compared with. Both are given the program's input names and those of the file."""

    start: Callable[[Mapping[str, str]], Reference | None]
    """None: Paddle is not there."""
    trace: Callable[[Mapping[str, str]], Trace]
    """The values inside of it."""
    rounded: Callable[[Mapping[str, str]], Sequence[Reference]] = lambda _: ()
    """It with its sums rounded otherwise, some times."""
    redrawn: Callable[[Mapping[str, str]], Reference] | None = None
    """It with other random numbers; None: every run draws others."""


def lower(loaded: Loaded, request: ModelRequest, stages: Stages, original: Original) -> Converted:
    """A model that was read, with what the user wants of its names and shapes."""
    renamed = _renamed("input_names", list(loaded.program.inputs), request.input_names)
    outputs = _renamed("output_names", list(loaded.program.outputs), request.output_names)
    for name in outputs:
        if outputs[name] == name and name in renamed.values():  # an input that is passed through, or changed in place
            outputs[name] = f"{name}_out"
    _check_collisions(list(renamed.values()), list(outputs.values()))
    wanted, output_axes = _wanted(loaded, renamed, list(outputs.values()), request)
    inputs = inputs_of(loaded.program, wanted)
    taken = _arrays(request.args, inputs, renamed)
    inputs = apart(inputs, taken)
    paddle = original.start(renamed) if request.verify else None  # it starts slowly: meanwhile the model is lowered
    with stages("lower"):
        model, inputs = _told_apart(loaded, inputs, taken, renamed, list(outputs.values()))
    dynamic = {renamed[name]: axes for name, axes in inputs.dynamic().items()}
    notes = _name_outputs(model, dynamic, output_axes)
    subject = Subject(
        None,
        {renamed[name]: array for name, array in zeros(inputs, _sizes(inputs, taken, PICTURES[0])).items()},
        [str(value.name) for value in model.graph.outputs],
        dynamic,
        rtol=None if _has_halves(model) else RTOL,
        framework="Paddle",
    )
    if not request.verify:
        return Converted(model, subject, notes)
    with stages("Paddle") if paddle is not None else nullcontext():
        example, problems = first_that_runs(paddle, examples(inputs, taken, renamed, PICTURES))
    # Where nobody can say which sizes the model takes, a large one: on too small pictures runtimes crash.
    runnable = example if example is not None else next(examples(inputs, taken, renamed, ((224, 8),)))
    reference = None if example is None else paddle
    trace, rounded = partial(original.trace, renamed), original.rounded(renamed)
    redrawn = original.redrawn(renamed) if original.redrawn is not None else reference
    compared = replace(
        subject, reference=reference, example=runnable, trace=trace, rounded=rounded, redrawn=redrawn
    )  # fmt: skip
    return Converted(model, compared, [*notes, *problems])


def _trace(loaded: Loaded, renamed: Mapping[str, str]) -> Trace:
    from tonnx.frontends.paddle.reference.trace import PaddleTrace

    return PaddleTrace(loaded, renamed)


def _has_halves(model: ir.Model) -> bool:
    """Whether it computes in 16 bits: then ONNX Runtime rounds elsewhere, and Paddle's own verdict is out of reach."""
    halves = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
    return any(value.dtype in halves for node in model.graph.all_nodes() for value in node.outputs)


def _wanted(
    loaded: Loaded,
    renamed: Mapping[str, str],
    outputs: Sequence[str],
    request: ModelRequest,
) -> tuple[dict[str, list[int | str | None]], dict[str, dict[int, str]]]:
    """What the user says of the inputs, by their names in the program, and of the outputs' axes.

    An input may be called by its name in the program or by that in the file.
    """
    back = {new: old for old, new in renamed.items()} | {old: old for old in renamed}
    shapes = {back.get(name, name): list(shape) for name, shape in (request.input_shapes or {}).items()}
    output_axes: dict[str, dict[int, str]] = {}
    for name, axes in checked_axes(request.dynamic_axes).items():
        named = axis_names(name, axes)
        if name in outputs and name not in renamed.values():
            output_axes[name] = named
            continue
        if name not in back:
            raise unknown_axes_name(name, list(renamed.values()), outputs)
        own = loaded.program.inputs[back[name]].shape or ()
        shape = shapes.setdefault(back[name], [None] * len(own))
        for axis, dim in named.items():
            if not -len(own) <= axis < len(own):
                raise InvalidArgument(f"the input {name!r} has no axis {axis}", why=f"its shape is {list(own)}")
            shape[axis] = dim
    return shapes, output_axes


def _name_outputs(
    model: ir.Model, dynamic: Mapping[str, Mapping[int, str]], axes: Mapping[str, dict[int, str]]
) -> list[str]:
    taken = {name: name for named in dynamic.values() for name in named.values()}
    notes = []
    for value in model.graph.outputs:
        notes += name_axes(value, axes.get(value.name or "", {}), taken)
    return notes


def examples(
    inputs: Inputs, taken: Mapping[str, np.ndarray], renamed: Mapping[str, str], tried: Sequence[tuple[int, int]]
) -> Iterator[dict[str, np.ndarray]]:
    """Inputs to run on: the user's arrays, and random ones for the rest, at each of these sizes."""
    before: list[dict[str, int]] = []
    for usual in tried:
        sizes = _sizes(inputs, taken, usual)
        if sizes not in before:
            before.append(sizes)
            arrays = example(inputs, sizes)
            yield {renamed[name]: taken.get(name, array) for name, array in arrays.items()}


def _told_apart(
    loaded: Loaded,
    inputs: Inputs,
    taken: Mapping[str, np.ndarray],
    renamed: Mapping[str, str],
    output_names: Sequence[str],
) -> tuple[ir.Model, Inputs]:
    """The model, and its inputs with one name for the leading dimensions that are one, and others for the others."""
    alone = one_by_one(inputs)
    while len(inputs.dynamic()) > 1:
        try:
            model = _lower(loaded, alone, renamed, output_names)
        except TonnxError:  # what is wrong, or works only with equal sizes, shows below
            break
        merged = joined(alone, inputs, model.graph)
        if merged == alone or not fits(merged, taken):
            return model, alone
        alone = merged  # once more: with names that are equal, more of them may meet
    return _lower(loaded, inputs, renamed, output_names), inputs


def _lower(loaded: Loaded, inputs: Inputs, renamed: Mapping[str, str], output_names: Sequence[str]) -> ir.Model:
    op = Builder.of_model([*renamed.values(), *output_names])
    values = {}
    for name, shape in inputs.shapes.items():
        value = ir.Value(name=renamed[name], type=ir.TensorType(inputs.dtypes[name]), shape=ir.Shape(shape))
        op.graph.inputs.append(value)
        values[name] = value
    with op:
        results = ProgramWalk(op, loaded.program, loaded.params, trust_shapes=not inputs.contradicts).run(values)
        for value, name in zip(results, output_names, strict=True):
            op.add_output(value, name)
    return op.model()


def _renamed(argument: str, own: list[str], wanted: Sequence[str] | None) -> dict[str, str]:
    """From the program's names to those of the file: the user's, in order, then the program's own."""
    names = list(wanted or ())
    if isinstance(wanted, str) or not all(isinstance(name, str) and name for name in names):
        raise InvalidArgument(f"{argument} must be a list of names, not {wanted!r}")
    if len(names) > len(own):
        kind = argument.partition("_")[0]
        raise InvalidArgument(
            f"{argument} has {len(names)} names, but the model has {len(own)} {kind}s",
            why=f"they are {', '.join(own)}",
        )
    return dict(zip(own, [*names, *own[len(names) :]], strict=True))


def _check_collisions(inputs: list[str], outputs: list[str]) -> None:
    names = [*inputs, *outputs]
    for name in names:
        if names.count(name) > 1:
            raise InvalidArgument(
                f"the name {name!r} is given to two inputs or outputs",
                hint="in an ONNX file every value has a name of its own: give input_names or output_names",
            )


def _arrays(args: Any, inputs: Inputs, renamed: Mapping[str, str]) -> dict[str, np.ndarray]:
    """The inputs that the user gave, by their names in the program."""
    if args is None or (isinstance(args, (tuple, list)) and not args):
        arrays = {}
    elif isinstance(args, Mapping):
        arrays = {str(name): np.asarray(value) for name, value in args.items()}
    elif isinstance(args, np.ndarray):
        arrays = dict(zip(inputs.shapes, [args], strict=False))
    elif isinstance(args, (tuple, list)) and all(isinstance(value, np.ndarray) for value in args):
        arrays = dict(zip(inputs.shapes, args, strict=False))
    else:
        raise InvalidArgument(
            f"the inputs of a Paddle program are numpy arrays, not {type(args).__name__}",
            hint='give the output file by name: tonnx.export(path, f="out.onnx")',
        )
    back = {new: old for old, new in renamed.items()}
    taken: dict[str, np.ndarray] = {}
    for name, array in arrays.items():
        own = name if name in inputs.shapes else back.get(name)
        if own is None:
            raise InvalidArgument(f"the model has no input {name!r}", why=f"its inputs are {', '.join(inputs.shapes)}")
        shape = inputs.shapes[own]
        fits = array.ndim == len(shape)
        if not fits or any(isinstance(d, int) and d != s for d, s in zip(shape, array.shape, strict=True)):
            said = [d if isinstance(d, int) else d.value for d in shape]
            raise InvalidArgument(f"the input {name!r} has the shape {list(array.shape)}", why=f"the model's is {said}")
        taken[own] = array.astype(inputs.dtypes[own].numpy(), copy=False)
    return taken


def _sizes(inputs: Inputs, taken: Mapping[str, np.ndarray], usual: tuple[int, int]) -> dict[str, int]:
    """A size for every dynamic dimension: that of the user's arrays, else a usual one."""
    sizes = usual_sizes(inputs, *usual)
    for name, array in taken.items():
        for dim, size in zip(inputs.shapes[name], array.shape, strict=True):
            if isinstance(dim, ir.SymbolicDim):
                sizes[str(dim.value)] = size
    return sizes
