"""A PyTorch model that a file is verified against. No capture is needed for it; only to look inside."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from tonnx.errors import InvalidArgument, TonnxError
from tonnx.frontends.patching import exclusive
from tonnx.frontends.torch.call.containers import results_of
from tonnx.frontends.torch.call.program import program_call
from tonnx.frontends.torch.call.signature import DimSpec, ModelCall, bind_call
from tonnx.frontends.torch.call.state import state_kept
from tonnx.frontends.torch.capture.program import Captured, describe
from tonnx.frontends.torch.capture.torch_export import Exports
from tonnx.frontends.torch.capture.torchscript import is_script
from tonnx.frontends.torch.convert import as_module
from tonnx.frontends.torch.fx.trace import FxTrace
from tonnx.frontends.torch.operators.weights import as_numpy
from tonnx.frontends.torch.reference.eager import from_numpy, to_numpy
from tonnx.frontends.torch.reference.kernels import FRAMEWORK, saturating
from tonnx.frontends.torch.reference.mode import called, inference_mode
from tonnx.frontends.torch.reference.rounded import TIMES, rounded
from tonnx.frontends.torch.script.trace import ScriptTrace
from tonnx.proof.examples import first_that_runs
from tonnx.proof.locate.trace import Opened, Step, Trace
from tonnx.proof.signature import Signature, check_fit, match_inputs, match_outputs
from tonnx.proof.subject import Reference, Subject


def original(model: Any, args: Any, kwargs: Mapping[str, Any] | None, signature: Signature) -> Subject:
    """The model with the user's example: tensors or arrays as it takes them."""
    program = model if isinstance(model, ExportedProgram) else None
    module = program.module() if program is not None else as_module(model)
    args, kwargs = pytree.tree_map(_as_tensor, (args, dict(kwargs or {})))
    bound = (program_call, program) if program is not None else (bind_call, module)
    call: ModelCall = bound[0](bound[1], args, kwargs, None)  # type: ignore[operator]
    places = match_inputs(signature.inputs, [leaf.name for leaf in call.leaves], "the model")
    back = {model_name: name for name, model_name in places.items()}
    example = {back[leaf.name]: as_numpy(leaf.tensor) for leaf in call.leaves if leaf.name in back}
    example = {name: example[name] for name in signature.inputs}
    check_fit(signature, example)
    run = partial(_reference, module, call, back, signature.outputs)

    def trace() -> Trace:
        if is_script(model):
            return ScriptTrace(model, call, back)
        for leaf in call.leaves:
            leaf.name = back.get(leaf.name, leaf.name)
        missing = {leaf.name: as_numpy(leaf.tensor) for leaf in call.leaves if leaf.name not in signature.inputs}
        return _Completed(FxTrace(_captured(module, program, call, signature)), missing)

    return Subject(
        run(),
        example,
        signature.outputs,
        signature.dynamic(),
        rounded=[run(number) for number in range(TIMES)],
        saturates=saturating,
        framework=FRAMEWORK,
        state=partial(_state, module),
        trace=trace,
    )


def _state(module: torch.nn.Module) -> dict[str, np.ndarray]:
    return {name: to_numpy(value) for name, value in module.state_dict().items() if isinstance(value, torch.Tensor)}


def has_example(model: Any) -> bool:
    return isinstance(model, ExportedProgram) and model.example_inputs is not None


def with_arrays(
    model: Any,
    arrays: dict[str, np.ndarray],
    examples: Callable[[Mapping[str, np.ndarray]], Iterable[dict[str, np.ndarray]]],
    signature: Signature,
) -> Subject:
    """The model with arrays by the file's names, or by those of its own parameters; ``examples`` completes them."""
    if arrays and not set(arrays) <= set(signature.inputs) and _takes_names(model, arrays):
        return original(model, (), arrays, signature)

    def with_example(example: Mapping[str, np.ndarray]) -> Subject:
        return original(model, *_arguments_of(model, example), signature)

    def runs(example: dict[str, np.ndarray]) -> Sequence[np.ndarray]:
        reference = with_example(example).reference
        assert reference is not None
        return reference(example)

    return with_example(first_that_runs(runs, examples(arrays)))


class _Completed:
    """A trace of a model that takes more than the file: an exporter may leave out inputs that nobody reads."""

    framework = FRAMEWORK

    def __init__(self, inner: Any, missing: Mapping[str, np.ndarray]) -> None:
        self._inner, self._missing = inner, dict(missing)

    def steps(self) -> list[Step]:
        return list(self._inner.steps())

    def run(self, feeds: dict[str, np.ndarray], wanted: Any, take: Any) -> None:
        self._inner.run({**self._missing, **feeds}, wanted, take)

    def opened(self, feeds: dict[str, np.ndarray], steps: Any) -> Opened | None:
        inner = self._inner.opened({**self._missing, **feeds}, steps)
        return None if inner is None else Opened(_Completed(inner.trace, self._missing), inner.passes)


def _arguments_of(model: Any, arrays: Mapping[str, np.ndarray]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arrays by name as a call: by parameter if the names are the model's, else in order."""
    tensors = {name: _as_tensor(array) for name, array in arrays.items()}
    if isinstance(model, ExportedProgram):
        return tuple(tensors.values()), {}
    parameters = inspect.signature(as_module(model).forward).parameters
    if set(tensors) <= set(parameters):
        return (), tensors
    return tuple(tensors.values()), {}


def _takes_names(model: Any, names: Iterable[str]) -> bool:
    if isinstance(model, ExportedProgram):
        return False
    return set(names) <= set(inspect.signature(as_module(model).forward).parameters)


def _as_tensor(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    try:
        return from_numpy(value, torch.empty(0, dtype=getattr(torch, value.dtype.name, torch.float32)))
    except TypeError as error:
        raise InvalidArgument(f"an input is {value.dtype}, which is not a dtype of torch") from error


def _reference(
    module: Any, call: ModelCall, back: Mapping[str, str], outputs: Sequence[str], rounding: int | None = None
) -> Reference:
    names = [back.get(leaf.name, "") for leaf in call.leaves]  # now: a trace renames the leaves

    def run(feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
        tensors = [
            from_numpy(feeds[name], leaf.tensor) if name in feeds else leaf.tensor.clone()
            for name, leaf in zip(names, call.leaves, strict=True)
        ]
        args, kwargs = call.with_tensors(tensors)
        mode = torch.no_grad() if isinstance(module, torch.fx.GraphModule) else inference_mode(module)
        with exclusive(), torch.random.fork_rng(devices=[]), state_kept(module), mode, rounded(rounding):
            return _picked(called(module, args, kwargs), outputs, call.names)

    return run


def _picked(result: Any, outputs: Sequence[str], arguments: Sequence[str]) -> list[np.ndarray]:
    """The file's outputs among what the model returns."""
    results = {name: leaf for name, leaf in results_of(result, arguments).items() if leaf is not None}
    leaves = list(results.values())
    return [to_numpy(leaves[place]) for place in match_outputs(outputs, list(results))]


def _captured(module: Any, program: ExportedProgram | None, call: ModelCall, signature: Signature) -> Captured:
    """Captured as the export did it: with the dimensions dynamic that are so in the file."""
    if program is not None:
        return describe(program, call)
    axes = signature.dynamic()
    for leaf in call.leaves:
        leaf.dynamic = {axis: DimSpec(name) for axis, name in axes.get(leaf.name, {}).items()}
    with exclusive(), inference_mode(module):
        try:
            return Exports(module, call, FxTrace).rewritten()
        except TonnxError:
            if not any(leaf.dynamic for leaf in call.leaves):
                raise
            for leaf in call.leaves:
                leaf.dynamic = {}
            return Exports(module, call, FxTrace).rewritten()
