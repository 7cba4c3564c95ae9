"""Functions for single-cell data that read an AnnData object and add results to it."""

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
