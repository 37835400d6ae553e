"""Scripted programs, exported and run on inputs that take every path."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnxruntime
import torch
from torch.utils import _pytree as pytree

import tonnx
from tonnx.io import write

OPSETS = (11, 13, 18, 23)


@dataclass(frozen=True)
class Program:
    """A function or a class of modules, and what to run it on; the first inputs are the example."""

    make: Callable[..., Any]
    inputs: Sequence[tuple[Any, ...]]
    dynamic: dict[str, Any] = field(default_factory=dict)
    lowest: int = 11
    """The lowest opset that can express it."""
    has: tuple[str, ...] = ()
    """Operators that the file must have: those that show that nothing was frozen."""
    has_not: tuple[str, ...] = ()

    def script(self) -> Any:
        made = self.make
        if isinstance(made, type):
            torch.manual_seed(3)
            made = made().eval()
        return made if isinstance(made, torch.jit.ScriptFunction) else torch.jit.script(made)


def check(program: Program, opset: int) -> tonnx.ExportResult:
    """Export, and compare with TorchScript on every input."""
    script = program.script()
    example = copy.deepcopy(program.inputs[0])
    result = tonnx.export(script, example, dynamic_axes=program.dynamic, opset_version=opset, verify=False)
    kinds = {node.op_type for graph in (result.model.graph, *result.model.graph.subgraphs()) for node in graph}
    assert set(program.has) <= kinds, f"{set(program.has) - kinds} missing among {sorted(kinds)}"
    assert not set(program.has_not) & kinds, f"{set(program.has_not) & kinds} among {sorted(kinds)}"
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(write.to_bytes(result.model), options)
    names = [value.name for value in session.get_inputs()]
    for inputs in program.inputs:
        compare(session, script, inputs)
    sizes = {name: set() for name in program.dynamic}
    for inputs in program.inputs:
        for name, tensor in zip(names, tensors_of(inputs), strict=True):
            sizes.get(name, set()).add(tuple(tensor.shape[axis] for axis in program.dynamic.get(name, ())))
    if any(len(seen) == 1 for seen in sizes.values()):  # a dynamic axis of which the program names one size only
        for inputs in program.inputs:
            compare(session, script, resized(inputs, names, program.dynamic))
    return result


def resized(inputs: tuple[Any, ...], names: Sequence[str], dynamic: dict[str, Any]) -> tuple[Any, ...]:
    """The inputs with two more rows along every dynamic axis, which are the first ones again."""
    rest = iter(names)

    def longer(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        for axis in dynamic.get(next(rest), ()):
            leaf = leaf.index_select(axis, torch.arange(leaf.shape[axis] + 2) % leaf.shape[axis])
        return leaf

    return pytree.tree_map(longer, inputs)


def tensors_of(inputs: tuple[Any, ...]) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(inputs) if isinstance(leaf, torch.Tensor)]


def compare(session: onnxruntime.InferenceSession, script: Any, inputs: tuple[Any, ...]) -> None:
    tensors = tensors_of(inputs)
    feeds = {given.name: t.numpy() for given, t in zip(session.get_inputs(), tensors, strict=True)}
    actual = session.run(None, feeds)
    fresh = copy.deepcopy(script) if isinstance(script, torch.jit.ScriptModule) else script
    with torch.no_grad():
        wanted = pytree.tree_leaves(fresh(*copy.deepcopy(inputs)))
    wanted = [leaf for leaf in wanted if leaf is not None]
    assert len(actual) == len(wanted)
    for got, want in zip(actual, wanted, strict=True):
        expected = want.numpy() if isinstance(want, torch.Tensor) else np.asarray(want)
        if isinstance(want, float):
            expected = expected.astype(np.float32)
        assert got.dtype == expected.dtype, f"{got.dtype} is not {expected.dtype}"
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5, err_msg=str([t.shape for t in tensors]))
