"""A Paddle model that a file is verified against: a saved one, or a layer."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np

from tonnx.errors import InvalidArgument, MissingDependency
from tonnx.frontends.paddle.convert import RTOL
from tonnx.frontends.paddle.read.load import load
from tonnx.frontends.paddle.reference.predictor import predictor
from tonnx.frontends.paddle.reference.trace import PaddleTrace
from tonnx.proof.examples import first_that_runs
from tonnx.proof.signature import Signature, check_fit, match_inputs, match_outputs
from tonnx.proof.subject import Reference, Subject

FRAMEWORK = "Paddle"
Examples = Callable[[Mapping[str, np.ndarray]], Iterable[dict[str, np.ndarray]]]
"""Inputs for a file: what is given, and random ones for the rest."""


def saved(path: str | os.PathLike[str], params: Any, inputs: Any, examples: Examples, signature: Signature) -> Subject:
    """A saved model, run by Paddle's own predictor."""
    loaded = load(path, params)
    places = match_inputs(signature.inputs, loaded.program.inputs, "the Paddle model")
    renamed = {own: name for name, own in places.items()}
    paddle = predictor(loaded, renamed)
    if paddle is None:
        raise MissingDependency("comparing with a Paddle model needs paddle", hint="pip install paddlepaddle==3.3.1")
    chosen = match_outputs(signature.outputs, list(loaded.program.outputs))

    def reference(feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
        outputs = paddle(feeds)
        return [outputs[place] for place in chosen]

    arrays = _by_name(inputs, list(loaded.program.inputs), renamed, signature)
    example = _example(reference, arrays, examples, signature)
    return _subject(reference, example, partial(PaddleTrace, loaded, renamed), signature)


def layer(
    model: Any, args: Any, kwargs: Mapping[str, Any] | None, arrays: Any, examples: Examples, signature: Signature
) -> Subject:
    """A layer or function, run eagerly in this process."""
    from tonnx.frontends.paddle.layer import callable_of, resaved
    from tonnx.frontends.paddle.reference.eager import Eager, to_array
    from tonnx.frontends.paddle.signature import bind

    model, function = callable_of(model)
    if arrays is not None:
        # Arrays by the file's names: the model takes them by its parameters' names, or in order.
        drawn = next(iter(examples(arrays)))
        args, kwargs = [drawn[name] for name in signature.inputs], None
    call = bind(function, args, kwargs, None)
    places = match_inputs(signature.inputs, [leaf.name for leaf in call.leaves], "the Paddle layer")
    renamed = {own: name for name, own in places.items()}
    eager = Eager(model, call, renamed)

    def reference(feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
        outputs = eager(feeds)
        if len(outputs) != len(signature.outputs):
            raise InvalidArgument(
                f"the file has {len(signature.outputs)} outputs, the model gives {len(outputs)}",
                why=f"the file's: {', '.join(signature.outputs)}",
            )
        return outputs

    values = {renamed[leaf.name]: leaf.value for leaf in call.leaves if leaf.name in renamed}
    leaf_arrays = {name: v if isinstance(v, np.ndarray) else to_array(v) for name, v in values.items() if v is not None}
    example = _example(reference, leaf_arrays if arrays is None else dict(arrays), examples, signature)

    def trace() -> PaddleTrace:
        axes = signature.dynamic()
        shapes = {}
        for leaf in call.leaves:
            dynamic = axes.get(renamed.get(leaf.name, ""), {})
            shapes[leaf.name] = [-1 if axis in dynamic else size for axis, size in enumerate(leaf.shape)]
        loaded, folder = resaved(model, function, call.with_shapes(shapes))
        return PaddleTrace(loaded, {own: renamed[own] for own in loaded.program.inputs if own in renamed}, folder)

    return _subject(reference, example, trace, signature)


def _subject(
    reference: Reference, example: dict[str, np.ndarray], trace: Callable[[], PaddleTrace], signature: Signature
) -> Subject:
    outputs, dynamic = signature.outputs, signature.dynamic()
    return Subject(reference, example, outputs, dynamic, rtol=RTOL, framework=FRAMEWORK, trace=trace)


def _by_name(inputs: Any, own: list[str], renamed: Mapping[str, str], signature: Signature) -> dict[str, np.ndarray]:
    """The user's arrays by the file's names; they may be called by the program's."""
    if isinstance(inputs, Mapping):
        return {renamed.get(name, name) if name not in signature.inputs else name: a for name, a in inputs.items()}
    arrays = list(inputs) if isinstance(inputs, (tuple, list)) else [inputs]
    if not all(isinstance(array, np.ndarray) for array in arrays) or len(arrays) > len(own):
        raise InvalidArgument("the inputs of a saved Paddle model are arrays, in order or by name")
    return {renamed[name]: array for name, array in zip(own, arrays, strict=False)}


def _example(
    reference: Any, arrays: dict[str, np.ndarray], examples: Examples, signature: Signature
) -> dict[str, np.ndarray]:
    check_fit(signature, arrays)
    if set(arrays) == set(signature.inputs):
        return arrays
    return first_that_runs(reference, examples(arrays))
