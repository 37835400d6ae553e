"""Paddle's three ways to name an element type, as ONNX's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnx_ir import DataType

from tonnx.frontends.paddle.read.damaged_file import damaged, quoted

MAX_RANK = 64
"""Paddle stops at 9; beyond this a shape is rubbish, not a tensor."""

PROTO: dict[int, DataType] = {
    0: DataType.BOOL, 1: DataType.INT16, 2: DataType.INT32, 3: DataType.INT64,
    4: DataType.FLOAT16, 5: DataType.FLOAT, 6: DataType.DOUBLE,
    19: DataType.UINT64,  # SIZE_T
    20: DataType.UINT8, 21: DataType.INT8, 22: DataType.BFLOAT16,
    23: DataType.COMPLEX64, 24: DataType.COMPLEX128,
    32: DataType.FLOAT8E4M3FN, 33: DataType.FLOAT8E5M2,
    36: DataType.UINT16, 37: DataType.UINT32, 38: DataType.UINT64,
}  # fmt: skip
"""VarType.Type of framework.proto: programs, weights files and the ``dtype`` attributes of old operators."""

PIR: dict[str, DataType] = {
    "t_bool": DataType.BOOL, "t_i8": DataType.INT8, "t_i16": DataType.INT16, "t_i32": DataType.INT32,
    "t_i64": DataType.INT64, "t_index": DataType.INT64, "t_ui8": DataType.UINT8, "t_ui16": DataType.UINT16,
    "t_ui32": DataType.UINT32, "t_ui64": DataType.UINT64, "t_f16": DataType.FLOAT16, "t_bf16": DataType.BFLOAT16,
    "t_f32": DataType.FLOAT, "t_f64": DataType.DOUBLE, "t_c64": DataType.COMPLEX64, "t_c128": DataType.COMPLEX128,
    "t_f8e4m3fn": DataType.FLOAT8E4M3FN, "t_f8e5m2": DataType.FLOAT8E5M2,
}  # fmt: skip
"""Types of PIR values."""

NAMES: dict[str, DataType] = {dtype.numpy().name: dtype for dtype in PROTO.values()}
"""phi::DataTypeToString, in PIR attributes."""


def shape(dims: Sequence[Any], *, dynamic: bool = True) -> tuple[int, ...]:
    """Dimensions of a file, checked: what fits an int64, or -1 (only where ``dynamic``).

    Below -1, Paddle has multiplied a dynamic dimension by others (cumsum over all, statistics of instance_norm).
    """
    if len(dims) > MAX_RANK:
        raise damaged(f"a tensor has {len(dims)} dimensions")
    lowest = -(1 << 63) if dynamic else 0
    for dim in dims:
        if type(dim) is not int or not lowest <= dim < 1 << 63:
            raise damaged(f"a tensor has the dimension {quoted(dim)}")
    return tuple(max(dim, -1) for dim in dims)
