"""The recorder: what is in its graphs, what weights decide, and what it declines."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tonnx
from tests.lowering.harness import assert_compared
from tonnx.frontends.torch.call.dynamic import apply_dynamic_axes
from tonnx.frontends.torch.call.signature import bind_call
from tonnx.frontends.torch.capture.record import Declined
from tonnx.frontends.torch.capture.strategies import capture
from tonnx.frontends.torch.capture.torch_export import Exports
from tonnx.frontends.torch.convert import as_module
from tonnx.frontends.torch.fx.recorded_flow import arrange
from tonnx.frontends.torch.fx.trace import FxTrace
from tonnx.frontends.torch.reference.mode import inference_mode
from tonnx.frontends.torch.source import module_of, source_of

X = torch.linspace(-2, 2, 12).reshape(3, 4)


def recorded(model: Any, *inputs: Tensor, axes: dict[str, dict[int, str]] | None = None) -> Any:
    module = as_module(model)
    call = bind_call(module, inputs or (X,), None, None)
    apply_dynamic_axes(call, axes or {}, [])
    with inference_mode(module):
        return Exports(module, call, FxTrace).recorded()


def calls(captured: Any) -> list[str]:
    nodes = captured.program.graph.nodes
    return [str(node.target) for node in nodes if str(node.target).startswith("aten.")]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(4), nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.inner(self.norm(x))
        return torch.nn.functional.scaled_dot_product_attention(y[None], y[None], y[None])[0]


def test_operators_stay_whole() -> None:
    whole = ["layer_norm.default", "linear.default", "dropout.default", "scaled_dot_product_attention.default"]
    assert [name for name in calls(recorded(Block())) if name.removeprefix("aten.") in whole] == [
        f"aten.{name}" for name in whole
    ]


def test_where_a_node_comes_from() -> None:
    nodes = {str(n.target): n for n in recorded(Block()).program.graph.nodes}
    assert module_of(nodes["aten.linear.default"]) == "inner.0"
    assert module_of(nodes["aten.layer_norm.default"]) == "norm"
    line = Block.forward.__code__.co_firstlineno
    assert source_of(nodes["aten.linear.default"]).endswith(f"test_record.py:{line + 1}")
    assert source_of(nodes["aten.scaled_dot_product_attention.default"]).endswith(f"test_record.py:{line + 2}")


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.plain = torch.arange(4.0)
        self.register_buffer("unused", torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x)) + self.plain + torch.tensor([1.0, 2, 3, 4])


def test_weights_are_inputs_where_they_are_used() -> None:
    program = recorded(Tied()).program
    targets = [spec.target for spec in program.graph_signature.input_specs if spec.target]
    assert sorted(targets) == ["constant_1", "first.bias", "first.weight", "plain", "second.bias"]
    assert program.state_dict["first.weight"] is not None and program.constants["plain"].tolist() == [0, 1, 2, 3]


class Started(nn.Module):
    """The state of a model that makes its statistics at the first call."""

    def __init__(self, started: bool) -> None:
        super().__init__()
        self.register_buffer("started", torch.tensor(started))
        self.register_buffer("chosen", torch.tensor([True, False, True, started]))

    def forward(self, x: Tensor) -> Tensor:
        if not self.started:
            x = x * 3
        return x[:, torch.nonzero(self.chosen).flatten()]


class Grid(nn.Module):
    """Parts whose sizes are computed from constants, through a tensor whose own size they decide."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("grid", torch.tensor([[2, 1, 2]]))

    def forward(self, x: Tensor) -> Tensor:
        ends = torch.repeat_interleave(self.grid[:, 1] * self.grid[:, 2], self.grid[:, 0]).cumsum(0)
        lengths = torch.repeat_interleave(self.grid[:, 2], self.grid[:, 0]).tolist()
        return torch.cat(x[: ends[-1].item()].split(lengths)[::-1])


class Lists(Grid):
    """The same with numbers of tensors that are computed, and of places that no weight decides."""

    def forward(self, x: Tensor) -> Tensor:
        (count, height, width), lengths = self.grid.tolist()[0], self.grid.prod(-1).tolist()
        places = torch.nn.functional.pad(torch.arange(count * height), (0, 1), value=-1)
        return torch.cat(x[places[places != -1]].repeat(width, 1).split(lengths)[::-1])


@pytest.mark.parametrize("model", [Grid(), Lists()])
def test_sizes_that_constants_decide(model: nn.Module) -> None:
    assert "aten.split_with_sizes.default" in calls(recorded(model, torch.randn(5, 3)))


@pytest.mark.parametrize("started", [True, False])
def test_decided_by_weights(started: bool) -> None:
    captured = recorded(Started(started))
    assert ("aten.mul.Tensor" in calls(captured)) is not started
    assert any("values that the weights have now" in note and "test_record.py" in note for note in captured.notes)
    result = tonnx.export(Started(started), (X,), capture="record", dynamic_axes={"x": {0: "n"}})
    assert result.verification is not None and result.capture == "recorder"
    assert_compared(result.verification)


class Writes(nn.Module):
    """A buffer that is written to no longer holds what it held."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.count.add_(x.sum())
        return x + 1 if self.count > 0 else x - 1


def reshaped_in_place(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x.clone()
    before = y * 2
    y.unsqueeze_(1)
    y.add_(1)
    return before, y.transpose(0, 2)


def sizes(x: Tensor) -> Tensor:
    n, m = x.shape
    return x.reshape(m, n).repeat(2, (n + 1) // 2)[: max(n, m)] * (n / m) + torch.arange(m * ((n + 1) // 2) * 0 + 1)


def autocast(x: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return (x @ x.T).float()


def drawn_for_nothing(x: Tensor) -> Tensor:
    """A number that is for training only, before an operator that PyTorch takes apart."""
    shift = torch.randint(3, (1,)).item()
    if not torch.is_grad_enabled():
        shift = 1
    return x.diff() * shift


def fails_for_exporters(x: Tensor) -> Tensor:
    """Asks who calls, and fails on the way that it has for exporters."""
    return torch.cat([x, x.unsqueeze(0)]) if torch.compiler.is_exporting() else x * 2


@pytest.mark.parametrize(
    ("function", "axes"),
    [
        pytest.param(fails_for_exporters, {"x": {0: "n"}}, id="fails for exporters"),
        pytest.param(drawn_for_nothing, {"x": {0: "n"}}, id="drawn for nothing"),
        pytest.param(reshaped_in_place, {}, id="reshaped in place"),
        pytest.param(reshaped_in_place, {"x": {0: "n"}}, id="reshaped in place, dynamic"),
        pytest.param(sizes, {"x": {0: "n"}}, id="sizes, dynamic"),
        pytest.param(autocast, {}, id="autocast"),
        pytest.param(autocast, {"x": {0: "n"}}, id="autocast, dynamic"),
    ],
)
def test_right(function: Any, axes: Any) -> None:
    result = tonnx.export(function, (X,), capture="record", dynamic_axes=axes)
    assert result.verification is not None and result.capture == "recorder"


def branches(x: Tensor) -> Tensor:
    return x + 1 if x.sum() > 0 else x - 1


def loops(x: Tensor) -> Tensor:
    for _ in range(x.shape[0]):
        x = x * 1.5
    return x


def conditional(x: Tensor) -> Tensor:
    return torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,))


@pytest.mark.parametrize(
    ("model", "axes", "reason"),
    [
        (branches, {}, "GuardOnDataDependentSymNode"),
        (Writes(), {}, "GuardOnDataDependentSymNode"),
        (loops, {"x": {0: "n"}}, "sizes decide a loop or a branch"),
        (conditional, {}, "graphs of its own"),
    ],
    ids=["branch", "written buffer", "loop", "cond"],
)
def test_declined(model: Any, axes: Any, reason: str) -> None:
    with pytest.raises(Declined, match=reason) as caught:
        recorded(model, axes=axes)
    assert caught.value.__cause__ is None and caught.value.__context__ is None  # nothing holds the model's frames


class Reshaped(nn.Module):
    """Reshapes a buffer of its own in place, and asks it for a number."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("size", torch.tensor([2.0]))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.size.detach().unsqueeze_(0).item() + self.size.squeeze_().item()


def test_weights_stay_as_they_are() -> None:
    model = Reshaped()
    assert "aten.mul.Tensor" in calls(recorded(model))
    assert model.size.shape == (1,)


@pytest.mark.parametrize("transposed", [False, True])
def test_dimensions_of_one_name_are_one_symbol(transposed: bool) -> None:
    """So nobody has to ask whether they are equal; a layout of its own gets symbols that the model ties."""
    other = X.t().contiguous().t() if transposed else X + 1
    captured = recorded(lambda x, y: x + y, X, other, axes={"x": {0: "n"}, "y": {0: "n"}})
    assert len(captured.program.range_constraints) == 1 + transposed
    assert set(captured.names.values()) == {"n"}


def test_the_recorder_needs_no_compiler() -> None:
    """PyTorch would import it to find the line of every question about a size."""
    from torch.fx.experimental import symbolic_shapes

    symbolic_shapes.uninteresting_files.cache_clear()
    recorded(lambda x: x.reshape(-1, 2) + x.shape[0], X, axes={"x": {0: "n"}})
    assert symbolic_shapes.uninteresting_files.cache_info().misses == 0


def test_sizes_of_a_side_are_computed_again_behind_it() -> None:
    """What a side computes is part of an If: nothing behind it may refer to that."""

    def halves(x: Tensor) -> Tensor:
        y = x[: x.shape[0] // 2].sum() if x.sum() > 0 else x.mean()
        return y + x[: x.shape[0] // 2].sum()

    module = as_module(halves)
    call = bind_call(module, (X,), None, None)
    apply_dynamic_axes(call, {"x": {0: "n"}}, [])
    with inference_mode(module):
        captured = capture("auto", module, call, FxTrace)
    assert captured.how == "control flow rewritten"
    outside, blocks = arrange(captured.program.graph.nodes)
    assert blocks
    for node in outside:
        assert set(node.all_input_nodes) <= set(outside) or node in blocks, node.format_node()
