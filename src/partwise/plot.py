"""Pictures of parts, codes and fits, with matplotlib."""

from partwise.apps.view.plot import (
    choice,
    class_parts,
    clustergram,
    components,
    convergence,
    embedding,
    gene_heatmap,
    parameter_path,
    part_intervals,
    parts_in_place,
    selection,
    stability_and_error,
    top_terms,
)

__all__ = [
    "choice",
    "class_parts",
    "clustergram",
    "components",
    "convergence",
    "embedding",
    "gene_heatmap",
    "parameter_path",
    "part_intervals",
    "parts_in_place",
    "selection",
    "stability_and_error",
    "top_terms",
]
