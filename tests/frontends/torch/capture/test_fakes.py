"""Fake tensors that are made after a pattern: they must be what PyTorch would have made, with memory of their own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dispatch.python import enable_python_dispatcher
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

import tonnx
from tonnx.frontends.torch.capture.fakes import Fakes

aten = torch.ops.aten
X = torch.linspace(-2, 2, 24).reshape(2, 3, 4)
IMAGE = torch.zeros(2, 3, 8, 8).to(memory_format=torch.channels_last)


def form(tensor: Tensor) -> Any:
    return tuple(tensor.shape), tensor.stride(), tensor.storage_offset(), tensor.dtype, tensor.device, type(tensor)


def parts(result: Any) -> list[Tensor]:
    return list(result) if isinstance(result, (list, tuple)) else [result]


@pytest.mark.parametrize(
    ("operator", "arguments"),
    [
        (aten.add.Tensor, (X, 1)),
        (aten.add.Tensor, (X, 1.5)),
        (aten.add.Tensor, (X.int(), 1)),
        (aten.add.Tensor, (X.int(), 1.5)),
        (aten.add.Tensor, (X.transpose(0, 2), X.transpose(0, 2))),
        (aten.linear.default, (X, torch.zeros(5, 4), torch.zeros(5))),
        (aten.cat.default, ([X, X], 1)),
        (aten.conv2d.default, (IMAGE, torch.zeros(4, 3, 3, 3))),
        (aten.max.dim, (X, 1)),
        (aten.native_layer_norm.default, (X, [4], None, None, 1e-5)),
        (aten.relu.default, (X[:, 1:],)),
        (aten.dropout.default, (X, 0.5, False)),
        (aten.split.Tensor, (X, 2, 2)),
        (aten.meshgrid.indexing, ([X[0, 0], X[0, 0]],)),
        (aten.full.default, ([2, 3], 1)),
        (aten.slice.Tensor, (X, 1, 1)),
        (aten.unbind.int, (X, 1)),
        (aten.to.dtype, (X, torch.float32)),
        (aten.to.dtype, (X, torch.float64)),
        (aten.view.dtype, (X, torch.int32)),
        (aten.reshape.default, (X.transpose(0, 1)[:, :, 2:], [3, 4])),
        (aten.expand_as.default, (X[0], X)),
    ],
    ids=lambda one: str(one).partition(".")[2] if hasattr(one, "overloadpacket") else None,
)
def test_the_second_of_its_kind(operator: Any, arguments: Any) -> None:
    options = {"indexing": "ij"} if operator is aten.meshgrid.indexing else {}
    fakes = Fakes(ShapeEnv(), has_sizes=False)

    def faked(argument: Any) -> Any:
        if isinstance(argument, list):
            return [faked(part) for part in argument]
        return fakes.of_weight(argument) if isinstance(argument, Tensor) else argument

    taken = [faked(argument) for argument in arguments]
    with torch.no_grad(), torch._C._AutoDispatchBelowAutograd(), fakes.mode:
        expected = parts(operator(*taken, **options))
        first, second = (parts(fakes.call(operator, taken, options)) for _ in range(2))
        real = parts(operator(*taken, **options))
    assert [form(one) for one in first] == [form(one) for one in expected]
    assert [form(one) for one in second] == [form(one) for one in expected]

    def shared(results: list[Tensor]) -> list[bool]:
        tensors = [one for argument in taken for one in parts(argument) if isinstance(one, Tensor)]
        memory = [tensor.untyped_storage()._cdata for tensor in tensors]
        return [result.untyped_storage()._cdata in memory for result in results]

    assert shared(second) == shared(real)
    if not any(shared(real)):
        assert all(a.untyped_storage()._cdata != b.untyped_storage()._cdata for a, b in zip(first, second, strict=True))


def test_symbolic_sizes() -> None:
    fakes = Fakes(ShapeEnv(), has_sizes=True)
    dynamic = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC, DimDynamic.STATIC, DimDynamic.STATIC])
    one, other = (fakes.mode.from_tensor(X.clone(), symbolic_context=dynamic) for _ in range(2))
    with torch.no_grad(), torch._C._AutoDispatchBelowAutograd(), fakes.mode:
        results = [fakes.call(aten.relu.default, [fake], {}) for fake in (one, one, other)]
    assert [str(result.shape[0]) for result in results] == [str(fake.shape[0]) for fake in (one, one, other)]


C, ROW = torch.ones(3), torch.ones(1, 1, 4)


@pytest.mark.parametrize(
    ("operator", "arguments"),
    [
        (aten.relu.default, (X,)),
        (aten.relu_.default, (X,)),
        (aten.hardswish_.default, (X,)),
        (aten.sigmoid.default, (X.int(),)),
        (aten.isnan.default, (X,)),
        (aten.clone.default, (X,)),
        (aten.relu.default, (X.transpose(0, 1),)),
        (aten.relu.default, (X[:, 1:],)),
        (aten.add.Tensor, (X, X)),
        (aten.add.Tensor, (X, X.double())),
        (aten.add_.Tensor, (X, X)),
        (aten.mul.Tensor, (X, ROW)),
        (aten.mul.Tensor, (ROW, X)),
        (aten.mul.Tensor, (X, X[:1])),
        (aten.mul.Tensor, (X.int(), torch.tensor(1.5))),
        (aten.where.self, (X > 0, X, torch.tensor(0.0))),
        (aten.batch_norm.default, (X, C, C, C, C, False, 0.1, 1e-5, False)),
        (aten.layer_norm.default, (X, [4])),
        (aten.softmax.int, (X, -1, torch.float64)),
    ],
    ids=lambda one: str(one).partition(".")[2] if hasattr(one, "overloadpacket") else None,
)
def test_shapes_that_are_kept(operator: Any, arguments: Any) -> None:
    fakes = Fakes(ShapeEnv(), has_sizes=True)

    def faked(argument: Any) -> Any:
        if not isinstance(argument, Tensor) or argument.numel() < X.numel():
            return fakes.of_weight(argument) if isinstance(argument, Tensor) else argument
        dynamic = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC, DimDynamic.STATIC, DimDynamic.STATIC])
        return fakes.mode.from_tensor(argument.clone(), symbolic_context=dynamic)

    taken = [faked(argument) for argument in arguments]
    with torch.no_grad(), torch._C._AutoDispatchBelowAutograd(), fakes.mode:
        result = fakes.call(operator, taken, {})
        with enable_python_dispatcher():
            expected = operator(*taken)
    assert str(form(result)) == str(form(expected))
    assert (result is taken[0]) == (expected is taken[0])


W, ROWS = torch.ones(5, 4), torch.ones(2, 3, 8)
IMAGES = torch.zeros(2, 3, 8, 8)


@pytest.mark.parametrize("moving", [(0,), (0, 1), (0, 2)], ids=str)
@pytest.mark.parametrize(
    ("operator", "x", "others"),
    [
        (aten.linear.default, X, (W, torch.ones(5))),
        (aten.linear.default, X.transpose(1, 2).contiguous().transpose(1, 2), (W,)),
        (aten.mm.default, X[0], (W.T,)),
        (aten.conv1d.default, X, (torch.ones(5, 3, 2),)),
        (aten.conv1d.default, X[:, :, ::2], (torch.ones(5, 3, 2),)),
        (aten.conv2d.default, IMAGES, (torch.ones(5, 3, 3, 3), None, [2, 2])),
        (aten.adaptive_avg_pool2d.default, IMAGES, ([1, 1],)),
        (aten.max_pool2d.default, IMAGES, ([2, 2],)),
        (aten.mean.dim, IMAGES, ([2, -1], True)),
        (aten.mean.dim, IMAGES, ([0],)),
        (aten.bitwise_and.Tensor, X.int(), (torch.ones(7, 1, 1, 1, dtype=torch.int32),)),
        (aten.__and__.Tensor, X.int(), (torch.ones(3, 1, dtype=torch.int32),)),
        (aten.unsqueeze.default, X, (-1,)),
        (aten.unsqueeze.default, X, (1,)),
        (aten.transpose.int, X, (-1, 0)),
        (aten.permute.default, X, ([2, 0, 1],)),
        (aten.slice.Tensor, X, (0,)),
        (aten.slice.Tensor, X, (2, 1, 3)),
        (aten.slice.Tensor, X, (2, -3, 99, 2)),
        (aten.slice.Tensor, X, (0, 1)),
        (aten.expand.default, ROW, ([6, -1, 3, -1],)),
        (aten.expand.default, X, ([5, -1, -1, -1],)),
        (aten.expand.default, X, ([1, -1, -1, -1],)),
        (aten.view.default, X, ([-1, 2, 2],)),
        (aten.view.default, ROWS, ([2, -1, 4, 2],)),
        (aten.reshape.default, X, ([-1],)),
        (aten.reshape.default, X.transpose(0, 1), ([-1, 4],)),
        (aten.detach.default, X[:, 1:], ()),
        (aten.to.dtype, X, (torch.float32,)),
        (aten.to.dtype, X, (torch.float64,)),
    ],
    ids=lambda one: str(one).partition(".")[2] if hasattr(one, "overloadpacket") else "",
)
def test_sizes_that_are_carried(operator: Any, x: Tensor, others: tuple[Any, ...], moving: tuple[int, ...]) -> None:
    fakes = Fakes(ShapeEnv(), has_sizes=True)
    moves = [axis in moving and size > 1 for axis, size in enumerate(x.shape)]
    kinds = [DimDynamic.DYNAMIC if one else DimDynamic.STATIC for one in moves]
    taken: list[Any] = [fakes.mode.from_tensor(x, symbolic_context=StatelessSymbolicContext(dynamic_sizes=kinds))]
    taken += [fakes.of_weight(one) if isinstance(one, Tensor) else one for one in others]

    def outcome(call: Any) -> Any:
        try:
            result = call()
        except Exception as error:
            return type(error)
        shares = result.untyped_storage()._cdata == taken[0].untyped_storage()._cdata
        return str(form(result)), shares, result is taken[0]

    with torch.no_grad(), torch._C._AutoDispatchBelowAutograd(), fakes.mode, enable_python_dispatcher():
        expected = outcome(lambda: operator(*taken))
        assert outcome(lambda: fakes.call(operator, taken, {})) == expected
        assert outcome(lambda: fakes.call(operator, taken, {})) == expected


def test_an_operator_that_fails_at_the_example() -> None:
    fakes = Fakes(ShapeEnv(), has_sizes=True)
    dynamic = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC, DimDynamic.STATIC, DimDynamic.STATIC])
    x, wrong = fakes.mode.from_tensor(X.clone(), symbolic_context=dynamic), fakes.of_weight(torch.ones(5))
    with torch.no_grad(), torch._C._AutoDispatchBelowAutograd(), fakes.mode, pytest.raises(RuntimeError, match="5"):
        fakes.call(aten.batch_norm.default, [x, wrong, wrong, wrong, wrong, False, 0.1, 1e-5, False], {})


def test_weights_that_share_memory() -> None:
    fakes, whole = Fakes(ShapeEnv(), has_sizes=False), torch.zeros(4, 6)
    one, part, other = (fakes.of_weight(weight) for weight in (whole, whole[1:, ::2], torch.zeros(4, 6)))
    assert form(part)[1:3] == ((6, 2), 6) and part.shape == (3, 3)
    assert one.untyped_storage()._cdata == part.untyped_storage()._cdata != other.untyped_storage()._cdata


def written(x: Tensor) -> tuple[Tensor, Tensor]:
    one, other = x + 1, x + 1
    one[:, 0].mul_(3)
    return one, other


def test_results_of_one_kind_are_written_apart() -> None:
    result = tonnx.export(written, (X,), capture="record")
    assert result.verification is not None and result.capture == "recorder"


def test_places_that_the_run_finds_are_as_many_as_it_finds() -> None:
    """Of levels of a pyramid, each has boxes of its own: ONNX Runtime takes sizes of one name for the same."""

    def places(x: torch.Tensor) -> list[torch.Tensor]:
        return [*(torch.where(x == n)[0] for n in (0, 1)), *((x == n).nonzero(as_tuple=True)[0] for n in (1, 2))]

    result = tonnx.export(places, torch.tensor([0, 1, 1, 2, 2, 2]), dynamic_axes={"x": {0: "n"}}, input_names=["x"])
    assert len({str(output.shape) for output in result.model.graph.outputs}) == 4
