"""Quantisation, in all the forms that Paddle has written over the years."""

import numpy as np
import paddle

from tests.frontends.paddle.operators.table import floats, raw, static

X = floats(2, 3, 4)


def tensor(value):
    return paddle.assign(np.asarray(value, "float32"))


def both(x, scale, axis, bits=8):
    """Quantised and back, as a layer of `paddle.quantization` is saved."""
    numbers = (tensor(scale), tensor(np.zeros(np.shape(scale))), tensor([0.0]), tensor([0.0]))
    options = (axis, bits, -(1 << (bits - 1)), (1 << (bits - 1)) - 1, 0, True, False)
    whole = paddle._C_ops.quantize_linear(x, *numbers, *options)[0]
    return whole, paddle._C_ops.dequantize_linear(whole, *numbers, *options)[0]


for name, scale, axis, bits in (
    ("tensor", [1.3], -1, 8),
    ("channel_0", [1.3, 0.7], 0, 8),
    ("channel_1", [1.3, 0.7, 1.1], 1, 8),
    ("4_bits", [1.3], -1, 4),
    ("16_bits", [1.3], -1, 16),
):

    def dequantized(whole, back, scale=scale, axis=axis, bits=bits):
        """Paddle 3.3.1 runs dequantize_linear of PIR programs as if it were quantize_linear."""
        shape = [-1 if i == axis else 1 for i in range(3)] if axis >= 0 else [1]
        return whole, (whole * np.float32(scale).reshape(shape) / ((1 << (bits - 1)) - 1)).astype("float32")

    static(
        f"quant_{name}",
        lambda x, s=scale, a=axis, b=bits: both(x, s, a, b),
        X,
        dyn=() if axis == 0 else (0,),
        mend=dequantized,
    )
for tag, scale, axis, bits in (("", [1.3], -1, 8), ("_channel", [1.3, 0.7, 1.1], 1, 8), ("_4_bits", [1.3], -1, 4)):
    zeros = np.zeros(len(scale), "float32")
    raw(
        f"old_quantize_linear{tag}",
        "quantize_linear",
        {"X": X},
        {"Y": "float32"},
        {"quant_axis": axis, "bit_length": bits},
        weights={"Scale": np.float32(scale), "ZeroPoint": zeros},
    )
    raw(
        f"old_dequantize_linear{tag}",
        "dequantize_linear",
        {"X": np.arange(-12, 12).reshape(2, 3, 4).astype("float32")},
        {"Y": "float32"},
        {"quant_axis": axis, "bit_length": bits},
        weights={"Scale": np.float32(scale), "ZeroPoint": zeros},
    )
for form in ("fake_quantize", "fake_quantize_dequantize"):
    raw(
        f"old_{form}_abs_max", f"{form}_abs_max", {"X": X}, {"Out": "float32", "OutScale": "float32"}, {"bit_length": 8}
    )
    channel = form.replace("fake_", "fake_channel_wise_")
    raw(
        f"old_{channel}_abs_max",
        f"{channel}_abs_max",
        {"X": X},
        {"Out": "float32", "OutScale": "float32"},
        {"bit_length": 8, "quant_axis": 1},
    )
    raw(
        f"old_{form}_moving",
        f"{form}_moving_average_abs_max",
        {"X": X},
        {"Out": "float32"},
        {"bit_length": 8, "is_test": True},
        hidden=("OutScale",),
        weights={"InScale": np.float32([1.3])},
    )
    more = () if "dequantize" in form else (True,)
    static(form + "_abs_max", lambda x, f=form: getattr(paddle._C_ops, f + "_abs_max")(x, 8, 1), X)
    static(channel + "_1", lambda x, c=channel, m=more: getattr(paddle._C_ops, c + "_abs_max")(x, 8, 1, 1, *m), X)
    static(
        form + "_moving",
        lambda x, f=form: getattr(paddle._C_ops, f + "_moving_average_abs_max")(
            x, tensor([1.3]), None, None, 0.9, 8, True, 1
        )[0],
        X,
    )
raw(
    "old_fake_quantize_range",
    "fake_quantize_range_abs_max",
    {"X": X},
    {"Out": "float32"},
    {"bit_length": 8, "is_test": True, "window_size": 10},
    hidden=("OutScale",),
    weights={"InScale": np.float32([1.3])},
)
raw(
    "old_fake_dequantize_max_abs",
    "fake_dequantize_max_abs",
    {"X": np.float32(np.arange(-6, 6).reshape(3, 4))},
    {"Out": "float32"},
    {"max_range": 127.0},
    weights={"Scale": np.float32([1.3])},
)
raw(
    "old_fake_channel_wise_dequantize",
    "fake_channel_wise_dequantize_max_abs",
    {"X": np.float32(np.arange(-6, 6).reshape(3, 4))},
    {"Out": "float32"},
    {"quant_bits": [8], "quant_axis": 1},
    weights={"Scales": np.float32([1.3, 0.7, 0.9, 1.1])},
)
raw(
    "old_moving_average_scale",
    "moving_average_abs_max_scale",
    {"X": X},
    {"Out": "float32"},
    {"is_test": True},
    hidden=("OutScale",),
)
