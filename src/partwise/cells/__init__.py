"""Counts of cells: functions that take and fill an AnnData."""

from __future__ import annotations

from typing import TYPE_CHECKING

from partwise._lazy import lazy

if TYPE_CHECKING:
    from partwise.cells.annotated import (
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

__getattr__, __dir__ = lazy(__name__, dict.fromkeys(__all__, "partwise.cells.annotated"))
