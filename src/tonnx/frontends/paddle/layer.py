"""A Paddle layer, captured by Paddle's own dynamic-to-static and then read like any other saved model.

``paddle.jit.save`` writes it into a temporary folder: there is one way in, not two. What the file is compared with is
the layer itself, run eagerly in this process.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddle.jit.dy2static.program_translator import StaticFunction
from paddle.static import InputSpec

from tonnx.errors import CaptureError, InvalidArgument, TonnxError
from tonnx.frontends.dynamic_axes import axis_names, checked_axes
from tonnx.frontends.paddle.convert import PICTURES, Original, examples, lower
from tonnx.frontends.paddle.decided_sizes import Decisions, other_ways, split
from tonnx.frontends.paddle.lower.dims import inputs_of
from tonnx.frontends.paddle.read.dtypes import NAMES
from tonnx.frontends.paddle.read.graph import Block, Kind, Program, Type, Value
from tonnx.frontends.paddle.read.load import Loaded, load
from tonnx.frontends.paddle.reference.eager import Eager, inference, to_array
from tonnx.frontends.paddle.reference.predictor import first_that_runs
from tonnx.frontends.paddle.reference.rounded import TIMES
from tonnx.frontends.paddle.reference.trace import PaddleTrace
from tonnx.frontends.paddle.signature import LayerCall, Leaf, bind
from tonnx.frontends.paddle.user_line import blame
from tonnx.frontends.patching import How, Patch, patched
from tonnx.frontends.request import Converted, ModelRequest
from tonnx.proof.trials.inputs import symbol_sizes
from tonnx.stages import Stages


def convert_layer(request: ModelRequest, stages: Stages) -> Converted:
    """Capture, read and lower a layer, a function, or what ``paddle.jit.load`` gave."""
    with stages("capture"):
        _check(request.model)
        spec = request.input_spec
        if spec is None and not request.kwargs and _is_nothing(request.args):
            spec = _own_spec(request.model)
        model, function = _as_layer(request.model)
        call = bind(function, request.args, request.kwargs, spec)
        call = call.with_shapes(_shapes(call, request))
        with inference(model):
            ways = _ways(model, call, request.saving)
            loaded, decided, folder = _captured(model, function, call, request.saving, ways)
        folder.cleanup()  # what is mapped stays readable
    inside = loaded.program.inputs
    examples = {leaf.name: _array(leaf) for leaf in call.leaves if leaf.value is not None and leaf.name in inside}

    def trace(renamed: Mapping[str, str]) -> PaddleTrace:
        again, folder = resaved(model, function, call, decided)
        return PaddleTrace(again, renamed, folder)

    loaded, asked = split(loaded, len(decided.taken))
    run = partial(Eager, model, call, kept=request.saving.get("output_spec"), count=len(loaded.program.outputs))
    rounded = [partial(run, rounding=number) for number in range(TIMES)]
    original = Original(run, trace, lambda renamed: [start(renamed) for start in rounded], partial(run, redrawn=True))
    converted = lower(loaded, replace(request, args=examples), stages, original)
    return _suspicious(converted, decided, asked) if decided.taken else converted


def _suspicious(converted: Converted, decided: Decisions, asked: Program) -> Converted:
    """Told at which sizes the model may go another way than the captured program; without a proof, the user is."""
    subject = converted.subject
    names = dict(zip(asked.inputs, [str(value.name) for value in converted.model.graph.inputs], strict=True))

    def shapes(sizes: Mapping[str, int]) -> dict[str, list[int]]:
        axes = {own: subject.dynamic.get(name, {}) for own, name in names.items()}
        return {
            own: [
                sizes[axes[own][axis]] if axis in axes[own] else n for axis, n in enumerate(subject.example[name].shape)
            ]
            for own, name in names.items()
        }

    ways = other_ways(decided.taken, asked, shapes, symbol_sizes(subject.example, subject.dynamic))
    notes = (
        [] if subject.reference is not None else [f"[!] other sizes may go another way: {where}" for _, where in ways]
    )
    return replace(converted, subject=replace(subject, suspected=ways), notes=[*converted.notes, *notes])


def callable_of(model: Any) -> tuple[Any, Any]:
    """A layer, and the Python function that it runs."""
    _check(model)
    return _as_layer(model)


def _is_nothing(args: Any) -> bool:
    return args is None or (isinstance(args, (tuple, list)) and not args)


def _check(model: Any) -> None:
    if not paddle.in_dynamic_mode():
        raise InvalidArgument("paddle is in static mode", hint="call paddle.disable_static() before the export")
    if any(kind.__module__.partition(".")[0] == "torch" for kind in type(model).__mro__):
        raise InvalidArgument("a PyTorch model takes no input_spec", hint="give example tensors, and dynamic_axes")
    if isinstance(model, type):
        raise InvalidArgument(f"{model.__name__} is a class, not a layer", hint=f"pass an instance: {model.__name__}()")
    if not callable(model):
        raise InvalidArgument(f"cannot export a {type(model).__name__}", hint="pass a paddle.nn.Layer or a function")


def _as_layer(model: Any) -> tuple[Any, Any]:
    """The model as a layer without wrappers, and the Python function that is captured."""
    if isinstance(model, paddle.DataParallel):
        model = model._layers
    is_layer = isinstance(model, paddle.nn.Layer)
    function = model.forward if is_layer else model
    if isinstance(function, StaticFunction):
        function = function.dygraph_function
    return model if is_layer else _around(function, _layers_of(function)), function


def _own_spec(model: Any) -> Any:
    """What the model says of its inputs: ``to_static(input_spec=…)``, its last call, or the file it was loaded from."""
    if hasattr(model, "_input_spec") and hasattr(model, "program"):  # of paddle.jit.load
        return model._input_spec()
    function = getattr(model, "forward", model)
    if not isinstance(function, StaticFunction):
        return None
    spec = function._function_spec._input_spec
    called = spec is None
    spec = getattr(function, "last_call_input_spec", None) if called else spec
    if spec is None:
        return None
    return [_unnamed(part) for part in spec] if called else spec


def _unnamed(spec: Any) -> Any:
    """Of a call: Paddle has made names up, which say nothing."""
    return InputSpec(list(spec.shape), spec.dtype) if isinstance(spec, InputSpec) else spec


def _shapes(call: LayerCall, request: ModelRequest) -> dict[str, list[int]]:
    """Shapes to capture: what the user fixes is fixed, what he makes dynamic is dynamic."""
    leaves = call.leaves
    by_name = {leaf.name: leaf for leaf in leaves}
    for name, leaf in zip(request.input_names or (), leaves, strict=False):
        by_name.setdefault(name, leaf)
    shapes = {leaf.name: list(leaf.shape) for leaf in leaves}
    for name, shape in (request.input_shapes or {}).items():
        target = by_name.get(name)
        if target is None or len(shape) != len(target.shape):
            continue  # said in full when the program is there
        for axis, size in enumerate(shape):
            if isinstance(size, str):
                shapes[target.name][axis] = -1
            elif isinstance(size, int) and size >= 0:
                shapes[target.name][axis] = size
    for name, named in checked_axes(request.dynamic_axes).items():
        target = by_name.get(name)
        for axis in axis_names(name, named) if target is not None else ():
            if target is not None and -len(target.shape) <= axis < len(target.shape):
                shapes[target.name][axis] = -1
    return shapes


def _array(leaf: Leaf) -> Any:
    return to_array(leaf.value) if isinstance(leaf.value, paddle.Tensor) else leaf.value


# Capture


def _captured(
    model: Any, function: Any, call: LayerCall, saving: Mapping[str, Any], ways: Iterable[Decisions]
) -> tuple[Loaded, Decisions, tempfile.TemporaryDirectory[str]]:
    """The layer as Paddle captures it, in the first of the ways that it takes; and the folder that it lies in."""
    failure = None
    for decided in ways:
        folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        try:
            return _saved(Path(folder.name) / "model", model, function, call, saving, decided), decided, folder
        except CaptureError as error:
            failure = failure or error
            folder.cleanup()
    assert failure is not None
    raise failure


def _ways(model: Any, call: LayerCall, saving: Mapping[str, Any]) -> Iterator[Decisions]:
    """As Paddle does it; failing that, with what is asked of sizes answered by the example's, then also branches."""
    yield Decisions()
    if "output_spec" in saving or not paddle.framework.use_pir_api():
        return
    shapes = _example_shapes(model, call)
    if shapes is not None:
        yield Decisions(shapes)
        yield Decisions(shapes, branches=True)


def _example_shapes(model: Any, call: LayerCall) -> dict[str, tuple[int, ...]] | None:
    """The shapes of the user's tensors, and sizes that the layer takes for the others; None if nothing is dynamic."""
    leaves = call.leaves
    if all(size >= 0 for leaf in leaves for size in leaf.shape):
        return None
    taken = {leaf.name: np.asarray(_array(leaf)) for leaf in leaves if leaf.value is not None}
    if len(taken) < len(leaves):
        tensors = {leaf.name: Value(leaf.name, Type(Kind.TENSOR, NAMES.get(leaf.dtype), leaf.shape)) for leaf in leaves}
        inputs = inputs_of(Program("pir", 0, Block([]), tensors, {}, {}))
        names = {leaf.name: leaf.name for leaf in leaves}
        drawn, _ = first_that_runs(Eager(model, call, names), examples(inputs, taken, names, PICTURES))
        if drawn is None:
            return None
        taken = drawn
    return {name: array.shape for name, array in taken.items()}


def resaved(model: Any, function: Any, call: LayerCall, decided: Decisions | None = None) -> tuple[Loaded, Any]:
    """The layer saved and read, and the folder that it lies in: for Paddle to load it as well."""
    ways = _ways(model, call, {}) if decided is None else [Decisions(decided.shapes, decided.branches)]
    with inference(model):
        loaded, _, folder = _captured(model, function, call, {}, ways)
    return loaded, folder


def _all_saved(target: Any) -> list[Patch]:
    """What a layer uses is saved with it, also tensors that are not its own: of globals, lists, other layers."""
    used: dict[str, Any] = {}

    def popped(original: Any, recorder: Any, program: Any) -> Any:
        tensors, values = original(recorder, program)
        used.update((tensor.name, tensor) for tensor in tensors)
        return tensors, values

    def state(original: Any, *args: Any, **kwargs: Any) -> Any:
        return {**used, **original(*args, **kwargs)}

    reason = "Paddle saves what the state of the layer holds, and fails at any other tensor"
    return [
        *(Patch(module.ParametersRecorder, "pop", popped, reason) for module in _recorders()),
        Patch(target, "to_static_state_dict", state, reason),
    ]


def _empty_recorders() -> list[Patch]:
    """What a capture that fails leaves with Paddle, another program would take for its own: it goes by id."""
    names, reason = ("parameter_recorder", "inplace_map"), "a failed capture leaves parameters there"
    recorders = [getattr(module, f"_global_{name}", None) for module in _recorders() for name in names]
    return [Patch(recorder, "params_dict", {}, reason, How.VALUE) for recorder in recorders if recorder is not None]


def _recorders() -> list[Any]:
    """The module in which Paddle notes what tensors a capture uses."""
    for package in ("dy2static", "pir_dy2static"):  # the latter in 3.0
        with contextlib.suppress(ImportError):
            return [importlib.import_module(f"paddle.jit.{package}.parameter_recorder")]
    return []


def _saved(
    path: Path, model: Any, function: Any, call: LayerCall, saving: Mapping[str, Any], decided: Decisions
) -> Loaded:
    def spec(leaf: Leaf) -> Any:
        return InputSpec(list(leaf.shape), leaf.dtype, leaf.name)

    specs = call.mapped(spec)
    saving = {"skip_prune_program": True, **saving}  # Paddle's pruning refuses inputs that nothing reads; ours does not
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with contextlib.ExitStack() as stack:
                stack.enter_context(patched([*_empty_recorders(), *decided.patches()]))
                target = stack.enter_context(_plain(model, function))
                apart = [] if "output_spec" in saving else [_apart(decided)]
                stack.enter_context(patched([*apart, *_all_saved(target)]))
                paddle.jit.save(target, str(path), input_spec=specs, **saving)
        except TonnxError:
            raise
        except Exception as error:  # Paddle's own, and whatever the user's code raises while it is captured
            raise _failure(model, error) from error
    return load(path)


@contextlib.contextmanager
def _plain(model: Any, function: Any) -> Iterator[Any]:
    """The layer as ``paddle.jit.save`` takes it together with an ``input_spec``.

    A ``forward`` that ``to_static`` has wrapped is unwrapped for the time.
    """
    members = (getattr(type(model), name, None) for name in dir(type(model)) if name != "forward")
    if any(isinstance(member, StaticFunction) for member in members):  # Paddle would save those as well
        yield _around(function, [model])
        return
    if not isinstance(model.forward, StaticFunction):
        yield model
        return
    reason = "paddle.jit.save refuses a second description of it"
    with patched([Patch(model, "forward", function, reason, How.VALUE)]):
        yield model


def _around(function: Any, layers: Sequence[Any]) -> Any:
    """A layer whose forward is ``function``, and whose parameters are those of ``layers``."""
    layer = paddle.nn.Layer()
    for i, part in enumerate(layers):
        layer.add_sublayer(f"layer_{i}", part)
    layer.__dict__["forward"] = function
    return layer


def _layers_of(function: Any) -> list[Any]:
    """The layers that a function refers to by name."""
    own = getattr(function, "__self__", None)  # of a method
    try:
        names = inspect.getclosurevars(getattr(function, "__func__", function))
    except TypeError:  # a callable object
        names = inspect.ClosureVars({}, {}, {}, set())
    candidates = [own, *names.nonlocals.values(), *names.globals.values(), *getattr(function, "__dict__", {}).values()]
    return [value for value in candidates if isinstance(value, paddle.nn.Layer)]


def _apart(decided: Decisions) -> Patch:
    """Every output as a value of its own; after them, what Python was told of sizes.

    Paddle 3.3 takes an output that is an input plus a number for the input itself, and a value that is returned twice
    for one output.
    """

    def copied(original: Any, *args: Any) -> Any:
        outputs = original(*args)
        copies = paddle.utils.map_structure(lambda part: paddle.assign(part) if is_tensor(part) else part, outputs)
        asked = [paddle.assign(value) for value in decided.values()]
        return (copies, *asked) if asked else copies

    def is_tensor(part: Any) -> bool:
        return isinstance(part, (paddle.Tensor, paddle.pir.Value, paddle.static.Variable))

    helper = "paddle.jit.dy2static.program_translator.HookHelper"
    return Patch(helper, "apply_post_hooks", copied, "Paddle takes outputs for others")


def _failure(model: Any, error: Exception) -> CaptureError:
    where, why = blame(error)
    hint = "write it with paddle operators only, so that paddle.jit.to_static takes it"
    name = getattr(model.__dict__.get("forward"), "__name__", type(model).__name__)
    return CaptureError(f"Paddle cannot turn {name} into a static graph", where=where, why=why, hint=hint)
