"""Public metrics: agreement of clusters with classes, and properties of parts."""

from partwise.evaluation.held_out import HeldOut, hold_out
from partwise.evaluation.metrics import (
    adjusted_rand,
    clustering_accuracy,
    labelled_accuracy,
    normalized_mutual_info,
    purity,
    sparseness,
)

__all__ = [
    "HeldOut",
    "adjusted_rand",
    "clustering_accuracy",
    "hold_out",
    "labelled_accuracy",
    "normalized_mutual_info",
    "purity",
    "sparseness",
]
