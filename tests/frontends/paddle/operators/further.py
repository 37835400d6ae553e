"""Linear algebra, decoding, losses, and what is rarely met."""

import numpy as np
import paddle
import paddle.nn.functional as F

from tests.frontends.paddle.operators.table import RANDOM, case, floats, given, ints, one, positive, raw, static, weight

X, Y = floats(2, 3, 4), floats(2, 3, 4)

# Linear algebra


def regular(*shape: int) -> np.ndarray:
    """Matrices that have an inverse."""
    return (floats(*shape, lo=-1, hi=1) + 3 * np.eye(shape[-1])[RANDOM.permutation(shape[-1])]).astype("float32")


def definite(*shape: int) -> np.ndarray:
    a = floats(*shape, lo=-1, hi=1)
    return (a @ a.swapaxes(-1, -2) + 2 * np.eye(shape[-1])).round(3).astype("float32")


case("inverse", lambda x: paddle.inverse(x), regular(2, 4, 4))
case("inverse_1", lambda x: paddle.inverse(x), regular(3, 3), dyn=())
case("inverse_4d", lambda x: paddle.inverse(x), regular(2, 3, 3, 3))
case("inverse_dynamic", lambda x: paddle.inverse(x), regular(2, 5, 5), dyn=(0, 1, 2))
case("solve", lambda x, y: paddle.linalg.solve(x, y), regular(2, 4, 4), floats(2, 4, 3))
case("solve_vector", lambda x, y: paddle.linalg.solve(x, y), regular(4, 4), floats(4), dyn=())
case("solve_vectors", lambda x, y: paddle.linalg.solve(x, y), regular(2, 4, 4), floats(2, 4), dyn=())
case("solve_broadcast", lambda x, y: paddle.linalg.solve(x, y), regular(4, 4), floats(2, 4, 3), dyn={1: (0,)})
for upper in (True, False):
    case(
        f"triangular_solve_{int(upper)}",
        lambda x, y, u=upper: paddle.linalg.triangular_solve(x, y, upper=u, transpose=not u, unitriangular=u),
        regular(2, 4, 4) + np.float32(3) * np.eye(4, dtype="float32"),
        floats(2, 4, 2),
    )
    case(f"cholesky_{int(upper)}", lambda x, u=upper: paddle.linalg.cholesky(x, u), definite(2, 4, 4))
    case(
        f"cholesky_solve_{int(upper)}",
        lambda x, y, u=upper: paddle.linalg.cholesky_solve(x, y, u),
        floats(3, 2),
        np.float32([[2, 0.5, 1], [0.5, 3, 0.2], [1, 0.2, 1.5]]),
        dyn=(),
    )
case("det", lambda x: paddle.linalg.det(x), regular(2, 4, 4))
case("slogdet", lambda x: paddle.linalg.slogdet(x), regular(2, 4, 4))
for power in (0, 1, 5, -2):
    case(f"matrix_power_{power}".replace("-", "m"), given(paddle.linalg.matrix_power, power), regular(2, 3, 3), dyn=())
case("bilinear", lambda x, y: F.bilinear(x, y, weight(5, 3, 4), weight(1, 5)), floats(2, 3), floats(2, 4))
case("linear_nobias", lambda x: F.linear(x, weight(4, 5)), X)
case("multi_dot", lambda x, y: paddle.linalg.multi_dot([x, y, x]), floats(3, 4), floats(4, 3), dyn=())
for equation, shapes in {
    "bij,bjk->bik": ((2, 3, 4), (2, 4, 5)),
    "i,j->ij": ((3,), (4,)),
    "...ij->...ji": ((2, 3, 4),),
    "bhqd,bhkd->bhqk": ((2, 2, 3, 4), (2, 2, 5, 4)),
    "ii->i": ((3, 3),),
    "ij->": ((3, 4),),
}.items():
    name = "einsum_" + equation.replace(",", "_").replace("->", "_to_").replace(".", "d")
    if len(shapes) == 1:
        case(name, lambda x, e=equation: paddle.einsum(e, x), floats(*shapes[0]), dyn=())
    else:
        case(name, lambda x, y, e=equation: paddle.einsum(e, x, y), *(floats(*s) for s in shapes), dyn=())

# Decoding

for tag, options in (("", True), ("_plain", False)):
    for kind, lengths in (("", [5, 2, 4]), ("_one", [1, 1, 1])):
        case(
            f"viterbi{tag}{kind}",
            lambda x, y, z, o=options: paddle.text.viterbi_decode(x, y, z, o),
            floats(3, 5, 6),
            floats(6, 6),
            np.int64(lengths),
            dyn={0: (0, 1), 2: (0,)},
        )
raw(
    "old_crf_decoding",
    "crf_decoding",
    {"Emission": floats(3, 5, 4), "Transition": floats(6, 4), "Length": np.int64([5, 1, 3])},
    {"ViterbiPath": "int64"},
    dyn=(),
)
for merge in (True, False):
    raw(
        f"old_ctc_align_{int(merge)}",
        "ctc_align",
        {"Input": np.int32([[0, 1, 1, 0, 2, 2, 1], [3, 3, 0, 3, 1, 0, 2]]), "InputLength": np.int32([[7], [5]])},
        {"Output": "int32", "OutputLength": "int32"},
        {"blank": 0, "merge_repeated": merge, "padding_value": -1},
    )
case("gather_tree", lambda x, y: F.gather_tree(x, y), ints(4, 2, 3, hi=9), ints(4, 2, 3, hi=3), dyn=())

# Special functions

for name in ("lgamma", "digamma", "erfinv", "i0", "i0e", "i1", "i1e", "gammaln"):
    if hasattr(paddle, name):
        lo, hi = (-0.9, 0.9) if name == "erfinv" else (0.1, 4.0)
        case(name, one(getattr(paddle, name)), floats(2, 5, lo=lo, hi=hi))
for order in (0, 1, 2, 3):
    case(f"polygamma_{order}", given(paddle.polygamma, order), positive(2, 5))
case("rint", lambda x: paddle.round(x * 2), X)
case("isclose_far", lambda x, y: paddle.isclose(x, y, 0.1, 0.05), X, (X * np.float32(1.08)))
case("allclose_same", lambda x, y: paddle.allclose(x, y), X, X)
case("nansum", lambda x: paddle.nansum(x, 1), np.where(X > 1, np.float32("nan"), X))
case("nanmean", lambda x: paddle.nanmean(x, 1), np.where(X > 1, np.float32("nan"), X))
case("nanmedian", lambda x: paddle.nanmedian(x, 1), np.where(X > 1, np.float32("nan"), X))
case("nanmedian_all", lambda x: paddle.nanmedian(x, keepdim=True), np.where(X > 1, np.float32("nan"), X))
case("renorm", lambda x: paddle.renorm(x, 2.0, 1, 1.5), X)
case("var_axes", lambda x: paddle.var(x, [1, 2]), X)
case("std_biased", lambda x: paddle.std(x, 1, unbiased=False, keepdim=True), X)
case("histogram", lambda x: paddle.histogram(x, 4, -1, 1), floats(2, 9), dyn=())
case("unique_consecutive", lambda x: paddle.unique_consecutive(x, True, True), np.array([1, 1, 2, 2, 2, 3, 1]), dyn=())
case("unique_axis", lambda x: paddle.unique(x, axis=0), np.array([[2, 1], [1, 1], [2, 1]]), dyn=())
for order in (0.0, 1.0, 2.0, 3.0, float("inf"), float("-inf")):
    case(f"p_norm_{order}".replace(".0", "").replace("-", "m"), given(paddle.norm, order, 1), X)
case("p_norm_all", lambda x: paddle.norm(x, 3.0), X)
case("p_norm_axes", lambda x: paddle.norm(x, "fro", [1, 2], True), X)
for kind in ("sum", "mean", "max", "min"):
    case(
        f"segment_{kind}",
        lambda x, y, k=kind: getattr(paddle.incubate, f"segment_{k}")(x, y),
        floats(5, 3),
        np.array([0, 0, 1, 3, 3]),
    )

# Norms

case("rms_norm_2", lambda x: paddle.incubate.nn.functional.fused_rms_norm(x, weight(4), None, 1e-6, 2)[0], X)
SPECTRAL = floats(4, 3, 2, 2)
raw(
    "old_spectral_norm",
    "spectral_norm",
    {"Weight": SPECTRAL, "U": floats(4), "V": floats(12)},
    {"Out": "float32"},
    {"dim": 0, "power_iters": 2, "eps": 1e-12},
    dyn=(),
)
case(
    "spectral_norm",
    lambda x, y, z: paddle._C_ops.spectral_norm(x, y, z, 1, 2, 1e-12),
    SPECTRAL,
    floats(3),
    floats(16),
    dyn=(),
)
raw(
    "old_data_norm",
    "data_norm",
    {"X": floats(3, 4)},
    {"Y": "float32"},
    {"epsilon": 1e-4},
    hidden=("Means", "Scales"),
    weights={"BatchSize": positive(4) * 10, "BatchSum": floats(4), "BatchSquareSum": positive(4) * 9},
)
raw(
    "old_norm",
    "norm",
    {"X": X},
    {"Out": "float32"},
    {"axis": 1, "epsilon": 1e-10},
    hidden=("Norm",),
)

# Losses

LOGITS, LABEL = floats(3, 5), np.array([[1], [4], [0]])
case("cross_entropy", lambda x, y: F.cross_entropy(x, y, reduction="none"), LOGITS, LABEL)
case("cross_entropy_mean", lambda x, y: F.cross_entropy(x, y, ignore_index=4), LOGITS, LABEL)
case("cross_entropy_soft", lambda x, y: F.cross_entropy(x, y, soft_label=True), LOGITS, positive(3, 5))
case("softmax_ce", lambda x, y: F.softmax_with_cross_entropy(x, y, return_softmax=True), LOGITS, LABEL)
case("bce", lambda x, y: F.binary_cross_entropy(x, y), floats(3, 4, lo=0.1, hi=0.9), ints(3, 4, hi=2).astype("float32"))
case("bce_logits", lambda x, y: F.binary_cross_entropy_with_logits(x, y), LOGITS, ints(3, 5, hi=2).astype("float32"))
case("nll", lambda x, y: F.nll_loss(x, y), LOGITS, LABEL[:, 0])
case("smooth_l1", lambda x, y: F.smooth_l1_loss(x, y, delta=0.7), X, Y)
case("kl_div", lambda x, y: F.kl_div(x, y, "batchmean"), X, positive(2, 3, 4), dyn=())
case("log_loss", lambda x, y: F.log_loss(x, y), floats(3, 1, lo=0.1, hi=0.9), ints(3, 1, hi=2).astype("float32"))
case("hinge", lambda x, y: F.hinge_embedding_loss(x, y), X, np.sign(Y))
case("mse", lambda x, y: F.mse_loss(x, y), X, Y)

# Parts and windows


def pieces(name, *parts):
    if hasattr(paddle._C_ops, name):
        return getattr(paddle._C_ops, name)(list(parts), 1, 2)
    return getattr(paddle.incubate.layers.nn, name)(list(parts), 1, 2)


static("partial_concat", lambda x, y: pieces("partial_concat", x, y), floats(2, 4), floats(2, 4))
static("partial_sum", lambda x, y: pieces("partial_sum", x, y), floats(2, 4), floats(2, 4))
for version in ("concat", "sum"):
    raw(
        f"old_partial_{version}",
        f"partial_{version}",
        {"X": [floats(2, 4), floats(2, 4)]},
        {"Out": "float32"},
        {"start_index": 1, "length": 2},
    )
case("frame", lambda x: paddle.signal.frame(x, 3, 2), floats(2, 9), dyn=(0, 1))
case("frame_first", lambda x: paddle.signal.frame(x, 3, 2, axis=0), floats(9, 2), dyn=())
case("lp_pool", lambda x: F.lp_pool2d(x, 2.0, 2, 2) if hasattr(F, "lp_pool2d") else x, positive(2, 3, 4, 6))
static("print", lambda x: paddle.static.Print(x, message="here"), X)

# Sizes that are known only at run time

case("flip_dynamic", lambda x: paddle.flip(x, [0, 2]), X, dyn=(0, 1, 2))
case("roll_dynamic", lambda x: paddle.roll(x, [1, -1], [0, 2]), X, dyn=(0, 1, 2))
case("roll_flat_dynamic", lambda x: paddle.roll(x, 5), X, dyn=(0, 1, 2))
IMAGE = floats(2, 4, 7, 6)
for rank, size in ((1, 5), (2, (3, 4)), (3, (2, 3, 2))):
    shape = (2, 3, 7, 6, 5)[: rank + 2]
    axes = tuple(range(len(shape)))
    for kind in ("avg", "max"):
        function = getattr(F, f"adaptive_{kind}_pool{rank}d")
        case(f"adaptive_{kind}_{rank}d_dynamic", given(function, size), floats(*shape), dyn=axes)
case("adaptive_nhwc_dynamic", lambda x: F.adaptive_avg_pool2d(x, (3, 4), "NHWC"), IMAGE, dyn=(0, 1, 2))
case("adaptive_max_index", lambda x: F.adaptive_max_pool2d(x, (3, 4), return_mask=True), IMAGE)
for rank in (1, 2, 3):
    shape = (2, 4, 5, 6, 5)[: rank + 2]
    layout = ("NCL", "NCHW", "NCDHW")[rank - 1]
    case(
        f"pad_circular_{rank}d_dynamic",
        given(F.pad, [1, 2] * rank, "circular", data_format=layout),
        floats(*shape),
        dyn=tuple(range(len(shape))),
    )
    last = ("NLC", "NHWC", "NDHWC")[rank - 1]
    case(f"pad_reflect_{last}", given(F.pad, [1, 2] * rank, "reflect", data_format=last), floats(*shape))
    case(f"group_norm_{rank}d", lambda x: F.group_norm(x, 2), floats(*shape), dyn=tuple(range(len(shape))))
for shape, layout in (((2, 4, 5), "NCHW"), ((2, 4, 3, 2, 3), "NCHW"), ((2, 5, 6, 4), "NHWC")):
    raw(
        f"old_group_norm_{len(shape)}{layout}",
        "group_norm",
        {"X": floats(*shape)},
        {"Y": "float32"},
        {"groups": 2, "epsilon": 1e-4, "data_layout": layout},
        hidden=("Mean", "Variance"),
        weights={"Scale": positive(4), "Bias": floats(4)},
    )
case("group_norm_2", lambda x: F.group_norm(x, 2, 1e-4, weight(4), weight(4)), floats(3, 4))
case("group_norm_nhwc_dynamic", lambda x: F.group_norm(x, 2, data_format="NHWC"), floats(2, 5, 6, 4), dyn=(0, 1, 2))
for stride in (1, 2):
    for dilation in (1, 2):
        case(
            f"same_s{stride}_d{dilation}_dynamic",
            lambda x, s=stride, d=dilation: F.conv2d(x, weight(6, 4, 3, 3), None, s, "SAME", d),
            IMAGE,
            dyn=(0, 2, 3),
        )
case("conv_t_same", lambda x: F.conv2d_transpose(x, weight(4, 6, 3, 3), None, 2, "SAME"), IMAGE)
case(
    "conv_t_nhwc",
    lambda x: F.conv2d_transpose(x, weight(4, 6, 3, 3), None, 2, 1, data_format="NHWC"),
    floats(2, 5, 6, 4),
)
case("conv3d_ndhwc", lambda x: F.conv3d(x, weight(2, 3, 2, 2, 2), None, data_format="NDHWC"), floats(1, 4, 4, 4, 3))
case("interp_nhwc", lambda x: F.interpolate(x, [5, 9], mode="bilinear", data_format="NHWC"), floats(2, 4, 6, 3))
case("instance_norm_3d", lambda x: F.instance_norm(x), floats(2, 3, 4, 3, 4))
case("bn_ndhwc", lambda x: F.batch_norm(x, weight(3), positive_t(3), data_format="NDHWC"), floats(2, 4, 3, 4, 3))
case("maxpool3d_ndhwc", lambda x: F.max_pool3d(x, 2, data_format="NDHWC"), floats(2, 4, 4, 4, 3))
case("pixel_shuffle_nhwc", lambda x: F.pixel_shuffle(x, 2, "NHWC"), floats(2, 3, 3, 8))
case("prelu_nhwc", lambda x: F.prelu(x, weight(4), "NHWC"), floats(2, 3, 3, 4))


def positive_t(*shape):
    return paddle.abs(weight(*shape)) + 0.5


# Indexing

case("idx_two", lambda x, y: x[y, y], floats(4, 4, 2), np.array([2, 0, 3]), dyn=())
case("idx_middle", lambda x, y: x[:, y], floats(2, 4, 3), np.array([2, 0]), dyn=())
case("idx_mixed", lambda x, y: x[y, :, y], floats(4, 2, 4), np.array([2, 0]), dyn=())
case("idx_matrix", lambda x, y: x[y], floats(4, 3), np.array([[2, 0], [1, 1]]), dyn=())
case("idx_mask_2", lambda x, y: x[y], floats(3, 2, 4), RANDOM.integers(0, 2, (3, 2)).astype(bool), dyn=())


def put_rows(x, y):
    x = x + 0
    x[y] = 5.0
    return x


def put_tensor(x, y, z):
    x = x + 0
    x[:, y] = z
    return x


def put_mask(x):
    x = x + 0
    x[x > 0.5] = -1.0
    return x


def put_step(x):
    x = x + 0
    x[::2, 1:, -1] = 0.0
    return x


def put_column(x):
    x = x + 0
    x[..., 0] = x[..., 1]
    return x


def put_backwards(x, y):
    x = x + 0
    x[:, ::-1] = y
    return x


case("put_rows", put_rows, floats(4, 3), np.array([2, 0]), dyn=())
case("put_tensor", put_tensor, floats(2, 4, 3), np.array([2, 0]), floats(2, 2, 3), dyn=())
case("put_mask", put_mask, X)
case("put_step", put_step, X)
case("put_column", put_column, X)
case("put_backwards", put_backwards, floats(2, 4), floats(2, 4))
case(
    "index_put_add",
    lambda x, y, z: paddle.index_put(x, [y], z, True),
    floats(4, 3),
    np.array([2, 2]),
    floats(2, 3),
    dyn=(),
)
case("masked_fill_t", lambda x, y, z: paddle.masked_fill(x, y, z), X, X > 0, np.float32(3.5), dyn=())
case("masked_scatter", lambda x, y: paddle.where(y, x * 2, x), X, Y > 0)
case("index_fill", lambda x, y: paddle.index_fill(x, y, 1, 7.0), X, np.array([2, 0]), dyn=())
static(
    "fill_diagonal_tensor",
    lambda x, y: paddle._C_ops.fill_diagonal_tensor(x, y, 0, 0, 1),
    floats(3, 4),
    floats(3),
    dyn=(),
)
case("repeat_interleave_flat", lambda x: paddle.repeat_interleave(x, 2), X)
case("sslice_dynamic", lambda x: paddle.strided_slice(x, [0, 2], [-1, 0], [-10, 9], [-2, 3]), X, dyn=(0, 1, 2))

# Spectra, and complex numbers on the way

SIGNAL = floats(2, 12, lo=-0.4, hi=0.4)
for norm in ("backward", "ortho", "forward"):
    case(f"rfft_{norm}", lambda x, n=norm: paddle.as_real(paddle.fft.rfft(x, norm=n)), SIGNAL)
    case(f"irfft_{norm}", lambda x, n=norm: paddle.fft.irfft(paddle.fft.rfft(x, norm=n) * 2, norm=n), SIGNAL)
case("rfft_n", lambda x: paddle.as_real(paddle.fft.rfft(x, 7)), SIGNAL)
case("irfft_odd", lambda x: paddle.fft.irfft(paddle.fft.rfft(x), 11), SIGNAL)
case("rfft2", lambda x: paddle.abs(paddle.fft.rfft2(x)), floats(2, 5, 6))
case("irfft2", lambda x: paddle.fft.irfft2(paddle.fft.rfft2(x)), floats(2, 5, 6))
case("fft", lambda x: paddle.as_real(paddle.fft.fft(x)), SIGNAL)
case("ifft", lambda x: paddle.real(paddle.fft.ifft(paddle.as_complex(x))), floats(2, 8, 2))
case("fft2", lambda x: paddle.imag(paddle.fft.fft2(x)), floats(2, 5, 6, lo=-0.3, hi=0.3))
case("hfft", lambda x: paddle.fft.hfft(paddle.as_complex(x)), floats(2, 5, 2))
case("ihfft", lambda x: paddle.as_real(paddle.fft.ihfft(x)), SIGNAL)
case("stft", lambda x: paddle.abs(paddle.signal.stft(x, 8, 4, window=None)), floats(2, 30))
case("spectrogram", lambda x: paddle.signal.stft(x, 8, 4, center=False).abs().pow(2), floats(2, 30))
case("complex", lambda x, y: paddle.as_real(paddle.complex(x, y) * paddle.complex(y, x)), X, Y)
case("complex_parts", lambda x: paddle.angle(paddle.conj(paddle.as_complex(x))), floats(2, 3, 2))
case("mask_softmax", lambda x, y: paddle.incubate.softmax_mask_fuse(x, y), floats(2, 2, 4, 4), floats(2, 1, 4, 4))
case("sdpa", lambda x, y: F.scaled_dot_product_attention(x, y, y), floats(2, 5, 2, 8), floats(2, 5, 2, 8))
case("sdpa_causal", lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True), floats(2, 5, 2, 8))
case("swiglu_pair", lambda x, y: paddle.incubate.nn.functional.swiglu(x, y), X, Y)
