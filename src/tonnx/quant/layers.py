"""The layers of a graph that can multiply integers: products and convolutions with constant weights.

ONNX Runtime's CPU has integer kernels for these when their factors are DequantizeLinear's, and for a convolution when
its result goes to QuantizeLinear only: Conv as QLinearConv, Gemm as QGemm, MatMul as MatMulIntegerToFloat.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
import onnx_ir as ir

from tonnx.errors import InvalidArgument
from tonnx.ir.build import Builder, Names
from tonnx.ir.infer import constant, dims_of
from tonnx.ir.operands import attribute
from tonnx.ir.rewrite import names_in, replace_node, rewrite_each

KINDS = ("Conv", "Gemm", "MatMul")
FEWEST = 1024
"""Numbers in a weight that is worth to be made smaller."""
SHORT = 32
"""Products in a sum that kernels for integers are made for; errors of fewer do not make up for each other, either."""
HANDED_ON = frozenset(
    "MaxPool Reshape Flatten Transpose Squeeze Unsqueeze Slice Gather Split Identity Expand DepthToSpace "
    "SpaceToDepth".split()
)
"""Operators whose results are some of the numbers that they read first: rounded ones stay what they are."""
_MEANS = frozenset("GlobalAveragePool AveragePool ReduceMean".split())
_FUSED_AFTER_GEMM = frozenset("Relu LeakyRelu Sigmoid Tanh HardSigmoid Elu Selu Softplus Softsign".split())
_ELSEWHERE = {
    "ConvTranspose": "ONNX Runtime has no integer kernel for it", "LSTM": "recurrent", "GRU": "recurrent",
    "RNN": "recurrent",
}  # fmt: skip


@dataclass(frozen=True)
class Candidate:
    """A layer that multiplies by a weight."""

    node: ir.Node
    axis: int
    """Of the weight: that of the channels of the result, each of which has a scale."""
    why: str = ""
    """Why it has to stay as it is; empty if it does not."""

    @property
    def name(self) -> str:
        return str(self.node.name)

    @property
    def x(self) -> ir.Value:
        """What is multiplied by the weight."""
        return _present(self.node.inputs[0])

    @property
    def weight(self) -> ir.Value:
        return _present(self.node.inputs[1])

    @property
    def bias(self) -> ir.Value | None:
        """What is added to each channel."""
        return self.node.inputs[2] if len(self.node.inputs) > 2 else None

    @property
    def tail(self) -> ir.Value:
        """The result; see `tail_of`."""
        return tail_of(self.node)

    @property
    def gives_integers(self) -> bool:
        """Whether it multiplies integers only if its result is rounded as well.

        Convolutions do. So does a Gemm before an activation: ONNX Runtime takes the two for one layer of floats first.
        """
        result = self.node.outputs[0]
        users = [user.op_type for user, _ in result.uses()]
        activated = len(users) == 1 and users[0] in _FUSED_AFTER_GEMM and not result.is_graph_output()
        return self.node.op_type == "Conv" or (self.node.op_type == "Gemm" and activated)

    @property
    def is_turned_around(self) -> bool:
        """Whether floats of it would be in another order than the integers that they are added to.

        Those of pictures have fast kernels of their own, which make up for it.
        """
        pictures = self.weight.shape is not None and self.weight.shape.rank() == 4
        return not pictures and any(user.op_type == "Add" for user, _ in self.tail.uses())

    @property
    def terms(self) -> int:
        """How many products are summed up to one number of the result."""
        sizes = self.weight.shape.numpy() if self.weight.shape is not None else ()
        return int(np.prod([size for axis, size in enumerate(sizes) if axis != self.axis]))


def too_small(layers: Sequence[Candidate]) -> dict[str, str]:
    """Layers that a processor computes no faster in integers, by name, and why; their noise would be for nothing.

    Products with few weights, and what sums up few products at either end of the network: rounding takes as long.
    """
    small = {}
    for layer in layers:
        if layer.node.op_type != "Conv" and layer.weight.const_value is not None:
            if layer.weight.const_value.size < FEWEST:
                small[layer.name] = f"fewer than {FEWEST:,} weights gain nothing from integers"
        elif layer.x.is_graph_input() and layer.terms <= SHORT and not layer.is_turned_around:
            small[layer.name] = f"sums of {layer.terms} products of an input gain nothing from integers"
        elif layer.terms <= SHORT and _is_last(layer.node):
            small[layer.name] = f"sums of {layer.terms} products that no layer reads gain nothing from integers"
    return small if len(small) < len(layers) else {}


def _is_last(node: ir.Node) -> bool:
    """Whether no layer reads what comes of it."""
    seen, nodes = {node}, [node]
    for one in nodes:  # which grows
        further = {user for value in one.outputs for user, _ in value.uses()} - seen
        if any(user.op_type in KINDS for user in further):
            return False
        seen |= further
        nodes += further
    return True


def tail_of(node: ir.Node) -> ir.Value:
    """The result of a node, after a ReLU or Clip that only this node feeds: runtimes compute it as part of the node."""
    result = node.outputs[0]
    if len(result.uses()) != 1 or result.is_graph_output():
        return result
    user, index = next(iter(result.uses()))
    fused = index == 0 and user.op_type in ("Relu", "Clip") and user.graph is node.graph
    return user.outputs[0] if fused else result


def _present(value: ir.Value | None) -> ir.Value:
    assert value is not None
    return value


def name_nodes(model: ir.Model) -> None:
    """Give every node a name that no other has: layers are known by it."""
    names, taken = Names(names_in(model)), set[str]()
    for node in model.graph.all_nodes():
        if not node.name or node.name in taken:
            node.name = names.unique(node.name or f"/{node.op_type}")
        taken.add(node.name)


def pool_means(model: ir.Model) -> int:
    """Write means over whole pictures as the pool that they are, which integer kernels exist for."""
    return rewrite_each(model, "ReduceMean", _pooled)


def _pooled(op: Builder, node: ir.Node) -> bool:
    x, axes = node.inputs[0], constant(node.inputs[1]) if len(node.inputs) > 1 else None
    dims = dims_of(x)
    if x is None or x.dtype != ir.DataType.FLOAT or not attribute(node, "keepdims", 1):
        return False
    if dims is None or len(dims) < 3 or axes is None:
        return False
    if {int(axis) % len(dims) for axis in axes} != set(range(2, len(dims))):
        return False
    with op.at(node):
        replace_node(node, [op.GlobalAveragePool(x)])
    return True


def candidates(model: ir.Model) -> list[Candidate]:
    """The layers of the main graph, in order, with those that have to stay as they are."""
    return [candidate for node in model.graph if (candidate := candidate_of(node)) is not None]


def candidate_of(node: ir.Node) -> Candidate | None:
    if node.domain != "" or (node.op_type not in KINDS and node.op_type not in _ELSEWHERE):
        return None
    if node.op_type in _ELSEWHERE:
        return Candidate(node, 0, _ELSEWHERE[node.op_type])
    x, weight = node.inputs[0], node.inputs[1]
    if not _is_constant(weight):
        constant = "the weight comes first" if _is_constant(x) else "both factors change with the input"
        return Candidate(node, 0, constant)
    rank = weight.shape.rank() if weight is not None and weight.shape is not None else 0
    axis = 0 if node.op_type == "Conv" else rank - 1
    if node.op_type == "Gemm" and attribute(node, "transB", 0):
        axis = 0
    return Candidate(node, axis, _objection(node, rank))


def _objection(node: ir.Node, rank: int) -> str:
    x, weight = node.inputs[0], node.inputs[1]
    assert weight is not None and weight.const_value is not None
    if x is None or _is_constant(x) or x.dtype != ir.DataType.FLOAT or weight.dtype != ir.DataType.FLOAT:
        return "not of float32"
    if not np.isfinite(weight.const_value.numpy()).all():
        return "the weight is not finite"
    if node.op_type == "MatMul" and rank != 2:
        return f"the weight has the rank {rank}"
    if node.op_type == "Gemm" and (
        attribute(node, "alpha", 1.0) != 1 or attribute(node, "beta", 1.0) != 1 or attribute(node, "transA", 0)
    ):
        return "a Gemm with factors of its own"
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if bias is not None and (not _is_constant(bias) or bias.shape is None or bias.shape.rank() != 1):
        return "what is added is no vector of constants"
    return ""


def _is_constant(value: ir.Value | None) -> bool:
    return value is not None and value.is_initializer() and not value.is_graph_input() and value.const_value is not None


def matched(patterns: Sequence[str], layers: Sequence[Candidate]) -> dict[str, str]:
    """The layers that a pattern names, by their own or their weight's name; a pattern that names none is refused."""
    chosen: dict[str, str] = {}
    for pattern in patterns:
        hits = [layer.name for layer in layers if any(fnmatchcase(name, pattern) for name in _names(layer))]
        if not hits:
            some = ", ".join(layer.name for layer in layers[:8])
            raise InvalidArgument(f"no layer has a name like {pattern!r}", hint=f"there are {some or 'none'}")
        chosen |= dict.fromkeys(hits, pattern)
    return chosen


def _names(layer: Candidate) -> list[str]:
    return [layer.name, *(str(value.name) for value in layer.node.inputs[1:2] if value is not None)]


@dataclass(frozen=True)
class Rounded:
    """The values that have to be rounded for some layers."""

    origins: Mapping[ir.Value, ir.Value]
    """Every value, and the one whose step it takes: mostly its own. Numbers that are handed on keep their step."""
    whole: frozenset[ir.Value]
    """Those that nobody may read as they were before: results of convolutions, and of sums of rounded numbers."""
    readers: frozenset[ir.Node]
    """Nodes that read rounded numbers: the layers, sums of rounded numbers, and what hands them on."""


def rounded_values(layers: Sequence[Candidate]) -> Rounded:
    """What a layer multiplies, the results of convolutions, and what is computed of such in integers.

    These are sums and means of rounded numbers, and their products with a sigmoid, if they are rounded for a layer.
    """
    values = dict.fromkeys(value for layer in layers for value in _needs(layer))
    whole = {layer.tail for layer in layers if layer.gives_integers}
    readers = {layer.node for layer in layers}
    while computed := _in_integers(values, readers):
        readers |= computed
        whole |= {tail_of(node) for node in computed}
        values |= {tail_of(node): None for node in computed}
    origins = {value: _origin(value, values) for value in values}
    handed = {
        user for value in values for user, index in value.uses()
        if index == 0 and user.domain == "" and user.op_type in HANDED_ON and not set(values).isdisjoint(user.outputs)
        and (user.op_type != "MaxPool" or origins[value] in whole)  # of floats it is faster before they are rounded
    }  # fmt: skip
    return Rounded(origins, frozenset(whole), frozenset(readers | handed))


def _needs(layer: Candidate) -> Iterator[ir.Value]:
    yield layer.x
    if layer.gives_integers:
        yield layer.tail


def _in_integers(values: Mapping[ir.Value, None], known: Set[ir.Node]) -> set[ir.Node]:
    """Further nodes that read rounded numbers only, and whose results are rounded as well, or may be."""
    beside = (node for value in values for node in (value.producer(), *(user for user, _ in value.uses())))
    nodes = dict.fromkeys(node for node in beside if node is not None and node.domain == "" and node not in known)
    return {part for node in nodes if node.op_type in _COMPUTED for part in _COMPUTED[node.op_type](node, values)}


def _sum(node: ir.Node, values: Mapping[ir.Value, None]) -> list[ir.Node]:
    """A mean hardly shows that what it is taken of was rounded once more."""
    total = tail_of(node)
    averaged = not total.is_graph_output() and all(user.op_type in _MEANS for user, _ in total.uses())
    return [node] if set(node.inputs) <= set(values) and (averaged or _reaches(total, values)) else []


def _reaches(value: ir.Value, values: Mapping[ir.Value, None]) -> bool:
    """Whether a value, or what it is handed on to, is among those that are rounded."""
    handed = (user.outputs[0] for user, index in value.uses() if index == 0 and user.op_type in HANDED_ON)
    return value in values or any(_reaches(other, values) for other in handed)


def _mean(node: ir.Node, values: Mapping[ir.Value, None]) -> list[ir.Node]:
    return [node] if node.inputs[0] in values and not _is_given(node.outputs[0]) else []


def _gated(node: ir.Node, values: Mapping[ir.Value, None]) -> list[ir.Node]:
    """Rounded numbers times rounded numbers, or sigmoids of such: swish, squeeze and excitation."""
    gates: dict[ir.Node, None] = {}
    factors: list[ir.Value | None] = [*node.inputs] if node.outputs[0] in values else [None]
    for factor in factors:  # which grows
        gate = None if factor is None or factor in values else factor.producer()
        if gate is not None and gate not in gates and gate.domain == "" and gate.op_type in ("Mul", "Sigmoid"):
            gates[gate] = None
            factors += gate.inputs
        elif factor not in values and gate not in gates:
            return []
    return [node, *gates]


_COMPUTED = {"Add": _sum, "Concat": _sum, "GlobalAveragePool": _mean, "Mul": _gated}
"""What ONNX Runtime has integer kernels for beside layers (QLinearAdd, QLinearGlobalAveragePool, QLinearMul)."""


def _is_given(value: ir.Value) -> bool:
    """Whether a value is a result of the network, perhaps in another form."""
    users = (user for user, _ in value.uses() if user.op_type in HANDED_ON)
    return value.is_graph_output() or any(_is_given(user.outputs[0]) for user in users)


def _origin(value: ir.Value, values: Mapping[ir.Value, None]) -> ir.Value:
    while (node := value.producer()) is not None and node.domain == "" and node.op_type in HANDED_ON:
        source = node.inputs[0]
        if source is None or source not in values:
            break
        value = source
    return value
