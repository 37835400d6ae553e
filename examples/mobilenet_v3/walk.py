"""From a Paddle network to an ONNX file that is run and proven, in six steps.

    python examples/mobilenet_v3/walk.py

Writes to `out/` beside this file. Exits with 1 if the file computes something else or recognises less than Paddle.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import paddle
from paddle.static import InputSpec

import digits
import tonnx
from net import trained_mobilenet
from tonnx.cli import main as tonnx_command
from tonnx.run import read_recipe
from tonnx.run.before import prepare
from tonnx.run.pictures import open_picture

HERE = Path(__file__).parent
OUT = HERE / "out"
RECIPE = HERE / "recipe.yaml"
PICTURES = 20


def step(number: int, title: str) -> None:
    print(f"\n{number}. {title}", flush=True)


def save_static(model: paddle.nn.Layer, folder: Path) -> None:
    """A dynamic network as a static one, the form that deployment starts from."""
    spec = InputSpec([None, 3, digits.SIZE, digits.SIZE], "float32", "x")
    paddle.jit.save(model, str(folder / "inference"), input_spec=[spec])


def convert(folder: Path, target: Path) -> int:
    """The command that Paddle's users know, with its own flags."""
    program = next(path.name for path in folder.iterdir() if path.suffix in (".json", ".pdmodel"))
    return tonnx_command(
        [
            "paddle2onnx",
            f"--model_dir={folder}",
            f"--model_filename={program}",
            "--params_filename=inference.pdiparams",
            f"--save_file={target}",
            "--opset_version=10",
            "--enable_onnx_checker=True",
        ]
    )


def verdict(ort_out: np.ndarray, paddle_out: np.ndarray) -> bool:
    """The two verdicts and their figures, as Paddle's own guide prints them."""
    max_abs_diff = np.fabs(ort_out - paddle_out).max()
    good = bool(max_abs_diff < 1e-05)
    if good:
        print("The difference of results between ONNXRuntime and Paddle looks good!")
    else:
        relative_diff = max_abs_diff / np.fabs(paddle_out).max()
        good = bool(relative_diff < 1e-05)
        print(f"The difference of results between ONNXRuntime and Paddle looks {'good' if good else 'bad'}!")
        print("relative_diff: ", relative_diff)
    print("max_abs_diff: ", max_abs_diff)
    return good


def main() -> int:
    OUT.mkdir(exist_ok=True)
    step(1, "Pictures from the test set")
    pictures = digits.save_test_pictures(OUT / "pictures", PICTURES)
    print(f"{len(pictures)} pictures in {OUT.name}/pictures")

    step(2, "Paddle to ONNX")
    model = trained_mobilenet()
    save_static(model, OUT / "inference")
    file = OUT / "mobilenet_v3.onnx"
    if convert(OUT / "inference", file):
        return 1

    step(3, "Pre-processing: the recipe and the same by hand give the same")
    network = tonnx.load(file, recipe=RECIPE)
    inputs = np.stack([digits.prepare(np.asarray(open_picture(path))) for path, _ in pictures])
    recipe = read_recipe(RECIPE)
    declared = np.stack([prepare(open_picture(path), recipe).pixels() for path, _ in pictures])
    if not np.array_equal(inputs, declared):
        return 1
    print(f"{inputs.dtype} {inputs.shape}, from {inputs.min():.2f} to {inputs.max():.2f}")

    step(4, "Run it in ONNX Runtime")
    (ort_out,) = network(inputs).values()
    print(f"{ort_out.dtype} {ort_out.shape}")

    step(5, "Post-processing: the best three classes of each picture")
    right = 0
    for path, digit in pictures:
        answer = network.predict(path)
        right += answer.data["top_k"][0]["class"] == digit
        if path == pictures[0][0]:
            print(f"{path.name}, which is {digits.LABELS[digit]}:", *answer.lines, sep="\n  ")
    print(f"{right} of {len(pictures)} recognised")

    step(6, "Is it the same network?")
    with paddle.no_grad():
        paddle_out = model(paddle.to_tensor(inputs)).numpy()
    same = verdict(ort_out, paddle_out)
    by_paddle = int((paddle_out.argmax(1) == [digit for _, digit in pictures]).sum())
    return 0 if same and right >= by_paddle else 1


if __name__ == "__main__":
    sys.exit(main())
