"""Integers of a trained model beside those of its file, quantiser by quantiser."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import torch

from tonnx.errors import InvalidArgument, VerificationFailed
from tonnx.proof.session import Session
from tonnx.quant.training.discovery import tensors
from tonnx.quant.training.prepare import _prepared
from tonnx.quant.training.quantiser import Quantiser
from tonnx.quant.training.sites import HOLDER

_FEW = 3
"""Numbers that may be off by a step in any case: of few, 1 in 1,000 is none."""


@dataclass(frozen=True)
class Row:
    """The integers of one quantiser."""

    name: str
    numbers: int
    off_by_one: int
    off_by_more: int


@dataclass
class Integers:
    """How far the integers of a file are from those of its model."""

    rows: list[Row] = field(default_factory=list)

    @property
    def numbers(self) -> int:
        return sum(row.numbers for row in self.rows)

    @property
    def off_by_one(self) -> int:
        return sum(row.off_by_one for row in self.rows)

    @property
    def off_by_more(self) -> int:
        return sum(row.off_by_more for row in self.rows)

    @property
    def ok(self) -> bool:
        """At most 1 in 1,000 is off by a step, and none by two."""
        return self.off_by_more == 0 and self.off_by_one * 1000 <= self.numbers

    def __str__(self) -> str:
        sign = "✓" if self.ok else "✗"
        further = f"{self.off_by_more:,} by more" if self.off_by_more else "none by more"
        counted = f"{self.numbers:,} integers of {len(self.rows)} quantisers"
        lines = [f"[{sign}] {counted}: {self.off_by_one:,} off by one step, {further}"]
        if not self.ok:
            worst = sorted(self.rows, key=lambda row: (row.off_by_more, row.off_by_one), reverse=True)[:3]
            lines += [f"    {row.name}: {row.off_by_one:,} by one, {row.off_by_more:,} by more" for row in worst]
        return "\n".join(lines)


def compare(model: torch.nn.Module, path: str | os.PathLike[str], *args: Any) -> Integers:
    """The integers that a model and its file have between the layers, for the same inputs.

    Layer by layer: each of the model's gets the integers that the file has before it, so that a number that was rounded
    the other way counts once, where it happened.

    Example::

        tonnx.export(quantised.eval(), (x,), "net.onnx")
        print(tonnx.quant.compare(quantised, "net.onnx", x))

    Args:
        model: what `prepare` gave, trained.
        path: the file that `tonnx.export` made of it.
        args: the model's inputs, in the order of the file's.
    """
    _prepared(model)
    inputs = [x.detach().cpu().numpy() for x in tensors(args)]
    names = [value.name for value in onnx.load(os.fspath(path), load_external_data=False).graph.input]
    if len(inputs) != len(names):
        raise InvalidArgument(f"the file has {len(names)} inputs, and {len(inputs)} tensors were given")
    result = _compared(model, path, dict(zip(names, inputs, strict=True)), lambda: model(*args))
    if not result.rows:
        raise InvalidArgument(f"{os.fspath(path)} has no integers of this model", hint="export it with tonnx.export")
    return result


def prove_integers(
    model: torch.nn.Module,
    reference: Callable[[dict[str, np.ndarray]], Any],
    path: str | os.PathLike[str],
    feeds: Mapping[str, np.ndarray],
) -> list[str]:
    """What an export tells of the integers of its file; raises VerificationFailed if they are others than the model's.

    Where only ONNX Runtime's integer kernels have others, and the file as it stands does not, that is told.
    """  # fmt: skip
    result = _compared(model, path, feeds, lambda: reference(dict(feeds)))
    if not result.rows or result.ok:
        return [str(result)] if result.rows else []
    exact = _compared(model, path, feeds, lambda: reference(dict(feeds)), optimised=False)
    if exact.off_by_more or exact.off_by_one > max(_FEW, exact.numbers // 1000):
        raise VerificationFailed("the file has other integers than the model", why=str(exact))
    kernels = f"[!] ONNX Runtime's kernels round otherwise than the file says: {str(result).splitlines()[0][4:]}"
    return [str(exact), *([kernels] if result.off_by_more else [])]


def _compared(
    model: torch.nn.Module, path: str | os.PathLike[str], feeds: Mapping[str, np.ndarray], run: Callable[[], Any],
    optimised: bool = True,
) -> Integers:  # fmt: skip
    proto = onnx.load(os.fspath(path))
    places = _places(proto)
    outputs = {output.name for output in proto.graph.output}
    for name in (name for results in places.values() for name, _ in results if name not in outputs):
        proto.graph.output.append(onnx.ValueInfoProto(name=name))
    arrays = Session(proto.SerializeToString(), optimised=optimised).run(feeds)
    steps = {
        name: [np.asarray(arrays[output].astype(np.int64) + shift) for output, shift in results]
        for name, results in places.items()
    }
    return Integers(_rows(model, run, steps))


def _rows(model: torch.nn.Module, run: Callable[[], Any], steps: dict[str, list[np.ndarray]]) -> list[Row]:
    """The model beside the file's steps from zero. Each layer gets those of the file: what differs is its own doing."""
    rows: list[Row] = []
    hooks = []
    for name, module in model.get_submodule(HOLDER).named_modules(prefix=HOLDER):
        if isinstance(module, Quantiser) and name in steps:
            coming = iter(steps[name])

            def hook(module: Any, args: Any, result: torch.Tensor, name: str = name, coming: Any = coming) -> Any:
                there = next(coming, None)
                if there is None or there.shape != tuple(result.shape):  # inside of a loop, or a constant
                    return result
                scale = module.scale.detach()
                away = np.abs(np.rint(result.detach().cpu().numpy() / float(scale)).astype(np.int64) - there)
                rows.append(Row(name, away.size, int((away == 1).sum()), int((away > 1).sum())))
                return torch.from_numpy(there).to(result) * scale

            hooks.append(module.register_forward_hook(hook))
    try:
        with evaluating(model), torch.no_grad():
            run()
    finally:
        for handle in hooks:
            handle.remove()
    return rows


@contextmanager
def evaluating(model: torch.nn.Module) -> Iterator[None]:
    """In evaluation, and as it was afterwards."""
    flags = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, was_training in flags:
            module.training = was_training


def _places(proto: onnx.ModelProto) -> dict[str, list[tuple[str, int]]]:
    """The results of QuantizeLinear by the module that they come from, and what takes them to steps from zero."""
    constants = {tensor.name: tensor for tensor in proto.graph.initializer}
    places: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for node in proto.graph.node:
        if node.op_type == "QuantizeLinear" and len(node.input) > 2 and node.input[2] in constants:
            zero = int(onnx.numpy_helper.to_array(constants[node.input[2]]).reshape(-1)[0])
            places[_module(node)].append((node.output[0], -zero))
    return places


def _module(node: onnx.NodeProto) -> str:
    told = {prop.key: prop.value for prop in node.metadata_props}
    lines = dict(line.partition(": ")[::2] for line in node.doc_string.splitlines())
    return told.get("tonnx.module") or lines.get("module", "")
