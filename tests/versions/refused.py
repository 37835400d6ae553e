"""What older versions cannot do: the tests that are refused there, each with the reason.

A listed test has to end in an error of tonnx's own up to the first of the two versions; one that passes there is an
entry too many, and fails. So the list says what a user of that version has to do without, and nothing else.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version

import pytest

from tonnx.errors import TonnxError
from tonnx.ir.target import CANON, Target
from tonnx.versions import release

_QUANTILE = "asks for the number of elements of a tensor with dynamic sizes in quantile"
_VMAP = "does not capture vmap"

REFUSED = [
    ("torch", (2, 10), (2, 13), "test_sort.py::test_sort[quantiles]", _QUANTILE),
    ("torch", (2, 10), (2, 13), "test_sort.py::test_sort[quantile]", _QUANTILE),
    ("torch", (2, 10), (2, 13), "test_sort.py::test_sort[quantile between two]", _QUANTILE),
    ("torch", (2, 10), (2, 13), "test_sort.py::test_sort[nanquantile]", "reads values in nanquantile"),
    ("torch", (2, 10), (2, 13), "test_sort.py::test_sort[bucketize a number]", "recurses without end in bucketize"),
    ("torch", (2, 10), (2, 13), "test_complex.py::test_complex[istft, filled up]", "contradicts itself in istft"),
    ("torch", (2, 10), (2, 13), "test_higher_order.py::test_higher_order[map]", "fixes the length that map goes over"),
    ("torch", (2, 10), (2, 13), "test_higher_order.py::test_higher_order[flex_attention]", "fixes sizes in vmap"),
    ("torch", (2, 8), (2, 10), "test_record.py::test_right[sizes, dynamic]", "is not recorded"),
    ("torch", (2, 8), (2, 10), "test_linalg.py::test_linalg[vmap]", _VMAP),
    ("torch", (2, 8), (2, 10), "test_linalg.py::test_linalg[vmap, twice]", _VMAP),
    ("torch", (2, 8), (2, 10), "test_linalg.py::test_linalg[grouped]", "has no _grouped_mm for the CPU"),
    ("torch", (2, 8), (2, 10), "test_create.py::test_create[a diagonal that is a size]", "fixes the size in triu"),
]
"""Package, the newest version that was seen to refuse and the oldest that was not, the end of the test's name, why."""

TOO_OLD = "too old for the opset"
_SAID = ("max supported IR version", "ai.onnx is till opset", "is higher than the checker's", "is too old for the file")
"""What onnx and ONNX Runtime, and tonnx of them, say of a file whose opset they do not know."""


def mark(items: list[pytest.Item]) -> None:
    """Expect the refusals of the installed versions."""
    for package, refusing, able, name, why in REFUSED:
        try:
            installed = release(version(package))
        except PackageNotFoundError:
            continue
        if installed < able:
            reason = f"{package} before {'.'.join(map(str, able))} {why}"
            refusal = pytest.mark.xfail(raises=TonnxError, strict=installed <= refusing, reason=reason)
            for item in items:
                if item.nodeid.endswith(name):
                    item.add_marker(refusal)


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
