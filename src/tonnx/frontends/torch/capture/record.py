"""The forward pass run once on fake tensors, every ATen call of it recorded: a capture without torch.export.

PyTorch's dispatcher hands a call to a mode below autograd, so that composite operators (``linear``, ``layer_norm``,
``scaled_dot_product_attention``) arrive whole where autograd's kernels, which would take them apart, are left out.
Weights stay where they are: a real tensor among the arguments becomes an input of the graph when it is first used.
What the recorder does not vouch for raises `Declined`, and torch.export is asked.
"""

from __future__ import annotations

import contextlib
import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import sympy
import torch
from torch.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    GuardOnDataDependentSymNode,
    ShapeEnv,
    StatelessSymbolicContext,
)
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from tonnx.errors import CaptureError
from tonnx.frontends.patching import How, Patch, interruption_point, patched, patched_here
from tonnx.frontends.torch.call.signature import Leaf, ModelCall
from tonnx.frontends.torch.call.state import exchanged, memory, names_of_tensors
from tonnx.frontends.torch.capture.call_kinds import gives_number, mark_of, shaped_by_values
from tonnx.frontends.torch.capture.explain import Spot
from tonnx.frontends.torch.capture.fakes import PLAIN, Fakes, is_plain
from tonnx.frontends.torch.capture.patches.short_sizes import definitions
from tonnx.frontends.torch.capture.python_flow.variables import is_watched
from tonnx.frontends.torch.capture.run_time_places import RunTimePlaces
from tonnx.frontends.torch.capture.settled_values import SettledValues, decided_note, is_view_in_place
from tonnx.frontends.torch.capture.sizes_in_tensors import READS, number_in
from tonnx.frontends.torch.operators.decompose import written_out
from tonnx.frontends.torch.operators.symbolic_sizes import FUNCTION_OF, SYMBOLIC
from tonnx.frontends.torch.source import module_of, place, recorded_line, runs_the_model, source_of

_SMALL = 1 << 16
"""So many numbers may stand in the file in the place of nodes that compute them."""


class Declined(CaptureError):
    """The recorder cannot vouch for a program of this model."""

    spots: Sequence[Spot] = ()
    """Lines that need what only the run knows, if that is the reason."""


class _AsksForGradients(Exception):
    """The model computes with gradients, as forces of an energy are: what autograd calls is part of it."""


@dataclass
class CallSpec:
    """What the model returns, as a tree."""

    out_spec: pytree.TreeSpec


@dataclass
class GraphOwner:
    """Has a graph, as a GraphModule does, but no code to run it with."""

    graph: Graph


@dataclass
class Recording:
    """What there is of a torch.export program that the walk, the trace and the notes read."""

    graph_module: GraphOwner
    graph_signature: ExportGraphSignature
    state_dict: dict[str, torch.Tensor]
    constants: dict[str, torch.Tensor]
    range_constraints: dict[Any, Any]
    call_spec: CallSpec

    @property
    def graph(self) -> Graph:
        return self.graph_module.graph

    def tensors(self) -> list[torch.Tensor]:
        """The fake tensors of the graph, each as often as something of it refers to one."""
        results = (node.meta.get("val") for node in self.graph.nodes)
        parts = (part for result in results for part in (result if isinstance(result, (list, tuple)) else [result]))
        return [part for part in parts if isinstance(part, torch.Tensor)]


def record(model: torch.nn.Module, call: ModelCall, tensors: Sequence[torch.Tensor], notes: list[str]) -> Recording:
    """Run a model once on fakes of ``tensors``, one for each leaf of the call, with its dynamic sizes symbolic.

    ``notes`` gets what the file takes for granted.
    """
    try:
        return _recorded(model, call, tensors, notes)
    except _AsksForGradients:
        return _recorded(model, call, tensors, notes, gradients=True)
    except Exception as error:
        if isinstance(error, (Declined, GuardOnDataDependentSymNode)):
            raise
        with contextlib.suppress(Exception):  # models may fail on the way that they have for exporters
            return _recorded(model, call, tensors, notes, exports=False)
        raise


def _recorded(
    model: torch.nn.Module, call: ModelCall, tensors: Sequence[torch.Tensor], notes: list[str], gradients: bool = False,
    exports: bool = True,
) -> Recording:  # fmt: skip
    env = ShapeEnv(tracked_fakes=[], prefer_deferred_runtime_asserts_over_guards=True)
    recorder, before = _Recorder(model, Fakes(env, any(leaf.dynamic for leaf in call.leaves)), notes), memory(model)
    reason = "autograd's kernels are not recorded, unless the model computes with gradients itself"
    asked = [
        Patch("torch.autograd", "grad", _asked_for_gradients, reason, How.CODE),
        Patch("torch.Tensor", "register_hook", _asked_for_gradients, reason),
    ]
    with patched((*recorder.patches(exports), *([] if gradients else asked))):
        inputs = zip(call.leaves, tensors, strict=True)
        args, kwargs = call.with_tensors([recorder.input(leaf, tensor) for leaf, tensor in inputs])
        results, spec = pytree.tree_flatten(_run(recorder, model, args, kwargs, gradients))
    if exchanged(before):
        raise Declined("the model gives a weight other memory, which is put back")
    return recorder.finished(results, spec)


@runs_the_model
def _run(recorder: _Recorder, model: torch.nn.Module, args: Any, kwargs: Any, gradients: bool) -> Any:
    with (
        torch.set_grad_enabled(gradients),
        torch.backends.mkldnn.flags(enabled=False),  # which kernel to take depends on sizes, and says so of them
        torch.backends.nnpack.flags(enabled=False),
        RunTimePlaces(),
        contextlib.nullcontext() if gradients else torch._C._AutoDispatchBelowAutograd(),
        recorder.fakes.mode,
        recorder,
    ):
        return model(*args, **kwargs)


class _Recorder(TorchDispatchMode):
    """The graph as far as it is recorded, and which node every tensor is."""

    def __init__(self, model: torch.nn.Module, fakes: Fakes, notes: list[str]) -> None:
        super().__init__()
        self.fakes = fakes
        self._notes = notes
        self._graph = Graph()
        self._nodes: dict[int, Node] = {}
        """By the identity of a fake tensor; all of them live as long as the graph does."""
        self._kept: list[torch.Tensor] = []
        self._state = dict([*model.named_parameters(), *model.named_buffers()])
        self._names = names_of_tensors(model, self._state)
        self._modules = {id(module): name for name, module in model.named_modules()}
        self._path = [""]
        self._weights: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        """By the identity of a real tensor: itself, which lives on, and its fake."""
        self._given: dict[int, torch.Tensor] = {}
        """By the identity of a real tensor: what the model gave as its data."""
        self._constants: dict[str, torch.Tensor] = {}
        self._real: dict[Node, torch.Tensor] = {}
        """The weights and constants that nodes stand for."""
        self._values = SettledValues(self._real.get)
        self._homes: dict[sympy.Symbol, tuple[Node, int]] = {}
        """A tensor and an axis of it for every size that is a symbol."""
        self._numbers: dict[Any, Node] = {}
        self._scopes: list[list[int]] = []
        """For each side or pass that is being recorded: how much was known where it began."""
        self._sizes: dict[str, Any] = {}
        """The symbols of dynamic dimensions by the names that were asked for."""
        self._inputs: list[InputSpec] = []
        self._last_input: Node | None = None

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # it would import torch._dynamo, of which there is no need

    # Inputs and weights

    def input(self, leaf: Leaf, tensor: torch.Tensor) -> torch.Tensor:
        """A fake of an input of the model. Dimensions of one name are one symbol: nobody asks if they are equal."""
        named = {axis: dim.name for axis, dim in leaf.dynamic.items() if not dim.optional}
        shared = {axis: self._sizes[name] for axis, name in named.items() if name in self._sizes}
        if len(shared) == len(leaf.dynamic) and is_plain(tensor) and tensor.is_contiguous():
            fake = self.fakes.dense([shared.get(axis, size) for axis, size in enumerate(tensor.shape)], tensor)
        else:
            kinds = [DimDynamic.DYNAMIC if axis in leaf.dynamic else DimDynamic.STATIC for axis in range(tensor.dim())]
            context = StatelessSymbolicContext(dynamic_sizes=kinds)
            fake = self.fakes.mode.from_tensor(tensor.detach(), symbolic_context=context)
            if shared and tensor.is_contiguous():
                fake = self.fakes.dense([shared.get(axis, size) for axis, size in enumerate(fake.shape)], tensor)
        for axis, name in named.items():
            self._sizes.setdefault(name, fake.shape[axis])
        self._placeholder(leaf.name, fake, InputKind.USER_INPUT, None)
        return fake

    def _placeholder(self, name: str, fake: torch.Tensor, kind: InputKind, target: str | None) -> Node:
        at = self._graph.inserting_after(self._last_input) if self._last_input else self._graph.inserting_before()
        with at:
            node = self._last_input = self._graph.placeholder(name)
        node.meta["val"] = fake
        self._nodes[id(fake)] = node
        self._note_sizes(node, fake)
        persistent = True if kind is InputKind.BUFFER else None
        self._inputs.append(InputSpec(kind, TensorArgument(name=node.name), target, persistent))
        return node

    def _fake_of(self, tensor: torch.Tensor) -> torch.Tensor:
        """A weight, or any other tensor with values that the model has from somewhere."""
        if (weight := self._weights.get(id(tensor))) is not None:
            return weight[1]
        if type(tensor) not in PLAIN:
            raise Declined(f"a tensor is of a class of its own, {type(tensor).__name__}")
        name = self._names.get(id(tensor))
        if name is None or name not in self._state:
            name = name or f"constant_{len(self._constants)}"
            self._constants[name] = tensor
        fake = self.fakes.of_weight(tensor)
        self._weights[id(tensor)] = tensor, fake
        kind = InputKind.PARAMETER if isinstance(tensor, torch.nn.Parameter) else InputKind.BUFFER
        kind = InputKind.CONSTANT_TENSOR if name in self._constants else kind
        node = self._placeholder(name.replace(".", "_"), fake, kind, name)
        self._real[node] = tensor
        return fake

    # Calls

    def patches(self, exports: bool) -> Iterator[Patch]:
        """What has to be changed while the model runs. ``exports``: what models are told that ask for it."""
        yield Patch("torch.nn.Module", "__call__", self._entered, "which module a call comes from")
        reason = "models give a weight the memory of a tensor that they have computed: it is that from then on"
        yield Patch("torch.Tensor", "data", property(self._data_of, self._give_data), reason, How.VALUE)
        yield Patch("torch.Tensor", "tolist", self._listed, "the numbers may be those of weights or constants")
        for flag in ("_is_compiling_flag", "_is_exporting_flag"):
            yield Patch("torch.compiler", flag, exports, "models ask it, to take a way that exports", How.VALUE)
        reason = "PyTorch would look for the line of every question about a size, and import its compiler for it"
        yield Patch("torch.fx.experimental.symbolic_shapes.ShapeEnv", "_get_stack_summary", _nowhere, reason)
        yield Patch("torch.fx.experimental.symbolic_shapes", "trace_structured", _not_logged, reason, optional=True)
        reason = "graphs inside of graphs are not recorded, and PyTorch would compile them"
        yield Patch("torch._ops.HigherOrderOperator", "__call__", _decline, reason)
        yield Patch("torch._higher_order_ops.utils", "_maybe_compile_and_run_fn", _decline, reason, How.CODE)
        yield Patch("torch", "compile", _decline, reason, How.CODE)

    def _data_of(self, tensor: torch.Tensor) -> torch.Tensor:
        given = self._given.get(id(tensor)) if patched_here() else None
        return torch._C.TensorBase.data.__get__(tensor) if given is None else given.detach()  # type: ignore[attr-defined]

    def _give_data(self, tensor: torch.Tensor, value: torch.Tensor) -> None:
        """``self.fused.weight.data = w``: real memory stays what it is."""
        if not patched_here() or (id(tensor) not in self._nodes and id(value) not in self._nodes):
            torch._C.TensorBase.data.__set__(tensor, value)  # type: ignore[attr-defined]
            return
        if is_watched() or id(tensor) in self._nodes or tensor.shape != value.shape or tensor.dtype != value.dtype:
            raise Declined("the model gives a tensor other memory")
        self._given[id(tensor)] = value
        self._weights[id(tensor)] = tensor, value

    def _entered(self, original: Any, module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        self._path.append(self._modules.get(id(module), self._path[-1]))
        try:
            return original(module, *args, **kwargs)
        finally:
            self._path.pop()

    def _listed(self, original: Any, tensor: torch.Tensor) -> Any:
        """The numbers of a tensor, which PyTorch reads from memory that fakes do not have."""
        settled = self._values.of(self._recorded(self._faked(tensor)))
        if settled is None:
            return original(tensor)
        value, leaves = settled
        self._note_decided(leaves)
        with _disable_current_modes():
            return original(value)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        interruption_point()
        if func.namespace == "prim":
            return func(*args, **(kwargs or {}))
        if (written := written_out(func, args, kwargs or {}, self)) is not None:
            return written
        fake_args, fake_kwargs = self._faked(args), self._faked(kwargs or {})
        node_args, node_kwargs = self._recorded(fake_args), self._recorded(fake_kwargs)
        tags = func.tags
        # What a side or a pass of recorded control flow sees may be written to when it is not looked at.
        if (shaped_by_values(func) or gives_number(func)) and not is_watched():
            settled = self._values.of((node_args, node_kwargs))
            # Large ones that are made of no weights, such as the places in a mask of ones, are small only as a graph.
            if settled is not None and (settled[1] or gives_number(func) or _elements(fake_args) <= _SMALL):
                return self._computed(func, *settled)
            if func in READS and (number := number_in(node_args[0], self._values)) is not None:
                return number
        if torch.Tag.inplace_view in tags:
            self._keep_shape(fake_args[0])
        if func._schema.is_mutable and not is_view_in_place(func):
            self._values.note_write(func, fake_args, fake_kwargs)
        result = self.fakes.call(func, fake_args, fake_kwargs)
        mark = mark_of(func)
        if result is None and not func._schema.is_mutable and not mark:
            return None
        self._leave_scope(mark)
        self._note_call(func, node_args, node_kwargs, result)
        if mark.endswith("_begin"):
            self._scopes.append([len(known) for known in self._known])
        return result

    @property
    def _known(self) -> tuple[dict[Any, Any], ...]:
        """What holds for the code that runs, but not behind the side of a branch or the pass of a loop that it is."""
        return self._numbers, self._homes, *self.fakes.known

    def _leave_scope(self, mark: str) -> None:
        """Forget the nodes that are part of a side or pass of recorded control flow, where that ends."""
        if mark in ("loop_end", "drop", "if_else", "if_join"):
            for known, length in zip(self._known, self._scopes[-1], strict=True):
                while len(known) > length:
                    known.popitem()  # the latest
        if mark in ("loop_end", "drop", "if_end", "keep"):
            self._scopes.pop()

    def _note_call(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        node = self._graph.create_node("call_function", func, tuple(args), kwargs, func.overloadpacket.__name__)
        place(node, self._path[-1], recorded_line(sys._getframe(2)))
        node.meta["val"] = result
        if isinstance(result, (list, tuple)):
            for index, part in enumerate(result):
                if isinstance(part, (torch.Tensor, *SYMBOLIC)):
                    item = self._graph.create_node("call_function", operator.getitem, (node, index))
                    place(item, module_of(node), source_of(node))
                    item.meta["val"] = part
                    self._note_result(item, part)
        else:
            self._note_result(node, result)

    def _note_result(self, node: Node, result: Any) -> None:
        if isinstance(result, torch.Tensor):
            self._nodes[id(result)] = node
            self._note_sizes(node, result)
        elif isinstance(result, SYMBOLIC):
            self._numbers.setdefault(result.node.expr, node)

    def _note_sizes(self, node: Node, tensor: torch.Tensor) -> None:
        for axis, size in enumerate(tensor.shape):
            if isinstance(size, torch.SymInt) and isinstance(size.node.expr, sympy.Symbol):
                self._homes.setdefault(size.node.expr, (node, axis))

    def _keep_shape(self, fake: torch.Tensor) -> None:
        """The tensor will look at its memory in another way: what was recorded of it says how it did until now."""
        before = fake.detach()
        self._kept.append(fake)
        self.fakes.reshaped(fake)
        node: Any = self._nodes[id(fake)]
        while isinstance(node, Node) and node.meta.get("val") is fake:  # and what gave back its very argument
            node.meta["val"] = before
            node = node.args[0] if node.args else None

    def _computed(self, func: Any, arguments: Any, leaves: Sequence[Node]) -> Any:
        """What depends on the values of weights and constants alone is what they make of it now."""
        args, kwargs = arguments
        with _disable_current_modes():
            result = func(*args, **kwargs)
        self._note_decided(leaves)
        return pytree.tree_map_only(torch.Tensor, self._fake_of, result)  # tolist() takes no mixture of both

    def _note_decided(self, leaves: Sequence[Node]) -> None:
        if any(id(self._real[leaf]) in self._names for leaf in leaves):
            self._notes.append(decided_note(recorded_line(sys._getframe(3))))

    # Arguments

    def _faked(self, argument: Any) -> Any:
        """An argument with fakes in the place of real tensors."""
        if isinstance(argument, torch.Tensor):
            return argument if id(argument) in self._nodes else self._fake_of(argument)
        if isinstance(argument, (list, tuple)):
            return [self._faked(part) for part in argument]
        if isinstance(argument, dict):
            return {name: self._faked(part) for name, part in argument.items()}
        return argument

    def _recorded(self, argument: Any) -> Any:
        """A faked argument with nodes in the place of tensors and dynamic sizes."""
        if isinstance(argument, torch.Tensor):
            return self._nodes[id(argument)]
        if isinstance(argument, list):
            return [self._recorded(part) for part in argument]
        if isinstance(argument, dict):
            return {name: self._recorded(part) for name, part in argument.items()}
        return self._number(argument) if isinstance(argument, SYMBOLIC) else argument

    def _number(self, number: Any) -> Any:
        constant = number.node.constant if number.node.constant is not None else number.node.maybe_as_int()
        return self._expression(number.node.expr, number) if constant is None else constant

    def _expression(self, expression: Any, number: Any = None) -> Any:
        """A size as nodes that compute it from the sizes of tensors."""
        if (node := self._numbers.get(expression)) is not None:
            return node
        if expression.is_Integer:
            return int(expression)
        if expression.is_number:
            return float(expression)
        written_out = definitions(self.fakes.mode.shape_env).get(expression)
        if written_out is not None and not (written_out.has(sympy.Piecewise) and expression in self._homes):
            node = self._expression(written_out)
        elif isinstance(expression, sympy.Symbol):
            if expression not in self._homes:
                raise Declined(f"the size {expression} belongs to no recorded tensor")
            node = self._call_node(torch.ops.aten.sym_size.int, self._homes[expression])
        else:
            function, folds = FUNCTION_OF.get(type(expression).__name__, (None, False))
            if function is None:
                raise Declined(f"the size {expression} is computed by {type(expression).__name__}")
            parts = [self._expression(part) for part in expression.args]
            if folds:
                node = reduce(lambda one, other: self._call_node(function, (one, other)), parts)
            else:
                node = self._call_node(function, tuple(parts))
        node.meta["val"] = _symbolic(self.fakes.mode.shape_env, expression) if number is None else number
        self._numbers[expression] = node
        return node

    def _call_node(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Node:
        name = getattr(function, "__name__", "size").replace(".int", "")
        return self._graph.create_node("call_function", function, args, name=name)

    # The end

    def finished(self, results: Sequence[Any], spec: pytree.TreeSpec) -> Recording:
        """The whole graph; ``results`` are the model's, flat."""
        outputs = []
        for result in results:
            if result is not None and not isinstance(result, (torch.Tensor, int, float, complex, str, *SYMBOLIC)):
                raise Declined(f"the model returns a {type(result).__name__}")
            outputs.append(self._recorded(self._faked(result)))
        self._graph.output(tuple(outputs)).meta["val"] = None
        specs = [OutputSpec(OutputKind.USER_OUTPUT, _output(one), None) for one in outputs]
        signature = ExportGraphSignature(_in_order(self._graph, self._inputs), specs)
        env = self.fakes.mode.shape_env
        env.pending_fresh_unbacked_symbols.clear()  # each has its node, where later traces would look for it in theirs
        ranges = dict(env.var_to_range)
        return Recording(GraphOwner(self._graph), signature, self._state, self._constants, ranges, CallSpec(spec))


def _nowhere(original: Any, env: Any, is_debug: bool = False, framework_loc: str | None = None) -> Any:
    return original(env, framework_loc=framework_loc or "the recorder")


def _not_logged(original: Any, *args: Any, **kwargs: Any) -> None:
    pass


def _elements(args: Any) -> int:
    """How many numbers a call is given; none of the sizes are symbols where it does not depend on inputs."""
    tensors = [tensor for tensor in pytree.tree_leaves(args) if isinstance(tensor, torch.Tensor)]
    return sum(int(tensor.numel()) for tensor in tensors)


def _asked_for_gradients(original: Any, *args: Any, **kwargs: Any) -> Any:
    raise _AsksForGradients


def _decline(original: Any, called: Any = None, *args: Any, **kwargs: Any) -> Any:
    raise Declined(f"{getattr(called, '__name__', called)} has graphs of its own")


def _symbolic(env: ShapeEnv, expression: Any) -> Any:
    if isinstance(expression, sympy.logic.boolalg.Boolean):
        return env.create_symboolnode(expression)
    if expression.is_integer:
        return env.create_symintnode(expression, hint=None)
    return env.create_symfloatnode(expression, hint=None)


def _output(result: Any) -> Any:
    if isinstance(result, Node):
        return TensorArgument(name=result.name)
    return ConstantArgument(name="", value=result)


def _in_order(graph: Graph, specs: list[InputSpec]) -> list[InputSpec]:
    by_name = {spec.arg.name: spec for spec in specs}
    return [by_name[node.name] for node in graph.nodes if node.op == "placeholder"]
