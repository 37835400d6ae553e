"""All that depends on the version of PyTorch: what changed, and when; the private names that tonnx uses."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import onnx_ir as ir
import sympy
import torch

from tonnx.frontends.patching import How, Patch, interruption_point, patched
from tonnx.ir.build import Builder
from tonnx.versions import release

VERSION = release(torch.__version__)
"""Two numbers, as in (2, 15)."""


# Modules that moved

_EXPORTER = "torch.onnx._internal.torchscript_exporter"
_MOVED = {  # to the folder of the TorchScript exporter in 2.9
    f"{_EXPORTER}.registration": ((2, 9), "torch.onnx._internal.registration"),
    f"{_EXPORTER}.jit_utils": ((2, 9), "torch.onnx._internal.jit_utils"),
    f"{_EXPORTER}._globals": ((2, 9), "torch.onnx._globals"),
}


def module_name(part: str) -> str:
    """The name of a module of PyTorch's TorchScript exporter."""
    name = f"{_EXPORTER}.{part}"
    since, before = _MOVED[name]
    return name if since <= VERSION else before


# torch.export

_DEFERRED = "prefer_deferred_runtime_asserts_over_guards"


def export(model: torch.nn.Module, args: Any, kwargs: Any, dynamic_shapes: Any) -> torch.export.ExportedProgram:
    """Capture a model; what it demands of its sizes becomes assertions in the graph, and stops nothing."""
    options = {_DEFERRED: True} if _defers() else {}
    return torch.export.export(model, args, kwargs, dynamic_shapes=dynamic_shapes, strict=False, **options)


def _defers() -> bool:
    return _DEFERRED in inspect.signature(torch.export.export).parameters


def _deferring(original: Any, **options: Any) -> Any:
    return original(**{**options, "allow_complex_guards_as_runtime_asserts": True})


_PLACES = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def _number(item: Any) -> Any:
    if isinstance(item, slice):
        return slice(_number(item.start), _number(item.stop), _number(item.step))
    is_place = isinstance(item, torch.Tensor) and item.ndim == 0 and item.dtype in _PLACES
    return item.item() if is_place else item


def _with_numbers(original: Any, handler: Any, func: Any, args: Any, kwargs: Any) -> Any:
    if getattr(func, "__name__", "") == "__getitem__" and isinstance(args[0], torch.Tensor):
        index = tuple(map(_number, args[1])) if isinstance(args[1], tuple) else _number(args[1])
        args = (args[0], index)
        if VERSION < (2, 10):
            _promise_bounds(args[0], index if isinstance(index, tuple) else (index,))
    elif getattr(func, "__name__", "") == "select" and len(args) == 3:
        promise_bound(*args)
    return original(handler, func, args, kwargs)


def _promise_bounds(x: torch.Tensor, index: tuple[Any, ...]) -> None:
    axis = 0
    for item in index:
        if item is Ellipsis:
            axis += x.ndim - sum(other is not None and other is not Ellipsis for other in index)
        elif isinstance(item, (int, torch.SymInt, slice)):
            promise_bound(x, axis, item)
            axis += 1
        elif item is not None:  # tensors may stand for several axes
            return


def promise_bound(x: torch.Tensor, axis: int, item: Any) -> None:
    """Up to 2.9 a selection asks whether a place that only the run knows is below the size: it is, or eager fails."""
    if VERSION >= (2, 10):
        return
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, statically_known_true

    if isinstance(item, torch.SymInt) and free_unbacked_symbols(item) and statically_known_true(item >= 0):
        torch._check(item < x.shape[axis])


@contextlib.contextmanager
def _allowing(original: Any, module: Any) -> Iterator[None]:
    """What a model sets on itself is put back, and no more is said; of recurrent layers it is not true."""
    failure: BaseException | None = None
    try:
        with original(module):
            try:
                yield
            except BaseException as error:
                failure = error
                raise
    except ValueError:  # of the model itself, or of what torch finds changed, also while the model's is on its way
        if failure is not None:
            raise failure from None


def since(version: tuple[int, int], *patches: Patch) -> tuple[Patch, ...]:
    """Patches of what PyTorch has from a version on; none before it."""
    return patches if version <= VERSION else ()


def export_patches() -> Iterator[Patch]:
    """What torch.export of an older PyTorch needs, to go as the newest does."""
    if not _defers():
        reason = "torch.export.export cannot be asked for assertions in the place of guards in 2.8 and before"
        yield Patch("torch.export._trace", "_non_strict_export", _deferring, reason)
    if VERSION < (2, 10):
        reason = "a tensor that a model assigns to itself is an error, from 2.10 on a warning"
        yield Patch("torch.export._trace", "_detect_attribute_assignment", _allowing, reason)
    if VERSION < (2, 13):
        owner = "torch._export.non_strict_utils._NonStrictTorchFunctionHandler"
        reason = "x[n] by a tensor of rank 0 fails; from 2.13 on it is a selection at run time"
        yield Patch(owner, "_override", _with_numbers, reason)


def patches() -> Iterator[Patch]:
    """What every capture in an older PyTorch needs, to go as it does in the newest."""
    for operator, (right, fake) in _FAKES.items():
        if right > VERSION:
            from torch._subclasses.fake_impls import op_implementations_dict as fakes

            reason = "it says another dtype than the kernel gives"
            yield Patch(fakes, operator, partial(fake, fakes[operator]), reason, How.VALUE)


def _interruptible(original: Any, *args: Any, **kwargs: Any) -> Any:
    interruption_point()
    return original(*args, **kwargs)


def process_patches() -> Iterator[Patch]:
    """What a conversion needs as a whole, wherever it makes tensors without data."""
    yield Patch(
        "torch._subclasses.fake_tensor.FakeTensorMode", "dispatch", _interruptible,
        "before an operator begins nothing is half done, and Ctrl-C may come",
    )  # fmt: skip
    if VERSION < (2, 13) and not torch.cuda.is_available():
        reason = "2.10 keeps for the process what belongs to the first thread that asks, and dies once that has ended"
        yield Patch("torch._C", "_ensureCUDADeviceGuardSet", lambda original: None, reason, optional=True)


def fake_mode(env: Any) -> Any:
    """The mode in which tensors have no values, as torch.export has it."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with patched([Patch(sys, "tracebacklimit", 0, "it reads the source of all that has called it", How.VALUE)]):
        return FakeTensorMode(shape_env=env, allow_non_fake_inputs=True, export=True)


def tree_child(spec: Any, index: int) -> Any:
    """A part of how PyTorch says what a tree of arguments is like; it was a field up to 2.8."""
    return spec.child(index) if hasattr(spec, "child") else spec.children_specs[index]


def source_name(source: Any) -> str:
    """What a capture calls the place that a size comes from; it was a method up to 2.9."""
    return str(source.name() if callable(source.name) else source.name)


def example_sizes(env: Any) -> dict[Any, Any]:
    """The sizes that the example gives the symbols of a capture; the attribute got another name after 2.10."""
    sizes: dict[Any, Any] = env.backed_var_to_val if hasattr(env, "backed_var_to_val") else env.var_to_val
    return sizes


def _examples_of_numbers(env: Any) -> dict[Any, Any]:
    """What the example makes of numbers that are no sizes; the attribute got another name after 2.10."""
    old, new = "unbacked_var_to_val", "real_tensor_prop_unbacked_vals"
    numbers: dict[Any, Any] = getattr(env, new if hasattr(env, new) else old)
    return numbers


def example_of(env: Any, expression: Any) -> float | int | None:
    """What an expression comes to in the example; None if nobody knows."""
    value = expression.xreplace(_examples_of_numbers(env)).xreplace(example_sizes(env))
    if value in (sympy.true, sympy.false):
        return bool(value)
    if not value.is_number:
        return None
    return int(value) if value.is_integer else float(value)


def set_example_of(env: Any, symbol: Any, number: float | int) -> None:
    """Let torch decide by the example what it asks of a number, as it does for sizes."""
    _examples_of_numbers(env)[symbol] = sympy.sympify(number)


# Operators whose meaning changed: rules say what the newest PyTorch does, and get older calls in those terms.


def _whole_arange(op: Builder, arguments: dict[str, Any]) -> dict[str, Any]:
    """Asked for int64, arange cut its numbers to whole ones before it counted the elements."""
    if arguments.get("dtype") != ir.DataType.INT64:
        return arguments

    def cut(number: Any) -> Any:
        return op.cast(number, ir.DataType.INT64) if isinstance(number, ir.Value) else int(number)

    return {name: value if name == "dtype" else cut(value) for name, value in arguments.items()}


_ARGUMENTS: dict[str, tuple[tuple[int, int], Callable[[Builder, dict[str, Any]], dict[str, Any]]]] = {
    "aten::arange": ((2, 14), _whole_arange),
}


def adapted(operator: str, op: Builder, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call as the newest PyTorch would take them for the same result."""
    changed, adapt = _ARGUMENTS.get(operator, ((0, 0), None))
    return arguments if adapt is None or changed <= VERSION else adapt(op, arguments)


# Tensors without data that said something else than the kernels do


def _counted_weights(
    original: Any, mode: Any, operator: Any, x: Any, weights: Any = None, minlength: Any = 0
) -> torch.Tensor:
    """bincount with weights was said to give whole numbers."""
    result = original(mode, operator, x, weights, minlength)
    if weights is None:
        return result
    return result.new_empty(result.shape, dtype=weights.dtype if weights.dtype == torch.float32 else torch.float64)


_FAKES: dict[Any, tuple[tuple[int, int], Any]] = {torch.ops.aten.bincount.default: ((2, 13), _counted_weights)}


# Private names

_FLOW = "control flow rewritten from its source"
_SCRIPT = "TorchScript"
_SYMBOLIC = "symbolic functions of custom operators"
_TRAINING = "layers and functions that tonnx.quant recognises"
_SIZES = "dynamic sizes"
_RECORDER = "the recorder: without it torch.export captures"

PRIVATE = {
    "torch._numpy": "NumPy's functions on sizes and tensors",
    "torch._C.DispatchKey": "every capture",
    "torch._C.Graph": _SYMBOLIC,
    "torch._C.IntType": _SYMBOLIC,
    "torch._C.ListType": _SYMBOLIC,
    "torch._C.Node": _SYMBOLIC,
    "torch._C.NoneType": _SYMBOLIC,
    "torch._C.ScriptDict": _SCRIPT,
    "torch._C.ScriptList": _SCRIPT,
    "torch._C.ScriptModule": _SCRIPT,
    "torch._C.ScriptObject": _SCRIPT,
    "torch._C.TensorBase": _RECORDER,
    "torch._C.TensorType": _SCRIPT,
    "torch._C._VariableFunctions": _TRAINING,
    "torch._C._nn": _TRAINING,
    "torch._C.Value": _SYMBOLIC,
    "torch._C._AutoDispatchBelowAutograd": _RECORDER,
    "torch._C._DisableTorchDispatch": _RECORDER,
    "torch._C._create_function_from_graph": "locating a difference in TorchScript",
    "torch._C._dispatch_has_kernel_for_dispatch_key": "fake quantisation",
    "torch._C._jit_pass_inline": _SCRIPT,
    "torch._C._jit_pass_onnx_graph_shape_type_inference": _SYMBOLIC,
    "torch._C.parse_schema": _SCRIPT,
    "torch._VF": "recurrent layers",
    "torch._assert": _FLOW,
    "torch._check": _SIZES,
    "torch._decomp.core_aten_decompositions": "operators without a rule",
    "torch._decomp.global_decomposition_table": "operators without a rule",
    "torch._dispatch.python.enable_python_dispatcher": _RECORDER,
    "torch._compile": "the compiler, which waits until somebody asks for it",
    "torch._dynamo.decorators.disable": "the compiler, which waits until somebody asks for it",
    "torch.fx.experimental._config.translation_validation": "the compiler, which waits until somebody asks for it",
    "torch.fx.experimental.validator.translation_validation_enabled": "whether that has to be there for sizes",
    "torch._dynamo.source.ConstantSource": _SIZES,
    "torch._dynamo.trace_rules.get_torch_obj_rule_map": "models that call the compiler (torch.while_loop)",
    "torch._dynamo.eval_frame.OptimizedModule": "models of torch.compile",
    "torch._export.verifier.Verifier": _SIZES,
    "torch._guards.detect_fake_mode": _FLOW,
    "torch._higher_order_ops.associative_scan.associative_scan": "associative_scan",
    "torch._higher_order_ops.associative_scan.associative_scan_op": "associative_scan",
    "torch._higher_order_ops.flex_attention.math_attention": "flex_attention",
    "torch._higher_order_ops.utils._maybe_compile_and_run_fn": "associative_scan",
    "torch._library.custom_ops.OPDEFS": "operators that are written in Python",
    "torch._ops.HigherOrderOperator": "every captured graph",
    "torch._ops.OpOverload": "every captured graph",
    "torch._ops.OpOverloadPacket": "custom_translation_table",
    "torch._subclasses.FakeTensor": _FLOW,
    "torch._subclasses.fake_impls.op_implementations_dict": "every capture",
    "torch._subclasses.fake_tensor.FakeTensor": _RECORDER,
    "torch._subclasses.fake_tensor.FakeTensorMode": "every capture, and operators of TorchScript without a rule",
    "torch._subclasses.fake_tensor.in_kernel_invocation_manager": _RECORDER,
    "torch._subclasses.functional_tensor.FunctionalTensor": "x.as_subclass(torch.Tensor)",
    "torch._is_all_true": "checks of torch.distributions",
    "torch._sym_log2": _SIZES,
    "torch._utils._rebuild_parameter": "weights by reference into an archive of torch.save",
    "torch._utils._rebuild_tensor_v2": "weights by reference into an archive of torch.save",
    "torch.fx.experimental.proxy_tensor.get_proxy_mode": _FLOW,
    "torch.fx.experimental.proxy_tensor.get_proxy_slot": _FLOW,
    "torch.fx.experimental.proxy_tensor.make_fx": "operators without a rule",
    "torch.fx.experimental.sym_node.SymNode": _SIZES,
    "torch.fx.experimental.symbolic_shapes.DimConstraints": _SIZES,
    "torch.fx.experimental.symbolic_shapes.DimDynamic": "operators of TorchScript without a rule",
    "torch.fx.experimental.symbolic_shapes.GuardOnDataDependentSymNode": _FLOW,
    "torch.fx.experimental.symbolic_shapes.ShapeEnv": _SIZES,
    "torch.fx.experimental.symbolic_shapes.StatelessSymbolicContext": "operators of TorchScript without a rule",
    "torch.fx.experimental.symbolic_shapes.statically_known_false": _FLOW,
    "torch.fx.experimental.symbolic_shapes.statically_known_true": _SIZES,
    "torch.fx.experimental.symbolic_shapes.sym_eq": _FLOW,
    "torch.compiler._is_compiling_flag": _RECORDER,
    "torch.compiler._is_exporting_flag": _RECORDER,
    "torch.utils._python_dispatch.TorchDispatchMode": _RECORDER,
    "torch._export.non_strict_utils._NonStrictTorchFunctionHandler._override": "x[n] in PyTorch before 2.13",
    "torch._functorch": "torch.vmap",
    "torch.export._trace._detect_attribute_assignment": "recurrent layers in PyTorch before 2.10",
    "torch.export._trace._non_strict_export": "captures in PyTorch 2.8 and before",
    "torch.library.Library._destroy": "fake quantisation",
    "torch.nn.Module._call_impl": "arguments and results of the model's own classes",
    "torch.nn.modules.transformer._detect_is_causal_mask": "transformer layers",
    "torch._subclasses.fake_tensor.SymNumberMemoDescriptor": _SIZES,
    "torch.fx.experimental.proxy_tensor.ProxyTorchDispatchMode": _SIZES,
    "torch.ops.aten._local_scalar_dense": _SIZES,
    "torch.ops.aten._weight_int4pack_mm_for_cpu": "weights of 4 bits that torchao packed for the CPU",
    "torch.ops.aten.relu._qualified_op_name": "custom_translation_table",
    "torch.ops.aten.relu.default._can_decompose": "operators without a rule",
    "torch.ops.aten.relu.default._overloadname": "custom_translation_table",
    "torch.ops.aten.relu.default._schema": "every captured graph",
    "torch.Tensor._use_count": "caches of a model that a capture leaves something in",
    "torch.Tensor._version": "models that write to their inputs",
    "torch.utils._python_dispatch._disable_current_modes": _FLOW,
    "torch.utils._python_dispatch.is_traceable_wrapper_subclass": "weights of torchao",
    "torch.utils._pytree": "arguments and results that nest",
    "torch._prims_common.infer_size": _SIZES,
    "torch._refs._reshape_view_helper": _SIZES,
    "torch._prims_common.make_contiguous_strides_for": _SIZES,
    "torch.utils._sympy.functions.CleanDiv": _SIZES,
    "torch.utils._sympy.functions.Max": _SIZES,
    "torch.utils._sympy.functions.Min": _SIZES,
    "torch.utils._sympy.functions.PowByNatural": _SIZES,
    "torch.utils._sympy.functions.FloorDiv": _SIZES,
    "torch.utils._sympy.functions.IntTrueDiv": _SIZES,
    "torch.utils._sympy.functions.Mod": _SIZES,
    "torch.utils._sympy.functions.PythonMod": _SIZES,
    "torch.utils._sympy.functions.ToFloat": _SIZES,
    "torch.utils._sympy.numbers.int_oo": _SIZES,
    "torch.utils._sympy.value_ranges.ValueRanges": _SIZES,
    module_name("_globals") + ".GLOBALS": _SYMBOLIC,
    module_name("jit_utils") + ".GraphContext": _SYMBOLIC,
    module_name("registration") + ".registry": _SYMBOLIC,
}
"""Every name of PyTorch's that it does not promise to keep, and what breaks without it."""


def missing() -> list[str]:
    """The private names that this PyTorch does not have, each with what breaks."""
    return [f"{name} ({use})" for name, use in PRIVATE.items() if not _exists(name)]


def _exists(name: str) -> bool:
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            owner = importlib.import_module(".".join(parts[:count]))
        except ImportError:
            continue
        for part in parts[count:]:
            if not hasattr(owner, part):
                return False
            owner = getattr(owner, part)
        return True
    return False
