"""PyTorch's own decomposition of one operator, for operators that have no rule.

The operator is traced on fake tensors that have the ranks, the fixed sizes and the named dimensions of its arguments.
The graph of simpler operators that comes out is lowered by the walk of the torch.export front end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import onnx_ir as ir
import sympy
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.utils import _pytree as pytree

from tonnx.errors import LoweringError
from tonnx.frontends.torch.operators.aten_fallback import REFUSE, foreign_node
from tonnx.frontends.torch.operators.bind import DTYPES, TORCH_OF
from tonnx.frontends.torch.operators.decompose import NoDecomposition, gives_many, graph_of, table
from tonnx.frontends.torch.operators.symbolic_sizes import DimNames
from tonnx.frontends.torch.script import dtypes
from tonnx.frontends.torch.script.values import Tensor
from tonnx.lowering.complex import is_complex
from tonnx.lowering.walk import hangs_on_stand_in

if TYPE_CHECKING:
    from tonnx.frontends.torch.script.operators import Operator
    from tonnx.frontends.torch.script.walk import ScriptWalk

_HINT = 11
"""The size that stands for a dimension of which nothing is known; the next ones are larger, so that none are equal."""


def lower(walk: ScriptWalk, operator: Operator, arguments: list[Any]) -> Any:
    """The results of an operator without a rule; it is noted as unsupported if there is no way."""
    try:
        return _decomposed(walk, operator, arguments)
    except NoDecomposition as error:
        reason = error.why or ""
    if walk.settings.foreign != REFUSE and operator.target is not None:
        return _foreign(walk, operator, arguments)
    from tonnx.frontends.torch.script.walk import stand_in

    walk.refuse_operator(operator.title, reason)
    returns = operator.target._schema.returns if operator.target is not None else []
    things = [stand_in(r.type) for r in returns]
    values = [thing.value if isinstance(thing, Tensor) else thing for thing in things]
    return values[0] if len(values) == 1 else values


def _foreign(walk: ScriptWalk, operator: Operator, arguments: list[Any]) -> Any:
    """The call as one node of PyTorch's own domain; its results have the dtypes that PyTorch gives them."""
    named = {}
    for argument, value in zip(operator.arguments, arguments, strict=False):
        read = pytree.tree_map(lambda v: walk.store.read(walk.op, v) if isinstance(v, Tensor) else v, value)
        named[argument.name] = DTYPES.get(read, read) if isinstance(read, torch.dtype) else read
    outputs = foreign_node(walk.op, operator.target._schema, named, len(operator.returns), walk.settings.foreign)
    output_dtypes = dtypes.asked(walk, operator, arguments) or [None] * len(outputs)
    for value, dtype in zip(outputs, output_dtypes, strict=True):
        value.type = ir.TensorType(dtype or ir.DataType.FLOAT)
    return outputs[0] if len(outputs) == 1 else list(outputs)


def _decomposed(walk: ScriptWalk, operator: Operator, arguments: list[Any]) -> Any:
    target = operator.target
    if target is None or operator.namespace != "aten":
        raise NoDecomposition
    plain = _functional(operator)
    if plain is None or (plain not in table() and not _composite(plain)):
        raise NoDecomposition
    called = by_name(plain, arguments)
    leaves = pytree.tree_leaves(called)
    if any(isinstance(leaf, ir.Value) for leaf in leaves):
        raise NoDecomposition("an argument is a number that only the run knows, which is not followed")
    tensors = list(dict.fromkeys(leaf for leaf in leaves if isinstance(leaf, Tensor)))
    values = [walk.store.read(walk.op, tensor) for tensor in tensors]
    fakes = _Fakes(walk)
    fake_inputs = [fakes.of(value) for value in values]
    if hangs_on_stand_in(values):
        raise LoweringError("an argument of the operator could not be computed")
    if not tensors or None in fake_inputs:
        raise NoDecomposition("the rank or the dtype of an argument is not known")
    module = graph_of(plain, called, tensors, fake_inputs, fakes.mode)
    if fakes.narrowed():
        raise NoDecomposition("PyTorch's own decomposition of it serves some sizes only")
    results = walk.lower_graph(walk.op, DimNames(fakes.names), walk.settings, module, values)
    return results if gives_many(target) else results[0]


def _composite(target: Any) -> bool:
    try:
        return bool(target._can_decompose())
    except RuntimeError:  # an operator of TorchScript's own, on strings or lists: nobody else knows it
        return False


def _functional(operator: Operator) -> Any:
    """The operator itself, or for one in place that which gives a new tensor."""
    name = operator.name
    if name.endswith("_") and not name.startswith("__"):
        packet = getattr(torch.ops.aten, name.rstrip("_"), None)
        return getattr(packet, operator.overload or "default", None) if packet is not None else None
    return operator.target


def by_name(target: Any, inputs: list[Any]) -> tuple[list[Any], dict[str, Any]]:
    """Arguments by position, and those that PyTorch wants by name."""
    positional, named = [], {}
    for argument, value in zip(target._schema.arguments, inputs, strict=False):
        if argument.kwarg_only:
            named[argument.name] = value
        else:
            positional.append(value)
    return positional, named


class _Fakes:
    """Fake tensors whose symbolic sizes are the named dimensions of values."""

    def __init__(self, walk: ScriptWalk) -> None:
        self._walk = walk
        self._env = ShapeEnv()
        self.mode = FakeTensorMode(shape_env=self._env, static_shapes=False)
        self.names: dict[sympy.Symbol, str] = {}
        self._symbols: dict[str, torch.SymInt] = {}

    def of(self, value: ir.Value) -> torch.Tensor | None:
        if value.shape is None or value.dtype not in TORCH_OF:
            return None
        sizes: list[Any] = []
        dtype = TORCH_OF[value.dtype]
        for axis, dim in enumerate(value.shape.dims[:-1] if is_complex(value) else value.shape.dims):
            if isinstance(dim, int):
                sizes.append(dim)
                continue
            name = dim.value
            if name is None:
                name = self._walk.op.names.unique("size")
                size = self._walk.op.size(value, axis)
                assert isinstance(size, ir.Value)  # the dimension is not fixed
                self._walk.op.name_size(size, name)
            else:
                self._walk.op.size(value, axis)  # so that it is known by its name
            sizes.append(self._symbol(name))
        with self.mode:
            return torch.empty(sizes, dtype=dtype.to_complex() if is_complex(value) else dtype)

    def _symbol(self, name: str) -> torch.SymInt:
        if name not in self._symbols:
            hint = _HINT + 2 * len(self._symbols)
            context = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC])
            fake = self.mode.from_tensor(torch.empty(hint), static_shapes=False, symbolic_context=context)
            size: Any = fake.shape[0]
            self._symbols[name] = size
            self.names[size.node.expr] = name
        return self._symbols[name]

    def narrowed(self) -> bool:
        """Whether the decomposition holds for some sizes only."""
        return any(size.node.maybe_as_int() is not None for size in self._symbols.values())
