"""Any ONNX model, from anywhere: read without its weights, put into one form, types and shapes inferred."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir

from tonnx.errors import (
    InvalidArgument,
    InvalidModel,
    TonnxError,
    cause_of,
    first_line,
    first_words,
    in_one_line,
    root_of,
    told_as,
)
from tonnx.io import map_types
from tonnx.ir import infer as shape_rules
from tonnx.ir import provenance
from tonnx.ir.operands import attributes_in
from tonnx.ir.rewrite import all_graphs, no_collection
from tonnx.ir.schema import signature
from tonnx.ir.target import OLDEST_RUN, newest_opset

_LONG_NAME = "ai.onnx"
"""Another way to write the default domain, whose name is empty."""
OVERRIDABLE_SINCE = 4
"""The IR version from which an initializer that is an input as well is only its default value."""
_PLACEHOLDERS = ("any", "dynamic", "none", "null", "undefined", "unknown")
"""Names that say nothing: of several dimensions, they do not say that these are equal."""
_ROUNDS = 6
"""Of inference, for shapes that follow from each other."""
_SEEN = 1024
"""Bytes up to which shape inference sees the contents of a tensor; larger ones are never shapes or axes."""


def reader(model: Any) -> Callable[[], ir.Model]:
    """A function that gives a new copy of the model each time, in one form; weights stay where they are."""
    if isinstance(model, ir.Model):
        return lambda: _normalised(model.clone())
    if isinstance(model, onnx.ModelProto):
        return lambda: _from_proto(model, "this is")
    if isinstance(model, (bytes, bytearray)):
        proto = parsed(bytes(model))
        return lambda: _from_proto(proto, "these bytes are")
    if isinstance(model, (str, os.PathLike)):
        path = Path(model)
        if not path.is_file():
            raise InvalidArgument(f"there is no file {path}")
        return lambda: _from_file(path)
    raise InvalidArgument(f"cannot retarget a {type(model).__name__}", hint="pass a path, bytes, or an ONNX model")


@contextmanager
def blaming(model: Any) -> Iterator[None]:
    """Whatever is raised while a model is worked on, and is no error of ours, is its fault if it is not valid."""
    try:
        yield
    except TonnxError:
        raise
    except Exception as error:
        if (fault := _fault_of(model)) is not None:
            raise InvalidModel("the model is not valid ONNX", why=fault) from error
        hint = "this is a fault of tonnx; please report it with the file"
        raise TonnxError("the model could not be rewritten", why=cause_of(error), hint=hint) from error


def _fault_of(model: Any) -> str | None:
    """What onnx's checker does not accept in a model, or why it cannot be written as it was read."""
    is_file = isinstance(model, (str, os.PathLike))
    try:
        proto = onnx.load_model_from_string(bytes(model)) if isinstance(model, (bytes, bytearray)) else model
        proto = ir.to_proto(proto) if isinstance(proto, ir.Model) else proto
        onnx.checker.check_model(os.fspath(proto) if is_file else proto)
        loaded = _from_disk(Path(proto)) if is_file else from_proto(proto)
        ir.to_proto(loaded)
        for tensor in (value.const_value for value in loaded.graph.initializers.values()):
            if tensor is not None:
                tensor.numpy()  # fails where there are too few bytes for the shape
    except Exception as error:  # noqa: BLE001 (the checker, protobuf and onnx-ir raise several kinds; it is told)
        root = root_of(error)
        return first_line(root) or type(root).__name__
    return None


def infer(model: ir.Model) -> list[str]:
    """Types and shapes of all values, which rules need; whatever onnx cannot infer stays unknown.

    Returns notes for the result: onnx may refuse a file as a whole, and then nothing of it is inferred.
    """
    with no_collection():
        try:
            notes, inferred = [], _agreed(model)
            if inferred is None:
                notes, inferred = _corrected(model), _inferred(model)
        except InvalidModel as error:
            return [f"[!] {error.what}: {error.why}"]
        _take(model, inferred)
        for _ in range(_ROUNDS):  # a shape may be computed from what another one gives
            if not _rank_reshaped(model):
                break
            _take(model, _inferred(model))
        _infer_carried(model)
        if model.opset_imports[""] < OLDEST_RUN:
            for graph in model.graphs():
                _infer_old(graph, model.opset_imports[""])
    return notes


def _forget_unnamed_sizes(model: ir.Model) -> None:
    """Sizes that may be any are unknown ones.

    Some exporters write -1, with which onnx computes as with a number. Others write "?" or "None" everywhere, and by
    their one name all of them would be equal.
    """
    named = Counter(dim.value for value in model.graph.inputs for dim in value.shape or () if not isinstance(dim, int))
    for graph in model.graphs():
        for value in (*graph.inputs, *graph.outputs, *(value for node in graph for value in node.outputs)):
            if value.shape is not None and any(_is_unnamed(dim, named) for dim in value.shape):
                value.shape = ir.Shape([None if _is_unnamed(dim, named) else dim for dim in value.shape])


def _is_unnamed(dim: int | ir.SymbolicDim, named: Mapping[str | None, int]) -> bool:
    if isinstance(dim, int):
        return dim < 0
    name = dim.value
    if name is None:
        return False
    return not any(map(str.isalpha, name)) or (name.lower() in _PLACEHOLDERS and named[name] > 1)


def _rank_reshaped(model: ir.Model) -> bool:
    """A shape that is computed has a length, which is the rank of what is reshaped; onnx does not look at that.

    Nor does it see that a file declares another rank, until the Reshape is one of a newer opset.
    """
    found = False
    for graph in model.graphs():
        for node in graph:
            if (node.domain, node.op_type) != ("", "Reshape"):
                continue
            shape = node.inputs[1].shape if len(node.inputs) > 1 and node.inputs[1] is not None else None
            if shape is None or shape.rank() != 1 or not isinstance(shape[0], int):
                continue
            result = node.outputs[0]
            if result.shape is None or result.shape.rank() != shape[0]:
                result.shape = ir.Shape([None] * shape[0])
                found = True
    return found


def correct_shapes(model: ir.Model) -> list[str]:
    """Shapes that a file declares of what it computes, and that are not so: runtimes go by what follows."""
    return [] if _agreed(model) is not None else _corrected(model)


def _agreed(model: ir.Model) -> onnx.ModelProto | None:
    """What onnx infers of a model that declares nothing else; None where it has objections."""
    try:
        return onnx.shape_inference.infer_shapes(
            without_weights(model), check_type=False, strict_mode=True, data_prop=True
        )
    except Exception:  # noqa: BLE001 (InferenceError and others, of which there may be another reason: `_corrected`)
        return None


def _corrected(model: ir.Model) -> list[str]:
    declared = {v: (graph, v.shape) for graph in all_graphs(model) for node in graph for v in node.outputs}
    for value in declared:
        value.shape = None
    corrected = []
    try:
        inferred = dict(zip(model.graphs(), from_proto(_inferred(model)).graphs(), strict=True))
        followed = {graph: ir.convenience.create_value_mapping(other) for graph, other in inferred.items()}
    finally:
        for value, (_, shape) in declared.items():
            value.shape = shape
    for value, (graph, shape) in declared.items():
        twin = followed[graph].get(str(value.name))
        if shape is not None and twin is not None and twin.shape is not None and not _may_be(shape, twin.shape):
            value.shape = None
            corrected.append(f"{value.name}: {shape} declared, {twin.shape} computed")
    more = f", and {len(corrected) - 1} more" if len(corrected) > 1 else ""
    return [f"[!] shapes that the file declares wrongly are left out: {corrected[0]}{more}"] if corrected else []


def _may_be(declared: ir.Shape, inferred: ir.Shape) -> bool:
    pairs = zip(declared, inferred, strict=False)
    return len(declared) == len(inferred) and all(a == b for a, b in pairs if isinstance(a, int) and isinstance(b, int))


def _inferred(model: ir.Model) -> onnx.ModelProto:
    proto = without_weights(model)
    with told_as(InvalidModel, "onnx infers no types and shapes of this model", why=in_one_line):
        return onnx.shape_inference.infer_shapes(proto, check_type=False, strict_mode=False, data_prop=True)


def _infer_carried(model: ir.Model) -> None:
    """What a Loop carries keeps its rank if every turn keeps it: assumed first, and believed if it then follows."""
    loops = [node for graph in all_graphs(model) for node in graph if (node.domain, node.op_type) == ("", "Loop")]
    assumed: dict[ir.Value, tuple[int, ir.Graph, int]] = {}
    for node in loops:
        body = node.attributes["body"].as_graph()
        for i, (start, inner) in enumerate(zip(node.inputs[2:], body.inputs[2:], strict=False)):
            if start is not None and start.shape is not None and inner.shape is None:
                assumed[inner] = start.shape.rank(), body, i + 1
                inner.shape = ir.Shape([None] * start.shape.rank())
    while assumed:
        try:
            inferred = _inferred(model)
            copies = dict(zip(model.graphs(), from_proto(inferred).graphs(), strict=True))
            shapes = {value: copies[body].outputs[index].shape for value, (_, body, index) in assumed.items()}
        except InvalidModel:  # a body contradicts what was assumed of it; without the assumptions onnx took the model
            shapes = dict.fromkeys(assumed)
        wrong = [v for v, shape in shapes.items() if shape is None or shape.rank() != assumed[v][0]]
        for value in wrong:
            del assumed[value]
            value.shape = None
        if not wrong:
            _take(model, inferred)
            return


def _infer_old(graph: ir.Graph, opset: int) -> None:
    """onnx infers nothing of most versions below 7; what follows from the newer ones is filled in."""
    for node in graph:
        schema = signature(node.op_type, opset, deprecated=True) if node.domain == "" else None
        if schema is None or all(value.shape is not None and value.type is not None for value in node.outputs):
            continue
        if any(attribute.is_ref() for attribute in node.attributes.values()):
            continue
        attributes = attributes_in(node)
        if node.op_type == "Concat":
            attributes.setdefault("axis", 1)
        count = len(node.outputs)
        if "broadcast" in schema.attributes and node.op_type != "Gemm":  # the left operand has the shape of the result
            shapes = [shape_rules.dims_of(node.inputs[0])]
        else:
            shapes = shape_rules.shapes(node.op_type, node.inputs, attributes, count)
        dtypes = shape_rules.dtypes(schema, node.inputs, attributes, count)
        for value, dims, dtype in zip(node.outputs, shapes, dtypes, strict=False):
            if value.shape is None and dims is not None:
                value.shape = ir.Shape(dims)
            if value.type is None and dtype is not None:
                value.type = ir.TensorType(dtype)


def _take(model: ir.Model, inferred: onnx.ModelProto) -> None:
    """The types and shapes of another copy of the model."""
    for graph, other in zip(model.graphs(), from_proto(inferred).graphs(), strict=True):
        inferred_values = ir.convenience.create_value_mapping(other)
        for name, value in ir.convenience.create_value_mapping(graph).items():
            twin = inferred_values.get(name)
            if twin is None:
                continue
            if twin.shape is not None:
                value.shape = twin.shape
            if twin.type is not None:
                value.type = twin.type


def unlist_initializers(model: ir.Model) -> int:
    """Take initializers out of the inputs: nobody can set them any more. Returns how many there were."""
    inputs = model.graph.inputs
    kept = [value for value in inputs if not value.is_initializer()]
    count = len(inputs) - len(kept)
    if count:
        inputs.clear()
        inputs.extend(kept)
    return count


def without_weights(model: ir.Model) -> onnx.ModelProto:
    """For onnx's inference: weights become inputs of the same type, since it copies all that it is given."""
    graph = model.graph
    inputs = list(graph.inputs)
    weights = [v for v in graph.initializers.values() if v.const_value is not None and v.const_value.nbytes > _SEEN]
    tensors = [value.const_value for value in weights]
    listed = set(inputs)
    try:
        for value in weights:
            tensor = value.const_value
            assert tensor is not None and value.name is not None
            value.type = value.type or ir.TensorType(tensor.dtype)
            value.shape = value.shape or ir.Shape(list(tensor.shape))  # type: ignore[arg-type]
            graph.initializers.pop(value.name)
            value.const_value = None
        graph.inputs.extend(value for value in weights if value not in listed)
        return ir.to_proto(model)
    finally:
        graph.inputs.clear()
        graph.inputs.extend(inputs)
        for value, tensor in zip(weights, tensors, strict=True):
            value.const_value = tensor
            graph.initializers.add(value)


def _from_disk(path: Path) -> ir.Model:
    model = from_proto(onnx.load(path, load_external_data=False))
    ir.external_data.set_base_dir(model.graph, path.parent)
    return model


def _from_file(path: Path) -> ir.Model:
    with told_as(InvalidModel, f"{path} is not an ONNX model", why=first_words), no_collection():
        model = _from_disk(path)
    return _normalised(model, f"{path} is")


def from_proto(proto: onnx.ModelProto) -> ir.Model:
    """As onnx-ir reads it; what it cannot read of types is carried along."""
    return ir.from_proto(map_types.hidden(proto))


def parsed(data: bytes) -> onnx.ModelProto:
    """A model as it is; raises InvalidModel for anything else."""
    with told_as(InvalidModel, "these bytes are not an ONNX model", why=first_words):
        return onnx.load_model_from_string(data)


def _from_proto(proto: onnx.ModelProto, what: str) -> ir.Model:
    with told_as(InvalidModel, f"{what} not an ONNX model", why=first_words), no_collection():
        model = from_proto(proto)
    return _normalised(model, what)


def _normalised(model: ir.Model, what: str = "this is") -> ir.Model:
    if not model.graph.outputs:
        raise InvalidModel(f"{what} not an ONNX model", why="it has no graph with an output")
    if any(isinstance(text, bytes) for text in _texts(model)):  # what protobuf gives where it cannot decode
        raise InvalidModel(f"{what} not an ONNX model", why="a name or another text in it is not UTF-8")
    for imports in (model.opset_imports, *(f.opset_imports for f in model.functions.values())):
        if _LONG_NAME in imports:
            imports.setdefault("", imports.pop(_LONG_NAME))
    if (model.ir_version or 0) < OVERRIDABLE_SINCE:
        unlist_initializers(model)
    with no_collection():
        provenance.load(model)
    _forget_unnamed_sizes(model)
    _check_calls(model)
    if "" not in model.opset_imports:  # of a tree or a scaler alone: any that its IR version carries will do
        model.opset_imports[""] = newest_opset(model.ir_version or 0)
    return model


def _texts(model: ir.Model) -> Iterator[Any]:
    """Names, operators and documentation, wherever they stand."""
    yield from (model.producer_name, model.producer_version, model.domain, model.doc_string)
    yield from (*model.metadata_props.keys(), *model.metadata_props.values(), *model.opset_imports)
    for graph in model.graphs():
        yield from (graph.name, graph.doc_string, *graph.initializers)
        yield from (value.name for value in graph.inputs)
        for node in graph:
            yield from (node.name, node.op_type, node.domain, node.doc_string, *node.attributes)
            yield from (value.name for value in node.outputs)
            for pair in node.metadata_props.items():
                yield from pair


def _check_calls(model: ir.Model) -> None:
    """No function may call itself: inlining would not end, and onnx's shape inference overflows the stack in 1.18."""
    done: set[ir.OperatorIdentifier] = set()
    for start in model.functions:
        path: list[tuple[ir.OperatorIdentifier, Iterator[ir.Node]]] = [(start, model.functions[start].all_nodes())]
        while path:
            name, nodes = path[-1]
            node = next(nodes, None)
            called = None if node is None else node.op_identifier()
            if called is None:
                done.add(name)
                path.pop()
            elif any(called == other for other, _ in path):
                circle = " → ".join(f"{domain}::{name}" for domain, name, _ in [*(other for other, _ in path), called])
                raise InvalidModel("the functions of the model call each other in a circle", why=circle)
            elif called in model.functions and called not in done:
                path.append((called, model.functions[called].all_nodes()))
