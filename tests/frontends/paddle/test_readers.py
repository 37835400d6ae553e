"""The readers of Paddle's files against files that Paddle wrote (make_fixtures.py), and finding those files."""

from __future__ import annotations

import math
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

from tests.frontends.paddle import encode as e
from tests.frontends.paddle.harness import check, only, ops
from tests.frontends.paddle.stored import arrays_of_text
from tonnx.errors import InvalidArgument, InvalidModel
from tonnx.frontends.paddle.read import params
from tonnx.frontends.paddle.read.graph import Kind
from tonnx.frontends.paddle.read.load import load

FIXTURES = Path(__file__).parent / "fixtures"
F = ir.DataType.FLOAT

NETS = [
    # path, inputs with their shapes, number of outputs, number of parameters
    ("linear.json", {"x": (-1, 3)}, 1, 22),
    ("lenet.json", {"image": (-1, 1, 8, 8)}, 1, 10),
    ("lstm.json", {"x": (-1, 5, 3)}, 2, 8),
    ("control.json", {"x": (2, 3), "limit": (1,)}, 2, 0),
    ("array.json", {"x": (2, 3), "n": (1,)}, 1, 0),
    ("bf16.json", {"x": (2, 3)}, 1, 1),
    ("plain.json", {"x": (2, 2)}, 1, 0),
    ("old/linear.pdmodel", {"x": (-1, 3)}, 1, 22),
    ("old/lenet.pdmodel", {"image": (-1, 1, 8, 8)}, 1, 10),
    ("old/lstm.pdmodel", {"x": (-1, 5, 3)}, 2, 8),
    ("old/control.pdmodel", {"x": (2, 3), "limit": (1,)}, 3, 0),
    ("old/bf16.pdmodel", {"x": (2, 3)}, 1, 1),
    ("old/fp16.pdmodel", {"x": (2, 3)}, 1, 1),
    ("old/plain.pdmodel", {"x": (2, 2)}, 1, 0),
    ("old/separate", {"x": (-1, 4)}, 1, 2),
]


@pytest.mark.parametrize(("path", "inputs", "outputs", "weights"), NETS, ids=[net[0] for net in NETS])
def test_nets(path: str, inputs: dict[str, tuple[int, ...]], outputs: int, weights: int) -> None:
    loaded = load(FIXTURES / path)
    found = loaded.program
    check(found)
    assert {name: value.shape for name, value in found.inputs.items()} == inputs
    assert list(found.inputs.values()) == found.block.arguments
    assert list(found.outputs.values()) == found.block.results and len(found.outputs) == outputs
    assert len(loaded.params) == weights and set(found.parameters) == set(loaded.params) | set(found.unsaved)
    assert all(value.is_parameter for value in found.parameters.values())
    for op in found.walk():
        for value in (v for values in op.outputs.values() for v in values if v is not None):
            assert value.kind in (Kind.OTHER, Kind.LIST) or value.shape is not None, (op.place, value)
    for name, tensor in loaded.params.items():
        value = found.parameters[name]
        assert (value.dtype, value.shape) == (tensor.dtype, tuple(tensor.shape.numpy()))


VALUES = ["values_pir.json", "old/values_old.json", "old/values_v2.json"]


@pytest.mark.parametrize("path", VALUES)
def test_weights_are_paddle_s(path: str) -> None:
    nets: dict[str, dict[str, np.ndarray]] = {}
    for key, array in arrays_of_text((FIXTURES / path).read_text()).items():
        net, _, name = key.partition("/")
        nets.setdefault(net, {})[name] = array
    for net, arrays in nets.items():
        loaded = load((FIXTURES / path).parent / net)
        for name, wanted in arrays.items():
            got = loaded.params[name].numpy()
            assert got.shape == wanted.shape and got.tobytes() == wanted.tobytes(), (net, name)
    assert nets


def test_separate_weights_are_paddle_s() -> None:
    loaded = load(FIXTURES / "old/separate/__model__")
    for name, array in arrays_of_text((FIXTURES / "old/separate/values.json").read_text()).items():
        np.testing.assert_array_equal(loaded.params[name].numpy(), array)


@pytest.mark.parametrize(
    ("path", "dtype", "numpy"),
    [
        ("bf16", ir.DataType.BFLOAT16, ml_dtypes.bfloat16),
        ("old/bf16", ir.DataType.BFLOAT16, ml_dtypes.bfloat16),
        ("old/fp16", ir.DataType.FLOAT16, np.float16),
    ],
)
def test_half_weights(path: str, dtype: ir.DataType, numpy: Any) -> None:
    (tensor,) = load(FIXTURES / path).params.values()
    assert tensor.dtype == dtype and tensor.numpy().dtype == numpy
    assert np.isfinite(tensor.numpy().astype(np.float32)).all()  # also at an odd address


def test_weights_are_mapped_not_copied(tmp_path: Path) -> None:
    desc = e.tensor_desc(5, 64, 1024)
    array = np.arange(64 * 1024, dtype=np.float32)
    path = tmp_path / "w.pdiparams"
    path.write_bytes(e.record(desc, array.tobytes()) * 2)
    tensors = params.combined(path, ["b", "a"])
    assert list(tensors) == ["a", "b"]
    for tensor in tensors.values():
        got = tensor.numpy()
        assert not got.flags.owndata and not got.flags.writeable
        np.testing.assert_array_equal(got.reshape(-1), array)
    assert np.shares_memory(tensors["a"].numpy().base, tensors["b"].numpy().base)


def test_pir_attributes() -> None:
    net = load(FIXTURES / "linear.json").program.block
    assert [op.attributes["negative_slope"] for op in ops(net, "pd_op.leaky_relu")] == [pytest.approx(0.3)] * 11
    lenet = load(FIXTURES / "lenet.json").program.block
    conv = ops(lenet, "pd_op.conv2d")[0]
    assert conv.attributes["paddings"] == [1, 1] and conv.attributes["data_format"] == "NCHW"
    assert [None if v is None else v.name for v in conv.operands] == ["image", "conv2d_0.w_0"]
    full = ops(load(FIXTURES / "plain.json").program.block, "pd_op.full")
    assert full[0].attributes["value"] == -math.inf and math.isnan(full[1].attributes["value"])
    assert full[0].attributes["dtype"] == F
    combine = only(load(FIXTURES / "plain.json").program.block, "builtin.combine").results[0]
    assert combine is not None and [element.shape for element in combine.type.elements] == [(2, 2)] * 3


def test_old_attributes_slots_and_source() -> None:
    block = load(FIXTURES / "old/separate").program.block
    scale, leaky = only(block, "scale"), only(block, "leaky_relu")
    assert scale.attributes["scale"] == 2.0 and scale.attributes["bias_after_scale"] is True
    assert leaky.attributes["alpha"] == pytest.approx(0.3) and "op_role" not in leaky.attributes
    # The operator overwrote its own input.
    assert scale.outputs["Out"][0] is leaky.inputs["X"][0] is not scale.inputs["X"][0]
    assert [v.name for v in (*scale.inputs["X"], *scale.outputs["Out"]) if v] == ["fc_0.tmp_1", "fc_0.tmp_1@1"]
    norm = only(load(FIXTURES / "old/lenet").program.block, "batch_norm")
    mean, after = norm.inputs["Mean"][0], norm.outputs["MeanOut"][0]
    assert mean and after and mean.is_parameter and not after.is_parameter and after.name == mean.name + "@1"


def test_pir_control_flow() -> None:
    block = load(FIXTURES / "control.json").program.block
    loop = only(block, "pd_op.while")
    (body,) = loop.blocks
    assert len(loop.operands) == 3 and len(body.arguments) == 2 and len(body.results) == 3 and not loop.writes
    branch = only(body, "pd_op.if")
    assert [len(inner.results) for inner in branch.blocks] == [1, 1]
    assert body.results[2] is branch.results[0]
    used = {id(v) for op in branch.blocks[0].ops for v in op.operands}
    assert id(body.arguments[1]) in used and id(block.arguments[0]) in used  # captured from both blocks around


def test_pir_array_changed_in_place_by_a_loop() -> None:
    block = load(FIXTURES / "array.json").program.block
    first, loop, read = only(block, "pd_op.array_write_"), only(block, "pd_op.while"), only(block, "pd_op.array_read")
    (body,), (write,) = loop.blocks, loop.writes
    inner = only(body, "pd_op.array_write_")
    assert write.before is first.results[0] and write.after is read.operands[0]
    assert inner.operands[0] is body.arguments[-1] and inner.results[0] is body.results[-1]
    assert len(body.arguments) == 2 and len(body.results) == 3 and write.after.kind is Kind.ARRAY


def test_old_control_flow() -> None:
    found = load(FIXTURES / "old/control.pdmodel").program
    loop = only(found.block, "while")
    (body,) = loop.blocks
    assert [write.before.name for write in loop.writes if write.before] == [
        argument.name.partition("@")[0] for argument in body.arguments
    ]
    assert len(body.results) == 1 + len(loop.writes)
    condition = body.results[0]
    assert condition is not None and condition.dtype == ir.DataType.BOOL and condition in body.results[1:]
    branches = ops(body, "conditional_block")
    assert len(branches) == 2 and all(branch.attributes["is_scalar_condition"] for branch in branches)
    for branch in branches:
        assert [write.before for write in branch.writes] == [None] and len(branch.blocks[0].results) == 1
    select = only(body, "select_input")
    assert select.inputs["X"] == [branch.writes[0].after for branch in branches]
    outer, inner = only(found.block, "write_to_array"), only(body, "write_to_array")
    assert outer.inputs["Array"] == [None] and inner.inputs["Array"][0] in body.arguments
    assert [value.name.partition("@")[0] for value in found.outputs.values()][-1].startswith("array_read")


def test_unsaved_parameters() -> None:
    loaded = load(FIXTURES / "lstm")
    assert loaded.program.unsaved == {"lstm_0.dropout_state__non_persistable"}
    assert not loaded.program.unsaved & set(loaded.params)


def test_unsaved_parameter_that_was_saved(tmp_path: Path) -> None:
    path = tmp_path / "w"  # paddle.static.save_inference_model writes it, paddle.jit.save does not
    path.write_bytes(e.record(e.tensor_desc(20, 0)) + e.record(e.tensor_desc(5, 1), struct.pack("<f", 2)))
    tensors = params.combined(path, ["w", "d__non_persistable"], frozenset({"d__non_persistable"}))
    assert [(name, t.numpy().tolist()) for name, t in tensors.items()] == [("d__non_persistable", []), ("w", [2.0])]


# Finding the files


def test_ways_to_name_a_model(tmp_path: Path) -> None:
    for name in ("linear.json", "linear.pdiparams"):
        shutil.copy(FIXTURES / name, tmp_path)
    (tmp_path / "config.json").write_text('{"model": "linear"}')
    for path in (tmp_path, tmp_path / "linear", tmp_path / "linear.json", str(tmp_path)):
        assert len(load(path).params) == 22
    shutil.copy(FIXTURES / "old/linear.pdmodel", tmp_path / "m.bin")
    assert load(tmp_path / "m.bin", params=tmp_path / "linear.pdiparams").program.format == "pdmodel"
    (tmp_path / "old").mkdir()
    shutil.copy(FIXTURES / "old/linear.pdmodel", tmp_path / "old" / "__model__")
    shutil.copy(FIXTURES / "old/linear.pdiparams", tmp_path / "old" / "__params__")
    assert len(load(tmp_path / "old").params) == 22


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="no Paddle program"):
        load(tmp_path)
    with pytest.raises(InvalidArgument, match="does not exist"):
        load(tmp_path / "net")
    with pytest.raises(InvalidArgument, match=r"weights of a Paddle model(.|\n)*linear\.json"):
        load(FIXTURES / "linear.pdiparams")
    shutil.copy(FIXTURES / "linear.json", tmp_path)
    with pytest.raises(InvalidArgument, match=r"weights(.|\n)*linear\.pdiparams"):
        load(tmp_path)
    with pytest.raises(InvalidArgument, match="nowhere"):
        load(tmp_path, params=tmp_path / "nowhere")
    shutil.copy(FIXTURES / "old/linear.pdmodel", tmp_path)
    for path in (tmp_path, tmp_path / "linear"):
        with pytest.raises(InvalidArgument, match=r"several.*linear\.json, linear\.pdmodel"):
            load(path)


@pytest.mark.parametrize(
    ("content", "why"),
    [(b"", "empty"), (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS"), (b"  \n", "empty")],
)
def test_program_that_is_none(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "net.pdmodel"
    path.write_bytes(content)
    with pytest.raises(InvalidModel, match=why):
        load(path)


def test_weights_of_another_model(tmp_path: Path) -> None:
    with pytest.raises(InvalidModel, match="program says"):
        load(FIXTURES / "bf16.json", params=_weights(tmp_path, e.tensor_desc(22, 3, 2), 12))
    with pytest.raises(InvalidModel, match="after the 10 tensors"):
        load(FIXTURES / "lenet.json", params=FIXTURES / "linear.pdiparams")


def test_weights_decide_the_type(tmp_path: Path) -> None:
    loaded = load(FIXTURES / "bf16.json", params=_weights(tmp_path, e.tensor_desc(21, 2, 3), 6))
    assert [value.dtype for value in loaded.program.parameters.values()] == [ir.DataType.INT8]


def _weights(folder: Path, desc: bytes, size: int) -> Path:
    path = folder / "w.pdiparams"
    path.write_bytes(e.record(desc, bytes(size)))
    return path


def test_parameter_names_stay_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(e.record(e.tensor_desc(5, 1), bytes(4)))
    (tmp_path / "model").mkdir()
    for name in ("../secret", str(tmp_path / "secret"), "a\0b", "x" * 5000):
        with pytest.raises(InvalidModel, match="no file for it"):
            params.separate(tmp_path / "model", [name])


def test_neither_framework_is_imported() -> None:
    code = (
        "import sys; from tonnx.frontends.paddle.read.load import load; load(sys.argv[1]);"
        "print([m for m in ('torch', 'paddle', 'onnxruntime') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code, str(FIXTURES / "lenet")], capture_output=True, text=True)
    assert result.stdout.strip() == "[]", result.stderr
