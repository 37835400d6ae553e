"""``linger.onnx.export``: `tonnx.export`, for models of `tonnx.linger.init` and others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tonnx.api.result import ExportResult

__all__ = ["export"]

DEFAULT_OPSET = 12
"""linger's."""

_ANSWERS = {
    "is_update_dequant": "is_update_dequant changes nothing here: DequantizeLinear stands where numbers become reals",
    "is_input_quant": "is_input_quant changes nothing here: inputs are reals, and quantised in the file",
    "is_scoped_info": "is_scoped_info changes nothing here: every node says which module it is from",
    "debug_dump": "debug_dump changes nothing here: tonnx.quant.compare compares the integers between the layers",
}


def export(model: Any, args: Any, f: Any = None, *positional: Any, **options: Any) -> ExportResult:
    """Export a model; arguments and their order are those of ``torch.onnx.export`` and `tonnx.export`.

    A model of `tonnx.linger.init` that never ran is calibrated with the example, and the result says so.
    """
    from tonnx.api.export import export as tonnx_export
    from tonnx.api.torch_compat import by_position

    notes = [_ANSWERS[name] for name in list(options) if name in _ANSWERS and options.pop(name) is not None]
    if "opset_version" not in by_position(positional):
        options.setdefault("opset_version", DEFAULT_OPSET)
    notes += _calibrated(model, args)
    result = tonnx_export(model, args, f, *positional, **options)
    result.notes += notes
    return result


def _calibrated(model: Any, args: Any) -> list[str]:
    """Let a model that has seen nothing see the example."""
    import torch

    from tonnx.quant.training.prepare import calibrate, holder_of

    holder = holder_of(model) if isinstance(model, torch.nn.Module) else None
    if holder is None or holder.config is None or holder.planned:
        return []
    calibrate(model, [args if isinstance(args, (tuple, list, dict)) else (args,)])
    return ["[!] the model was never trained or calibrated: its scales are those of the example"]
