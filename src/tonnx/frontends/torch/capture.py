"""From a module to a torch.export program, with the dimensions dynamic that were asked for."""

from __future__ import annotations

import contextlib
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch.export import Dim, ExportedProgram
from torch.export.graph_signature import InputKind, TensorArgument
from torch.utils import _pytree as pytree

from tonnx.errors import CaptureError, InvalidArgument
from tonnx.frontends.torch import recurrent
from tonnx.frontends.torch.signature import Call, DimSpec, Leaf
from tonnx.frontends.torch.source import shorten


@dataclass
class Captured:
    """A program, and what its dimensions are called."""

    program: ExportedProgram
    inputs: dict[str, Leaf]
    """Placeholder name → the user's input."""
    names: dict[sympy.Symbol, str]
    """Symbols of the program → the names that were asked for."""
    limits: dict[str, tuple[int, int | None]]
    """Sizes that the user or the model's own code restricts a dimension to."""


@contextlib.contextmanager
def inference_mode(model: torch.nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients, everything put back as it was: also when the export fails."""
    training = {module: module.training for module in model.modules()}
    fastpath = torch.backends.mha.get_fastpath_enabled()
    try:
        model.eval()
        torch.backends.mha.set_fastpath_enabled(False)  # it would hide the layers behind one opaque operator
        with torch.no_grad():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fastpath)
        for module, flag in training.items():
            module.training = flag


def capture(model: torch.nn.Module, call: Call) -> Captured:
    """Run torch.export. The model must be in ``inference_mode``."""
    if isinstance(model, torch.jit.ScriptModule):
        raise CaptureError("TorchScript modules cannot be exported", hint="export the torch.nn.Module it was made from")
    tensors = _example(call)
    args, kwargs = call.with_tensors(tensors)
    shapes = _dynamic_shapes(call, args, kwargs)
    with recurrent.stand_ins(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            program = torch.export.export(
                model,
                args,
                kwargs,
                dynamic_shapes=shapes,
                strict=False,
                prefer_deferred_runtime_asserts_over_guards=True,
            )
        except Exception as error:  # whatever goes wrong in the user's forward or in torch.export
            raise _explain(error, model) from error
    return describe(program, call)


def describe(program: ExportedProgram, call: Call) -> Captured:
    """Match the program's placeholders with the user's inputs, and its symbols with their names."""
    inputs: dict[str, Leaf] = {}
    names: dict[sympy.Symbol, str] = {}
    limits: dict[str, tuple[int, int | None]] = {}
    placeholders = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    leaves = iter(call.leaves)
    for spec in program.graph_signature.input_specs:
        if spec.kind != InputKind.USER_INPUT or not isinstance(spec.arg, TensorArgument):
            continue
        leaf = next(leaves)
        inputs[spec.arg.name] = leaf
        shape = placeholders[spec.arg.name].meta["val"].shape
        for axis, wanted in list(leaf.dynamic.items()):
            size = shape[axis]
            if isinstance(size, int) or size.node.maybe_as_int() is not None:
                if wanted.optional:
                    del leaf.dynamic[axis]
                    continue
                raise _frozen(program, leaf, axis, wanted, int(size))
            expression = size.node.expr
            if expression.is_Symbol:
                names.setdefault(expression, wanted.name)
            _limit(limits, wanted, program.range_constraints.get(expression))
    return Captured(program, inputs, names, limits)


def _limit(limits: dict[str, tuple[int, int | None]], wanted: DimSpec, found: Any) -> None:
    # torch.export says "at least 2" of every dynamic dimension, only because 0 and 1 are special to it.
    low, high = wanted.minimum or 0, wanted.maximum
    if found is not None:
        if found.lower.is_Integer and int(found.lower) > 2:
            low = max(low, int(found.lower))
        if found.upper.is_Integer and int(found.upper) < 2**31:
            high = min(int(found.upper), high) if high is not None else int(found.upper)
    before_low, before_high = limits.get(wanted.name, (0, None))
    highs = [h for h in (high, before_high) if h is not None]
    limits[wanted.name] = (max(low, before_low), min(highs) if highs else None)


def _frozen(program: ExportedProgram, leaf: Leaf, axis: int, wanted: DimSpec, size: int) -> CaptureError:
    return CaptureError(
        f"dimension {axis} of the input {leaf.name!r} ({wanted.name}) cannot be dynamic: the model fixes it to {size}",
        why="the model's own code reads this size as a Python number, or combines it with a fixed one",
        hint="remove the dependence on the fixed size, or leave this dimension out of the dynamic ones",
    )


def _example(call: Call) -> list[torch.Tensor]:
    """The example tensors for the capture: a dynamic dimension of size 0 or 1 grows, since torch.export would freeze it.

    Dimensions of the same name grow together. The new rows repeat the old ones, so that the values stay plausible.
    """
    sizes: dict[str, int] = {}
    for leaf in call.leaves:
        for axis, dim in leaf.dynamic.items():
            size = leaf.tensor.shape[axis]
            if sizes.setdefault(dim.name, size) != size:
                raise InvalidArgument(
                    f"the dimension {dim.name!r} has size {sizes[dim.name]} in one input and {size} in {leaf.name!r}",
                    hint="give different names to dimensions that may differ",
                )
    grown = {name: size for name, size in sizes.items() if size < 2}
    for i, name in enumerate(grown):
        grown[name] = 2 + i  # different sizes for different dimensions, so that none is taken for another
    tensors = []
    for leaf in call.leaves:
        tensor = leaf.tensor
        for axis, dim in leaf.dynamic.items():
            if dim.name in grown:
                tensor = _grow(tensor, axis, grown[dim.name], dim.maximum)
        tensors.append(tensor)
    return tensors


def _grow(tensor: torch.Tensor, axis: int, size: int, maximum: int | None) -> torch.Tensor:
    size = min(size, maximum) if maximum is not None else size
    if tensor.shape[axis] == 0:
        shape = list(tensor.shape)
        shape[axis] = size
        return tensor.new_zeros(shape)
    index = torch.arange(size, device=tensor.device) % tensor.shape[axis]
    return tensor.detach().index_select(axis, index)


def _dynamic_shapes(call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``dynamic_shapes`` for torch.export: Dim.DYNAMIC at each place, so that it derives relations by itself."""
    if not any(leaf.dynamic for leaf in call.leaves):
        return None
    leaves = iter(call.leaves)

    def spec(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return None
        leaf = next(leaves)
        return {axis: Dim.AUTO if dim.optional else Dim.DYNAMIC for axis, dim in leaf.dynamic.items()} or None

    flat, tree = pytree.tree_flatten((args, kwargs))
    for_args, for_kwargs = pytree.tree_unflatten([spec(value) for value in flat], tree)
    if not kwargs:
        return for_args
    return (*for_args, *for_kwargs.values())


def _explain(error: Exception, model: torch.nn.Module) -> CaptureError:
    """The cause in one line, and the user's own line that it came from."""
    text = str(error).strip()
    first = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    hint = None
    if "specialized" in text or "Constraints violated" in text:
        details = [line.strip(" -") for line in text.splitlines() if line.strip().startswith("-")]
        first = details[0] if details else first
        hint = "the model fixes this dimension: leave it out of the dynamic ones, or remove the dependence on its size"
    elif "data-dependent" in text or "GuardOnDataDependent" in type(error).__name__:
        hint = "the model branches on the values of a tensor; use torch.where, or torch.cond"
    return CaptureError(
        f"torch.export could not capture {type(model).__name__}: {first[:300]}", where=_user_line(error), hint=hint
    )


def _user_line(error: BaseException) -> str | None:
    torch_dir = torch.__path__[0]
    here = __file__.rsplit("tonnx", 1)[0]
    at = None
    for frame in traceback.extract_tb(error.__traceback__):
        if not frame.filename.startswith((torch_dir, here)) and "contextlib" not in frame.filename:
            at = f"{shorten(frame.filename)}:{frame.lineno}: {frame.line}"
    return at
