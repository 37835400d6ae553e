"""Symbolic functions: the way to describe an operator that ``torch.onnx`` has always had.

    def my_symbolic(g, x, alpha):
        return g.op("my.domain::MyOp", x, alpha_f=alpha)

They come as a static method ``symbolic`` of a ``torch.autograd.Function``, or through
``torch.onnx.register_custom_op_symbolic``. They write nodes into one of PyTorch's own graphs, through PyTorch's own
``g``, so that everything they may call works (``symbolic_helper``, ``setType``, other symbolic functions); the nodes
are then read from there. They are told the opset that was asked for, and are taken to write it.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir
import torch

from tonnx.errors import LoweringError, told_as
from tonnx.frontends.patching import How, Patch, patched
from tonnx.frontends.torch.operators.bind import DTYPES
from tonnx.frontends.torch.operators.weights import as_numpy
from tonnx.frontends.torch.versions import module_name
from tonnx.ir import facts
from tonnx.ir.build import Builder
from tonnx.ir.schema import signature
from tonnx.legalise.graft import graft, stand_in
from tonnx.lowering.rules import Rule

_NEWEST = 20  # for which PyTorch's symbolic functions are written
_TORCH = {dtype: torch_dtype for torch_dtype, dtype in reversed(DTYPES.items())}
_DOMAINS = {"onnx": "", "aten": "org.pytorch.aten", "caffe2": "org.pytorch._caffe2"}


def registered(name: str, opset: int) -> Callable[..., Any] | None:
    """The user's symbolic function for ``ns::op``: what ``torch.onnx.register_custom_op_symbolic`` was given."""
    module = sys.modules.get(module_name("registration"))
    if module is None:  # nobody has imported it, so nobody has registered anything
        return None
    group = module.registry.get_function_group(name)
    custom = group._functions._overrides if group is not None else None
    if not custom:
        return None
    version = module._dispatch_opset_version(max(min(opset, _NEWEST), 9), custom)
    return None if version is None else custom[version]


def symbolic_rule(symbolic: Callable[..., Any], schema: Any, opset: int) -> Rule:
    """A symbolic function as a rule of the operator: it gets all arguments in the schema's order."""
    names = tuple(argument.name for argument in schema.arguments)

    def function(op: Builder, **arguments: Any) -> Any:
        values = [arguments[name] for name in names if name in arguments]
        results = run_symbolic(op, symbolic, values, opset, as_values=True)
        many = len(schema.returns) != 1 or str(schema.returns[0].type).startswith("List")
        return results if many else results[0]

    return Rule(function, names)


def run_symbolic(
    op: Builder, symbolic: Callable[..., Any], args: Sequence[Any], opset: int, *, as_values: bool
) -> list[Any]:
    """What a symbolic function makes of ``args``: `ir.Value`s, and Python's own values.

    ``as_values``: numbers and lists come as constants of the graph, as they do for operators; a ``symbolic`` of an
    autograd function gets them as they are.
    """
    opset = min(opset, _NEWEST)
    writer = _Writer(opset)
    values = [writer.argument(arg, as_values) for arg in args]
    graph = writer.graph
    jit_utils = importlib.import_module(module_name("jit_utils"))
    context = jit_utils.GraphContext(graph, graph.block(), opset, graph.param_node(), {}, {}, set())
    name = getattr(symbolic, "__qualname__", repr(symbolic))
    with told_as(LoweringError, f"the symbolic function {name} fails"), _exporting(opset):
        returned = symbolic(context, *values)
    results = list(returned) if isinstance(returned, (list, tuple)) else [returned]
    for result in results:
        if not isinstance(result, torch._C.Value):
            raise LoweringError(
                f"the symbolic function {name} gives a {type(result).__name__}, not values of its graph"
            )
    return writer.read(op, results, name)


@contextlib.contextmanager
def _exporting(opset: int) -> Iterator[None]:
    """What symbolic functions and the helpers that they call look at."""
    settings = importlib.import_module(module_name("_globals")).GLOBALS
    # Empties what PyTorch's inference remembers by the names of values, which are the same in every small graph.
    torch._C._jit_pass_onnx_graph_shape_type_inference(torch._C.Graph(), {}, opset)
    reason = "symbolic functions and their helpers ask for it"
    with patched(
        [
            Patch(settings, "export_onnx_opset_version", opset, reason, How.VALUE),
            Patch(settings, "in_onnx_export", True, reason, How.VALUE),
        ]
    ):
        yield


class _Writer:
    """One of PyTorch's graphs, with values of ours as its inputs."""

    def __init__(self, opset: int) -> None:
        self.graph = torch._C.Graph()
        self.opset = opset
        self._operands: list[ir.Value] = []
        self._numbers: set[int] = set()  # Python's numbers: they take the dtype of what they are combined with

    def argument(self, arg: Any, as_values: bool) -> Any:
        """An argument in the form that symbolic functions take."""
        if isinstance(arg, ir.Value):
            if arg.const_value is not None and arg not in facts.WEIGHT and arg.const_value.size <= 64:
                return self._constant(torch.from_numpy(np.array(arg.const_value.numpy())))
            return self._input(arg)
        if isinstance(arg, (list, tuple)):
            items = [self.argument(item, as_values) for item in arg]
            if not as_values and not any(isinstance(item, torch._C.Value) for item in items):
                return type(arg)(items) if type(arg) in (list, tuple) else items
            return self._list(items)
        if isinstance(arg, ir.DataType):
            arg = _TORCH[arg]
        if not as_values or isinstance(arg, (str, torch.device)):
            return arg
        if arg is None:
            nothing = self.graph.insertNode(self.graph.create("prim::Constant")).output()
            nothing.setType(torch._C.NoneType.get())
            return nothing
        if isinstance(arg, torch.dtype):
            from torch.onnx import JitScalarType

            arg = int(JitScalarType.from_dtype(arg))
        if isinstance(arg, (bool, int, float)):
            constant = self._constant(torch.tensor(arg, dtype=torch.float64 if isinstance(arg, float) else None))
            self._numbers.add(constant.unique())
            return constant
        return arg

    def _input(self, operand: ir.Value) -> torch._C.Value:
        value = self.graph.addInput(f"in{len(self._operands)}")
        kind = torch._C.TensorType.get()
        if operand.dtype in _TORCH:
            kind = kind.with_dtype(_TORCH[operand.dtype])
        if operand.shape is not None:
            kind = kind.with_sizes([dim if isinstance(dim, int) else None for dim in operand.shape.dims])
        value.setType(kind)
        self._operands.append(operand)
        return value

    def _constant(self, tensor: torch.Tensor) -> torch._C.Value:
        node = self.graph.insertNode(self.graph.create("onnx::Constant"))
        node.t_("value", tensor)
        node.output().setType(torch._C.TensorType.create_from_tensor(tensor))
        return node.output()

    def _list(self, items: Sequence[Any]) -> torch._C.Value:
        values = [item if isinstance(item, torch._C.Value) else self._constant(torch.tensor(item)) for item in items]
        node = self.graph.insertNode(self.graph.create("prim::ListConstruct", values))
        numbers = all(isinstance(item, torch._C.Value) and item.type().sizes() == [] for item in values)
        element = torch._C.IntType.get() if numbers else torch._C.TensorType.get()
        node.output().setType(torch._C.ListType(element))
        return node.output()

    # Back again

    def read(self, op: Builder, results: Sequence[torch._C.Value], name: str) -> list[ir.Value]:
        """The nodes that were written, as nodes of the builder's graph; the values of ``results``."""
        inputs = [stand_in(operand, f"in{i}") for i, operand in enumerate(self._operands)]
        graph = ir.Graph(inputs, [], nodes=[], opset_imports={"": self.opset}, name="symbolic")
        value_of: dict[int, ir.Value | None] = {
            value.unique(): graph_input for value, graph_input in zip(self.graph.inputs(), inputs, strict=True)
        }
        needed = _needed(results)
        for node in self.graph.nodes():
            if not any(output.unique() in needed for output in node.outputs()):
                continue
            if node.mustBeNone():
                value_of[node.output().unique()] = None
                continue
            inputs_now = [value_of[value.unique()] for value in node.inputs()]
            written = _node(node, inputs_now, name)
            if written.domain == "":
                numbers = [i for i, value in enumerate(node.inputs()) if value.unique() in self._numbers]
                _adapt(graph, written, numbers, self.opset)
            graph.append(written)
            if written.domain:
                graph.opset_imports.setdefault(written.domain, 1)
            for value, output in zip(node.outputs(), written.outputs, strict=True):
                value_of[value.unique()] = output
        for result in results:
            value = value_of[result.unique()]
            if value is None:
                raise LoweringError(f"the symbolic function {name} gives None")
            graph.outputs.append(value)
        return graft(op, graph, self._operands)


def _needed(results: Sequence[torch._C.Value]) -> set[int]:
    """What the results depend on: constants that arguments became and nobody reads are left behind."""
    needed: set[int] = set()
    pending = list(results)
    while pending:
        value = pending.pop()
        if value.unique() in needed:
            continue
        needed.add(value.unique())
        node = value.node()
        if node.kind() != "prim::Param":
            needed.update(output.unique() for output in node.outputs())
            pending += node.inputs()
    return needed


def _adapt(graph: ir.Graph, node: ir.Node, numbers: Sequence[int], opset: int) -> None:
    """Give numbers the dtype of the tensors that they share a type with; PyTorch's exporter did so in a pass."""
    schema = signature(node.op_type, opset)
    if schema is None or not numbers:
        return
    bound = {
        schema.input(i).type_str: value.dtype
        for i, value in enumerate(node.inputs)
        if value is not None and value.dtype is not None and i not in numbers
    }
    for i in numbers:
        wanted, value = bound.get(schema.input(i).type_str), node.inputs[i] if i < len(node.inputs) else None
        if wanted is not None and value is not None and value.dtype != wanted:
            cast = ir.Node("", "Cast", [value], [ir.AttrInt64("to", int(wanted))], num_outputs=1)
            cast.outputs[0].type, cast.outputs[0].shape = ir.TensorType(wanted), value.shape
            graph.append(cast)
            node.replace_input_with(i, cast.outputs[0])


def _node(node: torch._C.Node, inputs: Sequence[ir.Value | None], name: str) -> ir.Node:
    namespace, op_type = node.kind().split("::", 1)
    if namespace == "prim" or list(node.blocks()):
        raise LoweringError(
            f"the symbolic function {name} writes a {node.kind()}, which is no ONNX operator",
            hint="pass the elements of a list one by one, or as an attribute (axes_i=[…])",
        )
    attributes = [_attribute(node, attribute) for attribute in node.attributeNames()]
    outputs = [_value(value, with_shape=namespace != "onnx") for value in node.outputs()]
    values = list(inputs)
    while values and values[-1] is None:
        values.pop()
    return ir.Node(_DOMAINS.get(namespace, namespace), op_type, values, attributes, outputs=outputs)


def _value(value: torch._C.Value, with_shape: bool) -> ir.Value:
    """Shapes of ONNX's own operators are inferred afresh: PyTorch's inference remembers other graphs by names."""
    kind = value.type()
    result = ir.Value(name=f"t{value.unique()}")
    if isinstance(kind, torch._C.TensorType):
        dtype = kind.dtype()
        sizes = kind.sizes() if kind.dim() is not None else None
        result.type = ir.TensorType(DTYPES[dtype]) if dtype in DTYPES else None
        if sizes is None and kind.dim() is not None:
            sizes = kind.varyingSizes()
        result.shape = None if sizes is None or not with_shape else ir.Shape(sizes)
    return result


def _attribute(node: torch._C.Node, name: str) -> ir.Attr:
    kind = node.kindOf(name)
    value = getattr(node, kind)(name)
    if kind == "t":
        return ir.AttrTensor(name, ir.Tensor(as_numpy(value.contiguous()), dtype=DTYPES[value.dtype]))
    if kind == "ts":
        return ir.AttrTensors(name, [ir.Tensor(as_numpy(t.contiguous()), dtype=DTYPES[t.dtype]) for t in value])
    makers: dict[str, partial[ir.Attr]] = {
        "i": partial(ir.AttrInt64), "f": partial(ir.AttrFloat32), "s": partial(ir.AttrString),
        "is": partial(ir.AttrInt64s), "fs": partial(ir.AttrFloat32s), "ss": partial(ir.AttrStrings),
    }  # fmt: skip
    if kind not in makers:
        raise LoweringError(f"the attribute {name!r} of {node.kind()} is of a kind that ONNX has not ({kind})")
    return makers[kind](name, value)
