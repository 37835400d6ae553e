"""The public functions: options in, result out."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from tonnx.errors import InvalidArgument, MissingDependency, VerificationFailed
from tonnx.result import ExportResult
from tonnx.target import DEFAULT, Target

if TYPE_CHECKING:
    from tonnx.frontends.torch import Converted
    from tonnx.passes import Optimised

__all__ = ["ExportResult", "export"]

Progress = Callable[[str], None]


def export(
    model: Any,
    args: Any = (),
    f: str | os.PathLike[str] | BinaryIO | None = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    opset_version: int | None = None,
    dynamic_axes: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    export_params: bool = True,
    do_constant_folding: bool = True,
    fuse_conv_bn: bool = True,
    keep_initializers_as_inputs: bool = False,
    external_data: bool | None = None,
    verbose: bool = False,
    verify: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    progress: Progress | None = None,
) -> ExportResult:
    """Export a model to ONNX at exactly ``opset_version``, and prove that the file computes what the model computes.

    Example::

        result = tonnx.export(model, (x,), "net.onnx", input_names=["input"], dynamic_axes={"input": {0: "batch"}})
        print(result)

    Args:
        model: a ``torch.nn.Module`` (in any mode; it is put back as it was) or a ``torch.export.ExportedProgram``.
        args: example inputs: a tensor, or a tuple that may nest lists, tuples and dicts.
        f: a path, a binary file-like object, or None to write nothing.
        kwargs: example keyword inputs.
        input_names, output_names: names of the file's inputs and outputs, in order.
        opset_version: 7 to 26; 18 if not given.
        dynamic_axes: ``{"input": {0: "batch"}}`` or ``{"input": [0, 2]}``, for inputs and outputs.
        dynamic_shapes: the same as ``torch.export`` takes it; names as strings are allowed.
        export_params: False leaves the weights out: they become inputs.
        do_constant_folding: evaluate what depends on weights and constants only.
        fuse_conv_bn: fold batch normalisation into the convolution before it.
        keep_initializers_as_inputs: list the weights among the inputs too, as IR version 3 did.
        external_data: True writes the weights to ``<f>.data``; None does so only above 2 GiB.
        verbose: print the stages and the result.
        verify: check, load and run the file, and compare it with the model, also at other sizes of every dynamic
            dimension. On a mismatch `VerificationFailed` is raised and the file is left as ``<f>.failed.onnx``.
        rtol, atol: tolerances; by default those of each output's dtype (float32: 1e-3 and 1e-5).
        progress: called with the name of each stage as it begins.
    """
    target = Target(DEFAULT if opset_version is None else opset_version)
    _check_destination(f)
    stages = _Stages(progress or (print if verbose else None))
    with stages("capture"):
        converted = _convert(
            model,
            args,
            kwargs,
            input_names=input_names,
            output_names=output_names,
            dynamic_axes=dynamic_axes,
            dynamic_shapes=dynamic_shapes,
        )
    stages.seconds.update(converted.timings)
    optimised = _finish(converted, target, stages, do_constant_folding, fuse_conv_bn)
    _arrange_initializers(converted, export_params, keep_initializers_as_inputs)
    result = ExportResult(converted.model, target.opset, notes=[*optimised.notes, *_limits(converted)])
    result.timings = stages.seconds
    _deliver(result, converted, f, stages, external_data, verify, rtol, atol)
    if verbose:
        print(result)
    return result


def _convert(model: Any, args: Any, kwargs: Mapping[str, Any] | None, **options: Any) -> Converted:
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise MissingDependency("exporting a PyTorch model needs torch", hint="pip install torch==2.13.0") from error
    from tonnx.frontends import torch as frontend

    return frontend.convert(model, args, kwargs, **options)


def _finish(converted: Converted, target: Target, stages: _Stages, fold: bool, fuse: bool) -> Optimised:
    from tonnx.legalise import legalise
    from tonnx.passes import clean_up, optimise

    with stages("optimise"):
        optimised = optimise(converted.model, fold_constants=fold, fuse_conv_bn=fuse)
    with stages("legalise"):
        legalise(converted.model, target)
        clean_up(converted.model)
    return optimised


def _arrange_initializers(converted: Converted, export_params: bool, as_inputs: bool) -> None:
    graph = converted.model.graph
    # Before IR version 4 every initializer had to be an input as well.
    if as_inputs or not export_params or converted.model.ir_version < 4:
        for value in graph.initializers.values():
            if not value.is_graph_input():
                graph.inputs.append(value)
    if not export_params:
        for name, value in list(graph.initializers.items()):
            tensor = value.const_value
            if tensor is not None and value.meta.get("tonnx.weight"):
                converted.example[name] = tensor.numpy()
                del graph.initializers[name]


def _limits(converted: Converted) -> list[str]:
    notes = []
    for name, (low, high) in converted.limits.items():
        if low > 1 or high is not None:
            notes.append(f"limits of {name}: {low} to {'any size' if high is None else high}")
    return notes


def _check_destination(f: Any) -> None:
    if f is None or isinstance(f, (str, os.PathLike)) or hasattr(f, "write"):
        return
    raise InvalidArgument(f"f must be a path, a binary file-like object or None, not {f!r}")


def _deliver(
    result: ExportResult,
    converted: Converted,
    f: Any,
    stages: _Stages,
    external_data: bool | None,
    verify: bool,
    rtol: float | None,
    atol: float | None,
) -> None:
    """Write beside the destination, prove what was written, and only then move it into place."""
    from tonnx import serialize

    def prove(path: Path) -> None:
        if verify:
            from tonnx.verify import prove

            with stages("verify"):
                result.verification = prove(
                    path,
                    converted.reference,
                    converted.example,
                    output_names=[value.name or "" for value in result.model.graph.outputs],
                    dynamic=converted.dynamic,
                    ranges=converted.limits,
                    rtol=rtol,
                    atol=atol,
                )
            result.verification.raise_if_failed()

    if isinstance(f, (str, os.PathLike)):
        destination = Path(f)
        with serialize.Staged(destination) as staged:
            with stages("write"):
                result.size = staged.write(result.model, external_data=external_data)
            try:
                prove(staged.path)
            except VerificationFailed as failure:
                failed = destination.with_name(f"{destination.stem}.failed{destination.suffix or '.onnx'}")
                staged.commit_as(failed)
                failure.hint = f"the file was left as {failed} for inspection"
                raise
            staged.commit()
        result.path = destination
        return
    if verify or f is not None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            with stages("write"):
                result.size = serialize.write(result.model, path, external_data=external_data and f is None)
            prove(path)
        if f is not None:
            serialize.write(result.model, f)


class _Stages:
    """Times the stages and announces them."""

    def __init__(self, announce: Progress | None) -> None:
        self.seconds: dict[str, float] = {}
        self._announce = announce

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        if self._announce:
            self._announce(stage)
        start = time.perf_counter()
        yield
        self.seconds[stage] = time.perf_counter() - start
