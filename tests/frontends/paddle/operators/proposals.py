"""Proposals of two-stage detectors."""

import numpy as np
import paddle
from paddle.vision import ops

from tests.frontends.paddle.operators.detection import boxes, distinct
from tests.frontends.paddle.operators.table import case, floats, raw

IMAGE = np.float32([[60, 70], [50, 64]])
for tag, options in {
    "": {},
    "_offset": {"pixel_offset": True},
    "_few": {"pre_nms_top_n": 9, "post_nms_top_n": 4, "min_size": 3.0},
}.items():
    anchors = boxes(4, 5, 3, size=40.0)
    case(
        "generate_proposals" + tag,
        lambda x, y, z, u, v, o=options: ops.generate_proposals(
            x, y, z, u, v, return_rois_num=True, nms_thresh=0.6, **{"min_size": 1.0, **o}
        ),
        distinct(2, 3, 4, 5),
        floats(2, 12, 4, 5, lo=-0.6, hi=0.6),
        IMAGE,
        anchors,
        np.abs(floats(4, 5, 3, 4, lo=0.5, hi=1.0)),
        dyn={0: (0,), 1: (0,), 2: (0,)},
    )
raw(
    "old_generate_proposals",
    "generate_proposals",
    {
        "Scores": distinct(2, 3, 4, 5),
        "BboxDeltas": floats(2, 12, 4, 5, lo=-0.6, hi=0.6),
        "ImInfo": np.float32([[60, 70, 2.0], [50, 64, 1.5]]),
        "Anchors": boxes(4, 5, 3, size=40.0),
        "Variances": np.abs(floats(4, 5, 3, 4, lo=0.5, hi=1.0)),
    },
    {"RpnRois": "float32", "RpnRoiProbs": "float32", "RpnRoisNum": "int32"},
    {"pre_nms_topN": 30, "post_nms_topN": 8, "nms_thresh": 0.6, "min_size": 4.0, "eta": 1.0},
    dyn=(),
)
LEVELS = np.concatenate([boxes(4, size=30.0), boxes(4, size=400.0), boxes(3, size=100.0)]).astype("float32")
case(
    "distribute_offset",
    lambda x, y: ops.distribute_fpn_proposals(x, 2, 5, 4, 224, pixel_offset=True, rois_num=y),
    LEVELS,
    np.int32([4, 7]),
)
case(
    "distribute_num",
    lambda x, y: ops.distribute_fpn_proposals(x, 2, 4, 3, 100, rois_num=y),
    LEVELS,
    np.int32([6, 5]),
)
FIRST, SECOND = distinct(5, 1) * np.float32(0.9), distinct(6, 1)
LOW, HIGH = boxes(5, size=30.0), boxes(6, size=90.0)
case(
    "collect",
    lambda x, y, z, u: paddle._C_ops.collect_fpn_proposals(
        [x, y], [z, u], [paddle.to_tensor(np.int32([2, 3])), paddle.to_tensor(np.int32([4, 2]))], 7
    ),
    LOW,
    HIGH,
    FIRST,
    SECOND,
)
raw(
    "old_collect",
    "collect_fpn_proposals",
    {
        "MultiLevelRois": [LOW, HIGH],
        "MultiLevelScores": [FIRST, SECOND],
        "MultiLevelRoIsNum": [np.int32([2, 3]), np.int32([4, 2])],
    },
    {"FpnRois": "float32", "RoisNum": "int32"},
    {"post_nms_topN": 7},
)
