"""`paddle.onnx.export` with another import: the same arguments, the same file name, the same default opset.

    import tonnx
    tonnx.paddle.export(layer, "onnx.save/linear_net", input_spec=[InputSpec([None, 784], "float32", "x")])

Importing this module does not import paddle.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnx.errors import InvalidArgument, RetargetError, told_as

if TYPE_CHECKING:
    from tonnx.api.result import ExportResult

__all__ = ["DEFAULT_OPSET", "export"]

DEFAULT_OPSET = 9
"""That of ``paddle.onnx.export`` and of the command ``paddle2onnx``."""

_ANSWERS = {
    "combine_params": "combine_params changes nothing here: an ONNX file holds its weights",
    "enable_dist_prim_all": "enable_dist_prim_all changes nothing here: combined operators need not be taken apart",
    "calibration_file": "no calibration file is written: quantised models keep their quantisation operators",
    "external_file": "the weights' file has no other name: beyond 2 GiB it is NAME.onnx.data, beside the model",
    "enable_experimental_op": "enable_experimental_op changes nothing here: every operator that is known is exported",
    "enable_dev_version": "enable_dev_version changes nothing here",
    "enable_paddle_fallback": "enable_paddle_fallback changes nothing here: the file has ONNX operators only",
}
_REFUSED = {
    "skip_forward": "without its forward there is nothing to export",
    "export_fp16_model": "the file has the dtypes of the model; convert the model to float16 first",
    "custom_ops": "operators without an ONNX form are refused, not renamed",
}


def export(
    layer: Any,
    path: str | os.PathLike[str],
    input_spec: Any = None,
    opset_version: int = DEFAULT_OPSET,
    **configs: Any,
) -> ExportResult:
    """Export a layer to ``path + ".onnx"``; the folder is made if need be.

    ``configs`` are those of ``paddle.onnx.export`` and ``paddle2onnx``: ``output_spec``, ``input_names_after_prune``,
    ``enable_onnx_checker`` (False: the file is neither checked nor compared), ``enable_auto_update_opset`` (on unless
    False: where the model needs a higher opset, that one is taken, and the result says so), ``enable_verbose``; and
    any option of `tonnx.export`. What has no meaning here is accepted and noted in the result.
    """
    if not os.path.basename(path):
        raise InvalidArgument(
            f"the path must end with the name of a file, not {os.fspath(path)!r}", hint='such as "folder/linear_net"'
        )
    from tonnx.api.export import export as export_to

    file = os.fspath(path) + ".onnx"
    options, notes = options_of(configs)
    with folder_for(file):
        return with_opset(
            lambda opset: export_to(layer, f=file, input_spec=input_spec, opset_version=opset, **options),
            opset_version,
            configs.get("enable_auto_update_opset", True),
            notes,
        )


def options_of(configs: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """What paddle2onnx's options mean for `tonnx.export`, and a line for each that changes nothing."""
    options, notes = dict(configs), []
    options.pop("enable_auto_update_opset", None)
    for name, reason in _REFUSED.items():
        if options.pop(name, None):
            raise InvalidArgument(f"{name} is not supported", why=reason, hint="leave it out")
    for name, answer in _ANSWERS.items():
        if options.pop(name, None):
            notes.append(answer)
    backend = options.pop("deploy_backend", None) or "onnxruntime"
    if backend != "onnxruntime":
        options.setdefault("runtime", None)
        notes.append(f"deploy_backend={backend}: the file favours no runtime, and int8 stays int8 (runtime=None)")
    if not options.pop("enable_onnx_checker", True):
        options.setdefault("verify", False)
        notes.append("enable_onnx_checker=False: the file was neither checked nor compared")
    if options.pop("enable_verbose", False):
        options.setdefault("verbose", True)
    tool = options.pop("optimize_tool", "polygraphy")
    if not options.pop("enable_optimization", True) or tool in (None, "None"):
        options |= {"do_constant_folding": False, "fuse_conv_bn": False}
    return options, notes


def with_opset(run: Callable[[int], ExportResult], opset: int, may_rise: bool, notes: list[str]) -> ExportResult:
    """Run at ``opset``, or, where ``may_rise``, at the lowest one above it that the model allows."""
    try:
        result = run(opset)
    except RetargetError as error:
        reachable = [blocker.lowest_opset for blocker in error.blockers]
        if not may_rise or not all(reachable):
            raise
        higher = max(o for o in reachable if o)
        result = run(higher)
        notes = [*notes, f"the opset was raised from {opset} to {higher}: {error.blockers[0].operator} needs it"]
    result.notes[:0] = notes
    return result


@contextlib.contextmanager
def folder_for(file: str) -> Iterator[None]:
    """The folders of a file that is to be written; if nothing came of it, those that were not there before go again."""
    missing = [folder for folder in Path(file).parents if not folder.exists()]
    with told_as(InvalidArgument, f"cannot make the folder of {file}", OSError, why=str):
        Path(file).parent.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for folder in missing:
            with contextlib.suppress(OSError):  # it holds what the proof left for inspection
                folder.rmdir()
        raise
