"""Values in words."""

from __future__ import annotations

import onnx_ir as ir


def signature_of(value: ir.Value) -> str:
    """``name: float[batch, 3]``."""
    dims = (
        "?" if value.shape is None else ", ".join(str(d if isinstance(d, int) else d.value or "?") for d in value.shape)
    )
    return f"{value.name}: {value.dtype.name.lower() if value.dtype else '?'}[{dims}]"
