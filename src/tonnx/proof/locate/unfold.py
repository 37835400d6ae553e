"""Nodes that have nodes inside, written out for one run: the branch that is taken, every pass of a loop, a function.

The result is flat, so that what finds a fault among nodes finds it in there, too. Every node knows where it stood.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import onnx
import onnx_ir as ir

from tonnx.ir.schema import attribute_type
from tonnx.proof.locate.cut import Cutter

_MOST = 4000
"""Nodes up to which something is unfolded."""
_MARK = "@/"
"""Between the pass that a node is of and its own name."""
_BRANCHES = ("then_branch", "else_branch")


@dataclass(frozen=True)
class Place:
    """Where a node of the flat graph stood: at which node of the graph before, and where inside of it."""

    index: int
    inside: str = ""
    name: str | None = None
    """Its own name, if it has another one here."""
    turn: str = ""
    """In which pass: ``1.0`` is the first one of what is in the second one."""


@dataclass
class Unfolded:
    """A part of a file in which no node of the chosen ones has nodes inside any more."""

    model: ir.Model
    places: list[Place]
    values: dict[str, tuple[str, str]]
    """Value → its name inside of the node that was written out, and the pass."""


def has_inside(cutter: Cutter, index: int) -> bool:
    """Whether a node has nodes inside that can be written out."""
    node = cutter.proto.graph.node[index]
    return (node.op_type in ("If", "Loop") and not node.domain) or _function(cutter.proto, node) is not None


def unfold(
    cutter: Cutter,
    nodes: Sequence[int],
    feeds: Mapping[str, np.ndarray],
    wanted: str,
    passes: Callable[[int], int | None],
    turns: Callable[[int], str] = lambda index: "",
) -> Unfolded | None:
    """These nodes, which compute ``wanted`` from ``feeds``; None if nothing in them can be unfolded.

    ``passes`` says how often a loop runs whose body decides that, ``turns`` in which pass of others a node is itself.
    """
    work = _Unfolding(cutter, feeds, nodes, turns)
    for index in nodes:
        node = cutter.proto.graph.node[index]
        if not (has_inside(cutter, index) and work.open(index, node, passes)):
            work.add(node, Place(index))
        if len(work.nodes) > _MOST:
            return None
    if not work.opened:
        return None
    flat = cutter.part_of(work.nodes, feeds, [wanted], work.initializers)
    return Unfolded(flat, work.places, work.values)


def _function(model: onnx.ModelProto, node: onnx.NodeProto) -> onnx.FunctionProto | None:
    for function in model.functions:
        same = (function.domain, function.name) == (node.domain, node.op_type)
        if same and getattr(function, "overload", "") == getattr(node, "overload", ""):
            return function
    return None


@dataclass
class _Unfolding:
    cutter: Cutter
    feeds: Mapping[str, np.ndarray]
    region: Sequence[int]
    turns: Callable[[int], str]
    values: dict[str, tuple[str, str]] = field(default_factory=dict)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    initializers: list[onnx.TensorProto] = field(default_factory=list)
    opened: bool = False

    def add(self, node: onnx.NodeProto, place: Place) -> None:
        self.nodes.append(node)
        self.places.append(place)

    def open(self, index: int, node: onnx.NodeProto, passes: Callable[[int], int | None]) -> bool:
        """Write out what is inside of a node; False if that cannot be done."""
        name = node.name.rpartition(_MARK)[2]
        title = f"{node.op_type} {name!r}" if name else f"{node.op_type} (node {index})"
        function = _function(self.cutter.proto, node)
        if function is not None:
            done = self._call(index, node, function, title)
        elif node.op_type == "If":
            done = self._branch(index, node, title)
        else:
            done = self._loop(index, node, title, passes)
        self.opened = self.opened or done
        return done

    def _call(self, index: int, node: onnx.NodeProto, function: onnx.FunctionProto, title: str) -> bool:
        versions = {entry.domain: entry.version for entry in self.cutter.proto.opset_import}
        if any(versions.get(entry.domain, entry.version) != entry.version for entry in function.opset_import):
            return False
        names = dict(zip(function.input, [*node.input, *[""] * len(function.input)], strict=False))
        names |= {inner: outer for inner, outer in zip(function.output, node.output, strict=False) if outer}
        attributes = {attribute.name: attribute for attribute in (*function.attribute_proto, *node.attribute)}
        self._inline(Place(index, f"the function {title}"), function.node, names, f"{index}.", attributes)
        return True

    def _branch(self, index: int, node: onnx.NodeProto, title: str) -> bool:
        condition = self._value(node.input[0])
        if condition is None:
            return False
        taken = _BRANCHES[0 if bool(condition.reshape(-1)[0]) else 1]
        graph = _graph(node, taken)
        turn = ".".join(filter(None, (self.turns(index), "0")))
        self._body(Place(index, f"{taken} of {title}", turn=turn), graph, {}, node.output, f"{index}.")
        return True

    def _loop(self, index: int, node: onnx.NodeProto, title: str, passes: Callable[[int], int | None]) -> bool:
        body = _graph(node, "body")
        count = passes(index) if _decides(body) else None
        if count is None:
            trips = self._value(node.input[0]) if node.input[0] else None
            count = None if trips is None or _decides(body) else int(trips.reshape(-1)[0])
        if not count or count * len(body.node) > _MOST:
            return False
        carried = list(node.input[2:])
        rows: list[list[str]] = [[] for _ in body.output[1 + len(carried) :]]
        for turn in range(count):
            prefix = f"{index}.{turn}."
            self._constant(np.array(turn, np.int64), f"{prefix}iteration")
            self._constant(np.array(True), f"{prefix}go_on")
            inputs = [f"{prefix}iteration", f"{prefix}go_on", *carried]
            names = {value.name: outer for value, outer in zip(body.input, inputs, strict=True)}
            results = [f"{prefix}result{i}" for i in range(len(body.output))]
            path = ".".join(filter(None, (self.turns(index), str(turn))))
            self._body(Place(index, f"pass {turn + 1} of {title}", turn=path), body, names, results, prefix)
            carried = results[1 : 1 + len(carried)]
            for row, result in zip(rows, results[1 + len(carried) :], strict=True):
                row.append(result)
        self._ends(index, node, carried, rows)
        return True

    def _ends(self, index: int, node: onnx.NodeProto, carried: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """The outputs of a loop: what the last pass hands on, and what every pass gave, stacked."""
        make = onnx.helper.make_node
        for last, output in zip(carried, node.output, strict=False):
            if output:
                self.add(make("Identity", [last], [output]), Place(index))
        for row, output in zip(rows, node.output[len(carried) :], strict=False):
            for name in row if output else ():
                self.add(self._unsqueezed(name), Place(index))
            if output:
                self.add(make("Concat", [f"{name}.row" for name in row], [output], axis=0), Place(index))

    def _unsqueezed(self, name: str) -> onnx.NodeProto:
        if attribute_type("Unsqueeze", "axes", self.cutter.model.opset_imports[""]) is not None:
            return onnx.helper.make_node("Unsqueeze", [name], [f"{name}.row"], axes=[0])
        self._constant(np.array([0]), f"{name}.axis")
        return onnx.helper.make_node("Unsqueeze", [name, f"{name}.axis"], [f"{name}.row"])

    def _body(
        self, place: Place, graph: onnx.GraphProto, names: Mapping[str, str], results: Sequence[str], prefix: str
    ) -> None:
        for tensor in graph.initializer:
            self.initializers.append(onnx.TensorProto())
            self.initializers[-1].CopyFrom(tensor)
            self.initializers[-1].name = prefix + tensor.name
        own = {tensor.name: prefix + tensor.name for tensor in graph.initializer}
        produced = {name for node in graph.node for name in node.output}
        # A value that is given out twice, or is not made in here, needs a node of its own.
        firsts: dict[str, str] = {}
        copies: list[tuple[str, str]] = []
        for value, result in zip(graph.output, results, strict=False):
            if result and value.name in produced and value.name not in firsts:
                firsts[value.name] = result
            elif result:
                copies.append((value.name, result))
        renamed = {**names, **own, **firsts}
        self._inline(place, graph.node, renamed, prefix, {})
        for source, result in copies:
            name = renamed.get(source, prefix + source if source in produced else source)
            self.add(onnx.helper.make_node("Identity", [name], [result]), place)

    def _inline(
        self,
        place: Place,
        nodes: Sequence[onnx.NodeProto],
        names: Mapping[str, str],
        prefix: str,
        attributes: Mapping[str, onnx.AttributeProto],
    ) -> None:
        renamed = dict(names)
        for node in nodes:
            renamed.update({name: prefix + name for name in node.output if name and name not in renamed})
        for number, node in enumerate(nodes):
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            _rename(copy, renamed)
            _fill(copy, attributes)
            own = node.name.rpartition(_MARK)[2]
            copy.name = f"{prefix}{_MARK}{own}" if own else ""
            self.add(copy, replace(place, inside=f"{place.inside}, node {number}", name=own))
            if place.turn:
                self.values.update({new: (old, place.turn) for old, new in zip(node.output, copy.output, strict=True)})

    def _constant(self, value: np.ndarray, name: str) -> None:
        self.initializers.append(onnx.numpy_helper.from_array(value, name))

    def _value(self, name: str) -> np.ndarray | None:
        """What a value of the region holds, from what is given."""
        if name in self.feeds:
            return self.feeds[name]
        if name in self.cutter.weights:
            tensor = self.cutter.weights[name].const_value
            return None if tensor is None else tensor.numpy()
        nodes = [index for index in self.cutter.between([name], self.feeds) if index in set(self.region)]
        return self.cutter.run(nodes, self.feeds, [name])[name] if nodes else None


def _graph(node: onnx.NodeProto, name: str) -> onnx.GraphProto:
    return next(attribute.g for attribute in node.attribute if attribute.name == name)


def _decides(body: onnx.GraphProto) -> bool:
    """Whether the body of a loop says when it ends: not if its condition is what it was given, or a constant."""
    name = body.output[0].name
    for node in reversed(body.node):
        if name in node.output:
            if node.op_type == "Constant":
                return not bool(onnx.numpy_helper.to_array(node.attribute[0].t))
            if node.op_type not in ("Identity", "Cast"):
                return True
            name = node.input[0]
    for tensor in body.initializer:
        if tensor.name == name:
            return not bool(onnx.numpy_helper.to_array(tensor))
    return name != body.input[1].name


def _rename(node: onnx.NodeProto, names: Mapping[str, str]) -> None:
    for place, name in enumerate(node.input):
        node.input[place] = names.get(name, name)
    for place, name in enumerate(node.output):
        node.output[place] = names.get(name, name)
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs) if attribute.HasField("g") else attribute.graphs:
            hidden = {v.name for v in graph.input} | {t.name for t in graph.initializer}
            hidden |= {name for inner in graph.node for name in inner.output}
            seen = {name: new for name, new in names.items() if name not in hidden}
            for inner in graph.node:
                _rename(inner, seen)
            for value in graph.output:
                value.name = seen.get(value.name, value.name)


def _fill(node: onnx.NodeProto, attributes: Mapping[str, onnx.AttributeProto]) -> None:
    """Attributes that refer to those of the function's call."""
    kept = []
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            source = attributes.get(attribute.ref_attr_name)
            if source is None:
                continue
            copy = onnx.AttributeProto()
            copy.CopyFrom(source)
            copy.name = attribute.name
        else:
            copy = onnx.AttributeProto()
            copy.CopyFrom(attribute)
            for graph in (copy.g, *copy.graphs) if copy.HasField("g") else copy.graphs:
                for inner in graph.node:
                    _fill(inner, attributes)
        kept.append(copy)
    del node.attribute[:]
    node.attribute.extend(kept)
