"""What older versions cannot do: the tests that are refused there, and those that have no judge; each with the reason.

A test listed as refused has to end in an error of tonnx's own at the versions that stand first; one that passes
there is an entry too many, and fails. So the list says what a user of that version has to do without, and nothing else.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version

import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NotImplementedByRuntime

from tonnx.errors import TonnxError
from tonnx.ir.target import CANON, Target
from tonnx.versions import release

_QUANTILE = "asks for the number of elements of a tensor with dynamic sizes in quantile"
_UNKNOWN_PLACE = "asks whether a place that only the run knows is within the bounds"
_INT_MM = "multiplies no uint8 by int8 on the CPU"
_PART = "asks whether a part of a tensor has the size that only the run knows"
_HALVES = "rounds halves away from zero"
_PRODUCT = "captures a product whose sizes do not fit"
_EMPTY = "gets ReduceMin of nothing wrong"
_TYPES = "mistakes sequences for tensors"
_LAYERS = "test_layers.py::test_what_is_refused"
_SILENT = "tests/proof/locate/test_silent_files.py"
_ORACLE = "tests/legalise/test_decompose_oracle.py::test_below_birth"
_ODD = "stores no odd number of 4-bit integers"

_FUSED = "FusedMatMul for float64, which its own optimiser makes"
_ON_COSINES = ("bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "airy")
_ON_PRODUCTS = (
    "qr", "qr, any size", "qr, columns of zeros", "reflections", "svd, tall", "svd, float64", "svd, flat, full",
    "svd, deficient", "svd, any size", "nuclear norm, large", "cond", "pinv", "pinv, deficient", "lstsq",
    "lstsq, flat", "lstsq, all of it", "eigh", "eigh, upper", "eigh, large",
)  # fmt: skip

_TO_2_10 = [(2, 8), (2, 10)]
REFUSED = [
    ("torch", _TO_2_10, (2, 13), "test_sort.py::test_sort[quantiles]", _QUANTILE),
    ("torch", _TO_2_10, (2, 13), "test_sort.py::test_sort[quantile]", _QUANTILE),
    ("torch", _TO_2_10, (2, 13), "test_sort.py::test_sort[quantile between two]", _QUANTILE),
    ("torch", _TO_2_10, (2, 13), "test_sort.py::test_sort[nanquantile]", "reads values in nanquantile"),
    ("torch", _TO_2_10, (2, 13), "test_sort.py::test_sort[bucketize a number]", "recurses without end in bucketize"),
    ("torch", [(2, 10)], (2, 13), "test_idioms.py::test_sizes_in_functions_of_python[RoundedUpToAStride]", _PART),
    ("torch", _TO_2_10, (2, 13), "test_higher_order.py::test_higher_order[map]", "fixes the length that map goes over"),
    ("torch", _TO_2_10, (2, 13), "test_higher_order.py::test_higher_order[flex_attention]", "fixes sizes in vmap"),
    ("torch", [(2, 8)], (2, 10), "test_linalg.py::test_linalg[grouped]", "has no _grouped_mm for the CPU"),
    ("torch", [(2, 8)], (2, 10), "test_create.py::test_create[a diagonal that is a size]", "fixes the size in triu"),
    ("torch", [(2, 8)], (2, 10), "test_choices.py::test_programs[filled]", _UNKNOWN_PLACE),
    ("torch", [(2, 8)], (2, 10), "test_choices.py::test_programs[between_tensors]", _UNKNOWN_PLACE),
    ("torch", [(2, 8)], (2, 10), "test_index.py::test_index[scalar_index]", _UNKNOWN_PLACE),
    ("torch", [(2, 8)], (2, 10), "test_shape.py::test_shape[tensor_split_by_a_tensor]", _UNKNOWN_PLACE),
    ("torch", _TO_2_10, (2, 13), "test_packed.py::test_what_rounding_by_hand_does_is_measured", _INT_MM),
    ("torch", _TO_2_10, (2, 13), "test_packed.py::test_sums_of_integer_weights_are_folded", _INT_MM),
    ("torch", [(2, 8)], (2, 10), "test_loops.py::test_loops[backwards]", _UNKNOWN_PLACE),
    ("torch", [(2, 8)], (2, 10), "test_loops.py::test_loops[downwards]", _UNKNOWN_PLACE),
    ("torch", [(2, 8)], (2, 10), "test_loops.py::test_loops[windows]", _UNKNOWN_PLACE),
    ("torch", [(2, 8)], (2, 10), "test_loops.py::test_without_the_recorder[windows]", _UNKNOWN_PLACE),
    ("torch", [(2, 8)], (2, 10), "test_loops.py::test_loops[windows_listed]", _UNKNOWN_PLACE),
    ("torch", [(2, 8)], (2, 10), "test_loops.py::test_loops[windows_afterwards]", _UNKNOWN_PLACE),
    ("torch", [(2, 8)], (2, 10), "test_loops.py::test_loops[parts_of_a_split]", _UNKNOWN_PLACE),
    ("torch", [(2, 8)], (2, 10), "test_ragged_parts.py::test_parts[more_chunks_than_rows]", _UNKNOWN_PLACE),
    ("torch", [(2, 8)], (2, 10), "test_ragged_parts.py::test_parts[summed_parts]", _UNKNOWN_PLACE),
    ("torch", [(2, 8)], (2, 10), "test_ragged_parts.py::test_parts[counted_parts]", _UNKNOWN_PLACE),
    ("torch", [(2, 8)], (2, 10), "test_ragged_parts.py::test_parts[growing]", _UNKNOWN_PLACE),
    ("torch", [(2, 8)], (2, 10), "test_loops.py::test_loops[backtracked]", _UNKNOWN_PLACE),
    ("torch", [(2, 8)], (2, 10), "test_value_loops.py::test_programs[keeps_apart]", _UNKNOWN_PLACE),
    ("paddlepaddle", [(3, 0)], (3, 3), "test_functions.py::test_functions[round halves-9]", _HALVES),
    ("paddlepaddle", [(3, 0)], (3, 3), "test_functions.py::test_functions[round halves-20]", _HALVES),
    ("paddlepaddle", [(3, 0)], (3, 3), "test_layers.py::test_the_layer_is_left_as_it_was", _PRODUCT),
    ("paddlepaddle", [(3, 0)], (3, 3), f"{_LAYERS}[model4-options4-CaptureError-texts4]", _PRODUCT),
    *(
        ("onnxruntime", [(1, 22)], (1, 31), name, f"has no kernel of {operator}")
        for name, operator in [
            ("test_operators.py::test_pir[deform_conv]", "DeformConv"),
            ("test_operators.py::test_pir[deform_conv_groups]", "DeformConv"),
            ("test_operators.py::test_pir[deform_conv_mask]", "DeformConv"),
            ("test_programs.py::test_program[math_functions-11]", "Cos for float64"),
            ("test_programs.py::test_program[math_functions-13]", "Cos for float64"),
            ("test_programs.py::test_program[math_functions-18]", "Cos for float64"),
            ("test_activation.py::test_activation[relu int8]", "Max for int8"),
            ("test_math.py::test_every_dtype_runs[dtype0]", "Max for int8 and int16"),
            ("test_math.py::test_every_dtype_runs[dtype1]", "Max for int8 and int16"),
            ("test_create.py::test_create[triangles of other dtypes]", "Trilu for other dtypes"),
            *((f"test_special.py::test_special[{name}]", "Cos for float64") for name in _ON_COSINES),
            *((f"test_factors.py::test_factors[{name}]", _FUSED) for name in _ON_PRODUCTS),
            ("test_sort.py::test_sort[topk of ints and halves]", "TopK for 16 bits"),
            ("test_vision.py::test_vision[deform_conv2d, mask, opset 19]", "DeformConv"),
            ("test_training.py::test_weights_of_few_bits_are_stored_in_four", "Cast for int4"),
            ("test_weights.py::test_products_of_onnx_runtime[int8-21]", "MatMulNBits for 8 bits"),
            ("test_norm.py::test_norm[layer_norm bfloat16]", "Mul for bfloat16, which its own optimiser makes"),
        ]
    ),
    ("onnxruntime", [(1, 22)], (1, 31), "test_pool.py::test_pool[avg2d ceil]", "counts wrong in AveragePool with ceil"),
    ("onnxruntime", [(1, 22)], (1, 31), "test_reduce.py::test_reduce[reductions of nothing]", _EMPTY),
]
"""Package, the versions that were seen to refuse, the oldest that was not, the end of the test's name, why."""

WRONG_JUDGES = [
    ("onnx", (1, 23), "tests/legalise/test_decompose_attention.py", "runs Attention and TensorScatter wrong"),
    ("onnx", (1, 23), "tests/legalise/test_quant.py::test_attention", "does not run Attention of opset 24 and later"),
    ("onnx", (1, 23), f"{_ORACLE}[Attention]", "has wrong examples"),
    ("onnx", (1, 23), f"{_ORACLE}[CastLike]", "has wrong examples"),
    ("onnx", (1, 23), f"{_ORACLE}[RotaryEmbedding]", "has wrong examples"),
    ("onnx", (1, 23), f"{_ORACLE}[OptionalGetElement]", _TYPES),
    ("onnx", (1, 23), f"{_ORACLE}[DequantizeLinear]", _ODD),
    ("onnx", (1, 23), f"{_ORACLE}[QuantizeLinear]", _ODD),
    ("onnx", (1, 23), "tests/legalise/test_decompose_signal.py::test_inverse_of_half_a_spectrum", "runs DFT wrong"),
    ("onnx", (1, 23), "tests/legalise/test_norm.py::test_batch_first", "runs recurrent layers with layout wrong"),
    ("onnx", (1, 23), "tests/legalise/test_backend.py::test_sample", "has fewer examples than are asked for"),
    ("onnx", (1, 23), "tests/legalise/test_ancient.py::test_a_network_of_pytorch", "converts versions wrong"),
    ("paddlepaddle", (3, 3), f"{_SILENT}::test_saved_paddle_model", "does not run what a newer one has saved"),
    ("onnx-ir", (1, 1), "tests/io/test_write.py::test_every_dtype_and_shape[float6", "has no such dtype"),
]
"""Package, the oldest version that was seen to do it right, how the test's name begins, what is wrong before it."""

TOO_OLD = "too old for the opset"
_SAID = ("max supported IR version", "ai.onnx is till opset", "is higher than the checker's", "is too old for the file")
"""What onnx and ONNX Runtime, and tonnx of them, say of a file whose opset they do not know."""


def mark(items: list[pytest.Item]) -> None:
    """Expect the refusals of the installed versions, and leave out what they cannot judge."""
    for package, refusing, able, name, why in REFUSED:
        if (installed := _release(package)) is not None and installed < able:
            reason = f"{package} before {'.'.join(map(str, able))} {why}"
            refusal = pytest.mark.xfail(raises=_REFUSALS, strict=installed in refusing, reason=reason)
            for item in items:
                if item.nodeid.endswith(name):
                    item.add_marker(refusal)
    for package, right, name, why in WRONG_JUDGES:
        if (installed := _release(package)) is not None and installed < right:
            reason = f"{package} before {'.'.join(map(str, right))} {why}"
            for item in items:
                if item.nodeid.startswith(name):
                    item.add_marker(pytest.mark.skip(reason=reason))


_REFUSALS = (TonnxError, NotImplementedByRuntime)


def _release(package: str) -> tuple[int, int] | None:
    try:
        return release(version(package))
    except PackageNotFoundError:
        return None


def is_too_new(error: BaseException | None) -> bool:
    """Whether a test could not go on because a file is of an opset that onnx or ONNX Runtime does not know."""
    while error is not None:
        if any(text in str(error) for text in _SAID):
            return True
        error = error.__cause__ or error.__context__
    return False


@cache
def without_newest_opset() -> str:
    """The installed onnx and ONNX Runtime, if one of them does not know the newest opset; else nothing."""
    import onnx
    import onnxruntime

    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in "xy")
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    opset = onnx.helper.make_opsetid("", CANON)
    model = onnx.helper.make_model(graph, opset_imports=[opset], ir_version=Target(CANON).ir_version)
    try:
        onnx.checker.check_model(model)
        onnxruntime.InferenceSession(model.SerializeToString())
    except Exception as error:
        if is_too_new(error):
            return f"onnx {onnx.__version__}, ONNX Runtime {onnxruntime.__version__}"
        raise
    return ""
