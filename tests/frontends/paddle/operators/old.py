"""Operators by the names and attributes of the first versions of Paddle, which no layer of today makes any more."""

import numpy as np

from tests.frontends.paddle.operators.table import floats, ints, positive, raw

X, IMAGE = floats(2, 3, 4), floats(2, 4, 5, 6)
OUT = {"Out": "float32"}
# More outputs that the operator has to have.
SHAPE, MASK = ("XShape",), ("Mask",)


def one(name: str, type: str, x: np.ndarray, attributes: dict | None = None, **options) -> None:
    raw(f"old_{name}", type, {"X": x}, OUT, attributes, **options)


# Interpolation of before 2.0: sizes as attributes, one scale for all axes, corners aligned by default.

for form in ("nearest", "bilinear"):
    for name, attributes in {
        "size": {"out_h": 7, "out_w": 9, "align_corners": False, "align_mode": 1},
        "corners": {"out_h": 7, "out_w": 9, "align_corners": True, "align_mode": 1},
        "scale": {"scale": 2.0, "out_h": -1, "out_w": -1, "align_corners": False, "align_mode": 0},
        "mode_1": {"scale": 2.0, "out_h": -1, "out_w": -1, "align_corners": False, "align_mode": 1},
    }.items():
        one(f"{form}_interp_{name}", f"{form}_interp", IMAGE, {"interp_method": form, **attributes})
    raw(
        f"old_{form}_interp_tensor",
        f"{form}_interp",
        {"X": IMAGE},
        OUT,
        {"interp_method": form, "align_corners": False, "align_mode": 0},
        weights={"OutSize": np.int32([8, 3])},
    )
for form, shape in (("linear", (2, 3, 5)), ("trilinear", (2, 2, 3, 4, 3)), ("bicubic", (2, 3, 4, 5))):
    size = {"out_d": 5, "out_h": 6, "out_w": 7}
    one(f"{form}_interp", f"{form}_interp", floats(*shape), {"interp_method": form, "align_corners": True, **size})

# Padding

one("pad", "pad", X, {"paddings": [0, 1, 2, 0, 1, 1], "pad_value": 1.5})

# Products

raw("old_matmul", "matmul", {"X": X, "Y": floats(2, 5, 4)}, OUT, {"transpose_Y": True, "alpha": 0.5})
raw("old_matmul_x", "matmul", {"X": floats(2, 4, 3), "Y": floats(2, 4, 5)}, OUT, {"transpose_X": True})
raw("old_mul", "mul", {"X": X}, OUT, {"x_num_col_dims": 2}, weights={"Y": floats(4, 5)})
raw("old_mul_flat", "mul", {"X": X}, OUT, {"x_num_col_dims": 1}, weights={"Y": floats(12, 5)})
for axis, shape in ((1, (3,)), (0, (2, 3)), (-1, (4,)), (1, (3, 4))):
    for form in ("add", "sub", "mul", "div", "max", "min", "pow"):
        if form in ("add", "div") or axis == 1 == len(shape):
            given = {"X": positive(2, 3, 4), "Y": positive(*shape)}
            raw(
                f"old_{form}_{axis}_{len(shape)}".replace("-", "m"),
                f"elementwise_{form}",
                given,
                OUT,
                {"axis": axis},
                dyn=(),
            )
raw("old_sum", "sum", {"X": [X, X + 1, X * 2]}, OUT)
one("mean", "mean", X)
one("scale", "scale", X, {"scale": 1.5, "bias": -0.5, "bias_after_scale": True})
one("pow", "pow", positive(2, 3), {"factor": 2.5})
one("clip", "clip", X, {"min": -0.5, "max": 0.7})
one("increment", "increment", np.float32([2.0]), {"step": 3.0}, dyn=())

# Activations with the attributes that they had

for form, attributes in {
    "brelu": {"t_min": -0.5, "t_max": 1.0},
    "hard_sigmoid": {"slope": 0.3, "offset": 0.4},
    "hard_swish": {"threshold": 6.0, "scale": 6.0, "offset": 3.0},
    "hard_shrink": {"threshold": 0.7},
    "softshrink": {"lambda": 0.4},
    "leaky_relu": {"alpha": 0.3},
    "elu": {"alpha": 0.6},
    "relu6": {"threshold": 1.1},
    "swish": {"beta": 1.7},
    "soft_relu": {"threshold": 1.0},
    "stanh": {"scale_a": 0.6, "scale_b": 1.2},
    "thresholded_relu": {"threshold": 0.4},
    "softplus": {"beta": 2.0, "threshold": 1.0},
    "logsigmoid": {},
    "tanh_shrink": {},
    "gelu": {"approximate": False},
    "maxout": None,
}.items():
    if attributes is None:
        one("maxout", "maxout", IMAGE, {"groups": 2, "axis": 1})
    else:
        one(form, form, X * 2, attributes)
for mode, shape in (("all", (1,)), ("channel", (3,)), ("element", (1, 3, 4))):
    raw(f"old_prelu_{mode}", "prelu", {"X": X}, OUT, {"mode": mode}, weights={"Alpha": positive(*shape)})
raw("old_softmax", "softmax", {"X": X}, OUT, {"axis": 1})
one("dropout", "dropout", X, {"dropout_prob": 0.3, "is_test": True}, hidden=MASK)
upscaled = {"dropout_prob": 0.3, "is_test": True, "dropout_implementation": "upscale_in_train"}
one("dropout_up", "dropout", X, upscaled, hidden=MASK)
one("lrn", "lrn", IMAGE, {"n": 3, "k": 1.5, "alpha": 0.1, "beta": 0.6}, hidden=("MidOut",))
raw("old_affine_channel", "affine_channel", {"X": IMAGE}, OUT, {"data_layout": "NCHW"},
    weights={"Scale": positive(4), "Bias": floats(4)})  # fmt: skip
raw("old_label_smooth", "label_smooth", {"X": positive(2, 5)}, OUT, {"epsilon": 0.1})

# Reductions

for form in ("sum", "mean", "max", "min", "prod"):
    one(f"reduce_{form}", f"reduce_{form}", X, {"dim": [1], "keep_dim": True})
    one(f"reduce_{form}_all", f"reduce_{form}", X, {"dim": [0], "reduce_all": True})
raw("old_arg_max", "arg_max", {"X": X}, {"Out": "int64"}, {"axis": 1, "dtype": 3, "keepdims": False})
raw("old_arg_min", "arg_min", {"X": X}, {"Out": "int32"}, {"axis": -1, "dtype": 2, "keepdims": True})
one("top_k", "top_k", floats(3, 6), {"k": 2}, hidden=("Indices",))

# Shapes

one("reshape", "reshape", X, {"shape": [0, -1]})
one("transpose", "transpose", X, {"axis": [1, 0, 2]})
one("flatten2", "flatten2", X, {"axis": 1}, hidden=SHAPE)
one("expand", "expand", X, {"expand_times": [1, 2, 1]})
raw("old_split", "split", {"X": X}, {"Out": ("float32", 2)}, {"axis": 2, "num": 2})
raw("old_split_sections", "split", {"X": X}, {"Out": ("float32", 3)}, {"axis": 2, "sections": [1, 2, 1]})
raw("old_concat", "concat", {"X": [X, X]}, OUT, {"axis": 1})
raw("old_stack", "stack", {"X": [X, X]}, {"Y": "float32"}, {"axis": 1})
raw("old_slice", "slice", {"Input": X}, OUT, {"axes": [1, 2], "starts": [1, -3], "ends": [3, -1], "decrease_axis": []})
raw("old_shape", "shape", {"Input": X}, {"Out": "int32"})
one("shuffle_channel", "shuffle_channel", IMAGE, {"group": 2})
one("reverse", "reverse", X, {"axis": [1, 2]})
one("crop", "crop", X, {"offsets": [0, 1, 1], "shape": [2, 2, 2]}, dyn=())

# Index

raw("old_lookup_table", "lookup_table", {"Ids": ints(3, 4, 1)}, OUT, {"padding_idx": 2}, weights={"W": floats(5, 6)})
raw("old_gather", "gather", {"X": floats(5, 3), "Index": ints(4, 1, t="int32")}, OUT, dyn=())

# Made from nothing

raw("old_fill_like", "fill_any_like", {"X": X}, OUT, {"value": 2.5, "dtype": 5})
raw("old_zeros_like", "fill_zeros_like", {"X": X}, OUT)
like = {"shape": [-1, 3], "value": 1.5, "dtype": 5, "input_dim_idx": 0, "output_dim_idx": 0}
raw("old_fill_batch", "fill_constant_batch_size_like", {"Input": X}, OUT, like)
raw("old_cast", "cast", {"X": X * 3}, {"Out": "int32"}, {"in_dtype": 5, "out_dtype": 2})

# Windows

window = {"ksize": [3, 2], "strides": [2, 1], "paddings": [1, 0], "global_pooling": False}
for form in ("max", "avg"):
    one(f"pool2d_{form}", "pool2d", IMAGE, {**window, "pooling_type": form})
    one(f"pool2d_{form}_ceil", "pool2d", IMAGE, {**window, "pooling_type": form, "ceil_mode": True})
    one(f"pool2d_{form}_all", "pool2d", IMAGE, {**window, "pooling_type": form, "global_pooling": True})
one("pool2d_adaptive", "pool2d", IMAGE, {**window, "pooling_type": "avg", "adaptive": True})
one("pool2d_counted", "pool2d", IMAGE, {**window, "pooling_type": "avg", "exclusive": False})
conv = {"strides": [2, 1], "paddings": [1, 2], "dilations": [1, 1], "groups": 2}
raw("old_conv2d", "conv2d", {"Input": IMAGE}, {"Output": "float32"}, conv, weights={"Filter": floats(6, 2, 3, 3)})
raw("old_conv2d_transpose", "conv2d_transpose", {"Input": IMAGE}, {"Output": "float32"}, conv,
    weights={"Filter": floats(4, 3, 3, 3)})  # fmt: skip
raw("old_depthwise", "depthwise_conv2d", {"Input": IMAGE}, {"Output": "float32"}, {**conv, "groups": 4},
    weights={"Filter": floats(4, 1, 3, 3)})  # fmt: skip
raw("old_instance_norm", "instance_norm", {"X": IMAGE}, {"Y": "float32"}, {"epsilon": 1e-5},
    hidden=("SavedMean", "SavedVariance"), weights={"Scale": positive(4), "Bias": floats(4)})  # fmt: skip
