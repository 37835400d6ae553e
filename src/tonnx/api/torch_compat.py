"""Arguments of `torch.onnx.export`, past and present, that `tonnx.export` takes for the sake of existing scripts.

Those that change the file have the effect that they had. What no longer makes sense is accepted, and answered with one
line in the result.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

from tonnx.errors import InvalidArgument, did_you_mean

P = ParamSpec("P")
R = TypeVar("R")

EXPORT_TYPES = ("ONNX", "ONNX_ATEN", "ONNX_ATEN_FALLBACK", "ONNX_FALLTHROUGH")
MODES = ("EVAL", "PRESERVE", "TRAINING")

_FIRST = ("export_params", "verbose", "training", "input_names", "output_names")
_UNTIL_1_9 = (
    *_FIRST, "aten", "export_raw_ir", "operator_export_type", "opset_version", "_retain_param_name",
    "do_constant_folding", "example_outputs", "strip_doc_string", "dynamic_axes", "keep_initializers_as_inputs",
    "custom_opsets", "enable_onnx_checker", "use_external_data_format",
)  # fmt: skip
_SINCE_1_10 = (
    *_FIRST, "operator_export_type", "opset_version", "do_constant_folding", "dynamic_axes",
    "keep_initializers_as_inputs", "custom_opsets", "export_modules_as_functions", "autograd_inlining",
)  # fmt: skip

_ANSWERS = {
    "dynamo": "dynamo changes nothing here: tonnx captures in its own way",
    "fallback": "fallback changes nothing here: tonnx captures in its own way",
    "profile": "profile=True writes no other file: the result has the seconds of each stage",
    "dump_exported_program": "dump_exported_program writes nothing: use torch.export.save",
    "artifacts_dir": "artifacts_dir is not used: nothing but the model is written",
    "autograd_inlining": "autograd_inlining changes nothing here: functions without symbolic are always looked through",
    "export_modules_as_functions": "export_modules_as_functions: the graph is flat; nodes carry their module's path",
    "enable_onnx_checker": "enable_onnx_checker changes nothing here: every file is checked unless verify=False",
    "example_outputs": "example_outputs is not used: the model itself says what it returns",
    "_retain_param_name": "_retain_param_name changes nothing here: parameters always keep their names",
}
"""What no longer makes sense, and why."""

_QUIET = {
    "dynamo": (None,), "fallback": (None, False), "profile": (None, False),
    "dump_exported_program": (None, False), "artifacts_dir": (None, "."), "autograd_inlining": (None, True),
    "export_modules_as_functions": (None, False), "enable_onnx_checker": (None, True), "example_outputs": (None,),
    "_retain_param_name": (None, True),
}  # fmt: skip
"""The values that mean what tonnx does anyway: they need no answer."""


def read(classic: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Check the arguments that ``torch.onnx.export`` has or had; refuse those that it never had.

    ``options`` are those of `tonnx.export` itself. Gives fields of `ExportRequest`.
    """
    rest = dict(classic)
    training = _member("training", options["training"], MODES, "EVAL")
    fields = {
        "training": training,
        "operator_export_type": _export_type(
            options["operator_export_type"], rest.pop("aten", None), rest.pop("export_raw_ir", None)
        ),
        "custom_opsets": _opsets(options["custom_opsets"]),
        "strip_doc_string": rest.pop("strip_doc_string", None),
        "external_data": True if rest.pop("use_external_data_format", None) else options["external_data"],
        "optimize": rest.pop("optimize", None) is not False,
    }
    notes = []
    for name, value in rest.items():
        if name not in _ANSWERS:
            raise InvalidArgument(f"export has no argument {name!r}", hint=_nearest(name))
        if not any(value is quiet or (type(value) is type(quiet) and value == quiet) for quiet in _QUIET[name]):
            notes.append(_ANSWERS[name])
    if training != "EVAL":
        notes.append("made for training: weights are kept as they are, nothing is folded or fused")
        notes.append("ONNX Runtime leaves out Dropout in inference unless its graph optimisations are disabled")
    return {**fields, "notes": tuple(notes)}


def _export_type(asked: Any, aten: Any, raw: Any) -> str:
    if aten and raw:
        raise InvalidArgument("aten and export_raw_ir exclude each other")
    if (aten or raw) and asked is not None:
        raise InvalidArgument("aten and export_raw_ir are short for an operator_export_type", hint="give only one")
    if aten:
        return "ONNX_ATEN"
    return "ONNX_FALLTHROUGH" if raw else _member("operator_export_type", asked, EXPORT_TYPES, "ONNX")


def _member(option: str, value: Any, names: Sequence[str], default: str) -> str:
    """A member of one of PyTorch's enumerations: itself, its name, or its number."""
    if value is None:
        return default
    if isinstance(value, bool):
        if option == "training":  # before PyTorch 1.6 it was a flag
            return "TRAINING" if value else "EVAL"
    elif isinstance(value, int) and 0 <= value < len(names):
        return names[value]
    name = str(getattr(value, "name", value)).rsplit(".", 1)[-1].upper()
    if name not in names:
        raise InvalidArgument(f"{option}={value!r} is not known", hint=f"choose one of {', '.join(names)}")
    return name


def _opsets(by_domain: Any) -> dict[str, int]:
    if by_domain is None:
        return {}
    if not isinstance(by_domain, Mapping):
        raise InvalidArgument(f'custom_opsets must be a dict such as {{"my.domain": 1}}, not {by_domain!r}')
    for domain, version in by_domain.items():
        if not isinstance(domain, str) or isinstance(version, bool) or not isinstance(version, int) or version < 1:
            raise InvalidArgument(f"custom_opsets[{domain!r}] must be a version, a number from 1, not {version!r}")
        if domain in ("", "ai.onnx"):
            raise InvalidArgument("custom_opsets is for other domains", hint="opset_version is that of ONNX itself")
    return dict(by_domain)


def _nearest(name: str) -> str | None:
    import inspect

    from tonnx.api.export import export

    return did_you_mean(name, {*inspect.signature(export).parameters, *_UNTIL_1_9, *_SINCE_1_10, *_ANSWERS})


# Positional arguments


def takes_positions(function: Callable[P, R]) -> Callable[P, R]:
    """Let arguments after ``f`` come without their names, in the order that ``torch.onnx.export`` had."""

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        positional = by_position(args[3:])
        for name in positional:
            if name in options:
                raise InvalidArgument(f"{name} is given twice: by position and by name")
        return function(*args[:3], **positional, **options)  # type: ignore[arg-type]

    return call


def by_position(values: Sequence[Any]) -> dict[str, Any]:
    """The names of positional arguments after ``f``. The order changed once, in PyTorch 1.10, after the fifth."""
    sixth, seventh = (*values[5:7], None, None)[:2]
    older = isinstance(sixth, bool) or (sixth is None and isinstance(seventh, bool)) or len(values) > len(_SINCE_1_10)
    order = _UNTIL_1_9 if older else _SINCE_1_10
    if len(values) > len(order):
        raise InvalidArgument(
            f"export takes {len(order) + 3} arguments by position at most, not {len(values) + 3}",
            hint="give them by name",
        )
    return dict(zip(order, values, strict=False))
