"""From a module to a torch.export program, with the dimensions dynamic that were asked for."""

from __future__ import annotations

import contextlib
import functools
import inspect
import linecache
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import sympy
import torch
from torch.export import Dim, ExportedProgram
from torch.export.graph_signature import InputKind, TensorArgument
from torch.utils import _pytree as pytree

from tonnx.errors import InvalidArgument, TonnxError
from tonnx.frontends.torch.call.signature import Call, DimSpec, Leaf
from tonnx.frontends.torch.capture.explain import Frozen, explain, frozen, quiet_torch, user_line
from tonnx.frontends.torch.capture.patches import associative_scan, autograd, recurrent
from tonnx.frontends.torch.capture.patches.fake_quantisers import fake_quantisers, made_plain, shapes_known
from tonnx.frontends.torch.capture.patches.packed_sequences import packed_stand_ins
from tonnx.frontends.torch.capture.patches.quantised_layers import quantised_layers
from tonnx.frontends.torch.capture.patches.torchvision import vision_stand_ins
from tonnx.frontends.torch.capture.python_flow.replace_code import Rewrites, with_control_flow
from tonnx.frontends.torch.capture.python_flow.scope_analysis import Unsuitable
from tonnx.frontends.torch.capture.size_branches import Spot, unsettled
from tonnx.frontends.torch.settings import EVAL, PRESERVE, TRAINING
from tonnx.frontends.torch.source import runs_the_model, shorten


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
    notes: list[str] = field(default_factory=list)
    shared: set[str] = field(default_factory=set)
    """Names of different dimensions that the model wants equal, or one of them 1."""


def inference_mode(model: torch.nn.Module) -> contextlib.AbstractContextManager[None]:
    """Evaluation mode without gradients, everything put back as it was."""
    return model_mode(model, EVAL)


@contextlib.contextmanager
def model_mode(model: torch.nn.Module, mode: str) -> Iterator[None]:
    """EVAL, TRAINING, or PRESERVE, without gradients; everything is put back as it was: also when the export fails."""
    training = {module: module.training for module in model.modules()}
    fastpath = torch.backends.mha.get_fastpath_enabled()
    try:
        if mode != PRESERVE:
            _set_mode(model, mode == TRAINING)
        torch.backends.mha.set_fastpath_enabled(False)  # it would hide the layers behind one opaque operator
        with torch.no_grad():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fastpath)
        for module, flag in training.items():
            module.training = flag


def _set_mode(model: torch.nn.Module, training: bool) -> None:
    try:
        model.train(training)
    except NotImplementedError:  # the module of an exported program, whose mode is written into its graph
        for module in model.modules():
            module.training = training


@runs_the_model
def capture(model: torch.nn.Module, call: Call) -> Captured:
    """Run torch.export. The model must be in ``inference_mode``."""
    dropped = _drop_broadcast(model, call)
    left: list[Spot] = []
    not_looked_at: list[str] = []

    def check(result: tuple[ExportedProgram, Frozen, list[str]], froze: Frozen) -> list[Spot]:
        not_looked_at.clear()
        left[:] = unsettled(model, call, result[0], froze, not_looked_at)
        return left

    program, froze, notes = with_control_flow(
        lambda froze, rewrites: (_export(model, call, froze, rewrites), froze, list(dict.fromkeys(rewrites.notes))),
        check,
    )
    if _drop_fixed(program, call):
        return capture(model, call)
    captured = describe(program, call)
    told = dict.fromkeys([*dropped, *not_looked_at])
    captured.notes += [*_assumptions(froze, captured.names), *_one_sided(left), *told, *notes]
    return captured


def _one_sided(spots: list[Spot]) -> list[str]:
    """Branches on sizes of which the file has one side only, since the other could not be recorded beside it."""
    lines = [f"{shorten(file)}:{line}: {linecache.getline(file, line).strip()}" for file, line, _ in spots]
    return [f"[!] other sizes take another side, which is not in the file: {line}" for line in dict.fromkeys(lines)]


def _assumptions(froze: Frozen, names: dict[sympy.Symbol, str]) -> list[str]:
    """What holds only while an expression of dynamic sizes keeps the value that it has in the example."""
    notes = []
    for expression, number, line in froze.assumed:
        if names.keys() & expression.free_symbols:
            text = expression.xreplace({symbol: sympy.Symbol(name) for symbol, name in names.items()})
            notes.append(f"[!] only right where {text} is {number}, which the model reads as a plain number: {line}")
    return list(dict.fromkeys(notes))


def _export(model: torch.nn.Module, call: Call, froze: Frozen, rewrites: Rewrites) -> ExportedProgram:
    args, kwargs = call.with_tensors(grown_example(call))
    with (
        _explicit_keywords(model, call),
        recurrent.stand_ins(),
        vision_stand_ins(),
        packed_stand_ins(),
        associative_scan.scans(),
        autograd.as_operators(),
        fake_quantisers(model),
        quantised_layers(model),
        shapes_known(),
        _exporting(),
        rewrites.applied(),
        froze.recorded(),
        quiet_torch(),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        try:
            program = torch.export.export(
                model,
                args,
                kwargs,
                dynamic_shapes=_dynamic_shapes(model, call, args, kwargs),
                strict=False,
                prefer_deferred_runtime_asserts_over_guards=True,
            )
            return made_plain(program)
        except TonnxError as error:
            error.where = error.where or user_line(error)
            raise
        except (Exception, Unsuitable) as error:  # whatever goes wrong in the user's forward or in torch.export
            raise explain(error, model, call, froze) from error


@contextlib.contextmanager
def _exporting() -> Iterator[None]:
    """``torch.onnx.is_in_onnx_export()`` is true: models and libraries ask that, to take a way that exports."""
    from torch.onnx._internal.exporter import _flags

    before = _flags._is_onnx_exporting
    _flags._is_onnx_exporting = True
    try:
        yield
    finally:
        _flags._is_onnx_exporting = before


@contextlib.contextmanager
def _explicit_keywords(model: torch.nn.Module, call: Call) -> Iterator[None]:
    """Let a forward that takes its inputs as ``**kwargs`` look as if it named them.

    torch.export (2.13) counts such inputs twice when it matches them with dynamic_shapes, and fails.
    """
    signature = inspect.signature(model.forward)
    parameters = {p.name: p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD}
    extra = [name for name in call.kwargs if name not in parameters]
    if not extra:
        yield
        return
    forward, own = model.forward, "forward" in vars(model)

    @functools.wraps(forward)
    def named(*args: Any, **kwargs: Any) -> Any:
        return forward(*args, **kwargs)

    added = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in extra]
    named.__signature__ = signature.replace(parameters=[*parameters.values(), *added])  # type: ignore[attr-defined]
    vars(model)["forward"] = named
    try:
        yield
    finally:
        del vars(model)["forward"]
        if own:  # somebody had replaced the method of this one model
            vars(model)["forward"] = forward


def _drop_broadcast(model: torch.nn.Module, call: Call) -> list[str]:
    """Forget the Dim.AUTO dimensions of size 0 or 1 that the model broadcasts or drops: it wants them of that size.

    Nothing but a run tells: torch.export puts off the question whether two sizes are equal. Returns notes: a model
    that fails at any other size leaves the question open.
    """
    from tonnx.frontends.torch.reference.state import state_kept

    optional = [(leaf, axis) for leaf in call.leaves for axis, dim in leaf.dynamic.items() if dim.optional]
    small = [(leaf, axis) for leaf, axis in optional if leaf.tensor.shape[axis] < 2]
    if not small:
        return []
    notes: list[str] = []
    try:
        ranks = []
        for tensors in (grown_example(call), [leaf.tensor for leaf in call.leaves]):
            args, kwargs = call.with_tensors([tensor.clone() for tensor in tensors])
            with torch.random.fork_rng(devices=[]), state_kept(model):
                results = pytree.tree_leaves(model(*args, **kwargs))
            ranks.append([result.dim() for result in results if isinstance(result, torch.Tensor)])
    except Exception as error:  # noqa: BLE001 (the user's code, at a size that it may not be made for; told in a note)
        ranks = [[0], [1]]
        fixed = ", ".join(f"axis {axis} of {leaf.name}" for leaf, axis in small)
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"[:120].rstrip(": ")
        notes.append(f"fixed, since the model itself fails at another size: {fixed} ({reason})")
    if ranks[0] != ranks[1]:
        for leaf, axis in small:
            del leaf.dynamic[axis]
    return notes


def _drop_fixed(program: ExportedProgram, call: Call) -> bool:
    """Forget the Dim.AUTO dimensions that torch left symbolic although the model allows one size only."""
    placeholders = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    inputs = [
        placeholders[spec.arg.name].meta["val"]
        for spec in program.graph_signature.input_specs
        if spec.kind == InputKind.USER_INPUT and isinstance(spec.arg, TensorArgument)
    ]
    dropped = False
    for leaf, fake in zip(call.leaves, inputs, strict=True):
        for axis, wanted in list(leaf.dynamic.items()):
            size = fake.shape[axis]
            limits = None if isinstance(size, int) else program.range_constraints.get(size.node.expr)
            if wanted.optional and limits is not None and limits.is_singleton():
                del leaf.dynamic[axis]
                dropped = True
    return dropped


def describe(program: ExportedProgram, call: Call) -> Captured:
    """Match the program's placeholders with the user's inputs, and its symbols with their names."""
    inputs: dict[str, Leaf] = {}
    names: dict[sympy.Symbol, str] = {}
    limits: dict[str, tuple[int, int | None]] = {}
    shared: set[str] = set()
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
                raise frozen([(leaf, axis, wanted, int(size), None)])
            expression = size.node.expr
            if expression.is_Symbol:
                name = names.setdefault(expression, wanted.name)
                if wanted.optional:  # Dim.AUTO: sizes that the model wants equal are one dimension
                    wanted = leaf.dynamic[axis] = replace(wanted, name=name)
                elif name != wanted.name:
                    shared |= {name, wanted.name}
            _limit(limits, wanted, program.range_constraints.get(expression))
    return Captured(program, inputs, names, limits, shared=shared)


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


def grown_example(call: Call) -> list[torch.Tensor]:
    """The example tensors for the capture: a dynamic dimension of size 0 or 1 grows, or torch.export would freeze it.

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
    tensors: list[torch.Tensor] = []
    for leaf in call.leaves:
        tensor = leaf.tensor
        for axis, dim in leaf.dynamic.items():
            if dim.name in grown:
                tensor = grow(tensor, axis, grown[dim.name], dim.maximum)
        # One tensor given for two inputs: the file has two, so the model must not see (`query is key`) that it is one.
        tensors.append(tensor.clone() if any(tensor is other for other in tensors) else tensor)
    return tensors


def grow(tensor: torch.Tensor, axis: int, size: int, maximum: int | None) -> torch.Tensor:
    """A tensor with another size of an axis: its rows repeated, or cut."""
    size = min(size, maximum) if maximum is not None else size
    if tensor.shape[axis] == 0:
        shape = list(tensor.shape)
        shape[axis] = size
        return tensor.new_zeros(shape)
    index = torch.arange(size, device=tensor.device) % tensor.shape[axis]
    return tensor.detach().index_select(axis, index)


def _dynamic_shapes(model: torch.nn.Module, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``dynamic_shapes`` for torch.export: Dim.DYNAMIC at each place, so that it derives relations by itself."""
    if not any(leaf.dynamic for leaf in call.leaves):
        return None
    leaves = iter(call.leaves)

    def spec(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            dynamic = next(leaves).dynamic
            return {axis: Dim.AUTO if dim.optional else Dim.DYNAMIC for axis, dim in dynamic.items()} or None
        parts = pytree.tree_flatten_with_path(value, is_leaf=lambda other: other is not value)
        if not parts[0] or parts[0][0][0] == ():
            return None
        specs = [spec(part) for _, part in parts[0]]
        # torch.export wants the users' own classes flattened, and Python's as they are.
        return pytree.tree_unflatten(specs, parts[1]) if parts[1].type in pytree.BUILTIN_TYPES else specs

    # By parameter, as torch.export wants it: *args as a tuple, **kwargs as a dict.
    return spec(dict(inspect.signature(model.forward).bind(*args, **kwargs).arguments))
