"""The proof that a file computes what a model computes. Knows arrays and ONNX, no framework."""

from tonnx.verify.compare import Comparison, Tolerance, compare, default_tolerance
from tonnx.verify.inputs import other_sizes, resize
from tonnx.verify.proof import OutputSummary, Trial, Verification, prove
from tonnx.verify.session import Session, check_model

__all__ = [
    "Comparison",
    "OutputSummary",
    "Session",
    "Tolerance",
    "Trial",
    "Verification",
    "check_model",
    "compare",
    "default_tolerance",
    "other_sizes",
    "prove",
    "resize",
]
