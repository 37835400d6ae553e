"""Compare an ONNX file, whoever made it, with the model that it was made from; and say where it departs.

--against is one of
  path/file.py:name      a torch.nn.Module, a Paddle layer, a function on arrays; or a function without parameters
  package.module:name    that returns one, (model, example_args) or (model, args, kwargs)
  program.pt2            an archive of torch.export.save; model.pt, one of torch.jit.save
  inference.json         a saved Paddle model: inference.json, inference.pdmodel, __model__, or the folder of one
  other.onnx             another ONNX file

Examples:
  tonnx verify out.onnx --against net.py:make_model --inputs data.npz
  tonnx verify out.onnx --against net.py:Net --input "x:float32[2,3,224,224]" --locate
  tonnx verify out.onnx --against ocr_model/ --json
"""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnx.cli import specs
from tonnx.cli.console import Console, Report, trial_lines

if TYPE_CHECKING:
    from tonnx.api.verify import VerifyResult


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="FILE", help="the ONNX file")
    parser.add_argument("--against", required=True, metavar="MODEL", help="what it should compute; see above")
    parser.add_argument("--params", metavar="FILE", help="the weights of a Paddle model, if they are not beside it")
    inputs = parser.add_argument_group("inputs", "drawn from what the file says of its own, if none are given")
    help = "real values: data.npz with the file's input names or the model's parameters, x.npy, x.pt, or x=file.npy"
    specs.add(inputs, "--inputs", help)
    help = '"x:float32[2,3,224,224]": random values of this dtype and shape; once for each input'
    specs.add(inputs, "--input", help)
    specs.add(inputs, "--input-shapes", "x:1,3,224,224: the same, with the dtype of the file")
    inputs.add_argument("--seed", type=int, default=0, metavar="N", help="of everything that is drawn")
    inputs.add_argument("--no-sizes", action="store_true", help="do not try other sizes of dynamic dimensions")
    inputs.add_argument("--no-values", action="store_true", help="do not try zeros, negative, large and other values")
    verdict = parser.add_argument_group("verdict")
    specs.add(verdict, "--rtol")
    specs.add(verdict, "--atol")
    verdict.add_argument("--strict", action="store_true", help="fail unless both printed verdicts are good, too")
    place = parser.add_argument_group("where it departs")
    place.add_argument(
        "--locate", action=argparse.BooleanOptionalAction,
        help="compare the values inside, even if the outputs agree; by default only if they do not",
    )  # fmt: skip
    place.add_argument(
        "--reproducer", metavar="PART.onnx", help="where to write the part that shows it; <FILE>.part.onnx if not given"
    )
    place.add_argument("--no-reproducer", action="store_true", help="do not write it")


def run(options: argparse.Namespace, console: Console) -> Report:
    from tonnx.api.verify import verify
    from tonnx.cli.arrays import example_for
    from tonnx.frontends.named import importable, is_python, load_against

    path = Path(options.model)
    input_specs = [*options.input, *options.input_shapes]
    with importable(options.against) if is_python(options.against) else contextlib.nullcontext():
        loaded = load_against(options.against)
        try:
            args, kwargs = example_for(path, loaded, input_specs, options.inputs, options.seed)
        except argparse.ArgumentTypeError as error:
            options.fail(str(error))
        result = verify(
            path,
            loaded.model,
            args,
            kwargs,
            **specs.same(options, "params rtol atol strict seed locate"),
            sizes=not options.no_sizes,
            values=not options.no_values,
            reproducer=_reproducer(options, path),
            progress=console.stage,
        )
    return Report(str(result), result.data, lambda: _details(result), failed=not result.ok)


def _reproducer(options: argparse.Namespace, path: Path) -> Path | None:
    if options.no_reproducer:
        return None
    return Path(options.reproducer) if options.reproducer else path.with_name(f"{path.stem}.part.onnx")


def _details(result: VerifyResult) -> str:
    lines = trial_lines(result.verification)
    if result.differences:
        lines.append("  values inside:")
    lines += [f"    {_line(difference)}" for difference in result.differences]
    return "\n".join(lines)


def _line(difference: Any) -> str:
    comparison, node = difference.comparison, difference.node
    what = f"{node.op_type} {node.name}" if node is not None else "input"
    figures = f"max abs {comparison.max_abs:.2g}  max rel {comparison.max_rel:.2g}"
    return f"[{'✓' if comparison.ok else '✗'}] {what} → {difference.value}  {figures}"
