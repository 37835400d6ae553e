"""A Paddle layer as a function on arrays: what the file of a layer is compared with."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import paddle
from paddle.jit.dy2static.program_translator import ProgramTranslator

from tonnx.errors import CaptureError
from tonnx.frontends.paddle.reference.rounded import rounded
from tonnx.frontends.paddle.signature import LayerCall, Leaf, flat
from tonnx.frontends.paddle.user_line import blame
from tonnx.frontends.patching import How, Patch, exclusive, patched, restored


@contextlib.contextmanager
def inference(layer: Any) -> Iterator[None]:
    """Inference mode, without gradients; training flags and buffers are put back as they were."""
    layers = [layer, *layer.sublayers()] if isinstance(layer, paddle.nn.Layer) else []
    buffers = [(part, name, value) for part in layers for name, value in part._buffers.items() if value is not None]
    before = [(value, value.clone()) for _, _, value in buffers if value._is_initialized()]

    def restore() -> None:
        for part, name, value in buffers:
            part._buffers[name] = value
        with paddle.no_grad():
            for value, copy in before:
                if not bool(paddle.equal_all(value, copy)):
                    paddle.assign(copy, value)

    flags = [Patch(part, "training", None, "the export is of the evaluation mode", How.KEPT) for part in layers]
    with restored(restore), patched(flags), paddle.no_grad():
        if layers:
            layer.eval()
        yield


class Eager:
    """The user's model on arrays by the file's input names, run without dynamic-to-static.

    ``rounding``: with its sums rounded otherwise, as this number says. ``redrawn``: with other random numbers.
    ``count``: of the file's outputs, some of which may be numbers here, such as sizes.
    """

    def __init__(
        self,
        model: Any,
        call: LayerCall,
        names: Mapping[str, str],
        kept: Any = None,
        rounding: int | None = None,
        redrawn: bool = False,
        count: int | None = None,
    ) -> None:
        self._model, self._call, self._names, self._kept = model, call, dict(names), kept
        self._redrawn, self._count = redrawn, count
        self._patches = [*GUARDS, *([] if rounding is None else rounded(rounding))]

    def __call__(self, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
        arrays = {leaf: feeds[new] for leaf, new in self._names.items()}
        try:
            with exclusive(), inference(self._model), _without_static(), _chance(self._redrawn), patched(self._patches):
                arguments = self._call.mapped(lambda leaf: to_tensor(arrays.get(leaf.name, leaf.value), leaf))
                results = self._model(*arguments)
                outputs = self._arrays(list(flat(results)))
        except Exception as error:  # the user's own code, at sizes that we invented
            where, why = blame(error)
            raise CaptureError("Paddle itself does not run the model", where=where, why=why) from error
        if self._kept is not None and len(self._kept) < len(outputs):
            outputs = [outputs[i] for i in self._kept]
        return outputs

    def _arrays(self, parts: Sequence[Any]) -> list[np.ndarray]:
        import paddle

        tensors = [part for part in parts if isinstance(part, paddle.Tensor)]
        both = [part for part in parts if isinstance(part, (paddle.Tensor, bool, int, float))]
        given = both if len(both) == self._count else tensors
        return [to_array(part) if isinstance(part, paddle.Tensor) else np.asarray(part) for part in given]


@contextlib.contextmanager
def _without_static() -> Iterator[None]:
    """Python runs what ``to_static`` has wrapped: the file is compared with the user's code, not with its capture."""
    with restored(partial(paddle.jit.enable_to_static, ProgramTranslator().enable_to_static)):
        paddle.jit.enable_to_static(False)
        yield


@contextlib.contextmanager
def _chance(redrawn: bool) -> Iterator[None]:
    """The same random numbers in every run, or others; the user's next ones stay as they are."""
    import paddle

    state, generator = paddle.get_rng_state(), paddle.framework.core.default_cpu_generator()
    with restored(partial(paddle.set_rng_state, state)):
        if redrawn:
            generator.manual_seed(generator.initial_seed() + 1)
        yield


def _convolve(run: Any, x: Any, weight: Any, strides: Any, paddings: Any, algorithm: Any, *rest: Any) -> Any:
    # Groups and dilations come in one order or the other.
    dilations, axes = next(part for part in rest if not isinstance(part, int)), len(weight.shape) - 2
    first = 1 if rest[2].endswith("C") else 2
    pads = list(paddings) if len(paddings) == 2 * axes else [p for p in paddings for _ in range(2)]
    for axis, size in enumerate(x.shape[first : first + axes]):
        window = dilations[axis] * (weight.shape[2 + axis] - 1) + 1
        room = size if algorithm == "VALID" else size + pads[2 * axis] + pads[2 * axis + 1]
        if algorithm != "SAME" and window > room:
            raise ValueError(f"a window of {window} does not fit into {room}")
    return run(x, weight, strides, paddings, algorithm, *rest)


def _pool(run: Any, x: Any, boxes: Any, boxes_num: Any = None, *rest: Any) -> Any:
    if boxes_num is not None and int(boxes_num.sum()) != boxes.shape[0]:
        raise ValueError(f"boxes_num sums to {int(boxes_num.sum())}, and there are {boxes.shape[0]} boxes")
    sides = (boxes[:, 2:] - boxes[:, :2]).numpy()
    if sides.size and not (sides.min() >= 0 and sides.max() <= 16 * max(sum(x.shape[2:]), 64)):
        raise ValueError("boxes whose corners are not in order, or that are far larger than any picture")
    return run(x, boxes, boxes_num, *rest)


_ENDS = "an error where Paddle would end the whole process"

GUARDS = (
    # Windows larger than the image, if the channels come last; else sizes of -1 come out.
    *(Patch("paddle._C_ops", name, _convolve, _ENDS) for name in ("conv2d", "depthwise_conv2d", "conv3d")),
    # Regions that are more or fewer than their numbers by picture say, or that need samples without end.
    *(Patch("paddle._C_ops", name, _pool, _ENDS) for name in ("roi_align", "roi_pool", "psroi_pool")),
)
"""What is replaced while a layer runs as the reference."""


def to_tensor(array: Any, leaf: Leaf) -> Any:
    """An array as the tensor that the model wants; without one, a tensor of ones."""
    if array is None:
        return paddle.ones([max(d, 1) for d in leaf.shape], "float32").cast(leaf.dtype)
    if isinstance(array, paddle.Tensor):
        return array
    if array.dtype == ml_dtypes.bfloat16:
        return paddle.to_tensor(array.astype(np.float32)).cast("bfloat16")
    return paddle.to_tensor(np.ascontiguousarray(array).reshape(array.shape)).cast(leaf.dtype)


def to_array(tensor: Any) -> np.ndarray:
    """A tensor as an array; Paddle gives the bits of bfloat16 as integers."""
    if tensor.dtype == paddle.bfloat16:
        return np.asarray(tensor.cast("float32").numpy()).astype(ml_dtypes.bfloat16)
    return np.asarray(tensor.numpy())
