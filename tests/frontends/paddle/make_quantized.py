"""Writes fixtures/quantized_*.tar.xz: a small network as Paddle's own tools quantise and save it.

Run by `make fixtures`: by 3.3.1 for PIR programs, by 2.6.2 for old ones.

What a layer of `paddle.quantization` gives is computed eagerly: Paddle 3.3.1 runs dequantize_linear of PIR programs as
if it were quantize_linear. What the static tools make is computed by the executor.
"""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import numpy as np
import paddle
from paddle.quantization import PTQ, QuantConfig
from paddle.quantization.observers import AbsmaxObserver
from paddle.static import InputSpec

from tests.frontends.paddle.make_operators import KIND, folder_asked_for, keep, pack, without_stacks

DATA = np.random.default_rng(1).uniform(-2, 2, (8, 3, 6, 6)).round(2).astype("float32")


def network() -> paddle.nn.Layer:
    paddle.seed(3)
    layers = (paddle.nn.Conv2D(3, 8, 3, padding=1), paddle.nn.ReLU(), paddle.nn.Flatten(), paddle.nn.Linear(288, 5))
    made = paddle.nn.Sequential(*layers)
    made.eval()
    return made


def by_layers(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """`paddle.quantization`; PIR programs of it have a fixed batch."""
    observer = AbsmaxObserver(quant_bits=8)
    tool = PTQ(QuantConfig(activation=observer, weight=observer))
    watched = tool.quantize(network())
    watched(paddle.to_tensor(DATA))
    done = tool.convert(watched)
    done.eval()
    x = DATA[:2]
    y = done(paddle.to_tensor(x)).numpy()
    paddle.jit.save(done, str(folder / "by_layers"), input_spec=[InputSpec([2, 3, 6, 6], "float32", "in0")])
    return x, y


def by_passes(folder: Path, name: str, weights: str, new_form: bool) -> tuple[np.ndarray, np.ndarray]:
    """`paddle.static.quantization`, with quantize_linear or with the older fake_quantize."""
    from paddle.static.quantization import PostTrainingQuantization

    class Data(paddle.io.Dataset):
        def __len__(self) -> int:
            return len(DATA)

        def __getitem__(self, i: int) -> np.ndarray:
            return DATA[i]

    paddle.jit.save(network(), str(folder / "plain"), input_spec=[InputSpec([None, 3, 6, 6], "float32", "in0")])
    files = {"model_filename": f"{name}.pdmodel", "params_filename": f"{name}.pdiparams"}
    paddle.enable_static()
    run = paddle.static.Executor(paddle.CPUPlace())
    given = paddle.static.data("in0", [None, 3, 6, 6], "float32")
    place = paddle.CPUPlace()
    tool = PostTrainingQuantization(
        executor=run,
        data_loader=paddle.io.DataLoader(Data(), feed_list=[given], places=place, batch_size=4, return_list=False),
        model_dir=str(folder),
        model_filename="plain.pdmodel",
        params_filename="plain.pdiparams",
        algo="abs_max",
        quantizable_op_type=["conv2d", "mul", "matmul_v2"],
        weight_quantize_type=weights,
        onnx_format=new_form,
    )
    tool.quantize()
    tool.save_quantized_model(str(folder), **files)
    program, feeds, fetches = paddle.static.load_inference_model(str(folder), run, **files)
    x = DATA[:2]
    (y,) = run.run(program, feed={feeds[0]: x}, fetch_list=fetches)
    paddle.disable_static()
    return x, y


def main() -> None:
    target, cases, arrays = folder_asked_for(), {}, {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        made = {"by_layers": by_layers(folder)}
        if KIND == "old":
            for weights, new_form in itertools.product(("abs_max", "channel_wise_abs_max"), (True, False)):
                name = f"by_passes_{weights}_{'linear' if new_form else 'fake'}"
                made[name] = by_passes(folder, name, weights, new_form)
        for name, (x, y) in made.items():
            cases[name] = {"inputs": [keep(x, arrays)], "outputs": [keep(np.asarray(y), arrays)]}
            if KIND == "old":
                without_stacks(folder / f"{name}.pdmodel")
        pack(folder, cases, arrays, target / f"quantized_{KIND}")


if __name__ == "__main__":
    main()
