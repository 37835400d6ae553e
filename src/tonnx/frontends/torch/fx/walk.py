"""Walks a torch.export graph once and lowers node by node."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind
from torch.fx import Node

from tonnx.errors import LoweringError, UnsupportedArgument
from tonnx.frontends.torch.capture.patches import autograd
from tonnx.frontends.torch.fx.higher_order import graph_writes, lower_higher_order, needed, writes
from tonnx.frontends.torch.fx.memory import Memory, given_back, mutates, root_of, written_arguments
from tonnx.frontends.torch.fx.recorded_flow import Block, arrange, check_result, in_reach, kind_of, lower_block
from tonnx.frontends.torch.operators import decompose, symbolic_sizes
from tonnx.frontends.torch.operators.aten_fallback import EVERY, REFUSE, foreign_node, unsupported_operators
from tonnx.frontends.torch.operators.bind import bind, convert, stored_dtype, to_onnx_dtype
from tonnx.frontends.torch.operators.prepacked import with_integers
from tonnx.frontends.torch.operators.symbolic_sizes import held
from tonnx.frontends.torch.operators.weights import Weights, as_numpy
from tonnx.frontends.torch.settings import Settings
from tonnx.frontends.torch.source import module_of, source_of
from tonnx.ir import facts
from tonnx.ir.build import Builder
from tonnx.ir.provenance import INSIDE
from tonnx.ir.reach import reached
from tonnx.lowering import complex as pairs
from tonnx.lowering.rules import CAPTURED
from tonnx.lowering.walk import GraphWalk, Origin, StandIn, place

DROPPED = frozenset(
    """aten._assert_async aten._assert_scalar aten._assert_tensor_metadata aten._assert_async.msg
    aten.sym_constrain_range aten.sym_constrain_range_for_size aten._functional_assert_async aten._print
    aten._functional_assert_scalar""".split()
)
"""Run-time assertions: they compute nothing."""


def is_dropped(node: Node) -> bool:
    """Whether a node only asserts something."""
    return operator_name(node.target).removesuffix(".default") in DROPPED


def is_operator(target: Any) -> bool:
    """Whether an FX target is a registered PyTorch operator."""
    return isinstance(target, torch._ops.OpOverload)


def operator_name(target: Any) -> str:
    """``aten.add.Tensor``, or the name of a Python function on sizes."""
    if is_operator(target):
        return str(target)
    return f"{getattr(target, '__module__', '')}.{getattr(target, '__name__', target)}".lstrip("_.")


class FxWalk(GraphWalk):
    """The lowering of one graph into one ONNX graph."""

    def __init__(self, op: Builder, dims: symbolic_sizes.DimNames, settings: Settings | None = None) -> None:
        super().__init__(op)
        self.dims = dims
        self.settings = settings or Settings()
        self._values: dict[Node, Any] = {}
        self._memory: Memory | None = None
        self._module: torch.nn.Module = torch.nn.Module()
        self._named: ir.Graph | None = None
        """The graph whose values are named after the program's: bodies and decompositions repeat its names."""
        self._is_body = False
        """Whether this is the body of a branch or loop, whose values are marked as such."""
        self.blocks: dict[Node, Block] = {}
        """The recorded loops and branches of the graph, by the node that ends each."""

    # The whole program

    def program(self, program: ExportedProgram, inputs: dict[str, ir.Value]) -> list[Any]:
        """Lower everything; returns the user's outputs as values, numbers and None, flat and in order."""
        weights = Weights(self.op, program, self.settings.weight_names)
        placeholders = {}
        for spec in program.graph_signature.input_specs:
            name = spec.arg.name
            if spec.kind == InputKind.USER_INPUT:
                if isinstance(spec.arg, ConstantArgument):
                    placeholders[name] = spec.arg.value
                else:
                    placeholders[name] = inputs[name]
            elif spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
                placeholders[name] = (weights, spec.target)
        self._named = self.op.graph
        results = self.graph(program.graph_module, placeholders)
        if self.unsupported:
            raise unsupported_operators(self.unsupported)
        kinds = program.graph_signature.output_specs
        return [r for r, spec in zip(results, kinds, strict=True) if spec.kind == OutputKind.USER_OUTPUT]

    def graph(self, module: torch.fx.GraphModule, placeholders: dict[str, Any]) -> list[Any]:
        """Lower one graph; ``placeholders`` are its inputs by name."""
        graph = module.graph
        live = _live(graph)
        nodes, self.blocks = arrange(node for node in graph.nodes if node.op != "call_function" or node in live)
        if graph_writes(module):
            self._memory = Memory(self.compute)
        for node in nodes:
            if node.op == "placeholder" and node.users and node.name in placeholders:
                value = placeholders[node.name]
                self.define(node, value[0].value(value[1]) if isinstance(value, tuple) else value)
        self._module = module
        self.sequence(nodes)
        results = nodes[-1].args[0]
        return [self.resolve(item) for item in (results if isinstance(results, (list, tuple)) else [results])]

    def sequence(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            if node.op == "get_attr":
                self.define(node, operator.attrgetter(str(node.target))(self._module))
            elif node.op == "call_function":
                with self._origin(node):
                    self._lower(node)

    # One node

    def _lower(self, node: Node) -> None:
        value = self.results_of(node)
        if mutates(node):
            value = self._written(node, value)
        self.define(node, value)

    def _written(self, node: Node, value: Any) -> Any:
        """The result of an operator that writes: what it wrote, or results that the written values stand behind."""
        assert self._memory is not None
        tensors = written_arguments(node)
        count = 0 if isinstance(value, ir.Value) else len(node.meta["val"])
        written = [value] if isinstance(value, ir.Value) else value[count:]
        if len(written) != len(tensors):
            raise LoweringError(
                f"{operator_name(node.target)} writes to its arguments and gives other results as well",
                where=self.origin_of(node).where,
                why="its rule does not say what it writes",
            )
        for i, tensor in enumerate(tensors):
            written[i] = self._fit(written[i], self.resolve(tensor))
            if self.blocks:
                check_result(self, self.root(tensor), node)
            self.write(tensor, written[i])
        return value[:count] if count else written[0]

    def _origin(self, node: Node) -> contextlib.AbstractContextManager[None]:
        """Where a node comes from. The parts of a decomposed operator come from where that one does."""
        if "nn_module_stack" not in node.meta and "stack_trace" not in node.meta:
            return contextlib.nullcontext()
        return self.op.origin(module_of(node), operator_name(node.target), source_of(node))

    def origin_of(self, node: Node) -> Origin:
        module, source = module_of(node), source_of(node)
        return Origin(operator_name(node.target), module, source, place(source, module))

    def compute(self, node: Node) -> Any:
        """The value of a call, from the current values of its arguments, stamped with what PyTorch knows of it."""
        target = node.target
        if target is operator.getitem and not isinstance(self.resolve(node.args[0]), ir.Value):
            return self.resolve(node.args[0])[node.args[1]]
        if target is torch.ops.aten.sym_stride.int:
            return self._stride(*node.args)  # type: ignore[arg-type]
        if target is torch.ops.aten.sym_size.int and self.blocks and self._is_out_of_reach(node.args[0]):  # type: ignore[arg-type]
            return self.resolve(node.meta["val"])  # in terms of others: torch has read it off the nearest tensor
        if not is_operator(target):
            if isinstance(target, torch._ops.HigherOrderOperator):
                results = lower_higher_order(self, node)
                return self._unsupported(node) if results is None else self._stamp(results, node.meta.get("val"))
            return self._stamp(
                symbolic_sizes.compute(self.op, target, [self.resolve(a) for a in node.args]), node.meta.get("val")
            )
        if node in self.blocks:
            return self._stamp(lower_block(self, node, self.blocks[node]), node.meta["val"])
        if target._schema.name == autograd.NAME:
            tensors, sizes, key = (convert(a, "", self.op, self.resolve) for a in node.args)
            value = autograd.lower_call(self.op, key, tensors, sizes, self.settings.opset)
        elif self.settings.foreign == EVERY and target._schema.name.startswith("aten::"):
            value = self._foreign(node)
        else:
            value = self._by_rule(node)
        value = self._stamp(value, node.meta.get("val"))
        if target is torch.ops.aten.slice.Tensor:
            _forget_cut(value, node)
        return value

    def _stride(self, tensor: Node, axis: int) -> Any:
        """In terms of sizes: ONNX has no memory layouts."""
        fake = tensor.meta["val"]
        if fake.is_contiguous():
            return self.op.product(self.op.sizes(self.resolve(tensor))[axis % fake.dim() + 1 :])
        return self.resolve(fake.stride(axis))

    def _by_rule(self, node: Node) -> Any:
        target: Any = node.target
        rule = self.settings.rule(target._schema, is_complex=_is_complex(node))
        if rule is None:
            return self._decomposed(node)
        try:
            arguments = bind(target, rule, node.args, node.kwargs, self.op, self.resolve)
            arguments |= {name: _CAPTURED[name](node) for name in CAPTURED if name in rule.parameters}
            return rule.function(self.op, **with_integers(target._schema.name, arguments, self.op))
        except UnsupportedArgument:
            if self.settings.foreign == REFUSE:
                raise
            return self._foreign(node)

    def _foreign(self, node: Node) -> Any:
        """The call as one node of PyTorch's own domain."""
        meta = node.meta.get("val")
        many = isinstance(meta, (list, tuple))
        schema: Any = node.target._schema  # type: ignore[union-attr]
        outputs = foreign_node(self.op, schema, self._arguments(node), len(meta) if many else 1, self.settings.foreign)  # type: ignore[arg-type]
        return list(outputs) if many else outputs[0]

    def inlined(self, module: torch.fx.GraphModule, operands: Sequence[Any], op: Builder) -> list[Any]:
        """The results of a graph inside the graph, its nodes made by ``op``.

        Operands are values, or nodes: what the inner graph writes to those is written here, too.
        """
        inner = FxWalk(op, self.dims, self.settings)
        inner._is_body = op is not self.op
        names = [node for node in module.graph.nodes if node.op == "placeholder"]
        operand_of = dict(zip(names, operands, strict=True))
        results = inner.graph(module, {node.name: self.resolve(operand) for node, operand in operand_of.items()})
        self.unsupported += inner.unsupported
        if inner._memory is not None:
            for node, operand in operand_of.items():
                if inner._memory.written(node) and isinstance(operand, Node):
                    self.write(operand, inner.resolve(node))
        return results

    def _decomposed(self, node: Node) -> Any:
        """An operator without a rule: lowered through PyTorch's own decomposition of just this operator."""
        try:
            module, arguments = decompose.trace(node)
            results = lower_graph(self.op, self.dims, self.settings, module, [self.resolve(a) for a in arguments])
        except decompose.NoDecomposition as error:
            return self._unsupported(node, error.why) if self.settings.foreign == REFUSE else self._foreign(node)
        return results if decompose.gives_many(node.target) else results[0]

    def _unsupported(self, node: Node, reason: str | None = None) -> Any:
        name = operator_name(node.target) + (" of complex numbers" if _is_complex(node) else "")
        return self.refuse(node, name, reason or "")

    def operands_of(self, node: Node) -> list[Any]:
        return [self.resolve(argument) for argument in node.all_input_nodes]

    def stand_in_for(self, node: Node) -> Any:
        return self._stand_in(node.meta.get("val"))

    def _stand_in(self, meta: Any) -> Any:
        if isinstance(meta, (list, tuple)):
            return [self._stand_in(part) for part in meta]
        if isinstance(meta, torch.Tensor):
            return StandIn(to_onnx_dtype(meta.dtype), ir.Shape(self.dims.of_tensor(meta)))
        return StandIn(ir.DataType.INT64, ir.Shape([1]))

    # Values and arguments

    def define(self, node: Node, value: Any) -> None:
        if (self._named is not None or self._is_body) and isinstance(value, ir.Value):
            maker = value.producer()
            if maker is not None and maker.graph is self.op.graph:
                inside = self.op.graph is not self._named
                facts.VALUE.setdefault(value, INSIDE + node.name if inside else node.name)
        if self._memory is not None:
            self._memory.define(node, value)
        else:
            self._values[node] = value

    def resolve(self, argument: Any) -> Any:
        """The current value of a node, in the form that rules take; other arguments as they are."""
        if isinstance(argument, Node):
            return self._read(argument)
        if isinstance(argument, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return symbolic_sizes.materialise(self.op, self.dims, argument)
        if isinstance(argument, torch.Tensor):
            held = self.op.constant(as_numpy(argument))
            return pairs.marked(self.op, held) if argument.is_complex() else held
        return argument

    def _read(self, node: Node) -> Any:
        if not self.blocks:
            return self._held(node)
        if not self._is_out_of_reach(node):
            return self._held(node)
        # Computed in an inner graph that is done. Torch has one node for a number, wherever it was needed first.
        if isinstance(meta := node.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return self._again(node, meta)
        if (itself := given_back(node)) is not None:
            return self._read(itself)
        if self._is_computed(node) and self.root(node) is not node:
            value = self.compute(node)
            self.define(node, value)
            return value
        raise LoweringError(
            "a tensor of one pass of a loop, or of one side of a branch, is used outside of it",
            where=self.origin_of(node).where,
            hint="assign it to a variable of the function in the loop's body, or append it to a list there",
        )

    def _held(self, node: Node) -> Any:
        return self._values[node] if self._memory is None else self._memory.read(node)

    def _is_out_of_reach(self, node: Node) -> bool:
        """Whether a tensor is that of an inner graph that is done."""
        return not (self._is_computed(node) and in_reach(self.op, self._held(node)))

    def _is_computed(self, node: Node) -> bool:
        return node in (self._values if self._memory is None else self._memory)

    def _again(self, node: Node, meta: Any) -> Any:
        """A number, computed where it is needed."""
        if (number := held(self.op, self.dims, meta)) is not None:
            return number
        value = self.compute(node)
        self.define(node, value)
        return value

    @contextlib.contextmanager
    def inside(self, op: Builder) -> Iterator[None]:
        outer = self.op
        with op:
            self.op = op
            try:
                yield
            finally:
                self.op = outer

    @contextlib.contextmanager
    def memory_kept(self) -> Iterator[None]:
        """Whatever is written meanwhile, every tensor holds afterwards what it held before."""
        state = None if self._memory is None else self._memory.state()
        try:
            yield
        finally:
            if self._memory is not None and state is not None:
                self._memory.restore(state)

    def root(self, node: Node) -> Node:
        return node if self._memory is None else self._memory.root(node)

    def write(self, node: Node, value: ir.Value) -> None:
        """A tensor holds another value from now on."""
        assert self._memory is not None
        self._memory.write(self.op, node, value, self._arguments)

    def _arguments(self, node: Node) -> dict[str, Any]:
        """All arguments of a call by their schema names."""
        bound = {}
        for i, argument in enumerate(node.target._schema.arguments):  # type: ignore[union-attr]
            if i < len(node.args):
                bound[argument.name] = convert(node.args[i], str(argument.type), self.op, self.resolve)
            elif argument.name in node.kwargs:
                bound[argument.name] = convert(node.kwargs[argument.name], str(argument.type), self.op, self.resolve)
        return bound

    def _fit(self, value: ir.Value, before: ir.Value) -> ir.Value:
        """A tensor keeps its dtype and shape when it is written to."""
        assert before.dtype is not None and before.shape is not None
        if pairs.is_complex(before):
            value = pairs.as_pairs(self.op, value)
        value = self.op.cast(value, before.dtype)
        if value.shape is None or value.shape != before.shape:
            value = self.op.Expand(value, self.op.vector(self.op.sizes(before)), _shape=before.shape.dims)
        return pairs.marked(self.op, value) if pairs.is_complex(before) else value

    def _stamp(self, value: Any, meta: Any) -> Any:
        """Write the framework's own dtype and shape on what a rule made; the framework is right about both."""
        if isinstance(meta, (list, tuple)) and isinstance(value, (list, tuple)):
            results = [self._stamp(v, m) for v, m in zip(value, meta, strict=False)]
            return [*results, *value[len(meta) :]]  # behind the results, what is written
        if isinstance(meta, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return symbolic_sizes.named(self.op, self.dims, value, meta)
        if not isinstance(meta, torch.Tensor) or value is None:
            return value
        dtype, dims = stored_dtype(meta.dtype), self.dims.of_tensor(meta)
        if not isinstance(value, ir.Value):
            value = self.op.constant(value, dtype)
        if value.type is None:  # an operator of another domain: only PyTorch knows
            value.type = ir.TensorType(dtype)
        value = self.op.cast(value, dtype)
        if meta.dtype.is_complex:
            value, dims = pairs.marked(self.op, value), [*dims, 2]
        else:
            value = pairs.unmarked(self.op, value)
        if value.const_value is None and not value.is_graph_input() and value not in facts.DIM:
            if 0 in dims and all(isinstance(dim, int) for dim in dims):
                # Nothing to compute, and many operators and runtimes stumble over empty tensors.
                empty = self.op.constant(np.empty(dims), dtype)
                return pairs.marked(self.op, empty) if meta.dtype.is_complex else empty
            value.shape = ir.Shape(dims)
        return value


def _forget_cut(value: ir.Value, node: Node) -> None:
    """The last two of a dynamic number of rows are two to PyTorch, which takes that number for two at least."""
    base, part = (one.meta.get("val") for one in (node.args[0], node))  # type: ignore[union-attr]
    axis = node.args[1] if len(node.args) > 1 else 0
    if base is None or value.shape is None or value.const_value is not None:
        return
    if isinstance(part.shape[axis], int) and not isinstance(base.shape[axis], int):
        value.shape[axis] = ir.SymbolicDim(None)  # type: ignore[index]


def _parts(node: Node) -> int | None:
    results = node.meta.get("val")
    return len(results) if isinstance(results, (list, tuple)) else None


def _result_dims(node: Node) -> list[int] | None:
    result = node.meta.get("val")
    return None if result is None else [size if isinstance(size, int) else -1 for size in result.shape]


def _memory_order(node: Node) -> list[int] | None:
    base = getattr(node.args[0], "meta", {}).get("val")
    if base is None or base.untyped_storage().nbytes() != base.numel() * base.itemsize:
        return None
    strides = [gap if isinstance(gap, int) else gap.node.hint for gap in base.stride()]
    order = list(range(base.dim()))
    if None not in strides:
        order.sort(key=lambda axis: -strides[axis])
    return order if base.permute(order).is_contiguous() else None


def _used_outputs(node: Node) -> set[Any]:
    return {user.args[1] for user in node.users if user.target is operator.getitem and user.users}


_CAPTURED: dict[str, Callable[[Node], Any]] = {
    "parts": _parts, "result_dims": _result_dims, "memory_order": _memory_order, "used_outputs": _used_outputs
}  # fmt: skip


def _is_complex(node: Node) -> bool:
    """Whether a call takes or gives complex numbers."""

    def holds_complex(item: Any) -> bool:
        if isinstance(item, Node):
            return holds_complex(item.meta.get("val"))
        if isinstance(item, (list, tuple)):
            return any(map(holds_complex, item))
        return isinstance(item, complex) or (isinstance(item, torch.Tensor) and item.dtype.is_complex)

    return holds_complex(node.args) or holds_complex(list(node.kwargs.values())) or holds_complex(node.meta.get("val"))


def _live(graph: torch.fx.Graph) -> set[Node]:
    """The nodes that the outputs depend on, also by in-place writes: no assertions, nor their arithmetic."""
    live: set[Node] = set()

    def spread(nodes: Iterable[Node]) -> None:
        live.update(reached(nodes, lambda node: [one for one in needed(node) if one not in live]))

    spread(node for node in graph.nodes if node.op == "output" or kind_of(node) or writes(node))
    pending = [node for node in graph.nodes if node.op == "call_function" and mutates(node) and node not in live]
    pending = [node for node in pending if not is_dropped(node)]
    while writers := [node for node in pending if root_of(node) in live]:
        spread(writers)
        pending = [node for node in pending if node not in live]
    return live


def lower_graph(
    op: Builder, dims: symbolic_sizes.DimNames, settings: Settings, module: torch.fx.GraphModule, inputs: Sequence[Any]
) -> list[Any]:
    """The results of a graph of simpler operators than the one that it decomposes."""
    walk = FxWalk(op, dims, settings)
    placeholders = [node.name for node in module.graph.nodes if node.op == "placeholder"]
    results = walk.graph(module, dict(zip(placeholders, inputs, strict=True)))
    if walk.unsupported:
        parts = dict.fromkeys(occurrence.operator for occurrence in walk.unsupported)
        raise decompose.NoDecomposition(f"PyTorch's own decomposition of it has {', '.join(parts)}")
    return results
