"""Writes tests/frontends/paddle/fixtures with the real PaddlePaddle; the tests themselves do not need it.

Run by `make fixtures`, with 3.3.1; with FIXTURE_KIND=v2 by 2.6.2, for what 3.3.1 cannot write in the old format any
more. The weights are drawn anew each time.

Each net is saved as a PIR program (``<name>.json``) and as an old one (``old/<name>.pdmodel``). The two formats
are chosen by a flag that Paddle reads when it is imported, so this script runs itself once for each.
``values*.json`` hold every parameter as Paddle itself sees it, float16 and bfloat16 as their bits.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from tests.frontends.paddle.stored import arrays_as_text

HERE = Path(__file__).resolve().parent


def nets() -> dict:
    import paddle
    from paddle import nn
    from paddle.static import InputSpec

    class Linear(nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            # Eleven layers: sorted() puts linear_10 before linear_2, and the weights file is in that order.
            self.layers = nn.LayerList([nn.Linear(3 + i, 4 + i) for i in range(11)])

        def forward(self, x):
            for layer in self.layers:
                x = nn.functional.leaky_relu(layer(x), 0.3)
            return x

    class LeNet(nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.features = nn.Sequential(
                nn.Conv2D(1, 2, 3, padding=1), nn.BatchNorm2D(2), nn.ReLU(), nn.MaxPool2D(2, 2),
                nn.Conv2D(2, 3, 3), nn.ReLU(), nn.AdaptiveAvgPool2D(2),
            )  # fmt: skip
            self.head = nn.Linear(12, 5)

        def forward(self, x):
            return nn.functional.softmax(self.head(paddle.flatten(self.features(x), 1)))

    class Recurrent(nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(3, 4, direction="bidirect")

        def forward(self, x):
            out, (h, _) = self.lstm(x)
            return out, h

    class Control(nn.Layer):
        """A loop around a branch; the branch writes one value, the loop three."""

        def forward(self, x, limit):
            i = paddle.zeros([1], "int64")
            total = x
            while i < limit:
                if paddle.mean(total) > 0:  # noqa: SIM108
                    total = total - x * 2.0
                else:
                    total = total + x
                i = i + 1
            return total, i

    class Array(nn.Layer):
        """The loop changes an array that it does not carry: PIR's array_write_ works in place."""

        def forward(self, x, n):
            i = paddle.zeros([1], "int64")
            array = paddle.tensor.create_array("float32")
            paddle.tensor.array_write(x, i, array)
            while i < n:
                i = i + 1
                paddle.tensor.array_write(x * 2, i, array)
            return paddle.tensor.array_read(array, i)

    class Half(nn.Layer):
        def __init__(self, dtype: str) -> None:
            super().__init__()
            self.w = self.create_parameter([2, 3], dtype=dtype)

        def forward(self, x):
            return x * self.w

    class Plain(nn.Layer):
        """No parameters: Paddle writes no weights file. Infinities have an encoding of their own."""

        def forward(self, x):
            return paddle.concat([x, paddle.full([2, 2], float("-inf")), paddle.full([2, 2], float("nan"))])

    paddle.seed(7)
    f = "float32"
    made = {
        "linear": (Linear(), [InputSpec([None, 3], f, "x")]),
        "lenet": (LeNet(), [InputSpec([None, 1, 8, 8], f, "image")]),
        "lstm": (Recurrent(), [InputSpec([None, 5, 3], f, "x")]),
        "control": (Control(), [InputSpec([2, 3], f, "x"), InputSpec([1], "int64", "limit")]),
        "array": (Array(), [InputSpec([2, 3], f, "x"), InputSpec([1], "int64", "n")]),
        "bf16": (Half("bfloat16"), [InputSpec([2, 3], "bfloat16", "x")]),
        "fp16": (Half("float16"), [InputSpec([2, 3], "float16", "x")]),
        "plain": (Plain(), [InputSpec([2, 2], f, "x")]),
    }
    for net, _ in made.values():
        net.eval()
    return made


ONLY = {"old": ("linear", "lenet", "bf16", "fp16", "plain"), "v2": ("lstm",)}


def write(folder: Path, kind: str) -> None:
    import paddle

    values = {}
    for name, (net, spec) in nets().items():
        if name not in ONLY.get(kind, (name,)):
            continue
        try:
            paddle.jit.save(net, str(folder / name), input_spec=spec)
        except Exception as error:  # Paddle 3 no longer traces every operator into the old format
            print(f"{name}: not saved ({kind}): {type(error).__name__} {str(error)[:200]}")
            continue
        (folder / f"{name}.pdiparams.info").unlink(missing_ok=True)  # a pickle, of names that nothing needs
        for parameter in net.state_dict().values():
            array = parameter.numpy()
            values[f"{name}/{parameter.name}"] = array.view(np.uint16) if array.dtype.itemsize == 2 else array
    (folder / f"values_{kind}.json").write_text(arrays_as_text(values))


def write_static(folder: Path) -> None:
    """Old programs made of raw operators: what jit.save cannot trace any more, and one file per parameter."""
    import paddle

    paddle.enable_static()
    exe = paddle.static.Executor(paddle.CPUPlace())
    main, startup = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, startup):
        feeds, fetches = control()
    for block in main.blocks:
        for op in block.ops:
            op._remove_attr("op_callstack")  # ten times the size of the rest
    paddle.static.save_inference_model(str(folder / "control"), feeds, fetches, exe, program=main)

    main, startup = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, startup):
        x = paddle.static.data("x", [-1, 4], "float32")
        h = paddle.static.nn.fc(x, 3)
        # An operator that overwrites its own input: old programs are not in SSA form.
        scale = {"scale": 2.0, "bias": 1.0}
        main.global_block().append_op(type="scale", inputs={"X": [h]}, outputs={"Out": [h]}, attrs=scale)
        out = raw("leaky_relu", {"X": [h]}, [-1, 3], attrs={"alpha": 0.3})
    exe.run(startup)
    paddle.static.save_inference_model(str(folder / "inplace"), [x], [out], exe, program=main)
    separate = folder / "separate"
    separate.mkdir(exist_ok=True)
    (folder / "inplace.pdmodel").rename(separate / "__model__")
    (folder / "inplace.pdiparams").unlink()
    parameters = main.all_parameters()
    paddle.static.io.save_vars(exe, str(separate), main, vars=parameters)
    values = {v.name: np.array(paddle.static.global_scope().var(v.name).get_tensor()) for v in parameters}
    (separate / "values.json").write_text(arrays_as_text(values))


def raw(kind: str, inputs: dict, shape: list[int], dtype: str = "float32", attrs: dict | None = None):
    """One operator of the old form, and its output."""
    import paddle

    block = paddle.static.default_main_program().current_block()
    out = block.create_var(name=paddle.utils.unique_name.generate(kind), dtype=dtype, shape=shape)
    block.append_op(type=kind, inputs=inputs, outputs={"Out": [out]}, attrs=attrs or {})
    return out


def control() -> tuple[list, list]:
    """A loop with a branch in it, an array that both the program and the loop write to, and a counter."""
    import paddle
    from paddle.static.nn.control_flow import ConditionalBlock

    x = paddle.static.data("x", [2, 3], "float32")
    limit = paddle.static.data("limit", [1], "int64")
    i = paddle.zeros([1], "int64")
    array = paddle.tensor.create_array("float32")
    paddle.tensor.array_write(x, i, array)

    def more(i, total):
        return raw("less_than", {"X": [i], "Y": [limit]}, [1], "bool")

    def body(i, total):
        mean = raw("reduce_sum", {"X": [total]}, [], attrs={"dim": [0], "reduce_all": True})
        positive = raw("greater_than", {"X": [mean], "Y": [paddle.full([], 0.0)]}, [], "bool")
        negative = raw("logical_not", {"X": [positive]}, [], "bool")
        parts = []
        for condition, kind in ((negative, "elementwise_add"), (positive, "elementwise_sub")):
            block = paddle.static.default_main_program().current_block()
            parts.append(block.create_var(name=f"branch_{kind}", dtype="float32", shape=[2, 3]))
            with ConditionalBlock([condition], is_scalar_condition=True).block():
                paddle.assign(raw(kind, {"X": [total], "Y": [x]}, [2, 3]), parts[-1])
        mask = raw("cast", {"X": [positive]}, [], "int32", {"in_dtype": 0, "out_dtype": 2})
        total = raw("select_input", {"X": parts, "Mask": [mask]}, [2, 3])
        i = paddle.increment(i)
        paddle.tensor.array_write(total, i, array)
        return i, total

    i, total = paddle.static.nn.while_loop(more, body, [i, paddle.assign(x)])
    return [x, limit], [total, i, paddle.tensor.array_read(array, i)]


def forget_places(folder: Path) -> None:
    """Old programs carry the call stack of every operator: absolute paths, replaced by others of the same length."""
    places = {str(Path(p).resolve()) for p in (sys.prefix, sys.base_prefix, os.getcwd())}
    for file in (f for f in folder.rglob("*") if f.is_file()):
        data = file.read_bytes()
        for place in sorted(places, key=len, reverse=True):
            data = data.replace(place.encode(), b"/" + b"x" * (len(place.encode()) - 1))
        file.write_bytes(data)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--to", type=Path, default=HERE / "fixtures")
    folder = parser.parse_args().to
    kind = os.environ.get("FIXTURE_KIND")
    if kind is None:
        for child, pir in (("pir", "1"), ("old", "0"), ("static", "0")):
            env = {**os.environ, "FIXTURE_KIND": child, "FLAGS_enable_pir_api": pir}
            subprocess.run([sys.executable, __file__, "--to", str(folder)], env=env, check=True)
        return
    target = folder if kind == "pir" else folder / "old"
    target.mkdir(parents=True, exist_ok=True)
    if kind == "static":
        write_static(target)
    else:
        write(target, kind)
    forget_places(target)


if __name__ == "__main__":
    main()
