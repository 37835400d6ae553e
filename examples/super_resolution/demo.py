"""Export the super-resolution network, prove the file, and enlarge a cat with it.

    python examples/super_resolution/demo.py

Writes `out/super_resolution.onnx` and `out/side_by_side.png` beside this file.
Exits with 1 if the network is no better than bicubic enlargement.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import onnxruntime
from PIL import Image, ImageDraw, ImageFont

import photos
import tonnx
from net import example_input, trained_net

OUT = Path(__file__).with_name("out")
CAPTION_HEIGHT = 24


def export(path: Path) -> None:
    """PyTorch to ONNX at opset 18, with a dynamic batch, height and width; tonnx checks it at other sizes."""
    result = tonnx.export(
        trained_net(),
        (example_input(),),
        path,
        input_names=["input"],
        output_names=["output"],
        dynamic_axes={
            "input": {0: "batch_size", 2: "height", 3: "width"},
            "output": {0: "batch_size", 2: "height_out", 3: "width_out"},
        },
        opset_version=18,
    )
    print(result)


def super_resolve(luma: Image.Image, model: Path) -> Image.Image:
    """The luma, enlarged by the exported network in ONNX Runtime."""
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    (output,) = session.run(["output"], {"input": photos.to_unit(luma)})
    return photos.from_unit(output)


def coloured(luma: Image.Image, low: Image.Image) -> Image.Image:
    """An enlarged luma with the bicubic chroma of the small picture: the eye sees detail in luma."""
    _, cb, cr = low.convert("YCbCr").split()
    return Image.merge("YCbCr", (luma, photos.enlarge(cb), photos.enlarge(cr))).convert("RGB")


def side_by_side(pictures: dict[str, Image.Image]) -> Image.Image:
    """The pictures in a row, each under its caption."""
    width, height = next(iter(pictures.values())).size
    sheet = Image.new("RGB", (width * len(pictures), height + CAPTION_HEIGHT), "white")
    draw = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(size=14)
    for column, (caption, picture) in enumerate(pictures.items()):
        draw.text((column * width + 6, 4), caption, fill="black", font=font)
        sheet.paste(picture, (column * width, CAPTION_HEIGHT))
    return sheet


def main() -> int:
    OUT.mkdir(exist_ok=True)
    model = OUT / "super_resolution.onnx"
    export(model)

    truth = photos.open_photo(photos.TEST_PHOTO)
    low = photos.shrink(truth)
    bicubic = photos.enlarge(photos.luma(low))
    network = super_resolve(photos.luma(low), model)

    # Judged as luma, before the conversion to 8-bit RGB, whose rounding would cost either of them 0.1 dB.
    bicubic_db = photos.psnr(bicubic, photos.luma(truth))
    network_db = photos.psnr(network, photos.luma(truth))

    picture = OUT / "side_by_side.png"
    captioned = {
        f"bicubic  {bicubic_db:.2f} dB": coloured(bicubic, low),
        f"network  {network_db:.2f} dB": coloured(network, low),
    }
    side_by_side(captioned).save(picture)

    print(f"bicubic  {bicubic_db:.2f} dB")
    print(f"network  {network_db:.2f} dB  ({network_db - bicubic_db:+.2f} dB)")
    print(f"wrote {os.path.relpath(picture)}")
    return 0 if network_db > bicubic_db else 1


if __name__ == "__main__":
    sys.exit(main())
