"""One case by one exporter, in this process; prints a line of JSON: python -m tests.libraries.run tonnx monai/UNet"""

from __future__ import annotations

import contextlib
import inspect
import json
import sys
import tempfile
import time
import traceback
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from tests.libraries import registry
from tests.libraries.case import Case, built
from tests.lowering import torchvision_eager

EXPORTERS = ("tonnx", "dynamo", "classic")


def run(case: Case, exporter: str, keep: Path | None = None) -> dict[str, Any]:
    """What became of it: ``outcome`` is right, different, refused or raw; ``told`` says what."""
    torchvision_eager.install()
    try:
        model = built(case)
        with torch.no_grad():
            calls = [case.at(place) for place in (0, 1, 2)]
            wanted = [_eager(model, case, place) for place in (0, 1, 2)]
            slack = [_own_movement(model, case, place, wanted[place]) for place in (0, 1, 2)]
    except Exception as error:
        return {"outcome": "no case", "told": _last_line(error)}
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        path = keep or Path(folder) / "net.onnx"
        try:
            notes = _EXPORT[exporter](model, case, calls[0], path)
        except Exception as error:
            outcome = "refused" if _is_refusal(error) else "raw"
            return {"outcome": outcome, "told": _last_line(error), "seconds": time.perf_counter() - start}
        seconds = time.perf_counter() - start
        told = [_judged(path, calls[place], wanted[place], case, slack[place]) for place in (0, 1, 2)]
    again = _eager(model, case, 1)
    if any(
        not np.array_equal(a, b, equal_nan=True) for a, b in zip(again, wanted[1], strict=True) if a.dtype.kind != "O"
    ):
        told.append("the model itself gives something else after the export")
    told = [text for text in told if text]
    return {"outcome": "different" if told else "right", "told": "; ".join(told), "seconds": seconds, "notes": notes}


def _eager(model: torch.nn.Module, case: Case, place: int, nudge: float = 0.0) -> list[np.ndarray]:
    args, kwargs = case.at(place)
    if nudge:
        args, kwargs = pytree.tree_map_only(torch.Tensor, partial(_nudged, by=nudge), (args, kwargs))
    with torch.no_grad():
        torch.manual_seed(0)
        return [array for leaf in pytree.tree_leaves(model(*args, **kwargs)) if (array := _array(leaf)) is not None]


def _nudged(tensor: torch.Tensor, by: float) -> torch.Tensor:
    return tensor * (1 + by * torch.randn_like(tensor).sign()) if tensor.dtype == torch.float32 else tensor


def _own_movement(model: torch.nn.Module, case: Case, place: int, wanted: list[np.ndarray]) -> list[float]:
    """For each output: how far the model moves it where its inputs are a rounding away, if that is not far."""
    moved = [_eager(model, case, place, by) for by in (2.0**-23, 2.0**-22)]
    own = []
    for i, want in enumerate(wanted):
        alike = [other[i] for other in moved if want.dtype.kind == "f" and other[i].shape == want.shape]
        far = [float(np.nanmax(np.abs(other - want), initial=0)) for other in alike if np.isfinite(other).all()]
        own.append(max((each for each in far if each < 1e-2 * np.abs(want).max(initial=0)), default=0.0))
    return own


def _array(leaf: Any) -> np.ndarray | None:
    if isinstance(leaf, torch.Tensor):
        leaf = torch.view_as_real(leaf.resolve_conj()) if leaf.is_complex() else leaf
        return np.asarray(leaf.detach().numpy())
    return np.asarray(leaf) if isinstance(leaf, (int, float)) else None


def _tonnx(model: torch.nn.Module, case: Case, call: Any, path: Path) -> list[str]:
    import tonnx

    args, kwargs = call
    result = tonnx.export(model, args, path, kwargs=kwargs, dynamic_shapes=_dynamic_shapes(model, case, call))
    return list(result.notes)


def _dynamo(model: torch.nn.Module, case: Case, call: Any, path: Path) -> list[str]:
    args, kwargs = call
    shapes = _dynamic_shapes(model, case, call)
    torch.onnx.export(model, args, str(path), kwargs=kwargs, dynamic_shapes=shapes, dynamo=True, verbose=False)
    return []


def _classic(model: torch.nn.Module, case: Case, call: Any, path: Path) -> list[str]:
    args, kwargs = call
    names = [f"input_{i}" for i in range(len(case.dynamic()))]
    axes = {} if case.fixed else dict(zip(names, case.dynamic(), strict=True))
    torch.onnx.export(
        model,
        args,
        str(path),
        kwargs=kwargs,
        input_names=names,
        dynamic_axes=axes,
        dynamo=False,
        verbose=False,
    )
    return []


_EXPORT = {"tonnx": _tonnx, "dynamo": _dynamo, "classic": _classic}


def _dynamic_shapes(model: torch.nn.Module, case: Case, call: Any) -> Any:
    """In the structure of the inputs, as `torch.export` wants it: those of ``*args`` are a tuple among them."""
    if case.fixed:
        return None
    args, kwargs = call
    axes = iter(case.dynamic())
    inputs = kwargs or tuple(inspect.signature(model.forward).bind(*args).arguments.values())
    return pytree.tree_map(lambda leaf: next(axes) or None if isinstance(leaf, torch.Tensor) else None, inputs)


def _judged(path: Path, call: Any, wanted: list[np.ndarray], case: Case, slack: list[float]) -> str:
    """What ONNX Runtime computes otherwise than the model, in words; empty if nothing."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    tensors = [leaf for leaf in pytree.tree_leaves(call) if isinstance(leaf, torch.Tensor)]
    sizes = " ".join(str(list(tensor.shape)) for tensor in tensors)
    names = [entry.name for entry in session.get_inputs()]
    feeds = {}
    if len(names) == len(tensors):
        feeds = {name: _array(tensor) for name, tensor in zip(names, tensors, strict=True)}
    else:  # an input that nothing depends on may be left out
        return f"{len(names)} inputs instead of {len(tensors)}"
    try:
        outputs = session.run(None, feeds)
    except Exception as error:
        return f"at {sizes}: {' '.join(str(error).split())[:200]}"
    return (told := _compared(outputs, wanted, case, slack)) and f"at {sizes}: {told}"


def _compared(outputs: list[Any], wanted: list[np.ndarray], case: Case, slack: list[float]) -> str:
    if len(outputs) != len(wanted):
        return f"{len(outputs)} outputs instead of {len(wanted)}"
    if case.rows:
        return "" if _same_rows(outputs, wanted, slack) and _same_rows(wanted, outputs, slack) else "other rows"
    for i, (a, b) in enumerate(zip(outputs, wanted, strict=True)):
        a = np.asarray(a)
        if a.shape != b.shape:
            return f"output {i} has shape {a.shape} instead of {b.shape}"
        if b.dtype.kind in "fc":
            scale = np.abs(b[np.isfinite(b)]).max(initial=0)
            if not np.allclose(a, b, rtol=2e-3, atol=1e-6 + 2e-3 * scale + 2 * slack[i], equal_nan=True):
                return f"output {i} differs by {np.nanmax(np.abs(a - b)):.2g} of {scale:.2g}"
        elif (a != b).mean() > 0.001:  # an argmax of nearly equal numbers may fall either way
            return f"output {i}: {(a != b).sum()} of {b.size} are others"
    return ""


def _same_rows(some: list[Any], others: list[Any], slack: list[float]) -> bool:
    """Whether every row of one is, within tolerance, a row of the other; what belongs to one picture stays together."""
    groups: list[list[tuple[np.ndarray, np.ndarray, float]]] = []
    for a, b, own in zip(some, others, slack, strict=True):
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        if a.shape[1:] != b.shape[1:]:
            return False
        first = groups[-1][0][0] if groups else None
        if first is not None and len(first) == len(a) and first.shape[1:] != a.shape[1:]:
            groups[-1].append((a, b, own))  # labels, scores or masks of the boxes before
        elif a.ndim < 3:
            groups.append([(a, b, own)])
        elif a.shape != b.shape:
            return False
        else:  # batches of rows
            sides = (x.reshape(-1, *x.shape[-2:]) for x in (a, b))
            groups += [[(*pair, own)] for pair in zip(*sides, strict=True)]
    return all(map(_is_among, groups))


def _is_among(pairs: list[tuple[np.ndarray, np.ndarray, float]]) -> bool:
    """Whether every row of the first ones is one of the second ones."""
    if len({len(x) for pair in pairs for x in pair[:2]}) != 1:
        return False
    alike = np.ones([len(pairs[0][0])] * 2, bool)
    for a, b, own in pairs:
        a, b = (x.reshape(len(x), int(np.prod(x.shape[1:]))) for x in (a, b))
        tolerance = 1e-6 + 2e-3 * np.abs(b).max(initial=0) + 2 * own
        for i, row in enumerate(a):
            alike[i] &= np.isclose(b, row, rtol=2e-3, atol=tolerance).all(axis=1)
    return bool(alike.any(axis=1).all())


def _is_refusal(error: BaseException) -> bool:
    from tonnx.errors import TonnxError

    return isinstance(error, TonnxError) or type(error).__module__.startswith("torch.onnx")


def _last_line(error: BaseException) -> str:
    from tonnx.errors import TonnxError

    if isinstance(error, TonnxError):
        return str(error)
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {str(error).strip()[:600]} ({Path(where.filename).name}:{where.lineno})"


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    exporter, name, *keep = sys.argv[1:]
    with contextlib.redirect_stdout(sys.stderr):
        result = run(registry.case(name), exporter, Path(keep[0]) if keep else None)
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
