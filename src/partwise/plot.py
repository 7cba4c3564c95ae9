"""Pictures of parts, codes and fits, with matplotlib."""

from partwise.view.plot import (
    choice,
    class_parts,
    clustergram,
    components,
    convergence,
    embedding,
    parameter_path,
    selection,
    top_terms,
)

__all__ = [
    "choice",
    "class_parts",
    "clustergram",
    "components",
    "convergence",
    "embedding",
    "parameter_path",
    "selection",
    "top_terms",
]
