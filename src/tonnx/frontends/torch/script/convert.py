"""A TorchScript program, from the user's arguments to an ONNX graph at CANON and a function that runs the original."""

from __future__ import annotations

import contextlib
import copy
import inspect
from collections import namedtuple
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import onnx_ir as ir
import torch
from torch.utils import _pytree as pytree

from tonnx.errors import LoweringError
from tonnx.frontends.patching import How, Patch, patched
from tonnx.frontends.torch.call.results import add_input, add_results, result_names
from tonnx.frontends.torch.call.signature import ModelCall
from tonnx.frontends.torch.capture import script_graphs as graphs
from tonnx.frontends.torch.capture.torchscript import Scripted
from tonnx.frontends.torch.operators.bind import stored_dtype
from tonnx.frontends.torch.script import lists
from tonnx.frontends.torch.script.objects import Parameters, thing_of
from tonnx.frontends.torch.script.values import Dict, Fields, List, Maybe, Object, Tensor
from tonnx.frontends.torch.script.walk import LowerGraph, ScriptWalk
from tonnx.frontends.torch.settings import EVAL, PRESERVE, TRAINING, Settings
from tonnx.ir import facts
from tonnx.ir.build import Builder
from tonnx.lowering.regions.lists import DynamicList, as_number


class Runnable(torch.nn.Module):
    """A TorchScript program as a module with a Python signature. A run leaves the user's module as it was."""

    def __init__(self, script: Any, mode: str = EVAL) -> None:
        super().__init__()
        object.__setattr__(self, "script", script)  # not a part of this module: its mode is not this module's
        self.mode = mode
        self.keeps_state = False
        self.__name__ = getattr(script, "original_name", None) or getattr(script, "name", "forward")
        schema = script.forward.schema if isinstance(script, torch.jit.ScriptModule) else script.schema
        is_method = isinstance(script, torch.jit.ScriptModule)
        arguments = schema.arguments[1:] if is_method else schema.arguments
        parameters = [
            inspect.Parameter(
                argument.name,
                inspect.Parameter.KEYWORD_ONLY if argument.kwarg_only else inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=argument.default_value if argument.has_default_value() else inspect.Parameter.empty,
            )
            for argument in arguments
        ]

        def forward(*args: Any, **kwargs: Any) -> Any:
            return self.run(*args, **kwargs)

        forward.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        self.forward = forward

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """One run, in the mode that was exported, from the state that was exported."""
        script: Any = self.script
        if not isinstance(script, torch.jit.ScriptModule):
            with torch.no_grad():
                return script(*args, **kwargs)
        if self.keeps_state:
            script = copy.deepcopy(script)
        with _in_mode(script, self.mode):
            return script(*args, **kwargs)


@contextlib.contextmanager
def _in_mode(script: torch.jit.ScriptModule, mode: str) -> Iterator[None]:
    """EVAL, TRAINING or PRESERVE, without gradients; put back afterwards. A frozen module has no mode."""
    modules = [module for module in script.modules() if hasattr(module, "training")]
    with patched(Patch(module, "training", None, f"the export is of the mode {mode}", How.KEPT) for module in modules):
        for module in modules if mode != PRESERVE else ():
            module.training = mode == TRAINING
        with torch.no_grad():
            yield


def lower_script(
    scripted: Scripted,
    module: torch.nn.Module,
    call: ModelCall,
    output_names: list[str],
    output_axes: Mapping[str, dict[int, str]],
    settings: Settings,
    lower_graph: LowerGraph,
) -> tuple[ir.Model, list[int], list[str]]:
    """The ONNX model; which of the flattened outputs it has (None is not one); what the user should know."""
    script = scripted.program
    if isinstance(module, Runnable):
        module.mode = settings.training
    op = Builder.of_model([*(leaf.name for leaf in call.leaves), *output_names])
    parameters = Parameters(op)
    walk = ScriptWalk(op, parameters, settings, lower_graph)
    with op:
        tree = _run(walk, script, call, _inputs(op.graph, call))
        walk.raise_unsupported()
        results = [_read(walk, leaf) for leaf in pytree.tree_leaves(tree)]
        kept, notes = add_results(op, results, result_names(tree), call.leaves, output_names, output_axes)
    if isinstance(module, Runnable):
        module.keeps_state = walk.writes_state or parameters.changed()
    return op.model(), kept, [*walk.notes, *notes]


def _inputs(graph: ir.Graph, call: ModelCall) -> list[Tensor]:
    tensors = []
    for leaf in call.leaves:
        tensors.append(Tensor(add_input(graph, leaf, stored_dtype(leaf.tensor.dtype), list(leaf.tensor.shape))))
        tensors[-1].packed = leaf.tensor.is_contiguous()
    return tensors


def _run(walk: ScriptWalk, script: Any, call: ModelCall, inputs: Sequence[Tensor]) -> Any:
    args, kwargs = call.with_tensors(inputs)
    is_method = isinstance(script, torch.jit.ScriptModule)
    schema = script.forward.schema if is_method else script.schema
    arguments = _positional(schema, args, kwargs, is_method)
    things = [thing_of(walk, argument, "") for argument in arguments]
    if is_method:
        walk.parameters.name(script)
        result = walk.method(Object(script._c, ""), "forward", things)
    else:
        result = walk.graph(graphs.ready(script.graph), things)
    return _tree(walk, result)


def _positional(schema: Any, args: Sequence[Any], kwargs: Mapping[str, Any], is_method: bool) -> list[Any]:
    """All arguments in the order of the schema, defaults among them."""
    arguments = []
    for i, argument in enumerate(schema.arguments[1:] if is_method else schema.arguments):
        if i < len(args):
            arguments.append(args[i])
        elif argument.name in kwargs:
            arguments.append(kwargs[argument.name])
        else:
            arguments.append(argument.default_value if argument.has_default_value() else None)
    return arguments


def _tree(walk: ScriptWalk, thing: Any) -> Any:
    """The result of the program in Python's own containers."""
    if isinstance(thing, List):
        content = walk.store.content(thing)
        if isinstance(content, DynamicList) and content.count is None:
            raise LoweringError(
                "the model returns a list whose length is known only at run time",
                why="a file has a fixed number of outputs",
                hint="return torch.stack(list), or torch.tensor(list) for numbers",
            )
        return [_tree(walk, item) for item in lists.elements_of(walk, thing, "returning")]
    if isinstance(thing, Dict):
        return {key: _tree(walk, item) for key, item in walk.store.content(thing).items()}
    if isinstance(thing, Fields):
        kind = namedtuple("Result", thing.names, rename=True)  # type: ignore[misc]
        return kind(*(_tree(walk, item) for item in thing))
    if isinstance(thing, tuple):
        return tuple(_tree(walk, item) for item in thing)
    if isinstance(thing, Maybe):
        raise LoweringError(
            "the model returns an Optional of which only the run tells whether it is None",
            hint="return an empty tensor instead of None",
        )
    return thing


def _read(walk: ScriptWalk, leaf: Any) -> Any:
    if not isinstance(leaf, Tensor):
        return as_number(leaf) if isinstance(leaf, ir.Value) else leaf
    try:
        value = walk.store.read(walk.op, leaf)
    except LoweringError as error:
        error.where = error.where or "an output of the model"
        raise
    if value in facts.DIM or value in facts.NUMBER:  # a tensor, though its value is a number elsewhere
        value = walk.op.Identity(value)
    return value
