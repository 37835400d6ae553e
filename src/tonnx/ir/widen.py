"""The dtype to compute in where an operator does not take the one at hand, in ONNX itself or in a runtime."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from tonnx.ir.schema import Signature

T = ir.DataType

# What holds every value of a dtype, in order of preference; only double to float loses digits. An integer never turns
# into a float here: a rule that hands one to a function of real numbers has forgotten to promote it.
_INSTEAD: dict[ir.DataType, tuple[ir.DataType, ...]] = {
    T.BOOL: (T.INT32, T.UINT8, T.INT64),
    **dict.fromkeys((T.INT8, T.UINT8, T.INT16, T.UINT16), (T.INT32, T.INT64)),
    **dict.fromkeys((T.INT32, T.UINT32), (T.INT64,)),
    **dict.fromkeys((T.BFLOAT16, T.DOUBLE), (T.FLOAT,)),
}


def instead(
    schema: Signature,
    inputs: Sequence[ir.Value | None],
    runs: Callable[[str, ir.DataType], bool] = lambda op_type, dtype: True,
) -> dict[str, ir.DataType]:
    """The dtype to compute in, for each type variable whose dtype the schema does not take or does not ``run``."""
    result: dict[str, ir.DataType] = {}
    for i, value in enumerate(inputs):
        if value is None or value.dtype is None:
            continue
        formal = schema.input(i)
        if formal.type_str in result or not formal.dtypes:
            continue
        for dtype in (value.dtype, *_INSTEAD.get(value.dtype, ())):
            if dtype in formal.dtypes and runs(schema.op_type, dtype):
                if dtype != value.dtype:
                    result[formal.type_str] = dtype
                break
    return result
