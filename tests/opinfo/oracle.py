"""One operator of PyTorch's own test database, with its own samples, through the whole export.

The database (`op_db`) says for every operator which dtypes it takes and draws inputs that its authors found worth
testing: odd ranks, empty and one-element tensors, every argument. Some of them are exported here, and the file is
compared with eager PyTorch by the proof that every export has.
"""

from __future__ import annotations

import io
import re
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any
from unittest import mock

import torch
from torch.export import Dim
from torch.utils import _pytree as pytree

import tonnx
from tonnx.errors import InvalidModel, RetargetError, TonnxError, UnsupportedOp, VerificationFailed
from tonnx.proof.compare import compare
from tonnx.proof.session import Session

OPSET = 18
DTYPES = (torch.float32, torch.int64, torch.bool, torch.float16)
SAMPLES = 6
"""How many samples an operator gets, at most, of one dtype."""
LISTED = 300
"""Some operators have thousands of samples: those tried are spread over this many."""

PASSED, OPEN, HALF, REFUSED, WRONG, CRASHED = "passed", "order open", "rounding", "refused", "wrong", "crashed"
FAILURES = (WRONG, CRASHED)
RIGHT = (PASSED, OPEN, HALF)
"""``order open``: indices differ, but point to equal values, whose order PyTorch leaves open. ``rounding``: in float16
the file differs from PyTorch, but agrees with what PyTorch gives in float32 for the same numbers."""


@dataclass(frozen=True)
class Verdict:
    """What came of one sample."""

    kind: str
    reason: str = ""
    detail: str = ""


@dataclass(frozen=True)
class Outcome:
    """One sample of one operator. ``dtype`` is ``float32``, …, or ``dynamic`` for float32 with every size dynamic."""

    operator: str
    dtype: str
    sample: str
    verdict: Verdict


@dataclass(frozen=True)
class Outcomes:
    """One operator: its samples, or why it is left out."""

    operator: str
    samples: tuple[Outcome, ...] = ()
    left_out: str = ""


LEFT_OUT = {
    r"(new_)?empty(_like|_permuted|_strided)?|resize_|resize_as_": "memory that nobody wrote",
    r"jiterator_.*": "compiles CUDA kernels",
    r".*_backward.*|.*:grad": "a gradient",
    r"cauchy|exponential|geometric|log_normal|normal.*|uniform|randn?.*|randint.*|multinomial|bernoulli": "random",
    r"nn.functional.(alpha_|feature_alpha_)?dropout.*|nn.functional.rrelu|(svd|pca)_lowrank": "random",
    r"nn.functional.fractional_max_pool.*": "random",
    r"to_sparse|sparse\..*": "sparse tensors",
    r"torch.ops.aten._(flash|efficient)_attention_forward|.*_scaled_mm.*|bmm:triton_optimized": "has no CPU kernel",
    r"broadcast_shapes": "takes no tensor and gives none",
    r"hash_tensor": "a checksum of the memory",
}


@cache
def operators() -> dict[str, Any]:
    """Every entry of the database by its name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db

    return {info.name + (f":{info.variant_test_name}" if info.variant_test_name else ""): info for info in op_db}


def left_out(name: str) -> str:
    """Why an operator is left out; "" if it is not."""
    return next((reason for pattern, reason in LEFT_OUT.items() if re.fullmatch(pattern, name)), "")


def run(name: str) -> Outcomes:
    """All chosen samples of one operator."""
    info = operators()[name]
    if reason := left_out(name):
        return Outcomes(name, left_out=reason)
    supported = info.supported_dtypes("cpu")
    dtypes = [dtype for dtype in DTYPES if dtype in supported]
    if not dtypes:
        return Outcomes(name, left_out="takes neither float32, int64, bool nor float16")
    outcomes: list[Outcome] = []
    for dtype in dtypes:
        calls = samples(info, dtype)
        outcomes += [Outcome(name, _name(dtype), call.label, call.verdict()) for call in calls]
        if dtype == torch.float32 and calls:
            call = max(calls, key=lambda one: one.variety)
            outcomes.append(Outcome(name, "dynamic", call.label, call.verdict(dynamic=True)))
    if not outcomes:
        return Outcomes(name, left_out="no sample that gives the same numbers twice")
    return Outcomes(name, tuple(outcomes))


def samples(info: Any, dtype: torch.dtype) -> list[Call]:
    """Some of the samples of one dtype, spread over them all, that PyTorch itself computes twice alike."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = list(islice(info.sample_inputs("cpu", dtype, requires_grad=False), LISTED))
    count = min(SAMPLES, len(found))
    chosen = [found[round(i * (len(found) - 1) / max(count - 1, 1))] for i in range(count)]
    calls = (Call(info, sample, f"{i} {_shown(sample)}") for i, sample in enumerate(chosen))
    return [call for call in calls if call.repeats()]


class _Model(torch.nn.Module):
    """The call as a model: its tensors are inputs, all else is constant."""

    def __init__(self, function: Callable[..., Any], leaves: list[Any], spec: Any) -> None:
        super().__init__()
        self.function, self.leaves, self.spec = function, leaves, spec

    def forward(self, *tensors: torch.Tensor) -> Any:
        left = iter(tensors)
        leaves = [next(left) if isinstance(leaf, torch.Tensor) else leaf for leaf in self.leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        return self.function(*args, **kwargs)


class Call:
    """One sample."""

    def __init__(self, info: Any, sample: Any, label: str) -> None:
        self.info, self.sample, self.label = info, sample, label
        leaves, spec = pytree.tree_flatten(((sample.input, *sample.args), sample.kwargs))
        self.tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        self.model = _Model(info.op, [torch.empty(0) if isinstance(x, torch.Tensor) else x for x in leaves], spec)

    @property
    def variety(self) -> tuple[bool, int, int]:
        """How much there is to make dynamic: no empty tensors, many axes that are not of size 1."""
        sizes = [size for tensor in self.tensors for size in tensor.shape]
        return all(sizes), sum(size > 1 for size in sizes), len(set(sizes))

    def eager(self) -> list[Any]:
        with torch.no_grad():
            return pytree.tree_leaves(self.model(*[tensor.clone() for tensor in self.tensors]))

    def repeats(self) -> bool:
        """False if the result is random, or nothing that can be compared, or PyTorch itself fails."""
        try:
            results = []
            for seed in (1, 2):
                torch.manual_seed(seed)
                with mock.patch("torch.manual_seed"):  # the database makes random operators start from one seed
                    results.append(self.eager())
        except Exception:  # whatever PyTorch raises: then there is nothing to compare with
            return False
        return bool(results[0]) and all(map(_same, *results))

    def verdict(self, dynamic: bool = False) -> Verdict:
        """Export, and judge what comes of it."""
        shapes = tuple(dict.fromkeys(range(tensor.dim()), Dim.AUTO) for tensor in self.tensors)
        options = {"dynamic_shapes": (shapes,)} if dynamic and any(shapes) else {}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tonnx.export(self.model, tuple(self.tensors), opset_version=OPSET, **options)
        except (VerificationFailed, InvalidModel) as error:
            if not dynamic and (actual := self._file_outputs()):
                if self._order_open(actual):
                    return Verdict(OPEN)
                if self._rounds_otherwise(actual):
                    return Verdict(HALF)
            return Verdict(WRONG, _short(error), str(error))
        except TonnxError as error:
            kind = CRASHED if "fault of tonnx" in (error.hint or "") else REFUSED
            return Verdict(kind, _short(error), _detail(error))
        except Exception as error:  # tonnx raises nothing but its own errors: anything else is a fault
            return Verdict(CRASHED, f"{type(error).__name__}: {error}".splitlines()[0][:200], _detail(error))
        return Verdict(PASSED)

    def _file_outputs(self) -> list[torch.Tensor]:
        """What the file gives; nothing if it does not run."""
        stream = io.BytesIO()
        try:
            tonnx.export(self.model, tuple(self.tensors), stream, opset_version=OPSET, verify=False)
            session = Session(stream.getvalue())
            feeds = {name: tensor.numpy() for name, tensor in zip(session.inputs, self.tensors, strict=True)}
            return [torch.from_numpy(array) for array in session.run(feeds).values()]
        except (TonnxError, ValueError):
            return []

    def _order_open(self, actual: list[torch.Tensor]) -> bool:
        """Whether the file's outputs differ only in indices, and those point to elements of equal value."""
        x, place = self.sample.input, _DIM_PLACE.get(self.info.name.removeprefix("masked."))
        if place is None or not isinstance(x, torch.Tensor):
            return False
        dim = self.sample.kwargs.get("dim", self.sample.args[place] if len(self.sample.args) > place else None)
        if dim is None:
            dim = -1 if self.info.name not in ("argmax", "argmin") else None
        expected = self.eager()
        return len(actual) == len(expected) and all(
            (want.dtype == torch.int64 and _same(_pointed(x, want, dim), _pointed(x, got, dim))) or _same(want, got)
            for want, got in zip(expected, actual, strict=True)
        )

    def _rounds_otherwise(self, actual: list[torch.Tensor]) -> bool:
        """Whether the file agrees with PyTorch in float32 on the same numbers, to the precision of float16."""
        if not any(tensor.dtype == torch.float16 for tensor in self.tensors):
            return False
        wide = [tensor.float() if tensor.dtype == torch.float16 else tensor for tensor in self.tensors]
        try:
            with torch.no_grad():
                expected = pytree.tree_leaves(self.model(*wide))
        except Exception:  # an operator that does not mix dtypes, or whose dtype is an argument
            return False
        return len(actual) == len(expected) and all(
            want.shape == got.shape and compare("", want.to(got.dtype).numpy(), got.numpy()).ok
            for want, got in zip(expected, actual, strict=True)
        )


# Operators that return indices of equal elements in an order that their documentation leaves open, and the place of
# ``dim`` among the arguments that follow the tensor.
_DIM_PLACE = {
    "sort": 0, "argsort": 0, "topk": 1, "kthvalue": 1, "median": 0, "nanmedian": 0, "mode": 0, "max": 0, "min": 0,
    "argmax": 0, "argmin": 0, "cummax": 0, "cummin": 0,
}  # fmt: skip


def _pointed(x: torch.Tensor, index: torch.Tensor, dim: int | None) -> torch.Tensor:
    """The elements that indices along ``dim`` point to."""
    if dim is None or x.dim() == 0:
        return x.reshape(-1)[index.reshape(-1)]
    if index.dim() < x.dim():
        index = index.unsqueeze(dim)
    return torch.take_along_dim(x, index, dim)


def _same(a: Any, b: Any) -> bool:
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return bool(a == b)
    if a.layout != torch.strided or a.shape != b.shape or a.dtype != b.dtype:
        return False
    return torch.allclose(a, b, equal_nan=True) if a.is_floating_point() or a.is_complex() else torch.equal(a, b)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _shown(sample: Any) -> str:
    def show(value: Any) -> str:
        if isinstance(value, torch.Tensor):
            return f"{_name(value.dtype)}{list(value.shape)}"
        if isinstance(value, (list, tuple)):
            return f"({', '.join(map(show, value))})"
        return repr(value)

    parts = [show(value) for value in (sample.input, *sample.args)]
    return ", ".join(parts + [f"{key}={show(value)}" for key, value in sample.kwargs.items()])[:160]


def _short(error: TonnxError) -> str:
    if isinstance(error, UnsupportedOp):
        return "no rule: " + ", ".join(sorted({one.operator for one in error.occurrences}))
    lines = error.what.splitlines()
    what = lines[1].strip() if isinstance(error, RetargetError) else lines[0]
    return f"{what} — {error.why.splitlines()[0]}"[:300] if error.why else what[:300]


def _detail(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))[-3000:]
