"""Boxes: their decoding, priors, suppression, and regions of interest."""

import numpy as np
import paddle
from paddle.vision import ops

from tests.frontends.paddle.operators.table import RANDOM, case, floats, ints, raw

# yolo_box

HEAD = floats(2, 14, 5, 4)
SIZE = np.int32([[80, 64], [61, 97]])
YOLO = {"anchors": [10, 13, 16, 30], "class_num": 2, "conf_thresh": 0.5, "downsample_ratio": 16}


def yolo(**options):
    return lambda x, y: ops.yolo_box(x, y, **{**YOLO, **options})


case("yolo_box", yolo(), HEAD, SIZE)
case("yolo_box_all_dynamic", yolo(), HEAD, SIZE, dyn={0: (0, 2, 3), 1: (0,)})
case("yolo_box_scale", yolo(scale_x_y=1.2, clip_bbox=False), HEAD, SIZE)
case("yolo_box_low", yolo(conf_thresh=0.01), HEAD, SIZE)
case("yolo_box_iou_aware", yolo(iou_aware=True, iou_aware_factor=0.4), floats(2, 16, 3, 3), SIZE)

# box_coder


def boxes(*lead: int, size: float = 1.0) -> np.ndarray:
    """Boxes with positive sides, at positions that differ."""
    corner = RANDOM.uniform(0, 0.7 * size, (*lead, 2))
    sides = RANDOM.uniform(0.1 * size, 0.5 * size, (*lead, 2))
    return np.concatenate([corner, corner + sides], -1).round(3).astype("float32")


PRIORS, VARIANCE = boxes(6), np.abs(floats(6, 4, lo=0.1, hi=0.3))
for normalized in (True, False):
    tag = "" if normalized else "_pixels"
    case(
        "box_encode" + tag,
        lambda x, y, z, n=normalized: ops.box_coder(x, y, z, "encode_center_size", n),
        PRIORS,
        VARIANCE,
        boxes(5),
    )
    case(
        "box_decode" + tag,
        lambda x, y, z, n=normalized: ops.box_coder(x, y, z, "decode_center_size", n),
        PRIORS,
        VARIANCE,
        floats(3, 6, 4),
        dyn={2: (0,)},
    )
case(
    "box_encode_list",
    lambda x, y: ops.box_coder(x, [0.1, 0.1, 0.2, 0.2], y, "encode_center_size"),
    PRIORS,
    boxes(5),
    dyn=(),
)
case(
    "box_decode_list",
    lambda x, y: ops.box_coder(x, [0.1, 0.1, 0.2, 0.2], y, "decode_center_size", axis=0),
    PRIORS,
    floats(3, 6, 4),
    dyn={0: (0,), 1: (0, 1)},
)
case(
    "box_decode_rows",
    lambda x, y, z: ops.box_coder(x, y, z, "decode_center_size", axis=1),
    PRIORS,
    VARIANCE,
    floats(6, 3, 4),
)
raw(
    "old_box_encode_plain",
    "box_coder",
    {"PriorBox": PRIORS, "TargetBox": boxes(4)},
    {"OutputBox": "float32"},
    {"code_type": "encode_center_size", "box_normalized": True},
)
raw(
    "old_box_decode_plain",
    "box_coder",
    {"PriorBox": PRIORS, "TargetBox": floats(3, 6, 4)},
    {"OutputBox": "float32"},
    {"code_type": "decode_center_size", "box_normalized": False, "axis": 0},
    dyn=(),
)

# Priors

FEATURE, PICTURE = floats(1, 3, 4, 5), floats(1, 3, 40, 45)


def prior(**options):
    return lambda x, y: ops.prior_box(x, y, **options)


case("prior_box", prior(min_sizes=[8.0, 16.0], clip=True, flip=True, aspect_ratios=[1.0, 2.0]), FEATURE, PICTURE)
case(
    "prior_box_max",
    prior(min_sizes=[8.0], max_sizes=[20.0], aspect_ratios=[1.0, 2.0, 0.5], steps=[9.0, 11.0], offset=0.3),
    FEATURE,
    PICTURE,
)
case(
    "prior_box_order",
    prior(
        min_sizes=[8.0, 10.0],
        max_sizes=[20.0, 25.0],
        aspect_ratios=[2.0, 3.0],
        flip=True,
        variance=[0.1, 0.1, 0.2, 0.3],
        min_max_aspect_ratios_order=True,
    ),
    FEATURE,
    PICTURE,
)
case(
    "prior_box_dynamic",
    prior(min_sizes=[8.0], max_sizes=[20.0], aspect_ratios=[2.0], flip=True, clip=True),
    FEATURE,
    PICTURE,
    dyn=(0, 2, 3),
)
for densities, clip in (([4, 2], True), ([3], False)):
    raw(
        f"old_density_prior_box_{len(densities)}",
        "density_prior_box",
        {"Input": FEATURE, "Image": PICTURE},
        {"Boxes": "float32", "Variances": "float32"},
        {
            "variances": [0.1, 0.1, 0.2, 0.2],
            "clip": clip,
            "step_w": 0.0,
            "step_h": 0.0,
            "offset": 0.5,
            "densities": densities,
            "fixed_sizes": [16.0, 32.0][: len(densities)],
            "fixed_ratios": [1.0, 2.0],
            "flatten_to_2d": not clip,
        },
    )
raw(
    "old_anchor_generator",
    "anchor_generator",
    {"Input": FEATURE},
    {"Anchors": "float32", "Variances": "float32"},
    {
        "anchor_sizes": [32.0, 64.0],
        "aspect_ratios": [0.5, 1.0, 2.0],
        "stride": [16.0, 12.0],
        "offset": 0.5,
        "variances": [0.1, 0.1, 0.2, 0.2],
    },
    dyn=(0, 2, 3),
)

# Small things about boxes

for normalized in (True, False):
    raw(
        f"old_iou_similarity_{int(normalized)}",
        "iou_similarity",
        {"X": boxes(4), "Y": boxes(3)},
        {"Out": "float32"},
        {"box_normalized": normalized},
    )
raw("old_polygon_box_transform", "polygon_box_transform", {"Input": floats(2, 8, 3, 4)}, {"Output": "float32"})
raw(
    "old_im2sequence",
    "im2sequence",
    {"X": floats(2, 3, 5, 6)},
    {"Out": "float32"},
    {"kernels": [2, 3], "strides": [1, 2], "paddings": [1, 0, 0, 1]},
)
raw(
    "old_im2sequence_ocr",
    "im2sequence",
    {"X": floats(1, 4, 1, 7)},
    {"Out": "float32"},
    {"kernels": [1, 1], "strides": [1, 1], "paddings": [0, 0, 0, 0]},
    dyn=(0, 3),
)

# Suppression


def clustered(count: int, size: float, batch: int = 2, classes: int = 0) -> np.ndarray:
    """Boxes that overlap a lot, so that there is something to suppress."""
    lead = (batch, count, classes) if classes else (batch, count)
    centres = RANDOM.choice([0.25, 0.4, 0.7], (*lead, 2)) + RANDOM.uniform(-0.03, 0.03, (*lead, 2))
    sides = RANDOM.uniform(0.2, 0.3, (*lead, 2))
    found = np.concatenate([centres - sides / 2, centres + sides / 2], -1)
    return (found * size).round(3).astype("float32")


def distinct(*shape: int) -> np.ndarray:
    """Scores of which no two are the same: their order has one answer."""
    values = (np.arange(np.prod(shape)) + 0.5) / np.prod(shape)
    return RANDOM.permutation(values).reshape(shape).round(4).astype("float32")


NMS = {
    "score_threshold": 0.2,
    "nms_top_k": 20,
    "keep_top_k": 10,
    "nms_threshold": 0.4,
    "normalized": True,
    "nms_eta": 1.0,
    "background_label": -1,
}
NMS_CASES = {
    "": {},
    "_background": {"background_label": 0},
    "_pixels": {"normalized": False, "nms_threshold": 0.5},
    "_top": {"nms_top_k": 4, "keep_top_k": 5},
    "_all": {"nms_top_k": -1, "keep_top_k": -1, "score_threshold": 0.01},
    "_nothing": {"score_threshold": 2.0},
    "_keep_1": {"keep_top_k": 1, "nms_threshold": 0.9},
}
for tag, options in NMS_CASES.items():
    settings = {**NMS, **options}
    size = 1.0 if settings["normalized"] else 50.0
    batch = 1 if tag == "_keep_1" else 2
    rects, scores = clustered(15, size, batch), distinct(batch, 3, 15)
    case(
        "nms3" + tag,
        lambda x, y, s=settings: paddle._C_ops.multiclass_nms3(x, y, None, *s.values()),
        rects,
        scores,
        dyn=(0, 1) if tag == "_all" else (0,) if tag else {0: (0, 1), 1: (0, 2)},
    )
    for version in ("", "2", "3"):
        outputs = {"Out": "float32"}
        if version:
            outputs["Index"] = "int32"
        if version == "3":
            outputs["NmsRoisNum"] = "int32"
        raw(
            f"old_nms{version}{tag}",
            f"multiclass_nms{version}",
            {"BBoxes": rects, "Scores": scores},
            outputs,
            settings,
        )
ROIS_NUM = np.int32([7, 8])
case(
    "nms3_classwise",
    lambda x, y, z: paddle._C_ops.multiclass_nms3(x, y, z, *NMS.values()),
    clustered(3, 1.0, 15).reshape(15, 3, 4),
    distinct(15, 3),
    ROIS_NUM,
)
raw(
    "old_nms3_classwise",
    "multiclass_nms3",
    {"BBoxes": clustered(3, 1.0, 15).reshape(15, 3, 4), "Scores": distinct(15, 3), "RoisNum": ROIS_NUM},
    {"Out": "float32", "Index": "int32", "NmsRoisNum": "int32"},
    NMS,
)
MATRIX = {"score_threshold": 0.1, "post_threshold": 0.15, "nms_top_k": 12, "keep_top_k": 8}
for tag, options in {
    "": {},
    "_gaussian": {"use_gaussian": True, "gaussian_sigma": 1.5},
    "_pixels": {"normalized": False, "background_label": -1, "keep_top_k": -1, "nms_top_k": -1},
    "_nothing": {"score_threshold": 2.0},
}.items():
    size = 50.0 if tag == "_pixels" else 1.0
    case(
        "matrix_nms" + tag,
        lambda x, y, o=options: ops.matrix_nms(x, y, **{**MATRIX, **o}, return_index=True),
        clustered(15, size),
        distinct(2, 3, 15),
    )
case("nms", lambda x: ops.nms(x, 0.3), clustered(12, 1.0, 1)[0])
case("nms_scores", lambda x, y: ops.nms(x, 0.3, y), clustered(12, 1.0, 1)[0], distinct(12))
case(
    "nms_categories",
    lambda x, y, z: ops.nms(x, 0.3, y, z, [0, 1, 2], 4),
    clustered(12, 1.0, 1)[0],
    distinct(12),
    ints(12, hi=3),
    dyn=(),
)

# Regions of interest

MAP, REGIONS, COUNTS = floats(2, 4, 8, 9), boxes(5, size=14.0), np.int32([2, 3])
for tag, options in {
    "": {},
    "_ratio": {"spatial_scale": 0.5, "sampling_ratio": 2},
    "_old": {"aligned": False, "sampling_ratio": 3},
    "_adaptive_old": {"aligned": False, "spatial_scale": 0.5},
}.items():
    case(
        "roi_align" + tag,
        lambda x, y, z, o=options: ops.roi_align(x, y, z, (3, 2), **o),
        MAP,
        REGIONS,
        COUNTS,
        dyn={0: (0, 2, 3), 1: (0,), 2: (0,)} if not tag else (0,),
    )
case("roi_align_one", lambda x, y, z: ops.roi_align(x, y, z, 2), MAP[:1], REGIONS, np.int32([5]), dyn={1: (0,)})
for tag, axes in (("", (0,)), ("_dynamic", {0: (0, 2, 3), 1: (0,), 2: (0,)})):
    case("roi_pool" + tag, lambda x, y, z: ops.roi_pool(x, y, z, (3, 2), 0.5), MAP, REGIONS, COUNTS, dyn=axes)
    maps = floats(2, 8, 8, 9)
    case("psroi_pool" + tag, lambda x, y, z: ops.psroi_pool(x, y, z, 2, 0.5), maps, REGIONS, COUNTS, dyn=axes)
    raw(
        "old_psroi_pool" + tag,
        "psroi_pool",
        {"X": maps, "ROIs": REGIONS, "RoisNum": COUNTS},
        {"Out": "float32"},
        {"output_channels": 2, "spatial_scale": 0.5, "pooled_height": 2, "pooled_width": 2},
        dyn=(0, 2, 3) if tag else (0,),
    )

# Deformable convolution

OFFSET, MASK = floats(2, 2 * 9, 5, 6, lo=-1.5, hi=1.5), floats(2, 9, 5, 6, lo=0, hi=1)
KERNEL = floats(6, 4, 3, 3, lo=-0.5, hi=0.5)


def deform(**options):
    def function(x, y, z=None):
        return ops.deform_conv2d(x, y, paddle.to_tensor(KERNEL), mask=z, padding=1, **options)

    return function


case("deform_conv", lambda x, y: deform()(x, y), floats(2, 4, 5, 6), OFFSET)
case(
    "deform_conv_mask",
    lambda x, y, z: deform(bias=paddle.to_tensor(KERNEL[:, 0, 0, 0]))(x, y, z),
    floats(2, 4, 5, 6),
    OFFSET,
    MASK,
)
raw(
    "old_deform_conv_v1",
    "deformable_conv_v1",
    {"Input": floats(2, 4, 5, 6), "Offset": OFFSET},
    {"Output": "float32"},
    {
        "strides": [1, 1],
        "paddings": [1, 1],
        "dilations": [1, 1],
        "groups": 1,
        "deformable_groups": 1,
        "im2col_step": 1,
    },
    weights={"Filter": KERNEL},
)
case(
    "deform_conv_groups",
    lambda x, y, z: ops.deform_conv2d(
        x,
        y,
        paddle.to_tensor(KERNEL[:, :2]),
        stride=2,
        padding=[1, 2],
        dilation=2,
        deformable_groups=2,
        groups=2,
        mask=z,
    ),
    floats(2, 4, 9, 8),
    floats(2, 36, 4, 4),
    floats(2, 18, 4, 4, lo=0, hi=1),
)
