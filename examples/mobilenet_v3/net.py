"""Paddle's own MobileNetV3-small, narrow, for ten digits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import paddle
from paddle.vision.models import mobilenet_v3_small

WEIGHTS = Path(__file__).with_name("weights.npz")


def mobilenet() -> paddle.nn.Layer:
    """The network with fresh weights."""
    return mobilenet_v3_small(scale=0.35, num_classes=10)


def trained_mobilenet() -> paddle.nn.Layer:
    """The network with the weights that `train.py` made, ready for inference."""
    model = mobilenet()
    with np.load(WEIGHTS) as stored:  # in half precision, for a small file
        model.set_state_dict({name: stored[name].astype(np.float32) for name in stored.files})
    model.eval()
    return model
