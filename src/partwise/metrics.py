"""Scores: of clusters against classes, and of the parts themselves."""

from partwise.evaluation.metrics import (
    adjusted_rand,
    clustering_accuracy,
    normalized_mutual_info,
    purity,
    sparseness,
)

__all__ = [
    "adjusted_rand",
    "clustering_accuracy",
    "normalized_mutual_info",
    "purity",
    "sparseness",
]
