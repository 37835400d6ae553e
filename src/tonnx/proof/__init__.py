"""The proof that a file computes what a model computes. Knows arrays and ONNX, no framework."""

from tonnx.proof.compare import Comparison, Tolerance, compare, default_tolerance
from tonnx.proof.session import Session, check_model
from tonnx.proof.trials.inputs import other_sizes, resize
from tonnx.proof.trials.prove import prove
from tonnx.proof.trials.verification import OutputSummary, Trial, Verification

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
