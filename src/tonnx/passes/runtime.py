"""What a runtime needs and ONNX does not: the passes of a runtime profile, for a file that is right as it is."""

from __future__ import annotations

import onnx_ir as ir

from tonnx.ir.target import ORT_CPU
from tonnx.passes.unsigned import store_unsigned


def fit_integers(model: ir.Model, runtime: str | None) -> list[str]:
    """At the asked opset: integers that the runtime's kernels multiply without saturating. Gives notes for the user."""
    count = store_unsigned(model) if runtime == ORT_CPU else 0
    if not count:
        return []
    return [
        f"for ONNX Runtime's CPU, {count} int8 tensor{'s are' if count != 1 else ' is'} stored as uint8 with the zero "
        "point moved by 128: the same numbers, without saturation on any processor (runtime=None keeps int8)"
    ]
