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
from math import prod
from typing import Any

import numpy as np
import onnx_ir as ir

from tonnx.ir import arithmetic, facts, infer
from tonnx.ir.fold import LIMIT, fold
from tonnx.ir.infer import Dim, dims_of, same_dim
from tonnx.ir.operands import as_array, attribute_of, schema_attribute, wanted_dtype
from tonnx.ir.provenance import MODULE, OPERATOR, SOURCE
from tonnx.ir.schema import Signature, attribute_type, signature
from tonnx.ir.target import CANON
from tonnx.ir.transaction import Transaction
from tonnx.ir.widen import instead

Size = int | ir.Value
"""A size known now, or an int64 value of shape [1] that holds it at run time."""
Operand = ir.Value | bool | int | float | complex | Sequence[Any] | np.ndarray | None


_SHARED_CONSTANT = 256  # bytes; larger constants are rarely equal, and hashing them costs


class UnknownRank(ValueError):
    """A rule needs the rank of a value that has none: a file from elsewhere, whose shapes cannot be inferred."""


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

    def reserve(self, name: str) -> bool:
        """Take exactly ``name``; False if somebody has it."""
        if name in self._taken:
            return False
        self._taken.add(name)
        return True


class Builder:
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
        """Where ONNX has an operator not for a dtype, it is computed in a wider one; see `tonnx.ir.widen`."""
        self.functions: dict[Any, ir.Function] = {} if functions is None else functions
        """The ONNX functions of the model, by what tells them apart."""
        self.scope = ""
        """The module path that nodes are named after; see `origin`."""
        self.source: Mapping[str, str] = {}
        """Metadata of nodes: the framework's operator, module path and source line; see `origin`."""
        self.made: list[ir.Node] = []
        """The nodes made before ``before``; see `at`."""
        self._constants: dict[Any, ir.Value] = {}
        self._named_sizes: dict[str, ir.Value] = {}
        self._bodies: list[Builder] = []
        self._entered: list[Any] = []

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
        made = self.node(
            op_type,
            values,
            [schema_attribute(schema, name, value) for name, value in attributes.items()],
            zip(infer.dtypes(schema, values, attributes, count), shapes, strict=True),
        )
        return made[0] if count == 1 and _outputs is None else made

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
        made = self._call(schema.op_type, *operands, **call)
        results = [made] if isinstance(made, ir.Value) else list(made)
        for i, result in enumerate(results):
            if (dtype := own.get(schema.output(i).type_str)) is not None:
                results[i] = self.cast(result, dtype)
        return results[0] if isinstance(made, ir.Value) else tuple(results)

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
        values = []
        for dtype, dims in outputs:
            values.append(
                ir.Value(
                    name=self.names.unique("t"),
                    type=None if dtype is None else ir.TensorType(dtype),
                    shape=None if dims is None else ir.Shape(dims),
                )
            )
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
            self.made.append(node)
        return tuple(node.outputs)

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
            if (known := self._shared_constant(key)) is not None:
                return known
        tensor = ir.Tensor(np.ascontiguousarray(array).reshape(array.shape))
        made = self._place_constant(tensor)
        if key is not None:
            self._constants[key] = made
        return made

    def _shared_constant(self, key: Any) -> ir.Value | None:
        # An inner graph sees the constants of the graphs around it.
        builder: Builder | None = self
        while builder is not None:
            if key in builder._constants:
                return builder._constants[key]
            builder = builder.parent
        return None

    def _place_constant(self, tensor: ir.Tensor) -> ir.Value:
        if self.constants_as_nodes:
            (made,) = self.node("Constant", [], [ir.AttrTensor("value", tensor)], [(tensor.dtype, list(tensor.shape))])
            made.const_value = tensor
            return made
        if self.parent is not None:
            return self.parent._place_constant(tensor)
        made = ir.Value(
            name=self.names.unique("const"), type=ir.TensorType(tensor.dtype), shape=tensor.shape, const_value=tensor
        )
        tensor.name = made.name
        self.graph.initializers.add(made)
        return made

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
        domain, found, op_type = name.partition("::")
        if not found or not domain or not op_type:
            raise TypeError(f"an operator of another domain is called 'domain::Name', not {name!r}")
        operands = [x if x is None or isinstance(x, ir.Value) else self.constant(x) for x in inputs]
        made = self.node(
            op_type,
            operands,
            [attribute_of(key, value) for key, value in attributes.items() if value is not None],
            [(None, None)] * _outputs,
            domain=domain,
        )
        return made[0] if _outputs == 1 else made

    def function(
        self, name: str, inputs: Sequence[ir.Value], body: Callable[..., Any], key: Hashable = None
    ) -> tuple[ir.Value, ...]:
        """Call an ONNX function ``domain::Name`` that computes ``body(op, *inputs)``; the file has that function then.

        Calls that agree in the types and shapes of their inputs, and in ``key``, share one function.
        """
        domain, _, op_type = name.partition("::")
        kinds = tuple((x.dtype, None if x.shape is None else tuple(map(str, x.shape.dims))) for x in inputs)
        known = self.functions.get((name, kinds, key))
        if known is None:
            known = self._new_function(domain, op_type, inputs, body)
            self.functions[name, kinds, key] = known
        outputs = [(v.dtype, None if v.shape is None else v.shape.dims) for v in known.outputs]
        return self.node(known.name, inputs, [], outputs, domain=domain)

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
        inner = Builder(
            graph, names=self.names, opset=self.opset, constants_as_nodes=True, widens=self.widens,
            functions=self.functions,
        )  # fmt: skip
        inner.scope, inner.source = self.scope, self.source
        with inner:
            made = body(inner, *formals)
            for value in [made] if isinstance(made, ir.Value) else made:
                inner.add_output(value)
        return ir.Function(domain, names.unique(op_type), graph=graph, attributes=[])

    # Inner graphs

    def inner(self, name: str, inputs: Sequence[tuple[str, ir.DataType, Sequence[Dim] | None]] = ()) -> Builder:
        """A builder for the body of an If, Loop or Scan; finish it by setting ``.graph.outputs``."""
        values = [
            ir.Value(
                name=self.names.unique(wish),
                type=ir.TensorType(dtype),
                shape=None if dims is None else ir.Shape(dims),
            )
            for wish, dtype, dims in inputs
        ]
        graph = ir.Graph(values, [], nodes=[], name=self.names.unique(name))
        child = Builder(
            graph,
            names=self.names,
            opset=self.opset,
            parent=self,
            constants_as_nodes=self.constants_as_nodes,
            widens=self.widens,
            functions=self.functions,
        )
        child.scope, child.source = self.scope, self.source
        self._bodies.append(child)
        return child

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
        before, outer_opset, outer_made = self.before, self.opset, self.made
        self.before, self.opset, self.made = node, self.opset if opset is None else opset, []
        try:
            with self._from((node.name or "").rsplit("/", 1)[0], node.metadata_props):
                yield self.made
        finally:
            if before is not None:  # whoever asks for nodes before another one gets these too
                outer_made += self.made
            self.before, self.opset, self.made = before, outer_opset, outer_made

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

    # Sizes and small conveniences

    def cast(self, x: ir.Value, dtype: ir.DataType | None) -> ir.Value:
        """``x`` as ``dtype``, mostly that of another value; nothing is added when it is that already."""
        if x.dtype == dtype:
            return x
        assert dtype is not None
        by_name = attribute_type("Cast", "to", self.opset) == ir.AttributeType.STRING
        return self.Cast(x, to=dtype.name if by_name else int(dtype))

    def rank(self, x: ir.Value) -> int:
        """The rank, which every value of a front end has."""
        if x.shape is None:
            raise UnknownRank(f"the rank of {x.name!r} is not known")
        return x.shape.rank()

    def size(self, x: ir.Value, axis: int) -> Size:
        """The size of an axis: an int if it is fixed."""
        rank = self.rank(x)
        axis %= max(rank, 1)
        dim = x.shape[axis]  # type: ignore[index]
        if isinstance(dim, int):
            return dim
        if dim.value is not None and (known := self.known_size(dim.value)) is not None:
            return known
        if dim.value is not None:
            x, axis = self._bearer(x, axis, dim.value)
        if attribute_type("Shape", "start", self.opset) is not None:
            size = self.Shape(x, start=axis, end=axis + 1)
        else:
            size = self.Gather(self.Shape(x), [axis], axis=0)
        if dim.value is not None:
            self.name_size(size, dim.value)
        return size

    def _bearer(self, x: ir.Value, axis: int, dim: str) -> tuple[ir.Value, int]:
        """Where to read a named dimension: at a graph input that has it, so that ``x`` need not be computed for it."""
        if self.before is None and self.parent is None:
            for given in self.graph.inputs:
                for at, found in enumerate(given.shape or ()):
                    if isinstance(found, ir.SymbolicDim) and found.value == dim:
                        return given, at
        return x, axis

    def known_size(self, dim: str) -> ir.Value | None:
        """The value that holds a named dimension, if one was made in this graph or around it."""
        builder: Builder | None = self
        while builder is not None:
            if dim in builder._named_sizes:
                return builder._named_sizes[dim]
            builder = builder.parent
        return None

    def name_size(self, size: ir.Value, dim: str) -> None:
        """Say that ``size`` (shape [1]) holds the dimension ``dim``: it is not computed again."""
        facts.DIM[size] = dim
        if self.before is None:  # only a graph that grows at its end keeps earlier values in reach
            self._named_sizes.setdefault(dim, size)

    def sizes(self, x: ir.Value) -> list[Size]:
        """The sizes of all axes."""
        return [self.size(x, axis) for axis in range(self.rank(x))]

    def vector(self, sizes: Sequence[Size]) -> ir.Value:
        """Sizes side by side, as the int64 vector that Reshape, Expand and their like take."""
        parts: list[ir.Value | list[int]] = []
        for size in sizes:
            if isinstance(size, ir.Value):
                parts.append(size)
            elif parts and isinstance(parts[-1], list):
                parts[-1].append(int(size))
            else:
                parts.append([int(size)])
        operands = [self.constant(p, ir.DataType.INT64) if isinstance(p, list) else p for p in parts]
        if not operands:
            return self.constant([], ir.DataType.INT64)
        return operands[0] if len(operands) == 1 else self.Concat(*operands, axis=0)

    def scalar(self, size: Size) -> ir.Value:
        """A size as an int64 value of rank 0."""
        if isinstance(size, ir.Value):
            if not self.rank(size):
                return size
            producer = size.producer()
            if producer is not None and producer.op_type in ("Reshape", "Unsqueeze"):
                made_from = producer.inputs[0]
                if made_from is not None and made_from.shape is not None and made_from.shape.rank() == 0:
                    return made_from  # a number of a tensor, such as the index of a loop
            is_attribute = attribute_type("Squeeze", "axes", self.opset) is not None
            return self.Squeeze(size, axes=[0]) if is_attribute else self.Squeeze(size, [0])
        return self.constant(size, ir.DataType.INT64)

    def product(self, sizes: Sequence[Size]) -> Size:
        """The product of sizes, known parts multiplied now."""
        fixed = 1
        dynamic: list[ir.Value] = []
        for size in sizes:
            if isinstance(size, ir.Value):
                dynamic.append(size)
            else:
                fixed *= size
        if not dynamic or fixed == 0:
            return fixed
        result = dynamic[0]
        for value in dynamic[1:]:
            result = self.Mul(result, value)
        return result if fixed == 1 else self.Mul(result, fixed)

    def reshape(self, x: ir.Value, sizes: Sequence[Size]) -> ir.Value:
        """Reshape whose target is a constant whenever possible, which is what runtimes fuse over.

        A run-time size that is the input's own at the same place becomes 0 ("copy"), a single remaining one -1.
        """
        dims = dims_of(x)
        if dims is not None and (rest := _rest(dims, sizes)) is not None:
            sizes = [rest if isinstance(size, int) and size == -1 else size for size in sizes]
        shape = [size_dim(size) for size in sizes]
        if dims is not None and len(dims) == len(sizes) and all(map(same_dim, dims, shape)):
            return x
        wanted: list[Size] = list(sizes)
        if any(isinstance(s, int) and s == 0 for s in sizes):  # a size of zero, not "copy"
            return self.Reshape(x, self.vector(wanted), allowzero=1, _shape=shape)
        for i, size in enumerate(sizes):
            if isinstance(size, ir.Value) and dims is not None and i < len(dims) and same_dim(dims[i], shape[i]):
                wanted[i] = 0
        dynamic = [i for i, size in enumerate(wanted) if isinstance(size, ir.Value)]
        if len(dynamic) == 1 and -1 not in [s for s in wanted if isinstance(s, int)]:
            wanted[dynamic[0]] = -1
        # A constant target says more than the sizes do: what is left for -1.
        known = -1 in sizes and all(isinstance(size, int) for size in wanted)
        return self.Reshape(x, self.vector(wanted), _shape=None if known else shape)


def _rest(dims: Sequence[Dim], sizes: Sequence[Size]) -> int | None:
    """The size that -1 stands for, if the dynamic dimensions of what is reshaped are just those of the target."""
    if not any(isinstance(size, int) and size == -1 for size in sizes):
        return None
    before = sorted(str(dim.value) for dim in dims if not isinstance(dim, int))
    after = sorted(str(facts.DIM.get(size)) for size in sizes if isinstance(size, ir.Value))
    if before != after or "None" in before:
        return None
    count = prod(dim for dim in dims if isinstance(dim, int))
    known = prod(size for size in sizes if isinstance(size, int) and size != -1)
    return count // known if known and count % known == 0 else None


def size_dim(size: Size) -> Dim:
    """The dimension that a size gives a shape."""
    if isinstance(size, ir.Value):
        name = facts.DIM.get(size)
        return ir.SymbolicDim(name) if name else infer.UNKNOWN
    return infer.UNKNOWN if size == -1 else int(size)


def _small(value: ir.Value) -> bool:
    """Weights stay as they are while building; constants that a rule made are folded at once."""
    return not value.is_initializer() or value not in facts.WEIGHT
