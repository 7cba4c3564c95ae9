"""Functions for single-cell data that take and fill an AnnData."""

from partwise.apps.cells.annotated import (
    classify,
    consensus,
    factorize,
    integrate,
    project,
    score_markers,
    spatial_graph,
)

__all__ = [
    "classify",
    "consensus",
    "factorize",
    "integrate",
    "project",
    "score_markers",
    "spatial_graph",
]
