"""Operators of the user's own, in every way that says what they are in ONNX; the page about them runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from torch import nn
from torch.onnx import symbolic_helper

import tonnx
from tonnx.errors import InvalidArgument, LoweringError, UnsupportedOp
from tonnx.lowering.rules import USERS

LIBRARY = torch.library.Library("tonnx_custom", "FRAGMENT")
LIBRARY.define("clip(Tensor x, float limit=1.0, int[] axes=[], *, bool on=True, ScalarType? dtype=None) -> Tensor")
LIBRARY.define("clip.other(Tensor w, Tensor x) -> Tensor")
LIBRARY.define("pair(Tensor x, SymInt n) -> (Tensor, Tensor)")


def _clip(x: torch.Tensor, limit: float = 1.0, axes: Any = (), *, on: bool = True, dtype: Any = None) -> torch.Tensor:
    return torch.tanh(x / limit) * limit


def _pair(x: torch.Tensor, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    return x * n, x.sum(1)


for _name, _eager, _fake in [
    ("clip", _clip, lambda x, *a, **k: torch.empty_like(x)),
    ("clip.other", lambda w, x: w - x, lambda w, x: torch.empty_like(w)),
    ("pair", _pair, lambda x, n: (torch.empty_like(x), x.new_empty(x.shape[0]))),
]:
    LIBRARY.impl(_name, _eager, "CPU")
    torch.library.register_fake(f"tonnx_custom::{_name}", _fake, lib=LIBRARY)

OPS = torch.ops.tonnx_custom
X = torch.randn(2, 3)
AXES = {"x": {0: "n"}}


class Clip(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return OPS.clip(self.linear(x), 2.0, [0, 1]) + 1


@pytest.fixture(autouse=True)
def _no_rules_left() -> Any:
    before = dict(USERS)
    yield
    USERS.clear()
    USERS.update(before)


@pytest.fixture
def symbolic() -> Any:
    """Registers a symbolic function, and takes it back."""
    made: list[tuple[str, int]] = []

    def register(name: str, function: Any, opset: int = 9) -> None:
        tonnx.register_custom_op_symbolic(name, function, opset)
        made.append((name, opset))

    yield register
    for name, opset in made:
        tonnx.unregister_custom_op_symbolic(name, opset)


def kinds(result: tonnx.ExportResult) -> list[str]:
    return [f"{n.domain}::{n.op_type}" if n.domain else n.op_type for n in result.model.graph]


def formula(op: Any, x: Any, limit: float = 1.0, axes: Any = ()) -> Any:
    return op.Mul(op.Tanh(op.Div(x, limit)), limit)


def proven(result: tonnx.ExportResult) -> bool:
    return result.verification is not None and result.verification.ok and result.verification.compared


def test_the_page_runs(symbolic: Any, capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parents[2] / "docs" / "custom-operators.md").read_text()
    names: dict[str, Any] = {}
    seen = []
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        if "onnxscript" in block:
            pytest.importorskip("onnxscript")
        exec(compile(block, "custom-operators.md", "exec"), names)
        if "result" in names:
            seen.append((kinds(names["result"]), proven(names["result"])))
            names.pop("result")
    written = ["Div", "Tanh", "Mul", "Add"]
    assert seen == [
        (written, True),
        (["my.domain::SoftClip", "Add"], True),
        (["my.domain::SoftClip", "Add"], False),
        (written, True),
        (["thinker::Quant", "Mul"], False),
    ]
    assert "ONNX Runtime has no operator my.domain::SoftClip" in capsys.readouterr().out
    USERS.clear()
    assert proven(tonnx.export(names["Net"](), X))  # by the symbolic function
    tonnx.unregister_custom_op_symbolic("mylib::softclip", 9)


# @tonnx.lower


@pytest.mark.parametrize("name", ["tonnx_custom::clip", "tonnx_custom::clip.default", "tonnx_custom.clip"])
def test_a_rule(name: str) -> None:
    with pytest.raises(UnsupportedOp, match=r'@tonnx\.lower\("tonnx_custom::clip"\)'):
        tonnx.export(Clip(), X)
    tonnx.lower(name)(formula)
    result = tonnx.export(Clip(), X, dynamic_axes=AXES, opset_version=9)
    assert kinds(result) == ["Gemm", "Tanh", "Mul", "Add"] and proven(result)


def test_what_is_written_in_python_needs_no_rule() -> None:
    """An operator that a library registers for PyTorch's compiler, and makes of PyTorch's own."""

    @torch.library.custom_op("tonnx_custom::spikes", mutates_args=())
    def spikes(x: torch.Tensor, leak: float) -> tuple[torch.Tensor, torch.Tensor]:
        potential, fired = torch.zeros_like(x[0]), []
        for row in x:
            potential = potential * leak + torch.sin(row)
            fired.append((potential > 0.5).to(x))
        return torch.stack(fired), potential

    @spikes.register_fake
    def _(x: torch.Tensor, leak: float) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.empty_like(x), torch.empty_like(x[0])

    result = tonnx.export(lambda x: sum(spikes(x, 0.5)), X, dynamic_axes={"x": {0: "n"}})
    assert proven(result) and "Loop" in kinds(result)
    tonnx.lower("tonnx_custom::spikes")(lambda op, x, leak: (op.Neg(x), op.Neg(x)))
    assert set(kinds(tonnx.export(lambda x: spikes(x, 0.5)[0], X, verify=False))) == {"Neg"}


def test_the_last_rule_counts_and_comes_before_tonnx_own() -> None:
    tonnx.lower("tonnx_custom::clip")(lambda op, x, limit, axes: op.Neg(x))
    tonnx.lower("tonnx_custom::clip")(formula)
    assert proven(tonnx.export(Clip(), X))
    tonnx.lower("aten::relu")(lambda op, x: op.Max(x, op.constant(0.0)))
    assert kinds(tonnx.export(nn.ReLU(), X)) == ["Max"]
    assert kinds(tonnx.export(nn.ReLU(inplace=True), X)) == ["Max"]


def test_arguments_by_the_names_of_the_schema() -> None:
    tonnx.lower("tonnx_custom::clip.other")(lambda op, w, x: op.Sub(w, x))
    assert proven(tonnx.export(lambda a, b: OPS.clip.other(a, b), (X, X * 2)))
    tonnx.lower("tonnx_custom::clip")(lambda op, x, limit: formula(op, x, limit))
    with pytest.raises(tonnx.UnsupportedArgument, match=r"axes=\[0, 1\] is not supported"):
        tonnx.export(Clip(), X)


def test_several_results_and_a_dynamic_size() -> None:
    @tonnx.lower("tonnx_custom::pair")
    def pair(op: Any, x: Any, n: Any) -> Any:
        factor = op.cast(n, x.dtype) if not isinstance(n, int) else op.constant(n, x.dtype)
        return op.Mul(x, factor), op.ReduceSum(x, [1], keepdims=0)

    for rule in (pair,):
        assert proven(tonnx.export(lambda x: OPS.pair(x, x.shape[0]), X, dynamic_axes=AXES)), rule


@pytest.mark.parametrize("opset", [8, 11, 18, 23])
def test_a_rule_as_a_function(opset: int) -> None:
    tonnx.lower("tonnx_custom::clip", function="my.domain::Clip")(formula)
    model = nn.Sequential(Clip(), Clip())
    result = tonnx.export(model, X, opset_version=opset, dynamic_axes={"input": {0: "n"}})
    assert kinds(result).count("my.domain::Clip") == 2 and proven(result)
    assert [key[:2] for key in result.model.functions] == [("my.domain", "Clip")]  # shared by both
    assert result.model.ir_version >= 8
    onnx.checker.check_model(result.proto, full_check=True)


def test_functions_of_other_types_are_other_functions() -> None:
    tonnx.lower("tonnx_custom::clip", function="my.domain::Clip")(formula)
    result = tonnx.export(lambda x, y: (OPS.clip(x), OPS.clip(y), OPS.clip(x, 3.0)), (X, X.double()))
    assert sorted(key[1] for key in result.model.functions) == ["Clip", "Clip_1", "Clip_2"] and proven(result)


def test_a_file_with_functions_can_be_retargeted(tmp_path: Path) -> None:
    tonnx.lower("tonnx_custom::clip", function="my.domain::Clip")(formula)
    tonnx.export(Clip(), X, tmp_path / "a.onnx", opset_version=18)
    result = tonnx.retarget(tmp_path / "a.onnx", 11, tmp_path / "b.onnx")
    assert result.verification is not None and result.verification.ok and len(result.model.functions) == 1


def test_a_node_of_another_domain(tmp_path: Path) -> None:
    @tonnx.lower("tonnx_custom::clip")
    def node(op: Any, x: Any, limit: float, axes: Any) -> Any:
        return op.custom("mine::Clip", x, None, 2.5, limit=limit, axes=axes, mode="a", on=True, table=[1.0, 2.0])

    result = tonnx.export(
        Clip(), X, tmp_path / "a.onnx", opset_version=11, dynamic_axes=AXES, custom_opsets={"mine": 3}
    )
    proto = onnx.load(tmp_path / "a.onnx")
    assert {o.domain: o.version for o in proto.opset_import} == {"": 11, "mine": 3}
    made = next(n for n in proto.graph.node if n.domain == "mine")
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in made.attribute}
    assert attributes == {"limit": 2.0, "axes": [0, 1], "mode": b"a", "on": 1, "table": [1.0, 2.0]}
    assert len(made.input) == 3 and made.input[1] == ""
    assert result.verification is None and "mine::Clip" in result.not_run and "not run" in str(result)
    assert [[d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in proto.graph.output] == [
        ["n", 3]
    ]
    again = tonnx.retarget(tmp_path / "a.onnx", 18)
    assert any("mine" in note for note in again.notes) and kinds(again)[1] == "mine::Clip"  # type: ignore[arg-type]


def test_a_domain_that_the_runtime_knows_is_compared() -> None:
    tonnx.lower("aten::gelu")(lambda op, x, approximate="none": op.custom("com.microsoft::Gelu", x))
    result = tonnx.export(nn.GELU(), X)
    assert kinds(result) == ["com.microsoft::Gelu"] and proven(result)


WRONG: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
    ((), {}, "needs the name"),
    (("clip",), {}, "'clip' is no operator"),
    (("a::b::c",), {}, "no operator"),
    ((3,), {}, "3 is no operator"),
    (("a::b",), {"function": "Clip"}, "no name of an ONNX function"),
]


@pytest.mark.parametrize("case", WRONG, ids=[case[2] for case in WRONG])
def test_wrong_names(case: Any) -> None:
    names, options, part = case
    with pytest.raises(InvalidArgument, match=part):
        tonnx.lower(*names, **options)


def test_a_rule_that_fails_says_where() -> None:
    tonnx.lower("tonnx_custom::clip")(lambda op, x, limit, axes: op.Nothing(x))
    with pytest.raises(LoweringError) as caught:
        tonnx.export(Clip(), X)
    assert "ONNX has no operator Nothing" in str(caught.value) and "test_custom.py" in str(caught.value)


# custom_translation_table


def test_the_table() -> None:
    for key in (OPS.clip, OPS.clip.default):
        assert proven(tonnx.export(Clip(), X, custom_translation_table={key: formula}))
    assert not USERS
    wrong = {OPS.clip: [lambda op, x, limit, axes: op.Neg(x)]}
    with pytest.raises(tonnx.VerificationFailed):
        tonnx.export(Clip(), X, custom_translation_table=wrong)
    with pytest.raises(UnsupportedOp):
        tonnx.export(Clip(), X)
    symbolic = {OPS.clip: lambda g, x, limit, axes, on, dtype: g.op("Mul", g.op("Tanh", g.op("Div", x, limit)), limit)}
    assert proven(tonnx.export(Clip(), X, custom_translation_table=symbolic, opset_version=11))


@pytest.mark.parametrize("opset", [9, 13, 18, 21])
def test_functions_of_onnxscript(opset: int) -> None:
    onnxscript = pytest.importorskip("onnxscript")
    o18 = onnxscript.opset18

    def traced(x: Any, limit: float, axes: Any) -> Any:
        return o18.Mul(o18.Tanh(o18.Div(x, limit)), limit)

    result = tonnx.export(
        Clip(), X, custom_translation_table={OPS.clip: traced}, opset_version=opset, dynamic_axes=AXES
    )
    assert kinds(result) == ["Gemm", "Tanh", "Mul", "Add"] and proven(result)
    own = onnxscript.values.Opset("my.own", 1)
    scripted = _scripted(onnxscript, own)
    table = {OPS.clip: lambda x, limit, axes: scripted(x, limit)}
    for entry in (table, {OPS.clip: scripted}):
        result = tonnx.export(Clip(), X, custom_translation_table=entry, opset_version=opset, dynamic_axes=AXES)
        assert kinds(result) == ["Gemm", "my.own::Soft", "Add"] and proven(result)
        assert [key[1] for key in result.model.functions] == ["Soft"]


def _scripted(onnxscript: Any, own: Any) -> Any:
    from onnxscript import opset18 as op

    @onnxscript.script(own)
    def Soft(x, limit: float):  # type: ignore[no-untyped-def]
        bound = op.Constant(value_float=limit)
        return op.Mul(op.Tanh(op.Div(x, bound)), bound)

    return Soft


# torch.autograd.Function


class Quant(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, scale: float, bits: int) -> torch.Tensor:
        ctx.save_for_backward(x)
        return torch.clamp(torch.round(x / scale), -(2 ** (bits - 1)), 2 ** (bits - 1) - 1) * scale

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return grad, None, None

    @staticmethod
    def symbolic(g: Any, x: Any, scale: float, bits: int) -> Any:
        return g.op(
            "thinker::Quant", x, scale_f=scale, data_bits_i=bits, mode_s="floor", parts_i=[1, 2], t_t=torch.ones(2)
        )


class Written(Quant):
    @staticmethod
    def symbolic(g: Any, x: Any, scale: float, bits: int) -> Any:
        factor = g.op("Constant", value_t=torch.tensor(scale))
        low, high = (
            g.op("Constant", value_t=torch.tensor(float(b))) for b in (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        )
        rounded = g.op("Floor", g.op("Add", g.op("Div", x, factor), torch.tensor(0.5)))
        old = g.opset < 11
        clipped = g.op("Max", g.op("Min", rounded, high), low) if old else g.op("Clip", rounded, low, high)
        return g.op("Mul", clipped, factor)


class Two(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, ys: Any, n: int) -> Any:
        return x[:, :n] + ys[0], ys[1].sum(1)

    @staticmethod
    def symbolic(g: Any, x: Any, *rest: Any) -> Any:
        first, second = g.op("my::Two", x, outputs=2)
        return first.setType(x.type()), second


def test_symbolic_of_a_function() -> None:
    model = nn.Sequential(nn.Linear(3, 3), *[_Apply(lambda x: Quant.apply(x, 0.1, 8))])
    result = tonnx.export(model, X, opset_version=12, dynamic_axes={"input": {0: "n"}})
    assert kinds(result) == ["Gemm", "thinker::Quant"] and result.not_run
    made = result.proto.graph.node[1]
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in made.attribute}
    assert attributes["data_bits"] == 8 and attributes["mode"] == b"floor" and attributes["parts"] == [1, 2]
    assert attributes["scale"] == pytest.approx(0.1) and attributes["t"].dims == [2]
    assert Quant.apply(X.clone().requires_grad_(), 0.1, 8).grad_fn is not None  # as it was


class _Apply(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


@pytest.mark.parametrize("opset", [7, 9, 11, 13, 18, 26])
def test_symbolic_in_onnx_own_operators_is_compared(opset: int) -> None:
    result = tonnx.export(_Apply(lambda x: Written.apply(x, 0.1, 4) + 1), X, opset_version=opset, dynamic_axes=AXES)
    assert proven(result) and "Floor" in kinds(result)


def test_several_results_lists_and_other_functions() -> None:
    result = tonnx.export(_Apply(lambda x: Two.apply(x, [x[:, :2], x], 2)), X, dynamic_axes=AXES)
    assert kinds(result)[-1] == "my::Two"
    assert [v.shape[0].value for v in result.model.graph.outputs] == ["n", "n"]

    class Plain(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    assert kinds(tonnx.export(_Apply(Plain.apply), X)) == ["Mul"]  # looked through


def _function(forward: Any, symbolic: Any) -> Any:
    return type("F", (torch.autograd.Function,), {"forward": staticmethod(forward), "symbolic": staticmethod(symbolic)})


def test_forward_that_needs_values() -> None:
    outside = _function(lambda ctx, x: torch.tensor(x.tolist()) * 2, lambda g, x: g.op("my::Double", x))
    assert kinds(tonnx.export(_Apply(outside.apply), X)) == ["my::Double"]
    with pytest.raises(LoweringError, match="does not run without values"):
        tonnx.export(_Apply(outside.apply), X, dynamic_axes=AXES)


FAULTS: list[tuple[str, Any, Any, dict[str, Any], str]] = [
    ("symbolic fails", lambda ctx, x: x * 2, lambda g, x: x.nothing, {}, "symbolic function .* fails"),
    ("no value", lambda ctx, x: x * 2, lambda g, x: 3, {}, "gives a int"),
    ("other opset", lambda ctx, x: x * 2, lambda g, x: g.op("Round", x), {"opset_version": 9}, "not valid at opset 9"),
    ("no operator", lambda ctx, x: x * 2, lambda g, x: g.op("Nothing", x), {}, "not valid at opset 18"),
    ("writes", lambda ctx, x: (ctx.mark_dirty(x), x.add_(1))[1], lambda g, x: g.op("my::Add", x), {}, "writes to its"),
]


@pytest.mark.parametrize("case", FAULTS, ids=[case[0] for case in FAULTS])
def test_faults_of_functions(case: Any) -> None:
    _, forward, symbolic, options, part = case
    with pytest.raises(LoweringError, match=part) as caught:
        tonnx.export(_Apply(_function(forward, symbolic).apply), X, **options)
    assert "test_custom.py" in str(caught.value.where)


# register_custom_op_symbolic


def test_registered_functions(symbolic: Any) -> None:
    @symbolic_helper.parse_args("v", "f", "is", "b", "none")
    def parsed(g: Any, x: Any, limit: float, axes: Any, on: bool, dtype: Any) -> Any:
        assert (limit, axes, on) == (2.0, [0, 1], True) and symbolic_helper._get_tensor_rank(x) == 2
        assert symbolic_helper._is_none(dtype) and torch.onnx.is_in_onnx_export()
        return g.op("my::Clip", x, limit_f=limit, axes_i=axes)

    symbolic("tonnx_custom::clip", parsed)
    assert kinds(tonnx.export(Clip(), X, dynamic_axes=AXES)) == ["Gemm", "my::Clip", "Add"]
    assert not torch.onnx.is_in_onnx_export()


def test_the_version_for_the_opset(symbolic: Any) -> None:
    for version in (9, 13):
        symbolic("tonnx_custom::clip", lambda g, x, *rest, v=version: g.op(f"my::From{v}", x), version)
    for opset, name in [(9, "From9"), (12, "From9"), (13, "From13"), (18, "From13"), (25, "From13")]:
        assert kinds(tonnx.export(Clip(), X, opset_version=opset))[1] == f"my::{name}"
    tonnx.lower("tonnx_custom::clip")(formula)  # comes first
    assert proven(tonnx.export(Clip(), X))


def test_a_registered_function_overrides_an_operator_of_pytorch(symbolic: Any) -> None:
    symbolic("aten::relu", lambda g, x: g.op("Max", x, torch.tensor(0.0)))
    result = tonnx.export(nn.ReLU(), X)
    assert kinds(result) == ["Max"] and proven(result)


def test_numbers_arrive_as_constants_of_the_graph(symbolic: Any) -> None:
    def pair(g: Any, x: Any, n: Any) -> Any:
        return g.op("Mul", x, g.op("Cast", n, to_i=1)), g.op(
            "ReduceSum", x, g.op("Constant", value_t=torch.tensor([1])), keepdims_i=0
        )

    symbolic("tonnx_custom::pair", pair, 13)
    for axes in (None, AXES):
        assert proven(tonnx.export(_Apply(lambda x: OPS.pair(x, x.shape[0])), X, dynamic_axes=axes, opset_version=13))


def test_wrong_registrations() -> None:
    with pytest.raises(InvalidArgument, match="no operator"):
        tonnx.register_custom_op_symbolic("clip", lambda g, x: x, 9)
    with pytest.raises(InvalidArgument, match="must be a function"):
        tonnx.register_custom_op_symbolic("a::b", 3, 9)  # type: ignore[arg-type]


# In a trace


@pytest.mark.filterwarnings("ignore")
def test_functions_in_a_trace() -> None:
    class Plain(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(x) * 2

    traced = torch.jit.trace(_Apply(lambda x: Quant.apply(Plain.apply(x), 0.1, 8) + 1), X)
    for model, way in ((traced, "auto"), (_Apply(lambda x: Quant.apply(Plain.apply(x), 0.1, 8) + 1), "trace")):
        result = tonnx.export(model, X, capture=way, dynamic_axes=AXES)
        assert kinds(result) == ["Relu", "Mul", "thinker::Quant", "Add"] and result.not_run
    written = torch.jit.trace(_Apply(lambda x: Written.apply(x, 0.1, 4)), X)
    assert proven(tonnx.export(written, X, dynamic_axes=AXES, opset_version=11))


@pytest.mark.filterwarnings("ignore")
def test_rules_serve_a_trace_too(symbolic: Any) -> None:
    traced = torch.jit.trace(Clip(), X)
    assert proven(tonnx.export(traced, X, custom_translation_table={OPS.clip: formula}, dynamic_axes=AXES))
    symbolic("tonnx_custom::clip", lambda g, x, limit, *rest: g.op("Mul", g.op("Tanh", g.op("Div", x, limit)), limit))
    assert proven(tonnx.export(traced, X, dynamic_axes=AXES))
