"""The ``op.*`` builder: every rule of every front end, pass and legaliser makes its nodes through this.

    op.Softmax(x, axis=-1)              # attributes by name, checked against the schema
    op.Split(x, [2, 3], axis=1, _outputs=2)
    x * 0.5 + y                         # inside ``with op:``; numbers take the dtype of the other operand

It converts Python numbers, lists and arrays to constants of the dtype the schema wants, evaluates small constant
expressions on the spot, and stamps dtype, shape and source on whatever it makes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir

from tonnx.ir import arithmetic, facts, infer
from tonnx.ir.fold import LIMIT, fold
from tonnx.ir.infer import Dim, dims_of
from tonnx.ir.operands import as_array, attribute_of, schema_attribute, wanted_dtype
from tonnx.ir.provenance import MODULE, OPERATOR, SOURCE
from tonnx.ir.schema import Signature, attribute_type, instead, signature
from tonnx.ir.schema import T as T
from tonnx.ir.sizes import Size as Size
from tonnx.ir.sizes import SizeArithmetic
from tonnx.ir.sizes import UnknownRank as UnknownRank
from tonnx.ir.target import CANON

Operand = ir.Value | bool | int | float | complex | Sequence[Any] | np.ndarray | None


_SHARED_CONSTANT = 256  # bytes; larger constants are rarely equal, and hashing them costs


class Names:
    """Gives out names that no other value or node of the model has."""

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self._taken = set(reserved)
        self._next: dict[str, int] = {}

    def unique(self, wish: str) -> str:
        """``wish``, or ``wish_1``, ``wish_2`` … if it is taken."""
        name = wish
        while name in self._taken or not name:
            number = self._next.get(wish, 0) + 1
            self._next[wish] = number
            name = f"{wish}_{number}"
        self._taken.add(name)
        return name


class Builder(SizeArithmetic):
    """Adds nodes to one graph: at its end, or before ``before``."""

    def __init__(
        self,
        graph: ir.Graph,
        *,
        names: Names,
        opset: int = CANON,
        before: ir.Node | None = None,
        parent: Builder | None = None,
        constants_as_nodes: bool = False,
        widens: bool = False,
        functions: dict[Any, ir.Function] | None = None,
    ) -> None:
        self.graph = graph
        self.names = names
        self.opset = opset
        self.before = before
        self.parent = parent
        self.constants_as_nodes = constants_as_nodes  # a function body has no initializers
        self.widens = widens
        """Where ONNX has an operator not for a dtype, it is computed in a wider one; see `tonnx.ir.schema`."""
        self.functions: dict[Any, ir.Function] = {} if functions is None else functions
        """The ONNX functions of the model, by what tells them apart."""
        self.scope = ""
        """The module path that nodes are named after; see `origin`."""
        self.source: Mapping[str, str] = {}
        """Metadata of nodes: the framework's operator, module path and source line; see `origin`."""
        self.new_nodes: list[ir.Node] = []
        """The nodes made before ``before``; see `at`."""
        self._constants: dict[Any, ir.Value] = {}
        self._named_sizes: dict[str, ir.Value] = {}
        self._bodies: list[Builder] = []
        self._entered: list[Any] = []

    @classmethod
    def of_model(cls, names: Iterable[str]) -> Builder:
        """A builder of the main graph of a new model at CANON, in which these names are taken."""
        graph = ir.Graph([], [], nodes=[], opset_imports={"": CANON}, name="main")
        return cls(graph, names=Names(names), widens=True)

    def model(self) -> ir.Model:
        """What was built, as the model of a front end."""
        return ir.Model(self.graph, ir_version=10, producer_name="tonnx", functions=list(self.functions.values()))

    # Making nodes

    def __getattr__(self, op_type: str) -> Callable[..., Any]:
        if not op_type[:1].isupper():
            raise AttributeError(op_type)
        emitter = partial(self._call, op_type)
        self.__dict__[op_type] = emitter  # found directly from the second time on
        return emitter

    def _call(
        self, op_type: str, *inputs: Operand, _outputs: int | None = None, _shape: Any = None, **attributes: Any
    ) -> Any:
        schema = signature(op_type, self.opset)
        if schema is None:
            raise TypeError(f"ONNX has no operator {op_type} at opset {self.opset}")
        values = self._operands(schema, inputs)
        count = _outputs if _outputs is not None else max(1, schema.min_outputs)
        attributes = {name: value for name, value in attributes.items() if value is not None}
        if count == 1 and (folded := self._fold(op_type, values, attributes)) is not None:
            return folded
        if self.widens and (dtypes := instead(schema, values)):
            return self._computed_in(dtypes, schema, values, _outputs=_outputs, _shape=_shape, **attributes)
        shapes = infer.shapes(op_type, values, attributes, count)
        if _shape is not None:
            shapes[0] = list(_shape)
        outputs = self.node(
            op_type,
            values,
            [schema_attribute(schema, name, value) for name, value in attributes.items()],
            zip(infer.dtypes(schema, values, attributes, count), shapes, strict=True),
        )
        return outputs[0] if count == 1 and _outputs is None else outputs

    def _computed_in(
        self, dtypes: Mapping[str, ir.DataType], schema: Signature, values: Sequence[ir.Value | None], **call: Any
    ) -> Any:
        """The node with casts around it: ``dtypes`` are those of its type variables."""
        own: dict[str, ir.DataType] = {}
        operands: list[ir.Value | None] = []
        for i, value in enumerate(values):
            variable = schema.input(i).type_str
            if value is not None and variable in dtypes and value.dtype is not None:
                own.setdefault(variable, value.dtype)
                value = self.cast(value, dtypes[variable])
            operands.append(value)
        computed = self._call(schema.op_type, *operands, **call)
        results = [computed] if isinstance(computed, ir.Value) else list(computed)
        for i, result in enumerate(results):
            if (dtype := own.get(schema.output(i).type_str)) is not None:
                results[i] = self.cast(result, dtype)
        return results[0] if isinstance(computed, ir.Value) else tuple(results)

    def node(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        attributes: Sequence[ir.Attr],
        outputs: Iterable[tuple[ir.DataType | None, Sequence[Dim] | None]],
        *,
        domain: str = "",
        overload: str = "",
    ) -> tuple[ir.Value, ...]:
        """Add a node as it is, of any domain; returns its outputs."""
        values = [self._value("t", dtype, dims) for dtype, dims in outputs]
        node = ir.Node(
            domain,
            op_type,
            inputs,
            attributes,
            outputs=values,
            overload=overload,
            name=self.names.unique(f"{self.scope}/{op_type}"),
            metadata_props=dict(self.source),
        )
        if self.before is None:
            self.graph.append(node)
        else:
            self.graph.insert_before(self.before, node)
            self.new_nodes.append(node)
        return tuple(node.outputs)

    def _value(self, wish: str, dtype: ir.DataType | None, dims: Sequence[Dim] | None) -> ir.Value:
        kind, shape = None if dtype is None else ir.TensorType(dtype), None if dims is None else ir.Shape(dims)
        return ir.Value(name=self.names.unique(wish), type=kind, shape=shape)

    def _fold(self, op_type: str, values: Sequence[ir.Value | None], attributes: Mapping[str, Any]) -> ir.Value | None:
        arrays: list[np.ndarray | None] = []
        for value in values:
            if value is None:
                arrays.append(None)
            elif value.const_value is None or value.const_value.size > LIMIT or not _small(value):
                return None
            else:
                arrays.append(value.const_value.numpy())
        if not arrays:
            return None
        result = fold(op_type, arrays, attributes)
        return None if result is None else self.constant(result)

    # Operands and constants

    def _operands(self, schema: Signature, inputs: Sequence[Operand]) -> list[ir.Value | None]:
        values: list[Any] = list(inputs)
        while values and values[-1] is None:
            values.pop()
        bound: dict[str, ir.DataType] = {}
        for i, operand in enumerate(values):
            if isinstance(operand, ir.Value) and operand.dtype is not None:
                bound.setdefault(schema.input(i).type_str, operand.dtype)
        for i, operand in enumerate(values):
            if operand is not None and not isinstance(operand, ir.Value):
                values[i] = self.constant(operand, wanted_dtype(schema.input(i), bound, operand))
        return values

    def constant(self, value: Any, dtype: ir.DataType | None = None) -> ir.Value:
        """A constant; equal small ones are made once."""
        array = as_array(value, dtype)
        key = None
        if array.nbytes <= _SHARED_CONSTANT:
            key = (array.dtype.str, array.dtype.name, array.shape, array.tobytes())
            if (shared := self._shared_constant(key)) is not None:
                return shared
        tensor = ir.Tensor(np.ascontiguousarray(array).reshape(array.shape))
        placed = self._place_constant(tensor)
        if key is not None:
            self._constants[key] = placed
        return placed

    def _shared_constant(self, key: Any) -> ir.Value | None:
        # An inner graph sees the constants of the graphs around it.
        if key in self._constants or self.parent is None:
            return self._constants.get(key)
        return self.parent._shared_constant(key)

    def _place_constant(self, tensor: ir.Tensor) -> ir.Value:
        if self.constants_as_nodes:
            (value,) = self.node("Constant", [], [ir.AttrTensor("value", tensor)], [(tensor.dtype, list(tensor.shape))])
            value.const_value = tensor
            return value
        if self.parent is not None:
            return self.parent._place_constant(tensor)
        value = ir.Value(
            name=self.names.unique("const"), type=ir.TensorType(tensor.dtype), shape=tensor.shape, const_value=tensor
        )
        tensor.name = value.name
        self.graph.initializers.add(value)
        return value

    def initializer(self, name: str, tensor: ir.TensorProtocol) -> ir.Value:
        """A weight, under its own name."""
        value = ir.Value(
            name=self.names.unique(name),
            type=ir.TensorType(tensor.dtype),
            shape=ir.Shape(list(tensor.shape)),  # type: ignore[arg-type]
            const_value=tensor,
        )
        self.graph.initializers.add(value)
        return value

    # Other domains, and functions

    def custom(self, name: str, *inputs: Operand, _outputs: int = 1, **attributes: Any) -> Any:
        """A node of a domain of the user's own: ``op.custom("my.domain::MyOp", x, alpha=0.5, axes=[0, 1])``.

        Nothing is known of such an operator. A front end says what dtype and shape its results have.
        """
        domain, separator, op_type = name.partition("::")
        if not separator or not domain or not op_type:
            raise TypeError(f"an operator of another domain is called 'domain::Name', not {name!r}")
        operands = [x if x is None or isinstance(x, ir.Value) else self.constant(x) for x in inputs]
        outputs = self.node(
            op_type,
            operands,
            [attribute_of(key, value) for key, value in attributes.items() if value is not None],
            [(None, None)] * _outputs,
            domain=domain,
        )
        return outputs[0] if _outputs == 1 else outputs

    def function(
        self, name: str, inputs: Sequence[ir.Value], body: Callable[..., Any], key: Hashable = None
    ) -> tuple[ir.Value, ...]:
        """Call an ONNX function ``domain::Name`` that computes ``body(op, *inputs)``; the file has that function then.

        Calls that agree in the types and shapes of their inputs, and in ``key``, share one function.
        """
        domain, _, op_type = name.partition("::")
        kinds = tuple((x.dtype, None if x.shape is None else tuple(map(str, x.shape.dims))) for x in inputs)
        called = self.functions.get((name, kinds, key))
        if called is None:
            called = self._new_function(domain, op_type, inputs, body)
            self.functions[name, kinds, key] = called
        outputs = [(v.dtype, None if v.shape is None else v.shape.dims) for v in called.outputs]
        return self.node(called.name, inputs, [], outputs, domain=domain)

    def _new_function(
        self, domain: str, op_type: str, inputs: Sequence[ir.Value], body: Callable[..., Any]
    ) -> ir.Function:
        taken = {function.name for function in self.functions.values() if function.domain == domain}
        names = Names(taken)
        formals = [
            ir.Value(name=f"x{i}", type=x.type, shape=None if x.shape is None else ir.Shape(x.shape.dims))
            for i, x in enumerate(inputs)
        ]
        graph = ir.Graph(formals, [], nodes=[], opset_imports={"": self.opset}, name=op_type)
        inner = self._for_graph(graph, constants_as_nodes=True)
        with inner:
            results = body(inner, *formals)
            for value in [results] if isinstance(results, ir.Value) else results:
                inner.add_output(value)
        return ir.Function(domain, names.unique(op_type), graph=graph, attributes=[])

    # Inner graphs

    def inner(self, name: str, inputs: Sequence[tuple[str, ir.DataType, Sequence[Dim] | None]] = ()) -> Builder:
        """A builder for the body of an If, Loop or Scan; finish it by setting ``.graph.outputs``."""
        values = [self._value(*each) for each in inputs]
        graph = ir.Graph(values, [], nodes=[], name=self.names.unique(name))
        child = self._for_graph(graph, parent=self, constants_as_nodes=self.constants_as_nodes)
        self._bodies.append(child)
        return child

    def _for_graph(self, graph: ir.Graph, **place: Any) -> Builder:
        builder = Builder(
            graph, names=self.names, opset=self.opset, widens=self.widens, functions=self.functions, **place
        )
        builder.scope, builder.source = self.scope, self.source
        return builder

    def discard(self) -> None:
        """Forget an inner graph that was begun: nothing outside may look as if it were used there."""
        self.graph.outputs.clear()
        for body in self._bodies:
            body.discard()
        for node in reversed(list(self.graph)):
            self.graph.remove(node, safe=True)

    def add_output(self, value: ir.Value, name: str | None = None) -> ir.Value:
        """Give the graph one more output: one that it makes itself, and that is no other output.

        What is handed through (an input, a constant, a value from around, a repetition) gets an Identity.
        """
        producer = value.producer()
        if producer is None or producer.graph is not self.graph or value.is_graph_output():
            handed_on = value
            (value,) = self.node("Identity", [value], [], [(value.dtype, dims_of(value))])
            value.type = handed_on.type
        if name is not None:
            value.name = name
        self.graph.outputs.append(value)
        return value

    # Where nodes stand, where they come from, and taking them back

    @contextmanager
    def _from(self, scope: str, source: Mapping[str, str]) -> Iterator[None]:
        outer = self.scope, self.source
        self.scope, self.source = scope, source
        try:
            yield
        finally:
            self.scope, self.source = outer

    def origin(self, module: str, operator: str, line: str = "") -> AbstractContextManager[None]:
        """Nodes made meanwhile come from an operator of the framework, in a module, at a line of the user's."""
        facts = {OPERATOR: operator, MODULE: module, SOURCE: line}
        scope = f"/{module.replace('.', '/')}" if module else ""
        return self._from(scope, {key: text for key, text in facts.items() if text})

    def beside(self, other: Builder) -> AbstractContextManager[None]:
        """Nodes made meanwhile come from where those come from that another builder makes."""
        return self._from(other.scope, other.source)

    @contextmanager
    def at(self, node: ir.Node, opset: int | None = None) -> Iterator[list[ir.Node]]:
        """Nodes made meanwhile come before ``node`` and from where it comes, written at ``opset``; gives them."""
        before, outer_opset, outer_nodes = self.before, self.opset, self.new_nodes
        self.before, self.opset, self.new_nodes = node, self.opset if opset is None else opset, []
        try:
            with self._from((node.name or "").rsplit("/", 1)[0], node.metadata_props):
                yield self.new_nodes
        finally:
            if before is not None:  # whoever asks for nodes before another one gets these too
                outer_nodes += self.new_nodes
            self.before, self.opset, self.new_nodes = before, outer_opset, outer_nodes

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """A trial: if an exception ends it, or it is taken back, the graph is as it was before.

        Weights and constants of the main graph stay, since others may know them by now; unused ones go with dead code.
        """
        trial = Transaction(self)
        try:
            yield trial
        except BaseException:
            trial.take_back()
            raise

    # Arithmetic with Python's operators

    def __enter__(self) -> Builder:
        self._entered.append(arithmetic.enter(self))
        return self

    def __exit__(self, *_: object) -> None:
        arithmetic.leave(self._entered.pop())

    def cast(self, x: ir.Value, dtype: ir.DataType | None) -> ir.Value:
        """``x`` as ``dtype``, mostly that of another value; nothing is added when it is that already."""
        if x.dtype == dtype:
            return x
        assert dtype is not None
        by_name = attribute_type("Cast", "to", self.opset) == ir.AttributeType.STRING
        return self.Cast(x, to=dtype.name if by_name else int(dtype))


def _small(value: ir.Value) -> bool:
    """Weights stay as they are while building; constants that a rule made are folded at once."""
    return not value.is_initializer() or value not in facts.WEIGHT


# Taking back what a builder has added to a graph


class Transaction:
    """What a `Builder` had when a trial began."""

    def __init__(self, builder: Builder) -> None:
        assert builder.before is None, "only what is built at the end of a graph can be taken back"
        self._builder = builder
        self._nodes, self._bodies = len(builder.graph), len(builder._bodies)
        self._constants, self._sizes = dict(builder._constants), dict(builder._named_sizes)
        self._functions = dict(builder.functions)

    def take_back(self) -> None:
        """Remove all nodes made since then, and what was begun in inner graphs: it must not look like a use."""
        builder = self._builder
        for body in builder._bodies[self._bodies :]:
            body.discard()
        del builder._bodies[self._bodies :]
        for node in list(builder.graph)[self._nodes :][::-1]:
            builder.graph.remove(node, safe=True)
        builder._constants, builder._named_sizes = dict(self._constants), dict(self._sizes)
        builder.functions.clear()
        builder.functions.update(self._functions)
