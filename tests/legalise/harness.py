"""One harness for all legaliser tests: a tiny model at a newer (or older) opset, taken to several others.

    check(lambda op, x: op.Squeeze(x, [0]), [random(1, 3)], targets=(18, 13, 11, 7))

For every target: the model claims exactly that opset, passes onnx.checker with full check, and ONNX Runtime computes
the same from it as from the source model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator

from tonnx.errors import RetargetError
from tonnx.ir.build import Builder, Names
from tonnx.ir.target import Target
from tonnx.legalise import Report, legalise
from tonnx.passes import clean_up

ALL = (24, 21, 18, 17, 15, 13, 11, 10, 9, 8, 7)
Array = np.ndarray
Build = Callable[..., Any]

_rng = np.random.default_rng(0)


def random(*shape: int, dtype: Any = np.float32, low: float = -2.0, high: float = 2.0) -> Array:
    """Random numbers; whole ones for integer dtypes, both truth values for bool."""
    if np.dtype(dtype) == np.bool_:
        return _rng.random(shape) > 0.5
    if np.issubdtype(dtype, np.integer):
        return _rng.integers(int(low), int(high) + 1, shape).astype(dtype)
    return _rng.uniform(low, high, shape).astype(dtype)


def model_of(
    build: Build,
    inputs: Sequence[Array],
    source: int = 26,
    dynamic: bool | Mapping[int, Sequence[int]] = False,
) -> onnx.ModelProto:
    """The model that ``build(op, *values)`` makes. ``dynamic``: True for all axes, or input index → axes."""
    names = Names()
    values = []
    for i, array in enumerate(inputs):
        axes = range(array.ndim) if dynamic is True else dynamic.get(i, ()) if dynamic else ()
        dims = [f"d{i}_{a}" if a in axes else size for a, size in enumerate(array.shape)]
        dtype = ir.DataType.from_numpy(array.dtype)
        values.append(ir.Value(name=names.unique(f"in{i}"), type=ir.TensorType(dtype), shape=ir.Shape(dims)))
    graph = ir.Graph(values, [], nodes=[], name="g", opset_imports={"": source})
    with Builder(graph, names=names, opset=source) as op:
        result = build(op, *values)
    results = [result] if isinstance(result, ir.Value) else list(result)
    for i, value in enumerate(results):
        if value.producer() is None or value in graph.outputs:
            with op:
                value = op.Identity(value)
        value.name = f"out{i}"
        graph.outputs.append(value)
    model = ir.to_proto(ir.Model(graph, ir_version=Target(source).ir_version))
    _initializers_as_inputs(model)
    return onnx.shape_inference.infer_shapes(model, data_prop=True)


def retarget(model: onnx.ModelProto, opset: int) -> tuple[onnx.ModelProto, Report]:
    """A copy of the model at another opset."""
    copy = ir.from_proto(model)
    report = legalise(copy, Target(opset))
    clean_up(copy)
    proto = ir.to_proto(copy)
    _initializers_as_inputs(proto)
    return proto, report


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """ONNX Runtime, without its own optimiser, which may hide what we wrote."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run(model: onnx.ModelProto, inputs: Sequence[Array]) -> list[Any]:
    """What ONNX Runtime computes."""
    runtime = session(model)
    feeds = {f"in{i}": array for i, array in enumerate(inputs)}
    return list(runtime.run(None, {x.name: feeds[x.name] for x in runtime.get_inputs() if x.name in feeds}))


def reference(model: onnx.ModelProto, inputs: Sequence[Array]) -> list[Any]:
    """What onnx's own (slow, independent) evaluator computes."""
    names = {x.name for x in model.graph.input}
    evaluator = ReferenceEvaluator(model)
    return list(evaluator.run(None, {f"in{i}": a for i, a in enumerate(inputs) if f"in{i}" in names}))


def either(model: onnx.ModelProto, inputs: Sequence[Array]) -> list[Any]:
    """ONNX Runtime, or onnx's evaluator where that has no kernel for an operator this new."""
    try:
        return run(model, inputs)
    except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented:
        return reference(model, inputs)


def check(
    build: Build,
    inputs: Sequence[Array],
    source: int = 26,
    targets: Sequence[int] = ALL,
    dynamic: bool | Mapping[int, Sequence[int]] = False,
    *,
    expected: Sequence[Array] | None = None,
    oracle: Callable[[onnx.ModelProto, Sequence[Array]], list[Any]] = either,
    judge: Callable[[onnx.ModelProto, Sequence[Array]], list[Any]] = run,
    rtol: float = 1e-5,
    atol: float = 1e-6,
    has: Sequence[str] = (),
    has_not: Sequence[str] = (),
) -> dict[int, onnx.ModelProto]:
    """Build, retarget to every target, and compare. Returns the models made, by opset.

    ``oracle`` says what the source model computes (``reference`` where ONNX Runtime has no kernel), ``judge`` what the
    retargeted one does. ``has`` and ``has_not``: operators of the retargeted models.
    """
    model = model_of(build, inputs, source, dynamic)
    wanted = list(expected) if expected is not None else oracle(model, inputs)
    made = {}
    for opset in targets:
        result, _ = retarget(model, opset)
        made[opset] = result
        assert [(i.domain, i.version) for i in result.opset_import] == [("", opset)]
        onnx.checker.check_model(result, full_check=True)
        assert [o.name for o in result.graph.output] == [o.name for o in model.graph.output]
        kinds = {node.op_type for node in result.graph.node}
        assert not set(has) - kinds, f"opset {opset}: {sorted(kinds)}"
        assert not set(has_not) & kinds, f"opset {opset}: {sorted(kinds)}"
        for i, (got, want) in enumerate(zip(judge(result, inputs), wanted, strict=True)):
            _compare(got, want, f"output {i} at opset {opset}", rtol, atol)
    return made


def blocked(
    build: Build,
    inputs: Sequence[Array],
    target: int,
    match: str,
    source: int = 26,
    dynamic: bool | Mapping[int, Sequence[int]] = False,
) -> RetargetError:
    """The retargeting is refused, with a reason that matches."""
    model = model_of(build, inputs, source, dynamic)
    with pytest.raises(RetargetError, match=match) as caught:
        retarget(model, target)
    return caught.value


def _compare(got: Any, want: Any, what: str, rtol: float, atol: float) -> None:
    if isinstance(want, list):
        assert len(got) == len(want), what
        for one, other in zip(got, want, strict=True):
            _compare(one, other, what, rtol, atol)
        return
    assert got.dtype == want.dtype, f"{what}: {got.dtype} instead of {want.dtype}"
    assert got.shape == want.shape, f"{what}: {got.shape} instead of {want.shape}"
    if np.issubdtype(want.dtype, np.floating):
        np.testing.assert_allclose(got, want, rtol=rtol, atol=atol, err_msg=what)
    else:
        np.testing.assert_array_equal(got, want, err_msg=what)


def _initializers_as_inputs(model: onnx.ModelProto) -> None:
    """Before IR version 4 every initializer had to be an input as well."""
    if model.ir_version < 4:
        names = {x.name for x in model.graph.input}
        for tensor in model.graph.initializer:
            if tensor.name not in names:
                model.graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
