"""Arguments of `torch.onnx.export`, past and present, that `tonnx.export` takes for the sake of existing scripts."""

from __future__ import annotations

from typing import Any

from tonnx.errors import InvalidArgument

_WITHOUT_MEANING = frozenset(
    """dynamo optimize report profile artifacts_dir dump_exported_program fallback autograd_inlining strip_doc_string
    enable_onnx_checker example_outputs _retain_param_name""".split()
)
"""They steer what tonnx has no use for: which exporter runs, whether to check, where to report."""

_ONE_VALUE = {
    "training": (("EVAL", "TrainingMode.EVAL", "None"), "models are exported for inference"),
    "operator_export_type": (("ONNX", "OperatorExportTypes.ONNX", "None"), "the file has ONNX operators only"),
    "custom_opsets": (("None", "{}"), "custom operators are not supported yet"),
    "custom_translation_table": (("None", "{}"), "custom operators are not supported yet"),
    "export_modules_as_functions": (("None", "False", "set()"), "the graph is flat; nodes carry their module's path"),
    "aten": (("None", "False"), "the file has ONNX operators only"),
    "export_raw_ir": (("None", "False"), "the file has ONNX operators only"),
}
"""Accepted with the value that means what tonnx does anyway."""


def classic_arguments(given: dict[str, Any]) -> list[str]:
    """One line for each argument that was accepted but changes nothing; refuses what would change something."""
    notes = []
    for name, value in given.items():
        if name in _WITHOUT_MEANING:
            notes.append(f"{name} changes nothing here")
            continue
        if name not in _ONE_VALUE:
            raise InvalidArgument(f"export has no argument {name!r}")
        accepted, reason = _ONE_VALUE[name]
        if str(value) not in accepted:
            raise InvalidArgument(f"{name}={value} is not supported", why=reason, hint="leave it out")
    return notes
